"""Measuring the network between two nodes of a run: reach, round trip, and bytes per second.

A node answers on a port that the system chooses, as Ray and the sums of gradients do, so what
reaches one reaches the others unless a firewall tells ports apart. Both ends show each other that
they know the run's secret, which itself is never sent: nobody else can use the port, and a machine
of another network that happens to have the same address is found out.

A conversation: the asker sends 32 random bytes; the answerer sends 32 of its own and a proof that
it is the node meant; the asker sends its proof; then come some round trips of one byte, and what
fits into `LIMIT_S`, at most `SIZE` bytes, to the answerer, which says how fast it was, and back.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from burst.cost.network import Link

log = logging.getLogger(__name__)

SIZE = 8 << 20  # bytes in each direction
PIECE = 64 << 10
LIMIT_S = 1.0  # how long one direction may take
QUIET_S = 3.0  # without an answer for so long, there is none
ROUNDS = 7
NONCE = 32
TURN_S = 30.0  # how long others may be measured to the same node before
MOST_GUESTS = 32  # at the same time
ALL, ONLY_REACH = b".", b"!"  # what is asked for
NUMBER = struct.Struct("!d")


class _StrangerError(Exception):
    """The other end does not know the run's secret, or is not the node meant."""


def proof(secret: bytes, role: str, node_id: str, nonce: bytes) -> bytes:
    """Return what shows that one knows the secret; of no use for another role, node or nonce."""
    return hmac.digest(secret, f"burst probe {role} {node_id} ".encode() + nonce, "sha256")


@dataclass(slots=True)
class Answerer:
    """Answers those who measure the network to this node, in threads of its own."""

    node_id: str
    ip: str
    secret: bytes = field(repr=False)
    address: str = ""
    _socket: socket.socket | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)  # each is measured alone
    _guests: threading.Semaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MOST_GUESTS)
    )

    def start(self) -> None:
        """Listen; OSError if that cannot be."""
        self._socket = socket.create_server((self.ip, 0))
        self.address = f"{self.ip}:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, name="burst-probe", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)  # or a thread in `accept` takes one more
            self._socket.close()

    def _serve(self) -> None:
        assert self._socket is not None
        while True:
            try:
                guest, _ = self._socket.accept()
            except OSError:  # closed
                return
            if self._guests.acquire(blocking=False):
                threading.Thread(target=self._answer, args=(guest,), daemon=True).start()
            else:
                guest.close()

    def _answer(self, guest: socket.socket) -> None:
        with guest:
            try:
                self._converse(guest)
            except (OSError, _StrangerError) as error:
                log.warning("a measurement of the network ended early: %s", error)
            finally:
                self._guests.release()

    def _converse(self, guest: socket.socket) -> None:
        guest.settimeout(QUIET_S)
        guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = _read(guest, NONCE)
        nonce = secrets.token_bytes(NONCE)
        guest.sendall(nonce + proof(self.secret, "answer", self.node_id, asked))
        if not hmac.compare_digest(
            _read(guest, NONCE), proof(self.secret, "ask", self.node_id, nonce)
        ):
            raise _StrangerError("somebody without the run's secret asked")
        if (first := _read(guest, 1)) == ONLY_REACH:
            guest.sendall(first)
            return
        with self._turn:
            guest.sendall(first)
            for _ in range(ROUNDS):
                guest.sendall(_read(guest, 1))
            guest.sendall(NUMBER.pack(_rate(guest)))
            _pour(guest, until_heard=False)
            _see_off(guest)


def measure(
    address: str, node_id: str, secret: bytes, *, what: bytes = ALL, quiet_s: float = QUIET_S
) -> Link:
    """Measure the network to a node that answers at `ip:port`; a Link with an error if it fails.

    With `ONLY_REACH` nothing but a round trip is measured.
    """
    ip, _, port = address.rpartition(":")
    try:
        with socket.create_connection((ip, int(port)), timeout=quiet_s) as peer:
            return _ask(peer, node_id, secret, what)
    except TimeoutError:
        why = f"no answer within {quiet_s:g} s"
    except (OSError, _StrangerError) as error:
        why = str(error)
    return Link(error=f"do not reach each other: {node_id} at {ip} on port {port}: {why}")


def _ask(peer: socket.socket, node_id: str, secret: bytes, what: bytes) -> Link:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asked = secrets.token_bytes(NONCE)
    peer.sendall(asked)
    nonce, shown = _read(peer, NONCE), _read(peer, NONCE)
    if not hmac.compare_digest(shown, proof(secret, "answer", node_id, asked)):
        raise _StrangerError("another machine answers there")
    peer.sendall(proof(secret, "ask", node_id, nonce))
    quiet_s = peer.gettimeout()
    peer.settimeout(TURN_S)
    first_s = _round_trip_s(peer, what)
    peer.settimeout(quiet_s)
    if what == ONLY_REACH:
        return Link(round_trip_s=first_s)
    trips = [_round_trip_s(peer) for _ in range(ROUNDS)]
    _pour(peer, until_heard=True)
    (there,) = NUMBER.unpack(_read(peer, NUMBER.size))
    return Link(round_trip_s=min(trips), bytes_per_s=min(there, _rate(peer)))


def _round_trip_s(peer: socket.socket, what: bytes = ALL) -> float:
    began = time.monotonic()
    peer.sendall(what)
    _read(peer, 1)
    return time.monotonic() - began


def _pour(peer: socket.socket, *, until_heard: bool) -> None:
    """Send `SIZE` bytes, or fewer if the other end has enough: it says so, or goes away."""
    left = memoryview(bytes(SIZE))
    while left:
        heard, free, _ = select.select([peer] if until_heard else [], [peer], [], QUIET_S)
        if heard:
            return
        if not free:
            raise TimeoutError
        try:
            left = left[peer.send(left[:PIECE]) :]
        except ConnectionError:
            if until_heard:
                raise
            return


def _see_off(peer: socket.socket) -> None:
    """Read on until the other end is gone: closing before would take from it what is on its way."""
    try:
        while peer.recv(PIECE):
            continue
    except ConnectionError:  # it left without having read all, as it should
        return


def _rate(peer: socket.socket) -> float:
    """Receive; return bytes per second of the later half, when TCP has found its pace."""
    got = len(peer.recv(PIECE))
    began, marks = time.monotonic(), [(0.0, got)]
    while 0 < got < SIZE and marks[-1][0] < LIMIT_S:
        piece = len(peer.recv(PIECE))
        if piece == 0:
            raise ConnectionError("the connection was closed")
        got += piece
        marks.append((time.monotonic() - began, got))
    half_s, half = next(mark for mark in marks if mark[1] >= got / 2)
    return max((got - half) / max(marks[-1][0] - half_s, 1e-6), 1.0)


def _read(peer: socket.socket, size: int) -> bytes:
    """Read so many bytes; ConnectionError if the other end goes away before."""
    found = b""
    while len(found) < size:
        piece = peer.recv(size - len(found))
        if not piece:
            raise ConnectionError("the connection was closed")
        found += piece
    return found


@dataclass(slots=True)
class Probe:
    """What an agent measures for the controller: answers others, and asks whom it is told to.

    A firewall or a translation of addresses may let connections pass one way only, and training
    makes them both ways; so of two nodes one measures, and the other tries to reach it.
    """

    node_id: str
    ip: str
    secret: bytes = field(repr=False)
    links: dict[str, Link] = field(default_factory=dict)  # by the peer's node id
    reached: dict[str, Link] = field(default_factory=dict)
    _answerer: Answerer | None = None
    _asked: set[tuple[bytes, str]] = field(default_factory=set)

    def follow(self, peers: Mapping[str, str], reach: Mapping[str, str]) -> None:
        """Answer from now on, and ask each peer once, by its address; never blocks."""
        if self._answerer is None:
            self._answerer = Answerer(self.node_id, self.ip, self.secret)
            self._answerer.start()
        for what, asked in ((ALL, peers), (ONLY_REACH, reach)):
            for name, address in asked.items():
                if (what, name) not in self._asked:
                    self._asked.add((what, name))
                    args = (what, name, address)
                    threading.Thread(
                        target=self._measure, args=args, name="burst-measure", daemon=True
                    ).start()

    def _measure(self, what: bytes, name: str, address: str) -> None:
        found = self.links if what == ALL else self.reached
        found[name] = measure(address, name, self.secret, what=what)

    @property
    def told(self) -> Mapping[str, object]:
        """What the status says of it."""
        address = self._answerer.address if self._answerer else None
        links, reached = (
            {name: asdict(link) for name, link in sorted(dict(found).items())}
            for found in (self.links, self.reached)
        )
        return {"address": address, "links": links, "reached": reached}

    def close(self) -> None:
        """Stop answering."""
        if self._answerer is not None:
            self._answerer.close()
            self._answerer = None
