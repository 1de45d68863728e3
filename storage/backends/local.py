"""A store in a folder of this machine, or of a file server that has hard links and flock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from burst.errors import ConflictError, StorageError
from burst.storage.keys import UNFINISHED, check_key, check_prefix, join
from burst.storage.port import ObjectStore, Stat
from burst.storage.transfer import PIECE_BYTES, copy_exactly

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


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
        with self._reading(key) as file, _translated(self._path(key)):
            return file.read(), _version(os.fstat(file.fileno()))

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
        return Stat(key=key, size_bytes=found.st_size, version=_version(found))

    def keys(self, prefix: str = "") -> Iterator[str]:
        folder, _, start = check_prefix(prefix).rpartition("/")
        for name in _walk(self._root / folder, start):
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
            with _locked(place) as found:
                if found is None or _version(found) != version:
                    raise ConflictError(f"{place} was changed by another writer")
                part.replace(place)

        return self._write(key, len(data), lambda file: _write_all(file, data), swap)

    def delete(self, keys: Iterable[str]) -> None:
        for path in map(self._path, keys):
            with _translated(path), contextlib.suppress(*_ABSENT):
                with _locked(path) as found:
                    if found is not None:
                        path.unlink()
                self._drop_empty_folders(path.parent)

    def sweep_unfinished(self, older_than_s: float) -> int:
        before = time.time() - older_than_s
        parts = self._root.rglob(f"{UNFINISHED}*")
        return sum(_remove_if_older(part, before) for part in parts)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[BinaryIO]:
        path = self._path(key)
        try:
            file = path.open("rb")
        except _ABSENT as error:
            raise FileNotFoundError(str(path)) from error
        except OSError as error:
            _refuse(error, path)
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
        with _translated(path, size_bytes):
            file = _new_part(path.parent)
            part = Path(file.name)
            try:
                with file:
                    fill(file)
                    version = _seal(file)
                place(part, path)
            finally:
                part.unlink(missing_ok=True)
            _sync_folder(path.parent)
        return version

    def _drop_empty_folders(self, folder: Path) -> None:
        """Remove the folder and those above it, up to the root, while they are empty."""
        with contextlib.suppress(OSError):  # not empty, or gone already
            while folder != self._root and self._root in folder.parents:
                folder.rmdir()
                folder = folder.parent


def _read(file: BinaryIO, path: Path) -> bytes:
    with _translated(path):
        return file.read(PIECE_BYTES)


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _new_part(folder: Path) -> BinaryIO:
    """Open a new file in the folder, which is made if need be.

    Tried again because a delete may drop the folder while it is still empty.
    """
    for _ in range(100):
        _make_folder(folder)
        with contextlib.suppress(FileNotFoundError):
            return (folder / f"{UNFINISHED}{secrets.token_hex(8)}").open("xb")
    raise FileNotFoundError(errno.ENOENT, "the folder keeps vanishing", str(folder))


def _make_folder(folder: Path) -> None:
    """Make the folder and those above it durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileNotFoundError):  # the parent is gone again: the caller retries
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _seal(file: BinaryIO) -> str:
    """Make the content durable and return the version it will have.

    The time is set by hand because kernels stamp files with a clock of milliseconds: two writes
    within one tick that reuse an inode would otherwise share a version.
    """
    file.flush()
    now = time.time_ns()
    os.utime(file.fileno(), ns=(now, now))
    os.fsync(file.fileno())
    return _version(os.fstat(file.fileno()))


def _version(found: os.stat_result) -> str:
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


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
        with _locked(place) as found:
            if found is not None:
                part.replace(place)
                return


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[os.stat_result | None]:
    """Hold the file that is at `path` alone, or yield None if none is there."""
    while True:
        try:
            file = path.open("rb+")
        except FileNotFoundError:
            yield None
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                found = os.fstat(file.fileno())
                if _is_still_at(path, found):  # else its last holder moved another one in
                    yield found
                    return
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough if a fork holds a copy


def _is_still_at(path: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), found)
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(folder: Path, start: str = "") -> Iterator[str]:
    """Yield the files below, sorted as whole keys; only names that begin with `start`."""
    try:
        with os.scandir(folder) as found:
            entries = [e for e in found if e.name.startswith(start) and not _hidden(e.name)]
    except _ABSENT:
        return
    except OSError as error:
        _refuse(error, folder)
    is_folder = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    for entry in sorted(entries, key=lambda e: e.name + "/" * is_folder[e.name]):
        if is_folder[entry.name]:
            yield from (f"{entry.name}/{name}" for name in _walk(folder / entry.name))
        elif entry.is_file(follow_symlinks=False):
            yield entry.name


def _hidden(name: str) -> bool:
    return name.startswith(UNFINISHED)


def _remove_if_older(part: Path, before: float) -> int:
    with _translated(part), contextlib.suppress(FileNotFoundError):  # its writer is done with it
        found = part.stat()
        if found.st_mtime < before:
            part.unlink()
            return found.st_size
    return 0


@contextlib.contextmanager
def _translated(path: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except OSError as error:
        _refuse(error, path, needed_bytes)


def _refuse(error: OSError, path: Path, needed_bytes: int = 0) -> NoReturn:
    if error.errno in _FULL:
        raise StorageError(
            f"no space to write {path}: {needed_bytes} bytes needed, {_free_bytes(path)} free",
            hint="free some space, keep fewer checkpoints, or choose another run URI",
        ) from error
    if isinstance(error, PermissionError):
        raise StorageError(
            f"no right to use {path}: {error.strerror}",
            hint="choose a run URI in a folder of yours, on a file system that has hard links",
        ) from error
    raise StorageError(f"cannot use {path}: {error.strerror or error}") from error


def _free_bytes(path: Path) -> int:
    folder = next(folder for folder in path.parents if folder.is_dir())  # `/` is always one
    return shutil.disk_usage(folder).free
