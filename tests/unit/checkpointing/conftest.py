"""A store whose faults can be ordered, and a short way to commit a checkpoint into it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import pytest

from burst.checkpointing.commit import publish, upload_files
from burst.checkpointing.manifest import CheckpointRef, Manifest
from burst.errors import StorageError
from burst.storage.memory import MemoryStore

Fault = Callable[[str], StorageError | None]


class FaultyStore(MemoryStore):
    """Raises what `faults[operation]` returns for a key, and counts downloads."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, Fault] = {}
        self.cut: dict[str, list[int]] = {}  # key -> for each next download, bytes delivered
        self.downloads: list[str] = []

    def _check(self, operation: str, key: str) -> None:
        fault = self.faults.get(operation)
        error = fault(key) if fault else None
        if error is not None:
            raise error

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        self._check("upload", key)
        super().upload(key, source, size_bytes)

    def get(self, key: str) -> bytes:
        self._check("get", key)
        return super().get(key)

    def create(self, key: str, data: bytes) -> None:
        self._check("create", key)
        super().create(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._check("delete", key)
            super().delete([key])

    def download(self, key: str, target: BinaryIO) -> int:
        self.downloads.append(key)
        self._check("download", key)
        if self.cut.get(key):
            return target.write(super().get(key)[: self.cut[key].pop(0)])
        return super().download(key, target)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
def commit(store: FaultyStore, tmp_path: Path) -> Callable[..., Manifest]:
    """Commit files (name -> bytes) as a checkpoint."""

    def commit(step: int, attempt: int = 1, **files: bytes) -> Manifest:
        folder = tmp_path / f"from-{step}-{attempt}"
        folder.mkdir()
        for name, data in (files or {"shard0": b"%d" % step, "shard1": b"more"}).items():
            (folder / name).write_bytes(data)
        ref = CheckpointRef(attempt, step)
        names = sorted(path.name for path in folder.iterdir())
        manifest = Manifest(
            step=step,
            attempt=attempt,
            world_size=1,
            created_at="",
            files=upload_files(store, ref.key, folder, names),
        )
        publish(store, manifest)
        return manifest

    return commit
