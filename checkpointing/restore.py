"""Putting the newest sound checkpoint back, and telling sound from damaged."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection
from hashlib import file_digest
from pathlib import Path

from burst.checkpointing.commit import WORKERS, list_checkpoints, read_manifest
from burst.checkpointing.manifest import CheckpointRef, File, Manifest
from burst.checkpointing.threads import for_each
from burst.errors import CheckpointError, StorageError
from burst.storage.port import Readable

READS = 2  # of a file that does not match: a cut transfer is not yet a damaged checkpoint


def restore(
    store: Readable,
    target: Path,
    *,
    log: logging.Logger,
    skip: Collection[CheckpointRef] = (),
) -> Manifest | None:
    """Put the newest sound checkpoint's files into the folder `target`; None if there is none.

    Each checkpoint that is passed over is logged with the reason and left as it is; those in
    `skip` are passed over silently. CheckpointError if there are checkpoints and none is sound:
    starting over would throw work away, so that is for a person to decide. An error of the store
    is no damage and is raised as it is.
    """
    reasons: list[str] = []
    for found in reversed(list_checkpoints(store)):
        if found.ref in skip:
            reasons.append(f"{found.ref.key}: rejected before")
            continue
        if not found.complete:
            log.warning("checkpoint %s rejected: it has no manifest", found.ref.key)
            continue
        try:
            manifest = read_manifest(store, found.ref)
            fetch(store, manifest, target)
        except CheckpointError as error:
            log.warning("checkpoint %s rejected: %s", found.ref.key, error.message)
            reasons.append(f"{found.ref.key}: {error.message}")
            continue
        return manifest
    if reasons:
        raise CheckpointError(
            f"no checkpoint of this run can be used; the newest is {reasons[0]}",
            hint="nothing was deleted; start a new run to train from the beginning",
        )
    return None


def fetch(store: Readable, manifest: Manifest, target: Path) -> None:
    """Fill the folder `target` with exactly the checkpoint's files, sizes and hashes compared.

    On CheckpointError (a file is missing or differs) and StorageError the folder is gone: what
    arrived by half can never be loaded.
    """
    shutil.rmtree(target, ignore_errors=True)
    try:
        _need_room(target, manifest.size_bytes)
        _each_file(store, manifest, target, _fetch)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def verify(
    store: Readable, manifest: Manifest, scratch: Path, files: Collection[str] | None = None
) -> None:
    """Compare the checkpoint's files (or those named) with the manifest; CheckpointError if not.

    Reads them all, each through `scratch`, a folder with room for a few.
    """

    def read(store: Readable, key: str, file: File, path: Path) -> None:
        if files is None or file.path in files:
            _fetch(store, key, file, path)
            path.unlink()

    _each_file(store, manifest, scratch, read)


def _each_file(
    store: Readable,
    manifest: Manifest,
    folder: Path,
    work: Callable[[Readable, str, File, Path], None],
) -> None:
    prefix = manifest.ref.key

    def one(file: File) -> None:
        work(store, f"{prefix}/{file.path}", file, folder / file.path)

    for_each(manifest.files, one, workers=WORKERS)


def _fetch(store: Readable, key: str, file: File, path: Path) -> None:
    for read in range(READS):
        try:
            _download(store, key, path)
            _compare(file, path)
        except CheckpointError:
            if read + 1 == READS:
                raise
        else:
            return


def _download(store: Readable, key: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.open("wb")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error}") from error
    try:
        with target:
            store.download(key, target)
    except FileNotFoundError as error:
        raise CheckpointError(f"missing {path.name}") from error
    except OSError as error:
        free = shutil.disk_usage(path.parent).free
        raise StorageError(f"cannot write {path}: {error}; {free} bytes are free") from error


def _compare(file: File, path: Path) -> None:
    size_bytes = path.stat().st_size
    if size_bytes != file.size_bytes:
        raise CheckpointError(f"{file.path}: size {size_bytes} != {file.size_bytes} bytes")
    with path.open("rb") as source:  # what is on the disk, not what went by
        digest = file_digest(source, "sha256").hexdigest()
    if digest != file.sha256:
        raise CheckpointError(f"{file.path}: sha256 {digest[:12]}… != {file.sha256[:12]}…")


def _need_room(target: Path, size_bytes: int) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {target}: {error}") from error
    free = shutil.disk_usage(target).free
    if free < size_bytes:
        raise StorageError(
            f"the checkpoint does not fit into {target}: {size_bytes} bytes needed, {free} free",
            hint="free space there, or give the nodes a larger disk",
        )
