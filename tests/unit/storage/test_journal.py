"""The append-only log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.errors import OwnedError, StorageError, TransientError
from burst.storage.faults import Fault, FaultyStore
from burst.storage.journal import Journal
from burst.storage.memory import MemoryStore

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=8), st.integers(0, 9))
def test_reads_back_what_was_written(entries: list[dict[str, Any]], after: int) -> None:
    store = MemoryStore()
    journal = Journal(store)
    assert [journal.append(entry) for entry in entries] == list(range(1, len(entries) + 1))
    after = min(after, len(entries))
    wanted = list(enumerate(entries, start=1))[after:]
    assert list(Journal(store).read(after)) == wanted


def test_bytes_are_canonical() -> None:
    one, two = MemoryStore(), MemoryStore()
    Journal(one, writer="w").append({"a": 1, "b": 2})
    Journal(two, writer="w").append({"b": 2, "a": 1})
    assert one.get("journal/00000001.json") == two.get("journal/00000001.json")


def test_next_writer_goes_on_where_the_last_ended() -> None:
    store = MemoryStore()
    Journal(store).append({"n": 1})
    later = Journal(store)
    assert later.append({"n": 2}) == 2
    assert [entry["n"] for _, entry in later.read()] == [1, 2]


def test_old_writer_learns_of_the_new_one() -> None:
    store = MemoryStore()
    old, new = Journal(store), Journal(store)
    old.append({"n": 1})
    new.append({"n": 2})
    with pytest.raises(OwnedError) as caught:
        old.append({"n": 3})
    assert caught.value.message == "another controller wrote entry 2 of journal"
    assert [entry["n"] for _, entry in Journal(store).read()] == [1, 2]


def test_reading_on_does_not_lift_the_fence() -> None:
    """A deposed writer that reads its successor's entries must not append after them."""
    store = MemoryStore()
    old, new = Journal(store), Journal(store)
    assert list(old.read()) == []
    new.append({"n": 1})
    assert len(list(old.read())) == 1
    with pytest.raises(OwnedError):
        old.append({"n": 2})


def test_same_entry_of_another_writer_is_not_ours() -> None:
    store = MemoryStore()
    old, new = Journal(store), Journal(store)
    assert list(old.read()) == []
    new.append({"n": 1})
    with pytest.raises(OwnedError):
        old.append({"n": 1})


def test_entry_whose_answer_was_lost_is_written_once() -> None:
    store = FaultyStore(MemoryStore(), [Fault(kind="lost", first=2)])
    journal = Journal(store)
    journal.append({"n": 1})
    with pytest.raises(TransientError):
        journal.append({"n": 2})
    assert journal.append({"n": 2}) == 2
    assert journal.append({"n": 3}) == 3
    assert [entry["n"] for _, entry in journal.read()] == [1, 2, 3]


def test_entry_whose_answer_was_lost_stays_when_another_follows() -> None:
    store = FaultyStore(MemoryStore(), [Fault(kind="lost")])
    journal = Journal(store)
    with pytest.raises(TransientError):
        journal.append({"n": 1})
    assert journal.append({"n": 2}) == 2
    assert [entry["n"] for _, entry in journal.read()] == [1, 2]


def test_entry_that_was_not_written_leaves_no_gap() -> None:
    store = FaultyStore(MemoryStore(), [Fault(kind="fail", first=2)])
    journal = Journal(store)
    journal.append({"n": 1})
    with pytest.raises(TransientError):
        journal.append({"n": 2})
    assert journal.append({"n": 3}) == 2


def test_gap_is_named() -> None:
    store = MemoryStore()
    journal = Journal(store)
    for n in range(3):
        journal.append({"n": n})
    store.delete(["journal/00000002.json"])
    with pytest.raises(StorageError, match=r"journal/00000002\.json is missing"):
        list(journal.read())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"entry":{}',
        b"[]",
        b'{"entry":1,"number":1,"writer":"w"}',
        b'{"entry":{},"number":2,"writer":"w"}',
        b'{"entry":{},"number":1}',
        b"\xff\xfe",
    ],
)
def test_damaged_entry_is_named(data: bytes) -> None:
    store = MemoryStore()
    store.put("journal/00000001.json", data)
    with pytest.raises(StorageError, match=r"journal/00000001\.json is damaged"):
        list(Journal(store).read())


def test_other_objects_are_not_entries() -> None:
    store = MemoryStore()
    store.put("journal/notes.txt", b"hello")
    store.put("journalist/00000001.json", b"hello")
    Journal(store).append({"n": 1})
    assert json.loads(store.get("journal/00000001.json"))["entry"] == {"n": 1}
    assert len(list(Journal(store).read())) == 1


def test_number_that_json_cannot_hold_is_refused_before_writing() -> None:
    store = MemoryStore()
    with pytest.raises(ValueError, match="JSON"):
        Journal(store).append({"loss": float("nan")})
    assert list(store.keys()) == []
