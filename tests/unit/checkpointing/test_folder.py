"""A folder is saved as it was at one moment, and put back exactly."""

import errno
import logging
import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import burst.checkpointing.folder
from burst.checkpointing.commit import list_checkpoints, upload_files
from burst.checkpointing.folder import Snapshot, put_back, series, snapshot
from burst.errors import CheckpointError, CheckpointMismatchError, StorageError, TransientError
from burst.storage.memory import MemoryStore

log = logging.getLogger("burst.test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    (folder / "checkpoint-10" / "empty").mkdir(parents=True)
    (folder / "checkpoint-10" / "model.bin").write_bytes(b"weights of 10")
    (folder / "run.sh").write_bytes(b"#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("checkpoint-10")
    os.utime(folder / "run.sh", ns=(5_000_000_000, 5_000_000_000))
    return folder


def take(store: Any, folder: Path, last: Snapshot | None = None, **how: Any) -> Snapshot | None:
    given = {"attempt": 1, "node": 0, "nodes": 1, **how}
    return snapshot(store, folder, last=last, log=log, **given)


def picture(folder: Path) -> dict[str, Any]:
    """Return everything that must come back."""

    def one(path: Path) -> Any:
        if path.is_symlink():
            return str(path.readlink())
        if path.is_dir():
            return "folder"
        seen = path.stat()
        return path.read_bytes(), seen.st_mode, seen.st_mtime_ns

    return {str(path.relative_to(folder)): one(path) for path in folder.rglob("*")}


def numbers(store: Any, node: int = 0) -> list[tuple[int, bool]]:
    return [(f.ref.step, f.complete) for f in list_checkpoints(series(store, node))]


def test_it_comes_back_exactly_and_nothing_else_is_left_in_it(store: Any, folder: Path) -> None:
    saved = take(store, folder)
    assert saved is not None
    assert saved.manifest.format == "folder"
    before = picture(folder)
    (folder / "checkpoint-10" / "model.bin").write_bytes(b"changed")
    (folder / "checkpoint-20").mkdir()
    (folder / "checkpoint-20" / "model.bin").write_bytes(b"torn")
    back = put_back(store, folder, node=0, log=log)
    assert back is not None
    assert back.manifest == saved.manifest
    assert picture(folder) == before
    aside = folder.with_name("out.replaced")
    assert (aside / "checkpoint-20" / "model.bin").read_bytes() == b"torn"
    assert sorted(p.name for p in folder.parent.iterdir() if p.name.startswith("out")) == [
        "out",
        "out.replaced",
    ]


def test_it_comes_back_on_a_new_machine(store: Any, folder: Path, tmp_path: Path) -> None:
    take(store, folder)
    put_back(store, tmp_path / "elsewhere" / "out", node=0, log=log)
    assert picture(tmp_path / "elsewhere" / "out") == picture(folder)


def test_the_folder_may_be_where_we_are(
    store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    take(store, Path())
    before = picture(folder)
    put_back(store, Path(), node=0, log=log)
    assert picture(folder) == before


def test_nothing_is_saved_when_nothing_changed(store: Any, folder: Path) -> None:
    first = take(store, folder)
    assert take(store, folder, first) is first
    assert numbers(store) == [(1, True)]
    back = put_back(store, folder, node=0, log=log)
    assert take(store, folder, back, attempt=2) is back


def test_any_change_makes_the_next_number(store: Any, folder: Path) -> None:
    last = take(store, folder)
    (folder / "run.sh").chmod(0o644)
    last = take(store, folder, last)
    (folder / "latest").unlink()
    last = take(store, folder, last, attempt=2)
    assert last is not None
    assert (last.manifest.step, last.manifest.attempt) == (3, 2)
    assert numbers(store) == [(1, True), (2, True), (3, True)]


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_files_is_not_saved(
    exists: bool,
    store: Any,
    tmp_path: Path,
) -> None:
    if exists:
        (tmp_path / "new" / "sub").mkdir(parents=True)
    assert take(store, tmp_path / "new") is None
    assert numbers(store) == []


class Writing(MemoryStore):
    """While a file is stored, the task goes on writing it, `times` times."""

    def __init__(self, path: Path, times: int, *, vanish: bool = False) -> None:
        super().__init__()
        self.path, self.times, self.vanish = path, times, vanish

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        if key.endswith(self.path.name) and self.times:
            self.times -= 1
            self.path.unlink()
            if not self.vanish:
                self.path.write_bytes(b"%d more times" % self.times)
        super().upload(key, source, size_bytes)


def test_a_file_written_meanwhile_is_taken_again(folder: Path) -> None:
    store = Writing(folder / "run.sh", times=2)
    assert take(store, folder) is not None
    assert numbers(store) == [(1, True)]
    assert store.get("checkpoints/step-00000001-a0001/node-0/run.sh") == b"0 more times"


def test_a_file_that_goes_meanwhile_is_left_out(folder: Path) -> None:
    store = Writing(folder / "run.sh", times=1, vanish=True)
    saved = take(store, folder)
    assert saved is not None
    assert [f.path for f in saved.manifest.files] == ["node-0/checkpoint-10/model.bin"]
    assert not list(store.keys("checkpoints/step-00000001-a0001/node-0/run.sh"))


def test_a_file_that_goes_before_it_is_read_is_left_out(
    store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upload(*given: Any) -> Any:
        (folder / "run.sh").unlink(missing_ok=True)
        return upload_files(*given)

    monkeypatch.setattr(burst.checkpointing.folder, "upload_files", upload)
    saved = take(store, folder)
    assert saved is not None
    assert [f.path for f in saved.manifest.files] == ["node-0/checkpoint-10/model.bin"]


def test_a_folder_that_never_rests_is_given_up_aloud(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Writing(folder / "run.sh", times=10**6)
    assert take(store, folder) is None
    assert "changed each of the 3 times it was read" in caplog.text
    assert list(store.keys()) == []


def test_a_refusing_store_is_an_error(store: Any, folder: Path) -> None:
    store.faults["upload"] = lambda _: TransientError("503")
    with pytest.raises(TransientError, match="503"):
        take(store, folder)


@pytest.mark.parametrize("aim", ["/etc/passwd", "../secret", "checkpoint-10/../../x", "circle"])
def test_a_link_out_of_the_folder_is_refused(aim: str, store: Any, folder: Path) -> None:
    (folder / "circle").symlink_to(aim)
    with pytest.raises(CheckpointError, match=r"circle.* lead"):
        take(store, folder)
    assert numbers(store) == []


def test_an_absolute_link_into_the_folder_leads_into_the_new_one(
    store: Any, folder: Path, tmp_path: Path
) -> None:
    (folder / "best").symlink_to(folder / "checkpoint-10" / "model.bin")
    take(store, folder)
    elsewhere = tmp_path / "elsewhere"
    put_back(store, elsewhere, node=0, log=log)
    assert (elsewhere / "best").readlink() == Path("checkpoint-10/model.bin")
    assert (elsewhere / "best").read_bytes() == b"weights of 10"


def test_a_part_that_may_not_be_read_is_an_error(
    store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("checkpoint-10"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StorageError, match=r"cannot read .*checkpoint-10: Permission denied"):
        take(store, folder)


def test_each_node_has_its_own(store: Any, folder: Path, tmp_path: Path) -> None:
    take(store, folder, node=0, nodes=2)
    (folder / "run.sh").write_bytes(b"of node 1")
    take(store, folder, node=1, nodes=2)
    assert numbers(store, node=0) == numbers(store, node=1) == [(1, True)]
    put_back(store, tmp_path / "one", node=1, log=log)
    assert (tmp_path / "one" / "run.sh").read_bytes() == b"of node 1"
    assert put_back(store, tmp_path / "two", node=2, log=log) is None


def test_a_damaged_one_is_passed_over(store: Any, folder: Path) -> None:
    """C25, C34."""
    first = take(store, folder)
    before = picture(folder)
    (folder / "run.sh").write_bytes(b"newer")
    take(store, folder, first)
    store.put("checkpoints/step-00000002-a0001/node-0/run.sh", b"nEwer")
    put_back(store, folder, node=0, log=log)
    assert picture(folder) == before


def test_a_model_is_not_put_into_a_folder(store: Any, folder: Path, commit: Any) -> None:
    commit(100)
    before = picture(folder)
    with pytest.raises(CheckpointMismatchError, match="holds the state of a model"):
        put_back(store, folder, node=0, log=log)
    assert picture(folder) == before
