"""A store that lacks something is found out before machines are rented."""

from __future__ import annotations

import pytest

from burst.errors import CredentialsError, StorageError
from burst.storage.faults import Fault, FaultyStore, Verb
from burst.storage.memory import MemoryStore
from burst.storage.preflight import check_store


def test_good_store_passes_and_nothing_stays() -> None:
    store = MemoryStore()
    check_store(store)
    assert list(store.keys()) == []


@pytest.mark.parametrize(
    ("verb", "key", "says"),
    [
        ("put", "small", "write"),
        ("get", "", "read"),
        ("keys", "", "list"),
        ("create", "", "claim"),
        ("put", "large", "upload in parts"),
        ("delete", "", "delete"),
    ],
)
def test_step_that_fails_is_named(verb: Verb, key: str, says: str) -> None:
    """C49, C61."""
    store = FaultyStore(MemoryStore("s"), [Fault(kind="refuse", verbs=(verb,), key=key)])
    with pytest.raises(StorageError, match=f"memory://s cannot {says}: "):
        check_store(store)


def test_store_that_ignores_conditions_is_found_out() -> None:
    class Careless(MemoryStore):
        def create(self, key: str, data: bytes) -> None:
            self.put(key, data)

    with pytest.raises(StorageError, match="second conditional write") as caught:
        check_store(Careless())
    assert "ignores the condition of a write" in (caught.value.hint or "")


def test_without_credentials_there_is_nothing_to_try() -> None:
    class Locked(MemoryStore):
        def put(self, key: str, data: bytes) -> None:
            raise CredentialsError("there are no credentials", hint="get some")

    with pytest.raises(CredentialsError, match=r"^there are no credentials$"):
        check_store(Locked())
