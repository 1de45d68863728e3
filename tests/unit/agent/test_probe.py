"""Measuring the network over real sockets on the loopback, through a slow link and to nobody."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from burst.agent import probe
from burst.agent.probe import Answerer, Probe, measure
from burst.cost.network import Link

SECRET = b"of the run"


@contextmanager
def answerer(node_id: str = "n001", secret: bytes = SECRET) -> Iterator[Answerer]:
    made = Answerer(node_id, "127.0.0.1", secret)
    made.start()
    try:
        yield made
    finally:
        made.close()


class SlowLink:
    """Passes bytes on between two ends: each direction so fast, each piece so late."""

    def __init__(self, to: str, bytes_per_s: float, late_s: float) -> None:
        self._to = to
        self._pace = bytes_per_s
        self._late = late_s
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        here, _ = self._socket.accept()
        self._socket.close()
        ip, _, port = self._to.rpartition(":")
        there = socket.create_connection((ip, int(port)))
        for one, other in ((here, there), (there, here)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while piece := one.recv(4096):
                time.sleep(self._late + len(piece) / self._pace)  # noqa: TID251 - it is the link
                other.sendall(piece)
        except OSError:
            return
        finally:
            for end in (one, other):
                end.close()


def test_two_nodes_measure_round_trip_and_speed() -> None:
    with answerer() as there:
        link = measure(there.address, "n001", SECRET)
    assert link.error == ""
    assert 0 < link.round_trip_s < 1
    assert link.bytes_per_s > 1e6


def test_the_way_back_is_only_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_rate", None)
    monkeypatch.setattr(probe, "_pour", None)
    with answerer() as there:
        link = measure(there.address, "n001", SECRET, what=probe.ONLY_REACH)
    assert link.error == ""
    assert link.round_trip_s > 0


def test_a_slow_link_is_measured_as_slow_in_bounded_bytes() -> None:
    with answerer() as there:
        slow = SlowLink(there.address, bytes_per_s=1e6, late_s=0.002)
        link = measure(slow.address, "n001", SECRET)
    assert link.error == ""
    assert link.round_trip_s >= 0.004
    assert 1e4 < link.bytes_per_s < 1e6


def test_a_port_that_nobody_listens_on_is_told_with_its_address() -> None:
    with answerer() as there:
        address = there.address
    link = measure(address, "n001", SECRET)
    port = address.rpartition(":")[2]
    assert link.error.startswith(f"do not reach each other: n001 at 127.0.0.1 on port {port}: ")
    assert "refused" in link.error


def test_one_that_listens_and_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        link = measure(address, "n001", SECRET, quiet_s=0.2)
    assert link.error.endswith("no answer within 0.2 s")


def test_another_machine_at_the_same_address_is_found_out() -> None:
    with answerer("n009") as there:
        assert "another machine answers" in measure(there.address, "n001", SECRET).error
    with answerer(secret=b"of another run") as there:
        assert "another machine answers" in measure(there.address, "n001", SECRET).error


def test_nobody_without_the_secret_gets_anything_out_of_the_port(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with answerer() as there:
        ip, _, port = there.address.rpartition(":")
        with socket.create_connection((ip, int(port)), timeout=5) as guest:
            guest.sendall(bytes(probe.NONCE))
            hello = b""
            while len(hello) < 2 * probe.NONCE:
                hello += guest.recv(100)
            assert SECRET not in hello
            guest.sendall(hello[probe.NONCE :])  # its own proof, sent back
            assert guest.recv(1) == b""
    assert "without the run's secret" in caplog.text
    assert SECRET.decode() not in repr(there)


def test_many_strangers_do_not_keep_a_node_from_answering() -> None:
    with answerer() as there:
        ip, _, port = there.address.rpartition(":")
        guests = [socket.create_connection((ip, int(port))) for _ in range(20)]
        for guest in guests:
            guest.close()
        assert measure(there.address, "n001", SECRET).error == ""


def test_a_probe_measures_each_peer_once_and_says_so_in_the_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    done = threading.Event()

    def measured(address: str, name: str, secret: bytes, *, what: bytes) -> Link:
        calls.append(f"{name} {address} {secret.decode()} {what.decode()}")
        if len(calls) == 2:
            done.set()
        return Link(round_trip_s=0.5, bytes_per_s=2.0)

    monkeypatch.setattr(probe, "measure", measured)
    mine = Probe("n002", "127.0.0.1", SECRET)
    for _ in range(3):
        mine.follow({"n001": "10.0.0.4:4711"}, {"n003": "10.0.0.6:4712"})
    assert done.wait(5)
    for thread in threading.enumerate():
        if thread.name == "burst-measure":
            thread.join(5)
    assert sorted(calls) == ["n001 10.0.0.4:4711 of the run .", "n003 10.0.0.6:4712 of the run !"]
    told = mine.told
    assert str(told["address"]).startswith("127.0.0.1:")
    link = {"round_trip_s": 0.5, "bytes_per_s": 2.0, "error": ""}
    assert (told["links"], told["reached"]) == ({"n001": link}, {"n003": link})
    mine.close()
    assert mine.told["address"] is None
