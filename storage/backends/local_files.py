"""What the folder store does to files: parts, durability, order, and the system's errors."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from burst.errors import StorageError
from burst.storage.keys import UNFINISHED

ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def new_part(folder: Path) -> BinaryIO:
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
        sync_folder(folder.parent)


def seal(file: BinaryIO) -> None:
    """Make the content durable, and its version (`version_of`) one of its own.

    The time is set by hand because kernels stamp files with a clock of milliseconds: two writes
    within one tick that reuse an inode would otherwise share a version.
    """
    file.flush()
    now = time.time_ns()
    os.utime(file.fileno(), ns=(now, now))
    os.fsync(file.fileno())


def version_of(found: os.stat_result) -> str:
    """Return what differs between any two files that were ever sealed at one place."""
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


def sync_folder(folder: Path) -> None:
    """Make the names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def walk(folder: Path, start: str = "") -> Iterator[str]:
    """Yield the files below, sorted as whole keys; only names that begin with `start`."""
    try:
        with os.scandir(folder) as found:
            entries = [e for e in found if e.name.startswith(start) and not _hidden(e.name)]
    except ABSENT:
        return
    except OSError as error:
        refuse(error, folder)
    is_folder = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    for entry in sorted(entries, key=lambda e: e.name + "/" * is_folder[e.name]):
        if is_folder[entry.name]:
            yield from (f"{entry.name}/{name}" for name in walk(folder / entry.name))
        elif entry.is_file(follow_symlinks=False):
            yield entry.name


def _hidden(name: str) -> bool:
    return name.startswith(UNFINISHED)


def remove_if_older(part: Path, before: float) -> int:
    """Remove the file if it was last touched before that time; return the bytes freed."""
    with translated(part), contextlib.suppress(FileNotFoundError):  # its writer is done with it
        found = part.stat()
        if found.st_mtime < before:
            part.unlink()
            return found.st_size
    return 0


@contextlib.contextmanager
def translated(path: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn the system's errors into ours."""
    try:
        yield
    except OSError as error:
        refuse(error, path, needed_bytes)


def refuse(error: OSError, path: Path, needed_bytes: int = 0) -> NoReturn:
    """Raise ours for the system's error."""
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
