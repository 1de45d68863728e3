"""Processes that want one lease, made to meet in every order; and what must hold whichever it was.

Time is pretended. Each process runs in a thread of its own, of which one at a time goes on: at each
operation of the store and each wait, a `Chooser` says what befalls it. It may stall before the
operation or before its answer, fail, lose its answer, take place later than its answer, or die
there. Who is ready first goes on first.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, Protocol, TypeVar

from burst.errors import ConflictError, OwnedError, TransientError
from burst.storage.lease import CLAIMS, LEASE, Lease, Owner, current_owner
from burst.storage.memory import MemoryStore

_T = TypeVar("_T")

RENEW_S = 1.0
LOOK_S = 1.0  # as burst.storage.lease waits between two looks
Mishap = Literal["fine", "fail", "lost", "repeated", "late", "die", "die after"]


class Killed(BaseException):
    """A process that dies; nothing catches it."""


class Chooser(Protocol):
    """Says what befalls the next operation."""

    def stall_s(self) -> float:
        """Return for how long a process stands still now."""
        ...

    def mishap(self, verb: str) -> Mishap:
        """Return what becomes of an operation."""
        ...

    def first(self, ready: Sequence[int]) -> int:
        """Return which of the processes that are ready at the same moment goes on."""
        ...


@dataclass(slots=True)
class Chance:
    """Chooses at random, and most often nothing."""

    dice: random.Random
    stalls_s: Sequence[float]
    stall: float = 0.08
    trouble: float = 0.06
    dying_takers: float = 0.0  # how many die as soon as they have made their claim
    mishaps: Sequence[Mishap] = ("fail", "lost", "repeated", "late", "die", "die after")

    def stall_s(self) -> float:
        return self.dice.choice(self.stalls_s) if self.dice.random() < self.stall else 0.0

    def mishap(self, verb: str) -> Mishap:
        if verb == "create" and self.dice.random() < self.dying_takers:
            return "die after"
        return self.dice.choice(self.mishaps) if self.dice.random() < self.trouble else "fine"

    def first(self, ready: Sequence[int]) -> int:
        return self.dice.choice(ready)


@dataclass(slots=True)
class Script:
    """Chooses as written: what departs from the ordinary, by the number of the choice."""

    stalls: dict[int, float] = field(default_factory=dict)
    mishaps: dict[int, Mishap] = field(default_factory=dict)
    firsts: frozenset[int] = frozenset()
    num_stalls: int = 0
    num_mishaps: int = 0
    num_firsts: int = 0

    def stall_s(self) -> float:
        self.num_stalls += 1
        return self.stalls.get(self.num_stalls, 0.0)

    def mishap(self, verb: str) -> Mishap:
        del verb
        self.num_mishaps += 1
        return self.mishaps.get(self.num_mishaps, "fine")

    def first(self, ready: Sequence[int]) -> int:
        self.num_firsts += 1
        return ready[-1] if self.num_firsts in self.firsts else ready[0]


@dataclass(slots=True)
class Held:
    """What one process had of the lease: what it may believe, and until when."""

    token: int
    ttl_s: float
    since_s: float  # when `acquire` returned
    proofs: list[tuple[float, float]] = field(default_factory=list)  # asked, confirmed
    over_s: float = math.inf  # it gave it back, or died

    def until_s(self, proof: tuple[float, float]) -> float:
        """Until when a proof lets it believe, by its own clock."""
        return min(proof[0] + self.ttl_s, self.over_s)


def _taken_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class Process:
    """One process: who it is, how long it lives, and what it saw."""

    number: int
    owner: Owner
    ttl_s: float
    starts_s: float = 0.0
    renewals: int = 3
    gives_back: bool = False
    tries: int = 1
    ready_s: float = 0.0
    turn: threading.Lock = field(default_factory=_taken_lock)
    held: list[Held] = field(default_factory=list)
    died_s: float = math.inf
    over: bool = False
    error: BaseException | None = None


class World:
    """A store, a time, and the processes; `run` lets them meet, `check` says if all was well."""

    def __init__(self, chooser: Chooser) -> None:
        self.now_s = 0.0
        self.store = MemoryStore()
        self.claimed: dict[int, tuple[float, str]] = {}  # token: when, by whom
        self.num_waits = 0  # looks of takers that wait for one who came back
        self.shown: dict[str, list[float]] = {}  # by whom, when
        self._chooser = chooser
        self._processes: list[Process] = []
        self._late: list[tuple[float, Callable[[], object]]] = []
        self._back = _taken_lock()

    def add(self, process: Process) -> Process:
        process.ready_s = process.starts_s
        self._processes.append(process)
        return process

    # The schedule ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Let every process come to its end; raise what one should not have raised."""
        threads = [threading.Thread(target=self._live, args=(p,)) for p in self._processes]
        for thread in threads:
            thread.start()
        while going := [p for p in self._processes if not p.over]:
            soonest = min(p.ready_s for p in going)
            ready = [p.number for p in going if p.ready_s == soonest]
            number = ready[0] if len(ready) == 1 else self._chooser.first(ready)
            self._pass_time(soonest)
            self._processes[number].turn.release()
            self._back.acquire()
        for thread in threads:
            thread.join()
        for process in self._processes:
            if process.error is not None:
                raise process.error

    def pause(self, process: Process, seconds: float) -> None:
        """Give the turn away and get it back when `seconds` are over."""
        process.ready_s = self.now_s + seconds
        if self._is_next(process):
            self._pass_time(process.ready_s)
            return
        self._back.release()
        process.turn.acquire()

    def stall(self, process: Process) -> None:
        """Stand still for as long as the chooser says; others may go on even if it is not long."""
        self.pause(process, self._chooser.stall_s())

    def mishap(self, verb: str) -> Mishap:
        """Say what becomes of an operation."""
        return self._chooser.mishap(verb)

    def later(self, call: Callable[[], object]) -> None:
        """Let something take place when the chooser's next stall is over."""
        self._late.append((self.now_s + self._chooser.stall_s() + LOOK_S / 2, call))

    def _is_next(self, process: Process) -> bool:
        others = (p for p in self._processes if p is not process and not p.over)
        return all(process.ready_s < other.ready_s for other in others)

    def _pass_time(self, until_s: float) -> None:
        for due in sorted((one for one in self._late if one[0] <= until_s), key=lambda one: one[0]):
            self._late.remove(due)
            self.now_s = max(self.now_s, due[0])
            with suppress(ConflictError):  # nobody hears the answer
                due[1]()
        self.now_s = until_s

    def _live(self, process: Process) -> None:
        process.turn.acquire()
        try:
            for _ in range(process.tries):
                self._own(process)
        except Killed:
            process.died_s = self.now_s
            for held in process.held:
                held.over_s = min(held.over_s, self.now_s)
        except BaseException as error:  # noqa: BLE001  the entry of a thread: `run` raises it again
            process.error = error
        finally:
            process.over = True
            self._back.release()

    # What a process does --------------------------------------------------------------------------

    def _own(self, process: Process) -> None:
        store, clock = FatefulStore(self, process), FatefulClock(self, process)
        try:
            lease = Lease.acquire(
                store,
                process.owner,
                ttl_s=process.ttl_s,
                clock=clock,
                alive=lambda owner: self._alive(process, owner),
                wait_s=4 * process.ttl_s,
            )
        except (OwnedError, TransientError):
            return
        held = Held(token=lease.token, ttl_s=process.ttl_s, since_s=self.now_s)
        held.proofs.append((store.last_put_s, self.now_s))
        process.held.append(held)
        try:
            self._work(process, lease, held)
        except OwnedError:
            return

    def _work(self, process: Process, lease: Lease, held: Held) -> None:
        for _ in range(process.renewals):
            self.pause(process, RENEW_S)
            asked_s = self.now_s
            try:
                lease.renew()
            except TransientError:
                continue
            held.proofs.append((asked_s, self.now_s))
        if process.gives_back:
            held.over_s = self.now_s
            try:
                lease.release()
            except TransientError:
                return

    def _alive(self, asking: Process, owner: Owner) -> bool | None:
        """Answer as the system does: for processes of the same machine only."""
        if owner.host != asking.owner.host:
            return None
        other = next(p for p in self._processes if p.owner.pid == owner.pid)
        return other.died_s == math.inf

    # What must hold -------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AssertionError naming the first promise that was broken."""
        held = sorted((h for p in self._processes for h in p.held), key=lambda h: h.token)
        tokens = [one.token for one in held]
        assert len(set(tokens)) == len(tokens), f"two owners with one number: {tokens}"
        assert list(self.claimed) == list(range(1, len(self.claimed) + 1)), self.claimed
        for number, older in enumerate(held):
            for newer in held[number + 1 :]:
                self._check_pair(older, newer)
        for token in self.claimed:
            self._check_taken_from_the_silent(token)
        self._check_that_the_next_gets_it()

    def _check_pair(self, older: Held, newer: Held) -> None:
        claimed_s, _ = self.claimed[newer.token]
        for proof in older.proofs:
            assert proof[0] <= claimed_s, f"{older} was confirmed after {newer} had claimed"
            until_s = older.until_s(proof)
            assert until_s <= newer.since_s, f"{older} and {newer} at once until {until_s}"

    def _check_taken_from_the_silent(self, token: int) -> None:
        """An owner that shows itself within its time to live is never taken from."""
        before = self.claimed.get(token - 1)
        if before is None:
            return
        since_s, name = before
        process = next(p for p in self._processes if p.owner.name == name)
        ours = [h for h in process.held if h.token == token - 1]
        claimed_s, _ = self.claimed[token]
        if process.died_s <= claimed_s or any(h.over_s <= claimed_s for h in ours):
            return
        shown = [s for s in self.shown.get(name, ()) if since_s <= s <= claimed_s]
        times = [since_s, *shown, claimed_s]
        silent_s = max(b - a for a, b in pairwise(times))
        assert silent_s >= process.ttl_s, f"{token} was taken from {name}, silent for {silent_s}"

    def _check_that_the_next_gets_it(self) -> None:
        """Whoever comes when all are gone gets it: at once if it was given back."""
        free = current_owner(self.store) is None
        clock = SkippingClock()
        most_s = max(p.ttl_s for p in self._processes)
        last = Owner(host="last", pid=0, started_at="0", name="last")
        lease = Lease.acquire(self.store, last, ttl_s=most_s, clock=clock, wait_s=most_s + LOOK_S)
        assert lease.token == max(self.claimed, default=0) + 1
        assert clock.now_s <= (0 if free else 2 * (most_s + LOOK_S))
        lease.renew()


class SkippingClock:
    """See burst.storage.retry.WaitingClock."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class FatefulClock:
    """See burst.storage.retry.WaitingClock."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def monotonic(self) -> float:
        return self._world.now_s

    def sleep(self, seconds: float) -> None:
        self._world.pause(self._process, seconds)


class FatefulStore:
    """What a lease needs of a store, for one process; the chooser says how each call goes."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._inner = world.store
        self.last_put_s = -math.inf

    def get(self, key: str) -> bytes:
        return self._befall("get", lambda: self._inner.get(key))

    def keys(self, prefix: str = "") -> Iterator[str]:
        return iter(self._befall("keys", lambda: list(self._inner.keys(prefix))))

    def put(self, key: str, data: bytes) -> None:
        self.last_put_s = self._world.now_s

        def write() -> None:
            self._inner.put(key, data)
            self._world.num_waits += b'"taking"' in data
            if key == LEASE:
                self._world.shown.setdefault(self._process.owner.name, []).append(self._world.now_s)

        self._befall("put", write)

    def create(self, key: str, data: bytes) -> None:
        def write() -> None:
            self._inner.create(key, data)
            token = int(key.removeprefix(CLAIMS).removesuffix(".json"))
            assert token not in self._world.claimed
            self._world.claimed[token] = (self._world.now_s, self._process.owner.name)

        self._befall("create", write)

    def _befall(self, verb: str, call: Callable[[], _T]) -> _T:
        world, process = self._world, self._process
        world.stall(process)
        mishap = world.mishap(verb)
        if mishap == "die":
            raise Killed
        if mishap == "late" and verb in {"put", "create"}:
            world.later(call)
        if mishap in {"fail", "late"}:
            world.stall(process)
            raise TransientError(f"{verb}: {mishap}")
        try:
            result = call()
            if mishap == "repeated":  # by the store itself, which lost the first answer
                result = call()
        finally:
            world.stall(process)
        if mishap == "die after":
            raise Killed
        if mishap == "lost":
            raise TransientError(f"{verb}: {mishap}")
        return result
