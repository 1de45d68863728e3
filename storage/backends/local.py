"""A store in a folder of this machine, or of a file server that has hard links and flock."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from burst.errors import ConflictError
from burst.storage.backends.local_files import (
    ABSENT,
    locked,
    new_part,
    refuse,
    remove_if_older,
    seal,
    sync_folder,
    translated,
    version_of,
    walk,
)
from burst.storage.keys import UNFINISHED, check_key, check_prefix, join
from burst.storage.port import ObjectStore, Stat
from burst.storage.transfer import PIECE_BYTES, copy_exactly


class LocalStore:
    """See burst.storage.port.ObjectStore.

    A file is written beside its place under a name no key may have, made durable, then moved in:
    a kill at any moment leaves the old object or the new one. Writers of one key exclude each
    other by a lock on the file that is there, never on a file of its own, so nothing is left.
    """

    conditional = True

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.abspath(root))  # noqa: PTH100 - absolute() keeps `..`

    @property
    def uri(self) -> str:
        return f"file://{self._root}"

    def at(self, prefix: str) -> ObjectStore:
        return LocalStore(self._path(prefix))

    def get(self, key: str) -> bytes:
        return self.get_versioned(key)[0]

    def get_versioned(self, key: str) -> tuple[bytes, str]:
        with self._reading(key) as file, translated(self._path(key)):
            return file.read(), version_of(os.fstat(file.fileno()))

    def download(self, key: str, target: BinaryIO) -> int:
        size = 0
        with self._reading(key) as file:
            while piece := _read(file, self._path(key)):
                size += len(piece)
                target.write(piece)  # its errors are the caller's: another file, another disk
        return size

    def stat(self, key: str) -> Stat:
        with self._reading(key) as file:
            found = os.fstat(file.fileno())
        return Stat(key=key, size_bytes=found.st_size, version=version_of(found))

    def keys(self, prefix: str = "") -> Iterator[str]:
        folder, _, start = check_prefix(prefix).rpartition("/")
        for name in walk(self._root / folder, start):
            yield join(folder, name)

    def put(self, key: str, data: bytes) -> None:
        self._write(key, len(data), lambda file: _write_all(file, data), _put_in_place)

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        self._write(
            key, size_bytes, lambda file: copy_exactly(source, file, size_bytes), _put_in_place
        )

    def create(self, key: str, data: bytes) -> str:
        return self._write(key, len(data), lambda file: _write_all(file, data), _create_in_place)

    def replace(self, key: str, data: bytes, version: str) -> str:
        def swap(part: Path, place: Path) -> None:
            with locked(place) as found:
                if found is None or version_of(found) != version:
                    raise ConflictError(f"{place} was changed by another writer")
                part.replace(place)

        return self._write(key, len(data), lambda file: _write_all(file, data), swap)

    def delete(self, keys: Iterable[str]) -> None:
        paths = [self._path(key) for key in keys]
        for path in paths:
            with translated(path), contextlib.suppress(*ABSENT), locked(path) as found:
                if found is not None:
                    path.unlink()
        for folder in {path.parent for path in paths}:
            with translated(folder), contextlib.suppress(*ABSENT):
                sync_folder(folder)
                self._drop_empty_folders(folder)

    def sweep_unfinished(self, older_than_s: float) -> int:
        before = time.time() - older_than_s
        parts = self._root.rglob(f"{UNFINISHED}*")
        return sum(remove_if_older(part, before) for part in parts)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[BinaryIO]:
        path = self._path(key)
        try:
            file = path.open("rb")
        except ABSENT as error:
            raise FileNotFoundError(str(path)) from error
        except OSError as error:
            refuse(error, path)
        with file:
            yield file

    def _write(
        self,
        key: str,
        size_bytes: int,
        fill: Callable[[BinaryIO], None],
        place: Callable[[Path, Path], None],
    ) -> str:
        """Fill a part file, make it durable, `place` it, and return its version."""
        path = self._path(key)
        with translated(path, size_bytes):
            file = new_part(path.parent)
            part = Path(file.name)
            try:
                with file:
                    fill(file)
                    version = seal(file)
                place(part, path)
            finally:
                part.unlink(missing_ok=True)
            sync_folder(path.parent)
        return version

    def _drop_empty_folders(self, folder: Path) -> None:
        """Remove the folder and those above it, up to the root, while they are empty."""
        with contextlib.suppress(OSError):  # not empty, or gone already
            while folder != self._root and self._root in folder.parents:
                folder.rmdir()
                folder = folder.parent


def _read(file: BinaryIO, path: Path) -> bytes:
    with translated(path):
        return file.read(PIECE_BYTES)


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _create_in_place(part: Path, place: Path) -> None:
    try:
        os.link(part, place)
    except FileExistsError as error:
        raise ConflictError(f"{place} exists already") from error


def _put_in_place(part: Path, place: Path) -> None:
    """Move the part in, whatever is there; never in the middle of another writer's replace."""
    while True:
        with contextlib.suppress(FileExistsError):
            os.link(part, place)
            return
        with locked(place) as found:
            if found is not None:
                part.replace(place)
                return
