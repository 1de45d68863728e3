"""The store that fails on purpose does what its plan says, no more."""

from __future__ import annotations

import io

import pytest

from burst.errors import StorageError, TransientError
from burst.storage.faults import Fault, FaultyStore
from burst.storage.memory import MemoryStore


def test_nth_write_fails_and_the_others_do_not() -> None:
    store = FaultyStore(MemoryStore(), [Fault(kind="fail", verbs=("put",), first=2)])
    store.put("a", b"1")
    with pytest.raises(TransientError):
        store.upload("b", io.BytesIO(b"2"), 1)
    store.put("c", b"3")
    assert list(store.keys()) == ["a", "c"]


def test_answer_is_lost_after_the_write() -> None:
    store = FaultyStore(MemoryStore(), [Fault(kind="lost")])
    with pytest.raises(TransientError):
        store.create("a", b"1")
    assert store.get("a") == b"1"


def test_read_is_cut() -> None:
    store = FaultyStore(MemoryStore(), [Fault(kind="truncate", verbs=("get",), times=2)])
    store.put("a", b"1234")
    target = io.BytesIO()
    assert store.download("a", target) == 2
    assert store.get("a") == b"12"
    assert store.get("a") == b"1234"


def test_for_ever_and_by_key_in_stores_below() -> None:
    store = FaultyStore(MemoryStore(), [Fault(kind="full", key="manifest", times=None)])
    below = store.at("x")
    below.put("shard", b"")
    for _ in range(3):
        with pytest.raises(StorageError, match="no space"):
            below.put("manifest.json", b"")
    assert list(store.keys()) == ["x/shard"]


def test_action_runs_before_the_call() -> None:
    seen: list[list[str]] = []
    inner = MemoryStore()
    store = FaultyStore(inner, [Fault(kind="call", action=lambda: seen.append(list(inner.keys())))])
    store.put("a", b"")
    store.put("b", b"")
    assert seen == [[]]
