"""The dead-man switch, with a clock that only moves when asked."""

from __future__ import annotations

import os

from burst.agent.deadman import DeadMan
from burst.storage.faults import Fault, FaultyStore
from burst.storage.memory import MemoryStore


def test_a_renewed_lease_keeps_the_node_alive() -> None:
    store = MemoryStore()
    switch = DeadMan(store, ttl_s=10, watch_fd=None)
    for second in range(0, 100, 5):
        store.put("lease.json", str(second).encode())
        assert switch.gone(second) is None


def test_a_lease_that_stands_still_for_its_time_ends_the_node() -> None:
    store = MemoryStore()
    store.put("lease.json", b"1")
    switch = DeadMan(store, ttl_s=10, watch_fd=None)
    assert switch.gone(100) is None
    assert switch.gone(109.9) is None
    assert switch.gone(110) == "the run's lease has not been renewed for 10 s"


def test_a_laptop_that_slept_is_not_taken_for_dead() -> None:
    """The monotonic clock stands still in sleep; only waking seconds without a renewal count."""
    store = MemoryStore()
    store.put("lease.json", b"1")
    switch = DeadMan(store, ttl_s=10, watch_fd=None)
    assert switch.gone(100) is None
    store.put("lease.json", b"2")  # hours later by the wall clock
    assert switch.gone(101) is None


def test_a_store_that_fails_for_long_ends_the_node_too() -> None:
    """Nobody can tell then whether the controller lives; a machine must not bill for ever."""
    store = MemoryStore()
    store.put("lease.json", b"1")
    broken = FaultyStore(store, [Fault(kind="fail", verbs=("stat",), times=1000)])
    switch = DeadMan(broken, ttl_s=10, watch_fd=None)
    assert switch.gone(0) is None
    assert switch.gone(9) is None
    assert switch.gone(10) is not None


def test_a_closed_pipe_ends_the_node_at_once() -> None:
    read, write = os.pipe()
    store = MemoryStore()
    store.put("lease.json", b"1")
    switch = DeadMan(store, ttl_s=10, watch_fd=read)
    assert switch.gone(0) is None
    os.close(write)
    assert switch.gone(0) == "its controller's process is gone"
    os.close(read)
