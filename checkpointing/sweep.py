"""Deleting the checkpoints that are not kept."""

from __future__ import annotations

import logging
from collections.abc import Collection

from burst.checkpointing.commit import ReadableAndWritable, list_checkpoints, manifest_key
from burst.checkpointing.keep_policy import to_delete
from burst.checkpointing.manifest import CheckpointRef
from burst.errors import StorageError


def apply_keep(
    store: ReadableAndWritable,
    *,
    keep: int,
    live_attempt: int,
    log: logging.Logger,
    pinned: Collection[CheckpointRef] = (),
    verified: CheckpointRef | None = None,
) -> tuple[CheckpointRef, ...]:
    """Delete what burst.checkpointing.keep_policy gives up; return what is gone.

    Called once a new checkpoint is committed. A delete that fails is logged and no error: what is
    left is found by the next call. The manifest goes first, so that a checkpoint with half of its
    files never counts.
    """
    try:
        found = list_checkpoints(store)
    except StorageError as error:
        log.warning("old checkpoints not listed, left for the next save: %s", error)
        return ()
    unwanted = to_delete(
        complete=[f.ref for f in found if f.complete],
        torn=[f.ref for f in found if not f.complete],
        keep=keep,
        pinned=frozenset(pinned) | (frozenset() if verified is None else {verified}),
        live_attempt=live_attempt,
    )
    return tuple(ref for ref in unwanted if _delete(store, ref, log))


def _delete(store: ReadableAndWritable, ref: CheckpointRef, log: logging.Logger) -> bool:
    try:
        store.delete([manifest_key(ref)])
        store.delete(list(store.keys(f"{ref.key}/")))
    except StorageError as error:
        log.warning("checkpoint %s not deleted, left for the next save: %s", ref.key, error)
        return False
    return True
