"""A store in this process's memory: the reference for every other one, and for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from burst.errors import ConflictError
from burst.storage.keys import check_key, check_prefix, join
from burst.storage.port import ObjectStore, Stat
from burst.storage.transfer import read_exactly


@dataclass(slots=True)
class _Shelf:
    """The objects, shared by all stores rooted below one another."""

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, path: str, data: bytes) -> None:
        """Store under the lock, which the caller holds."""
        self.writes += 1
        self.objects[path] = (bytes(data), self.writes)


class MemoryStore:
    """See burst.storage.port.ObjectStore."""

    conditional = True

    def __init__(self, name: str = "here") -> None:
        self._name = name
        self._prefix = ""
        self._shelf = _Shelf()

    @property
    def uri(self) -> str:
        return "memory://" + join(self._name, self._prefix)

    def at(self, prefix: str) -> ObjectStore:
        below = MemoryStore(self._name)
        below._prefix = join(self._prefix, check_key(prefix))
        below._shelf = self._shelf
        return below

    def get(self, key: str) -> bytes:
        return self._find(key)[0]

    def download(self, key: str, target: BinaryIO) -> int:
        return target.write(self.get(key))

    def stat(self, key: str) -> Stat:
        data, version = self._find(key)
        return Stat(key=key, size_bytes=len(data), version=str(version))

    def keys(self, prefix: str = "") -> Iterator[str]:
        root = self._prefix + "/" if self._prefix else ""
        start = root + check_prefix(prefix)
        with self._shelf.lock:
            paths = sorted(path for path in self._shelf.objects if path.startswith(start))
        return iter([path.removeprefix(root) for path in paths])

    def put(self, key: str, data: bytes) -> None:
        with self._shelf.lock:
            self._shelf.write(self._path(key), data)

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        self.put(key, read_exactly(source, size_bytes))

    def delete(self, keys: Iterable[str]) -> None:
        with self._shelf.lock:
            for key in keys:
                self._shelf.objects.pop(self._path(key), None)

    def create(self, key: str, data: bytes) -> None:
        with self._shelf.lock:
            path = self._path(key)
            if path in self._shelf.objects:
                raise ConflictError(f"{self.uri}/{key} exists already")
            self._shelf.write(path, data)

    def sweep_unfinished(self, older_than_s: float) -> int:  # noqa: ARG002  nothing is ever unfinished
        return 0

    def _find(self, key: str) -> tuple[bytes, int]:
        with self._shelf.lock:
            found = self._shelf.objects.get(self._path(key))
        if found is None:
            raise FileNotFoundError(f"{self.uri}/{key}")
        return found

    def _path(self, key: str) -> str:
        return join(self._prefix, check_key(key))
