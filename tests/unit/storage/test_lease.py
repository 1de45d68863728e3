"""One owner at a time, by one's own clock only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

import pytest

from burst.errors import OwnedError, StorageError, TransientError
from burst.storage.faults import Fault, FaultyStore, Verb
from burst.storage.lease import CLAIMS, LEASE, Lease, LeaseStore, Owner, current_owner
from burst.storage.memory import MemoryStore

TTL_S = 20.0
ANN = Owner(host="a", pid=11, started_at="1000", name="ann")
BOB = Owner(host="b", pid=22, started_at="2000", name="bob")


class FakeClock:
    """Stands still unless slept on; `during` runs at every sleep."""

    def __init__(self, during: Callable[[], None] | None = None) -> None:
        self.time = 5000.0
        self.during = during

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.during:
            self.during()


class Killed(BaseException):
    """A process that dies; nothing catches it."""


def die() -> None:
    raise Killed


def take(
    store: LeaseStore, owner: Owner, clock: FakeClock | None = None, wait_s: float = 0.0
) -> Lease:
    return Lease.acquire(store, owner, ttl_s=TTL_S, clock=clock or FakeClock(), wait_s=wait_s)


def test_second_owner_is_told_who_the_first_is() -> None:
    """C32: host, pid and start time are named."""
    store = MemoryStore()
    take(store, ANN)
    with pytest.raises(OwnedError) as caught:
        take(store, BOB)
    assert caught.value.message == "the run is controlled by ann, process 11 on a, started 1000"
    assert caught.value.hint == "stop it there, or try again when it has been silent for 20 s"


def test_tokens_grow_at_every_change_of_hands() -> None:
    store = MemoryStore()
    tokens = []
    for owner in (ANN, BOB, ANN):
        lease = take(store, owner)
        tokens.append(lease.token)
        lease.renew()
        lease.release()
    assert tokens == [1, 2, 3]


def test_silent_owner_loses_it_only_after_its_ttl_of_waiting() -> None:
    store = MemoryStore()
    take(store, ANN)
    clock = FakeClock()
    with pytest.raises(OwnedError):
        take(store, BOB, clock, wait_s=TTL_S - 2)
    begun = clock.time
    assert take(store, BOB, clock, wait_s=60).token == 2
    assert TTL_S <= clock.time - begun <= TTL_S + 2


def test_renewing_owner_keeps_it_however_long_another_waits() -> None:
    store = MemoryStore()
    ann = take(store, ANN)
    clock = FakeClock(during=ann.renew)
    with pytest.raises(OwnedError):
        take(store, BOB, clock, wait_s=10 * TTL_S)
    assert clock.time >= 5000 + 10 * TTL_S


def test_owner_on_a_machine_with_a_wild_clock_is_not_taken_for_dead() -> None:
    """C55: no time of the holder's is compared, so no jump of its clock can matter."""
    store = MemoryStore()
    holder = FakeClock()
    ann = take(store, ANN, holder)

    def jump_and_renew() -> None:
        holder.time += 1e6
        ann.renew()

    with pytest.raises(OwnedError):
        take(store, BOB, FakeClock(during=jump_and_renew), wait_s=3 * TTL_S)


def test_owner_that_slept_finds_out_when_it_renews() -> None:
    """C55: a laptop that wakes after hours meets an OwnedError, not a double."""
    store = MemoryStore()
    ann = take(store, ANN)
    bob = take(store, BOB, wait_s=60)
    with pytest.raises(OwnedError, match="bob, process 22 on b"):
        ann.renew()
    bob.renew()
    ann.release()  # gives back nothing of bob's
    bob.renew()


def test_nobody_else_took_it_while_the_owner_slept() -> None:
    ann = take(MemoryStore(), ANN)
    ann.renew()  # however late


@pytest.mark.parametrize("alive", [True, None])
def test_owner_that_may_live_is_left_alone(alive: bool | None) -> None:
    store = MemoryStore()
    take(store, ANN)
    with pytest.raises(OwnedError):
        Lease.acquire(store, BOB, ttl_s=TTL_S, clock=FakeClock(), alive=lambda _: alive)


def test_owner_known_to_be_gone_loses_it_at_once() -> None:
    store = MemoryStore()
    take(store, ANN)
    clock = FakeClock()
    asked: list[Owner] = []

    def gone(owner: Owner) -> bool:
        asked.append(owner)
        return False

    assert Lease.acquire(store, BOB, ttl_s=TTL_S, clock=clock, alive=gone).token == 2
    assert asked == [ANN]
    assert clock.time == 5000


def test_lease_given_back_is_free_at_once() -> None:
    store = MemoryStore()
    take(store, ANN).release()
    assert take(store, BOB).token == 2


def test_faster_of_two_takers_wins() -> None:
    store = MemoryStore()
    take(store, ANN)
    between = Fault(kind="call", verbs=("create",), action=lambda: fast.append(steal()))
    fast: list[Lease] = []

    def steal() -> Lease:
        return Lease.acquire(store, BOB, ttl_s=TTL_S, clock=FakeClock(), alive=lambda _: False)

    slow = FaultyStore(store, [between])
    carl = Owner(host="c", pid=33, started_at="3000")
    with pytest.raises(OwnedError, match="bob"):
        Lease.acquire(slow, carl, ttl_s=TTL_S, clock=FakeClock(), alive=lambda owner: owner != ANN)
    fast[0].renew()


@pytest.mark.parametrize("taken_before", [False, True])
def test_answer_lost_while_taking_it(taken_before: bool) -> None:
    inner = MemoryStore()
    if taken_before:
        take(inner, BOB).release()
    store = FaultyStore(inner, [Fault(kind="lost", verbs=("create",))])
    ann = take(store, ANN)
    ann.renew()


@pytest.mark.parametrize("kind", ["fail", "lost"])
@pytest.mark.parametrize("verb", ["put", "get"])
def test_store_that_fails_says_so_and_the_lease_can_be_renewed_later(
    kind: Literal["fail", "lost"], verb: Verb
) -> None:
    inner = MemoryStore()
    take(inner, BOB).release()
    ann = take(inner, ANN)
    ann._store = FaultyStore(inner, [Fault(kind=kind, verbs=(verb,), times=2)])
    for _ in range(2):
        with pytest.raises(TransientError):
            ann.renew()
    ann.renew()
    assert current_owner(inner) == ANN


def test_owner_that_came_back_while_it_was_taken_over_is_waited_for() -> None:
    """It may believe itself the owner until it renews next: for its time to live at most."""
    store = MemoryStore()
    ann = take(store, ANN)
    waking = Fault(kind="call", verbs=("create",), action=ann.renew)
    clock = FakeClock()
    begun = clock.time
    bob = take(FaultyStore(store, [waking]), BOB, clock, wait_s=60)
    assert clock.time - begun >= 2 * TTL_S
    with pytest.raises(OwnedError, match="bob"):
        ann.renew()
    bob.renew()


def test_taker_that_slept_during_its_look_does_not_take_it_for_silence() -> None:
    """What it saw is as old as its sleep was long: the owner renewed all the time."""

    class Sleepy(MemoryStore):
        looks = 0

        def get(self, key: str) -> bytes:
            data = super().get(key)
            self.looks += key == LEASE
            if key == LEASE and self.looks == 2:
                clock.time += 2 * TTL_S
                ann.renew()
            return data

    store, clock = Sleepy(), FakeClock()
    ann = take(store, ANN)
    store.looks = 0
    with pytest.raises(OwnedError, match="ann"):
        take(store, BOB, clock, wait_s=TTL_S)
    ann.renew()


def test_proofs_whose_check_failed_are_seen_to_differ() -> None:
    """Else the next proof would look like them, and its owner would not be waited for."""
    store = MemoryStore()
    ann = take(store, ANN)
    seen = set()
    ann._store = FaultyStore(store, [Fault(kind="fail", verbs=("get",), times=3)])
    for _ in range(3):
        with pytest.raises(TransientError):
            ann.renew()
        seen.add(store.get(LEASE))
    ann.renew()
    assert len({*seen, store.get(LEASE)}) == 4


def test_whoever_follows_a_taker_that_died_waiting_waits_in_its_place() -> None:
    """The owner before may have come back, and not yet know that its claim is no longer the newest.

    A taker that is known to be dead is no reason to act at once, however short its own time to live
    was to be.
    """
    store = MemoryStore()
    ann = take(store, ANN)
    waking = Fault(kind="call", verbs=("create",), action=ann.renew)
    dying = Fault(kind="call", verbs=("put",), action=die)
    with pytest.raises(Killed):
        Lease.acquire(
            FaultyStore(store, [waking, dying]), BOB, ttl_s=1, clock=FakeClock(), wait_s=60
        )
    clock = FakeClock()
    carl = Owner(host="b", pid=33, started_at="3000")
    lease = Lease.acquire(
        store, carl, ttl_s=TTL_S, clock=clock, alive=lambda owner: False if owner == BOB else None
    )
    assert lease.token == 3
    assert clock.time - 5000 >= TTL_S


def test_taker_that_waits_keeps_the_nodes_alive_and_others_away() -> None:
    store = MemoryStore()
    ann = take(store, ANN)
    waking = Fault(kind="call", verbs=("create",), action=ann.renew)
    versions: list[str] = []
    clock = FakeClock(during=lambda: versions.append(store.stat(LEASE).version))
    take(FaultyStore(store, [waking]), BOB, clock, wait_s=60)
    assert len(set(versions[-int(TTL_S) :])) == int(TTL_S)  # another every second


def test_taker_that_slept_between_its_look_and_its_claim_gets_nothing() -> None:
    """However many owners came and went in the meantime: their claims stay."""
    store = MemoryStore()
    take(store, ANN).release()
    others: list[Lease] = []

    def come_and_go() -> None:
        for owner in (ANN, BOB, ANN, BOB):
            if others:
                others[-1].release()
            others.append(take(store, owner))

    carl = Owner(host="c", pid=33, started_at="3000")
    late = FaultyStore(store, [Fault(kind="call", verbs=("create",), action=come_and_go)])
    with pytest.raises(OwnedError, match="bob"):
        take(late, carl)
    others[-1].renew()


def test_proof_that_came_too_late_harms_nobody() -> None:
    """An owner that slept overwrites the proof of the next one, once."""
    store = MemoryStore()
    ann = take(store, ANN)
    bob = take(store, BOB, wait_s=60)
    with pytest.raises(OwnedError):
        ann.renew()
    assert current_owner(store) == BOB
    with pytest.raises(OwnedError, match="bob"):
        take(store, ANN, wait_s=TTL_S - 2)
    bob.release()
    assert current_owner(store) is None


def test_claims_removed_under_the_owner() -> None:
    store = MemoryStore()
    ann = take(store, ANN)
    store.delete(list(store.keys(CLAIMS)))
    with pytest.raises(OwnedError, match="taken away"):
        ann.renew()
    bob = take(store, BOB)
    assert bob.token == ann.token  # the number is the same, the claim is not
    with pytest.raises(OwnedError, match="bob"):
        ann.renew()


@pytest.mark.parametrize("key", [LEASE, f"{CLAIMS}00000001.json"])
@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"owner": {"host": 1}}'])
def test_damaged_lease_is_named_and_never_taken(key: str, data: bytes) -> None:
    store = MemoryStore()
    store.put(key, data)
    with pytest.raises(StorageError, match=f"{key} is damaged"):
        take(store, ANN)
    assert store.get(key) == data
    assert list(store.keys()) == [key]


def test_twenty_takers_at_once_and_one_owner() -> None:
    store = MemoryStore()
    found: list[Lease | OwnedError] = []
    barrier = threading.Barrier(20)

    def run(number: int) -> None:
        barrier.wait()
        try:
            found.append(take(store, Owner(host="h", pid=number, started_at="1")))
        except OwnedError as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [one for one in found if isinstance(one, Lease)]
    winner.renew()
    assert winner.token == 1


def test_who_holds_it_can_be_shown() -> None:
    store = MemoryStore()
    assert current_owner(store) is None
    ann = take(store, ANN)
    assert current_owner(store) == ANN
    assert ann.owner_json() == {"host": "a", "pid": 11, "started_at": "1000", "name": "ann"}
    ann.release()
    assert current_owner(store) is None
