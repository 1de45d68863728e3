"""The one commit protocol: files first, then the manifest by a conditional create.

A checkpoint is a folder `checkpoints/step-…-a…`. Without a manifest it is torn and counts for
nothing; with one, it counts if every file has the size and hash written there. Nothing with a
manifest is ever overwritten, so that a reader never meets a mixture of two saves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Protocol

from burst.checkpointing.manifest import (
    CHECKPOINTS,
    MANIFEST_NAME,
    CheckpointRef,
    File,
    Manifest,
    from_json,
    parse_key,
)
from burst.checkpointing.threads import for_each
from burst.errors import CheckpointError, ConflictError, StorageError
from burst.storage.port import ObjectStore, Readable, Writable

WORKERS = 4  # files on their way at once, per process


class ReadableAndWritable(Readable, Writable, Protocol):
    """A store for callers that never race for a key."""


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint as a listing shows it: whether it is sound is not known."""

    ref: CheckpointRef
    complete: bool  # has a manifest


# Saving -------------------------------------------------------------------------------------------


def upload_files(
    store: Writable,
    prefix: str,
    folder: Path,
    names: Sequence[str],
    *,
    workers: int = WORKERS,
    deadline_s: float | None = None,
) -> tuple[File, ...]:
    """Store the named files of `folder` below `prefix`; return their sizes and hashes.

    StorageError with the key when one is refused, changes meanwhile, or takes past the deadline.
    """

    def upload(key: str) -> File:
        return _upload(store, key, folder, key.removeprefix(f"{prefix}/"))

    keys = [f"{prefix}/{name}" for name in names]
    return for_each(keys, upload, workers=workers, deadline_s=deadline_s)


def _upload(store: Writable, key: str, folder: Path, name: str) -> File:
    try:
        with (folder / name).open("rb") as source:
            digest = file_digest(source, "sha256").hexdigest()
            size_bytes = source.tell()
            source.seek(0)
            store.upload(key, source, size_bytes)
    except (OSError, ValueError) as error:  # ValueError: another size than a moment ago
        raise StorageError(f"{key}: cannot read {folder / name}: {error}") from error
    except StorageError as error:
        raise type(error)(f"{key}: {error.message}", hint=error.hint) from error
    return File(name, size_bytes, digest)


def publish(store: ObjectStore, manifest: Manifest) -> None:
    """Make the checkpoint count. Its files are all stored by now.

    ConflictError if there is one of this step and attempt already; it stays as it is.
    """
    key = manifest_key(manifest.ref)
    data = manifest.to_json()
    try:
        store.create(key, data)
    except ConflictError:
        # A create that was answered by a lost reply and sent again finds its own first try.
        if _get(store, key) != data:
            raise


def clear(store: ReadableAndWritable, ref: CheckpointRef) -> None:
    """Remove what a failed save of this checkpoint left, before it is tried again.

    ConflictError if it has a manifest: a checkpoint that counts is never written again.
    """
    keys = list(store.keys(f"{ref.key}/"))
    if manifest_key(ref) in keys:
        raise ConflictError(f"{ref} is committed already, in {ref.key}")
    store.delete(keys)


# Finding ------------------------------------------------------------------------------------------


def list_checkpoints(store: Readable) -> tuple[Found, ...]:
    """Return every checkpoint, oldest first, torn ones too; one listing."""
    names: defaultdict[CheckpointRef, bool] = defaultdict(bool)
    for key in store.keys(f"{CHECKPOINTS}/"):
        ref = parse_key(key)
        if ref is not None:
            names[ref] |= key == manifest_key(ref)
    return tuple(Found(ref, names[ref]) for ref in sorted(names))


def read_manifest(store: Readable, ref: CheckpointRef) -> Manifest:
    """Return a checkpoint's manifest; CheckpointError if it is gone or cannot be used."""
    data = _get(store, manifest_key(ref))
    if data is None:
        raise CheckpointError("its manifest is missing")
    manifest = from_json(data)
    if manifest.ref != ref:
        raise CheckpointError(f"its manifest is that of {manifest.ref}")
    return manifest


def _get(store: Readable, key: str) -> bytes | None:
    try:
        return store.get(key)
    except FileNotFoundError:
        return None


def manifest_key(ref: CheckpointRef) -> str:
    """Return the key of the object that makes this checkpoint count."""
    return f"{ref.key}/{MANIFEST_NAME}"
