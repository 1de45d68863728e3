"""A store that fails on purpose, by a plan: for tests of everything that uses a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Literal, TypeVar

from burst.errors import StorageError, TransientError
from burst.storage.port import ObjectStore, Stat

Verb = Literal["get", "stat", "keys", "put", "delete", "create"]
_T = TypeVar("_T")

WRITES: tuple[Verb, ...] = ("put", "create")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong at some calls. Give exactly what is needed; the defaults match every call."""

    kind: Literal[
        "fail",  # TransientError, nothing is done
        "refuse",  # StorageError, nothing is done
        "full",  # StorageError as of a full disk, nothing is done
        "lost",  # done, but the answer is lost: TransientError
        "truncate",  # a read returns only the first half
        "call",  # `action` runs first, then the call goes on (unless it raises or kills)
    ]
    verbs: tuple[Verb, ...] = WRITES
    key: str = ""  # part of the key
    first: int = 1  # counting the calls that match, from 1
    times: int | None = 1  # None: for ever
    action: Callable[[], None] | None = None  # of "call"


class FaultyStore:
    """See burst.storage.port.ObjectStore; counts the calls that match each fault of the plan.

    `upload` counts as put, `download` as get. Stores made by `at` share it.
    """

    def __init__(self, inner: ObjectStore, plan: Iterable[Fault]) -> None:
        self._inner = inner
        self._plan = _Plan(tuple(plan))

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def conditional(self) -> bool:
        return self._inner.conditional

    def at(self, prefix: str) -> ObjectStore:
        below = FaultyStore(self._inner.at(prefix), ())
        below._plan = self._plan
        return below

    def get(self, key: str) -> bytes:
        data, truncated = self._plan.around("get", key, lambda: self._inner.get(key))
        return data[: len(data) // 2] if truncated else data

    def download(self, key: str, target: BinaryIO) -> int:
        return target.write(self.get(key))

    def stat(self, key: str) -> Stat:
        return self._plan.around("stat", key, lambda: self._inner.stat(key))[0]

    def keys(self, prefix: str = "") -> Iterator[str]:
        return self._plan.around("keys", prefix, lambda: self._inner.keys(prefix))[0]

    def put(self, key: str, data: bytes) -> None:
        self._plan.around("put", key, lambda: self._inner.put(key, data))

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        self._plan.around("put", key, lambda: self._inner.upload(key, source, size_bytes))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._plan.around("delete", key, partial(self._inner.delete, [key]))

    def create(self, key: str, data: bytes) -> None:
        self._plan.around("create", key, lambda: self._inner.create(key, data))

    def sweep_unfinished(self, older_than_s: float) -> int:
        return self._inner.sweep_unfinished(older_than_s)


class _Plan:
    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self._matched = [0] * len(faults)
        self._lock = threading.Lock()

    def around(self, verb: Verb, key: str, call: Callable[[], _T]) -> tuple[_T, bool]:
        """Make the call with what is due; return its result and whether to cut it."""
        due = self._due(verb, key)
        for fault in due:
            _before(fault, f"{verb} {key}")
        result = call()
        if any(fault.kind == "lost" for fault in due):
            raise TransientError(f"{verb} {key}: the answer was lost, on purpose")
        return result, any(fault.kind == "truncate" for fault in due)

    def _due(self, verb: Verb, key: str) -> list[Fault]:
        due = []
        with self._lock:
            for index, fault in enumerate(self._faults):
                if verb in fault.verbs and fault.key in key:
                    self._matched[index] += 1
                    if _is_due(fault, self._matched[index]):
                        due.append(fault)
        return due


def _is_due(fault: Fault, nth: int) -> bool:
    return nth >= fault.first and (fault.times is None or nth < fault.first + fault.times)


def _before(fault: Fault, what: str) -> None:
    match fault.kind:
        case "fail":
            raise TransientError(f"{what}: failed on purpose")
        case "refuse":
            raise StorageError(f"{what}: refused on purpose")
        case "full":
            raise StorageError(f"no space for {what}, on purpose: 1 byte needed, 0 free")
        case "call":
            assert fault.action is not None
            fault.action()
        case "lost" | "truncate":
            pass
