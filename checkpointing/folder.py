"""Checkpoints for a task that knows nothing of burst: a folder it names is saved and put back.

What a checkpoint holds: regular files with their permissions and modification times, empty
folders, and links that stay inside the folder. Sockets, pipes and devices are left out. A link
that leads out is refused: on the next machine it would lead elsewhere. A folder without a file is
not saved. Each checkpoint holds every file anew, and each node of a task saves its own folder, at
its own times.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from burst.checkpointing.commit import clear, list_checkpoints, publish, upload_files
from burst.checkpointing.manifest import CheckpointRef, File, Manifest, inside
from burst.checkpointing.restore import restore
from burst.errors import CheckpointError, CheckpointMismatchError, StorageError
from burst.storage.port import ObjectStore

TRIES = 3  # in a row, of a folder that changes while it is read


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file as it was when looked at; any write to it changes at least one of these."""

    size_bytes: int
    mode: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class _Content:
    """A folder as it was when looked at, by path relative to it."""

    files: dict[str, _Entry]
    empty: tuple[str, ...]
    links: dict[str, str]

    def position(self) -> dict[str, Any]:
        """Return what the manifest has to say beyond sizes and hashes."""
        files = {path: [entry.mode, entry.mtime_ns] for path, entry in self.files.items()}
        return {"files": files, "empty": list(self.empty), "links": self.links}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was saved or put back last, and what the folder looked like then."""

    manifest: Manifest
    content: _Content


def series(store: ObjectStore, node: int) -> ObjectStore:
    """Return the store below which a node's checkpoints of its folder are: the run's for node 0."""
    return store if node == 0 else store.at(f"folders/node-{node}")


# Saving -------------------------------------------------------------------------------------------


def snapshot(  # noqa: PLR0913 - the facts a manifest holds, by keyword
    store: ObjectStore,
    folder: Path,
    *,
    last: Snapshot | None,
    attempt: int,
    node: int,
    nodes: int,
    log: logging.Logger,
) -> Snapshot | None:
    """Commit the folder as the node's next checkpoint, numbered by its `step`.

    Returns the new snapshot, or `last` when there is nothing new to save: no file, no change since,
    or a folder that changed while it was read, which is logged and is for the next call to try
    again. A folder that never rests is never saved, so what grows all the time belongs elsewhere.
    CheckpointError for a link that leads out, StorageError if the store refuses.
    """
    own = series(store, node)
    for _ in range(TRIES):
        content = _look(folder)
        if not content.files or (last is not None and content == last.content):
            return last
        ref = CheckpointRef(
            attempt, 1 + max((f.ref.step for f in list_checkpoints(own)), default=0)
        )
        files = _upload(own, ref, folder, content, node)
        if files is not None:
            manifest = _manifest(ref, files, content, nodes)
            publish(own, manifest)
            return Snapshot(manifest, content)
        clear(own, ref)
    log.warning("%s not saved: it changed each of the %s times it was read", folder, TRIES)
    return last


def _upload(
    store: ObjectStore, ref: CheckpointRef, folder: Path, content: _Content, node: int
) -> tuple[File, ...] | None:
    """Store the files; None if the folder changed meanwhile."""
    part = f"node-{node}"
    try:
        files = upload_files(store, f"{ref.key}/{part}", folder, sorted(content.files))
    except StorageError:
        if _look(folder) == content:
            raise
        return None
    unchanged = _look(folder) == content
    return tuple(replace(f, path=f"{part}/{f.path}") for f in files) if unchanged else None


def _manifest(
    ref: CheckpointRef, files: tuple[File, ...], content: _Content, nodes: int
) -> Manifest:
    return Manifest(
        step=ref.step,
        attempt=ref.attempt,
        world_size=nodes,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=files,
        position=content.position(),
        format="folder",
    )


def _look(folder: Path) -> _Content:
    """Return what is in the folder; what vanishes while looking is left out.

    StorageError for a part that may not be read: leaving it out would lose it.
    """
    files: dict[str, _Entry] = {}
    empty: list[str] = []
    links: dict[str, str] = {}
    for root, folders, names in os.walk(folder, onerror=_unless_gone):
        here = Path(root)
        if not folders and not names and here != folder:
            empty.append(here.relative_to(folder).as_posix())
        for path in (here / name for name in [*folders, *names]):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink():
                links[name] = _target(folder, path)
            elif (entry := _entry(path)) is not None:
                files[name] = entry
    return _Content(files, tuple(sorted(empty)), links)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error


def _entry(path: Path) -> _Entry | None:
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return _Entry(seen.st_size, stat.S_IMODE(seen.st_mode) & 0o777, seen.st_mtime_ns, seen.st_ino)


def _target(folder: Path, link: Path) -> str:
    """Return where a link leads, from where it is; CheckpointError if that is not in the folder."""
    try:
        aim = link.parent.resolve() / link.readlink()
        led = aim.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        raise CheckpointError(f"{link}: a link that leads nowhere: {error}") from error
    if not led.is_relative_to(folder.resolve()):
        raise CheckpointError(
            f"{link} leads out of the folder that is saved, to {led}",
            hint="copy the files there, or save a folder that holds both",
        )
    return os.path.relpath(aim, link.parent.resolve())


# Putting back -------------------------------------------------------------------------------------


def put_back(
    store: ObjectStore, folder: Path, *, node: int, log: logging.Logger
) -> Snapshot | None:
    """Make the folder what the node's newest sound checkpoint says; None if there is none.

    What was in the folder is moved to `<folder>.replaced`, in place of what was put there before:
    a half-written newer file left in it would be taken for good. Errors as restore.
    """
    folder = folder.absolute()  # `.` has no name
    arriving = folder.with_name(f"{folder.name}.arriving")
    try:
        manifest = restore(series(store, node), arriving, log=log)
        if manifest is None:
            return None
        if manifest.format != "folder":
            raise CheckpointMismatchError(
                f"{manifest.ref.key} holds the state of a model, not the files of a folder",
                hint="resume with the training script that saved it",
            )
        _arrange(arriving / f"node-{node}", manifest.position)
        _swap(folder, arriving / f"node-{node}")
    except OSError as error:
        raise StorageError(f"cannot put files back into {folder}: {error}") from error
    finally:
        shutil.rmtree(arriving, ignore_errors=True)
    return Snapshot(manifest, _look(folder))


def _arrange(folder: Path, position: Any) -> None:  # noqa: ANN401 - JSON
    """Give the files their permissions and times; make the empty folders and the links."""
    for name in position["empty"]:
        _within(folder, name).mkdir(parents=True, exist_ok=True)
    for name, (mode, mtime_ns) in position["files"].items():
        path = _within(folder, name)
        path.chmod(mode)
        os.utime(path, ns=(mtime_ns, mtime_ns))
    for name, target in position["links"].items():
        link = _within(folder, name)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        _target(folder, link)


def _within(folder: Path, name: str) -> Path:
    if not inside(name):
        raise CheckpointError(f"{name!r} is not a path below the folder")
    return folder / name


def _swap(folder: Path, arrived: Path) -> None:
    """Move the old content away and the new in; the folder itself may be a mount point."""
    folder.mkdir(parents=True, exist_ok=True)
    old = list(folder.iterdir())
    if old:
        aside = folder.with_name(f"{folder.name}.replaced")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for path in old:
            shutil.move(path, aside / path.name)
    for path in arrived.iterdir():
        shutil.move(path, folder / path.name)
