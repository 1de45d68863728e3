"""A training state in local files: tensors by torch.distributed.checkpoint (DCP), the rest pickled.

DCP reports what failed on any rank as CheckpointException, which is no Exception: an
`except Exception` lets it through. It stops here.
"""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from burst.checkpointing.torch_ranks import Ranks, told
from burst.checkpointing.torch_tensors import Tensors
from burst.errors import BurstError, CheckpointError, StorageError

OBJECTS_NAME = "objects.pt"


def write_objects(folder: Path, objects: Mapping[str, Any]) -> None:
    """Pickle the objects into the folder; StorageError if the disk refuses."""
    with _disk(folder):
        torch.save(dict(objects), folder / OBJECTS_NAME)


def read_objects(folder: Path) -> dict[str, Any]:
    """Return what write_objects wrote. The files were compared with the manifest's hashes before.

    Unpickling runs code, so a run's folder must be as trusted as the training script.
    """
    objects: dict[str, Any] = torch.load(
        folder / OBJECTS_NAME, map_location="cpu", weights_only=False
    )
    return objects


def write_tensors(folder: Path, tensors: Tensors, ranks: Ranks, what: str) -> None:
    """Write this rank's share into the folder, its own. Collective; BurstError on all ranks."""
    with _one_error(what), _quiet():
        save(
            dict(tensors),
            storage_writer=_Writer(folder, sync_files=False),
            process_group=ranks.group,
            no_dist=ranks.world == 1,
        )


def saved_tensors(folder: Path) -> Metadata:
    """Return what tensors a folder holds, of all ranks."""
    return FileSystemReader(folder).read_metadata()


def read_tensors(folder: Path, tensors: Tensors, ranks: Ranks, what: str) -> None:
    """Fill the tensors from a folder with all ranks' files. Collective; as write_tensors."""
    with _one_error(what), _quiet():
        load(
            dict(tensors),
            storage_reader=FileSystemReader(folder),
            process_group=ranks.group,
            no_dist=ranks.world == 1,
        )


class _Writer(FileSystemWriter):
    """DCP's own, whose errors say how much room there was."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        needed = sum(item.tensor_storage_size() or 0 for item in plan.items)
        with _disk(Path(self.path), needed):
            return super().write_data(plan, planner)


@contextlib.contextmanager
def _disk(folder: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn what torch raises when a file cannot be written into a StorageError."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch's archive writer hides ENOSPC in the latter
        free = shutil.disk_usage(folder).free
        raise StorageError(
            f"cannot write {folder}: {error}; {needed_bytes} bytes needed, {free} free"
        ) from error


@contextlib.contextmanager
def _one_error(what: str) -> Iterator[None]:
    """Turn DCP's table of failures, the same on all ranks, into the first rank's error."""
    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = min(error.failures.items(), key=lambda failure: failure[0])
        where = f"{what} failed on rank {rank}"
        if isinstance(cause, BurstError):
            raise told(cause, where) from error
        if isinstance(cause, OSError):
            raise StorageError(f"{where}: {cause}") from error
        raise CheckpointError(f"{where}: {type(cause).__name__}: {cause}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep DCP's remark that there is only one process from the person."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
