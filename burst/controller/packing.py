"""Packing a workdir for nodes that do not see it: whole but for what its ignore file names."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

from burst.errors import SetupError

IGNORE_FILES = (".skyignore", ".gitignore")  # the first there is counts, as in SkyPilot
NEVER = (".git/", "__pycache__/")
MOST_BYTES = 512 << 20


def pack_mount(source: Path, target: str) -> tuple[str, bytes]:
    """Return the folder on a node to unpack into, and the tar, so that `target` is the source."""
    whole = source.resolve()
    if not whole.exists():
        raise SetupError(
            f"file_mounts: {target}: there is no {source}",
            hint="a path here must be whole; a private variable in it is not put in",
        )
    if whole.is_dir():
        return target, pack(whole)
    data = io.BytesIO()
    folder, _, name = target.rpartition("/")
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        _check_size(whole.stat().st_size, whole)
        archive.add(whole, name)
    return folder or "/", data.getvalue()


def pack(folder: Path) -> bytes:
    """Return a gzipped tar of what is in a folder; SetupError when that is too large to be code."""
    data, size = io.BytesIO(), 0
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        for path in files_of(folder):
            size += path.lstat().st_size
            _check_size(size, folder)
            archive.add(path, _at(path, folder), recursive=False)
    return data.getvalue()


def _check_size(size: int, source: Path) -> None:
    if size > MOST_BYTES:
        raise SetupError(
            f"{source} holds more than {MOST_BYTES >> 20} MiB",
            hint="name what nodes do not need in a .skyignore there; keep data in a bucket",
        )


def files_of(folder: Path) -> Iterator[Path]:
    """Yield what is packed, folders before what is in them."""
    ignore = next((folder / name for name in IGNORE_FILES if (folder / name).is_file()), None)
    lines = ignore.read_text(encoding="utf-8").splitlines() if ignore else []
    spec = GitIgnoreSpec.from_lines([*NEVER, *lines])
    for where, folders, names in os.walk(folder):
        below = Path(where)
        folders[:] = sorted(
            name for name in folders if not spec.match_file(f"{_at(below / name, folder)}/")
        )
        yield from (below / name for name in folders)
        yield from (
            path
            for path in (below / name for name in sorted(names))
            if not spec.match_file(_at(path, folder)) and (path.is_symlink() or path.is_file())
        )


def _at(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
