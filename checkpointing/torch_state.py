"""Saving and loading a whole training state on all ranks together.

`save` and `load` are collective: every rank calls them, and either all return or all raise the
same error. torch.distributed.checkpoint (DCP) writes to and reads from local folders; the object
store sees only whole files, through the commit protocol.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from burst.checkpointing.commit import clear, publish, upload_files
from burst.checkpointing.manifest import CheckpointRef, File, Manifest
from burst.checkpointing.restore import fetch, restore
from burst.checkpointing.torch_files import (
    read_objects,
    read_tensors,
    saved_tensors,
    write_objects,
    write_tensors,
)
from burst.checkpointing.torch_ranks import Ranks, on_every_rank, on_rank_0
from burst.checkpointing.torch_tensors import (
    Tensors,
    TrainState,
    layout_of,
    missing_objects,
    places,
    put_back,
    take,
)
from burst.errors import BurstError, CheckpointError, CheckpointMismatchError, StorageError
from burst.storage.port import ObjectStore

__all__ = ["Ranks", "TrainState", "load", "save"]

log = logging.getLogger(__name__)
DEADLINE_S = 600.0  # for a rank's uploads; a hang must end before the process group's own timeout


def save(  # noqa: PLR0913 - one call per save, all by keyword
    states: TrainState,
    store: ObjectStore,
    *,
    step: int,
    attempt: int,
    staging: Path,
    position: Mapping[str, Any],
    ranks: Ranks,
    deadline_s: float = DEADLINE_S,
) -> Manifest:
    """Commit the state as it is now; return once it counts. Collective.

    `staging` is a local folder for this save alone; nothing of it is left afterwards. Each rank
    stores its own share. StorageError or CheckpointError, on all ranks, when it failed on one:
    then there is no manifest, and what was stored so far is removed as far as that works.
    """
    ref = CheckpointRef(attempt, step)
    mine = staging / f"rank-{ranks.rank}"
    try:
        manifest = _write(states, store, _Save(ref, mine, position, ranks, deadline_s))
    except BurstError:
        if ranks.rank == 0:
            _forget(store, ref)
        raise
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        with contextlib.suppress(OSError):  # another rank of this node is still in it, or was last
            staging.rmdir()
    return manifest


@dataclass(frozen=True, slots=True)
class _Save:
    ref: CheckpointRef
    folder: Path
    position: Mapping[str, Any]
    ranks: Ranks
    deadline_s: float


def _write(states: TrainState, store: ObjectStore, job: _Save) -> Manifest:
    ranks, what = job.ranks, f"saving step {job.ref.step}"
    tensors: Tensors = {}

    def stage() -> None:
        shutil.rmtree(job.folder, ignore_errors=True)
        job.folder.mkdir(parents=True)
        found, objects = take(states)
        tensors.update(found)
        if ranks.rank == 0:
            write_objects(job.folder, objects)

    def upload() -> tuple[File, ...]:
        names = sorted(path.name for path in job.folder.iterdir())
        return upload_files(store, job.ref.key, job.folder, names, deadline_s=job.deadline_s)

    on_rank_0(ranks, what, lambda: clear(store, job.ref))
    on_every_rank(ranks, what, stage)
    write_tensors(job.folder, tensors, ranks, what)
    files = [file for each in on_every_rank(ranks, what, upload) for file in each]
    return on_rank_0(ranks, what, lambda: _publish(states, store, job, files))


def _publish(states: TrainState, store: ObjectStore, job: _Save, files: list[File]) -> Manifest:
    manifest = Manifest(
        step=job.ref.step,
        attempt=job.ref.attempt,
        world_size=job.ranks.world,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=tuple(sorted(files, key=lambda file: file.path)),
        position=dict(job.position),
        layout=layout_of(states),
    )
    publish(store, manifest)
    return manifest


def _forget(store: ObjectStore, ref: CheckpointRef) -> None:
    """Free what a failed save stored; a later sweep finds what this misses."""
    try:
        clear(store, ref)
    except StorageError as error:
        log.warning("remains of %s are left in %s: %s", ref, ref.key, error)


def load(
    states: TrainState,
    store: ObjectStore,
    *,
    staging: Path,
    ranks: Ranks,
    weights_only: bool = False,
) -> Manifest | None:
    """Put the newest sound checkpoint into the live objects; None if there is none. Collective.

    All ranks load the same one. `staging` is a folder on each node for this load alone; nothing of
    it is left afterwards. Nothing is changed unless everything fits: else CheckpointMismatchError
    names what does not. With `weights_only` the model's tensors are loaded by name, as many as
    both have, and everything else starts fresh. Errors else as burst.checkpointing.restore.
    """
    try:
        manifest = _bring(store, staging, ranks)
        if manifest is not None:
            _put(states, manifest, staging, ranks, weights_only=weights_only)
            log.info("rank %s resumes from %s", ranks.rank, manifest.ref)
    finally:  # every way out is one that all ranks take together, so nobody reads any more
        if ranks.local_rank == 0:
            shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _bring(store: ObjectStore, staging: Path, ranks: Ranks) -> Manifest | None:
    """Rank 0 decides which checkpoint it is, and one rank of every other node fetches that one."""
    skip: set[CheckpointRef] = set()
    while True:
        chosen = on_rank_0(ranks, "resuming", lambda: restore(store, staging, log=log, skip=skip))
        if chosen is None:
            return None
        here = partial(_fetch_here, store, chosen, staging, ranks)
        damage = "".join(on_every_rank(ranks, "resuming", here))
        if not damage:
            return chosen
        log.warning("checkpoint %s rejected on another node: %s", chosen.ref.key, damage)
        skip.add(chosen.ref)


def _fetch_here(store: ObjectStore, manifest: Manifest, staging: Path, ranks: Ranks) -> str:
    """Return why the checkpoint is damaged as seen from this node, nothing if it is not."""
    if ranks.local_rank == 0 and ranks.rank != 0:
        try:
            fetch(store, manifest, staging)
        except CheckpointError as error:
            return error.message
    return ""


def _put(
    states: TrainState, manifest: Manifest, folder: Path, ranks: Ranks, *, weights_only: bool
) -> None:
    what = f"resuming from step {manifest.step}"
    tensors: Tensors = {}
    objects: dict[str, Any] = {}

    def prepare() -> None:
        check_fit(states, manifest, weights_only=weights_only)
        objects.update(read_objects(folder))
        missing = () if weights_only else missing_objects(states, objects)
        if missing:
            raise _misfit(manifest, missing)
        saved = saved_tensors(folder)
        tensors.update(places(states, objects, saved, weights_only=weights_only))

    def finish() -> None:
        put_back(states, objects, tensors, weights_only=weights_only)

    on_every_rank(ranks, what, prepare)
    read_tensors(folder, tensors, ranks, what)
    on_every_rank(ranks, what, finish)


def check_fit(states: TrainState, manifest: Manifest, *, weights_only: bool) -> None:
    """Raise CheckpointMismatchError unless the checkpoint can be put into the live objects.

    With `weights_only` other names are no obstacle and only logged; other shapes are.
    """
    if manifest.layout is None:
        raise _misfit(manifest, ("it holds files of a folder, not the state of a model",))
    now = layout_of(states)
    if not weights_only:
        lines = manifest.layout.differences(now)
    else:
        lines = manifest.layout.shape_differences(now)
        log.warning(
            "only weights are loaded from %s: optimizer, schedule and the rest start fresh%s",
            manifest.ref.key,
            "".join(f"; {line}" for line in manifest.layout.tensor_differences(now)),
        )
    if lines:
        raise _misfit(manifest, lines)


def _misfit(manifest: Manifest, lines: tuple[str, ...]) -> CheckpointMismatchError:
    return CheckpointMismatchError(
        "\n  ".join((f"{manifest.ref.key} does not fit this model or optimizer", *lines)),
        hint="undo the change to the model or optimizer, or resume with weights only",
    )
