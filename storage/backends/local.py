"""A store in a folder of this machine, or of a file server that has hard links."""

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
    a kill at any moment leaves the old object or the new one. A create moves it in by a link, which
    of two writers only one can make.
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
        with self._reading(key) as file, translated(self._path(key)):
            return file.read()

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
        self._write(key, len(data), lambda file: _write_all(file, data), Path.replace)

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        self._write(
            key, size_bytes, lambda file: copy_exactly(source, file, size_bytes), Path.replace
        )

    def create(self, key: str, data: bytes) -> None:
        self._write(key, len(data), lambda file: _write_all(file, data), _link)

    def delete(self, keys: Iterable[str]) -> None:
        paths = [self._path(key) for key in keys]
        for path in paths:
            with translated(path), contextlib.suppress(*ABSENT):
                if not path.is_dir():  # unlinking one is no "absent" everywhere
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
        place: Callable[[Path, Path], object],
    ) -> None:
        """Fill a part file, make it durable, and `place` it."""
        path = self._path(key)
        with translated(path, size_bytes):
            file = new_part(path.parent)
            part = Path(file.name)
            try:
                with file:
                    fill(file)
                    seal(file)
                place(part, path)
            finally:
                part.unlink(missing_ok=True)
            sync_folder(path.parent)

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


def _link(part: Path, place: Path) -> None:
    try:
        os.link(part, place)
    except FileExistsError as error:
        raise ConflictError(f"{place} exists already") from error
