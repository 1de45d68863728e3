"""The newest sound checkpoint comes back; anything less is passed over aloud."""

import errno
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burst.checkpointing.manifest import Manifest
from burst.checkpointing.restore import restore, verify
from burst.errors import CheckpointError, StorageError, TransientError

Commit = Callable[..., Manifest]
log = logging.getLogger("burst.test")


def key(step: int, name: str) -> str:
    return f"checkpoints/step-{step:08d}-a0001/{name}"


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def restored(store: Any, folder: Path, **options: Any) -> int | None:
    manifest = restore(store, folder, log=log, **options)
    return None if manifest is None else manifest.step


def test_no_checkpoint_at_all(store: Any, tmp_path: Path) -> None:
    assert restored(store, tmp_path / "in") is None


def test_the_newest_comes_back_whole(store: Any, commit: Commit, tmp_path: Path) -> None:
    commit(100)
    commit(200)
    assert restored(store, tmp_path / "in") == 200
    assert content(tmp_path / "in") == {"shard0": b"200", "shard1": b"more"}


def test_a_later_attempt_is_newer_than_a_later_step(
    store: Any, commit: Commit, tmp_path: Path
) -> None:
    """C43: and no clock is asked."""
    commit(200, attempt=1)
    commit(110, attempt=2)
    assert restored(store, tmp_path / "in") == 110


BROKEN: dict[str, tuple[Callable[[Any], None], str]] = {
    "no manifest": (lambda s: s.delete([key(200, "manifest.json")]), "it has no manifest"),
    "missing": (lambda s: s.delete([key(200, "shard1")]), "missing shard1"),
    "short": (lambda s: s.put(key(200, "shard1"), b"mor"), "shard1: size 3 != 4 bytes"),
    "empty": (lambda s: s.put(key(200, "shard1"), b""), "shard1: size 0 != 4 bytes"),
    "changed": (lambda s: s.put(key(200, "shard1"), b"mOre"), "shard1: sha256 "),
    "torn manifest": (lambda s: s.put(key(200, "manifest.json"), b"{"), "no JSON"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_one_is_passed_over_aloud(
    how: str, store: Any, commit: Commit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C25: one line with the reason, nothing deleted, and never step 0 while 100 is good."""
    commit(100)
    commit(200)
    harm, reason = BROKEN[how]
    harm(store)
    before = list(store.keys())
    assert restored(store, tmp_path / "in") == 100
    assert content(tmp_path / "in") == {"shard0": b"100", "shard1": b"more"}
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith("checkpoint checkpoints/step-00000200-a0001 rejected: ")
    assert reason in lines[0]
    assert list(store.keys()) == before


def test_every_flipped_byte_is_found(store: Any, commit: Commit, tmp_path: Path) -> None:
    """C34: twenty random flips, twenty rejections."""
    chance = random.Random(34)
    commit(100)
    weights = chance.randbytes(4000)
    commit(200, weights=weights)
    for _ in range(20):
        at, bit = chance.randrange(len(weights)), 1 << chance.randrange(8)
        flipped = bytearray(weights)
        flipped[at] ^= bit
        store.put(key(200, "weights"), bytes(flipped))
        assert restored(store, tmp_path / "in") == 100
    store.put(key(200, "weights"), weights)
    assert restored(store, tmp_path / "in") == 200


def test_objects_beside_the_listed_files_are_not_loaded(
    store: Any, commit: Commit, tmp_path: Path
) -> None:
    """C28."""
    commit(100)
    store.put(key(100, "rank3.pt"), b"of an earlier try")
    assert restored(store, tmp_path / "in") == 100
    assert sorted(content(tmp_path / "in")) == ["shard0", "shard1"]


def test_none_sound_is_an_error_not_a_fresh_start(
    store: Any, commit: Commit, tmp_path: Path
) -> None:
    commit(100)
    store.delete([key(100, "shard0")])
    store.put(key(200, "shard0"), b"torn")
    with pytest.raises(CheckpointError) as caught:
        restored(store, tmp_path / "in")
    assert caught.value.message == (
        "no checkpoint of this run can be used; the newest is"
        " checkpoints/step-00000100-a0001: missing shard0"
    )
    assert not (tmp_path / "in").exists()


def test_only_torn_ones_is_a_fresh_start(store: Any, tmp_path: Path) -> None:
    """The first save never finished: there is nothing to lose."""
    store.put(key(200, "shard0"), b"torn")
    assert restored(store, tmp_path / "in") is None


@pytest.mark.parametrize("operation", ["get", "download"])
def test_a_failing_store_is_no_damage(
    operation: str, store: Any, commit: Commit, tmp_path: Path
) -> None:
    """A 503 must not make training go on from an older step."""
    commit(100)
    commit(200)
    store.faults[operation] = lambda k: TransientError("503") if "step-00000200" in k else None
    with pytest.raises(TransientError):
        restored(store, tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_a_cut_transfer_is_tried_again(store: Any, commit: Commit, tmp_path: Path) -> None:
    """C53: a short body without an error is noticed; the second try is good."""
    commit(100)
    store.cut[key(100, "shard1")] = [2]
    assert restored(store, tmp_path / "in") == 100
    assert store.downloads.count(key(100, "shard1")) == 2


def test_a_transfer_cut_every_time_is_rejected(store: Any, commit: Commit, tmp_path: Path) -> None:
    """C53."""
    commit(100)
    commit(200)
    store.cut[key(200, "shard1")] = [2, 2]
    assert restored(store, tmp_path / "in") == 100


def test_a_full_disk_is_said_before_anything_is_fetched(
    store: Any, commit: Commit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C40: needed and free bytes."""
    commit(100)
    usage = type("Usage", (), {"free": 6})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StorageError, match=r"in: 7 bytes needed, 6 free$"):
        restored(store, tmp_path / "in")
    assert store.downloads == []
    assert not (tmp_path / "in").exists()


def test_a_disk_that_fills_up_leaves_nothing_half(
    store: Any, commit: Commit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C40: on the way in."""
    commit(100)

    def download(_key: str, target: Any) -> int:
        target.write(b"h")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "download", download)
    with pytest.raises(StorageError, match=r"cannot write .*No space left.* bytes are free"):
        restored(store, tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_what_another_node_rejected_is_skipped(store: Any, commit: Commit, tmp_path: Path) -> None:
    commit(100)
    newest = commit(200)
    assert restored(store, tmp_path / "in", skip={newest.ref}) == 100


def test_old_content_of_the_folder_is_replaced(store: Any, commit: Commit, tmp_path: Path) -> None:
    commit(100)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "stale").write_bytes(b"x")
    restored(store, tmp_path / "in")
    assert "stale" not in content(tmp_path / "in")


def test_verify_reads_the_files_named(store: Any, commit: Commit, tmp_path: Path) -> None:
    manifest = commit(100)
    verify(store, manifest, tmp_path / "scratch")
    store.put(key(100, "shard1"), b"mOre")
    verify(store, manifest, tmp_path / "scratch", files={"shard0"})
    with pytest.raises(CheckpointError, match="shard1: sha256"):
        verify(store, manifest, tmp_path / "scratch")
