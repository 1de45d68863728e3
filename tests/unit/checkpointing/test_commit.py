"""Files first, then the manifest, and never over another."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from burst.checkpointing.commit import (
    Found,
    clear,
    list_checkpoints,
    publish,
    read_manifest,
    upload_files,
)
from burst.checkpointing.manifest import CheckpointRef, File, Manifest
from burst.errors import CheckpointError, ConflictError, StorageError, TransientError

Commit = Callable[..., Manifest]
OLD, NEW = CheckpointRef(1, 100), CheckpointRef(1, 200)


def test_uploads_are_described_and_stored(store: Any, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/b").write_bytes(b"bb")
    (tmp_path / "a").write_bytes(b"")
    files = upload_files(store, "p", tmp_path, ["sub/b", "a"])
    assert files == (
        File("sub/b", 2, sha256(b"bb").hexdigest()),
        File("a", 0, sha256(b"").hexdigest()),
    )
    assert list(store.keys()) == ["p/a", "p/sub/b"]


def test_a_refused_upload_names_its_key(store: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    store.faults["upload"] = lambda _: TransientError("503 slow down")
    with pytest.raises(TransientError, match=r"^p/a: 503 slow down$"):
        upload_files(store, "p", tmp_path, ["a"])


def test_a_vanished_file_is_named(store: Any, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"p/a: cannot read .*/a"):
        upload_files(store, "p", tmp_path, ["a"])


def test_a_checkpoint_is_never_overwritten(store: Any, commit: Commit) -> None:
    first = commit(100)
    with pytest.raises(ConflictError):
        publish(store, replace(first, created_at="later"))
    assert read_manifest(store, OLD) == first


def test_publishing_the_same_again_is_fine(store: Any, commit: Commit) -> None:
    """The reply to the first create got lost, and it was sent again."""
    publish(store, commit(100))


def test_clear_removes_what_a_failed_save_left_and_nothing_else(store: Any, commit: Commit) -> None:
    """C28: and never what has a manifest."""
    commit(100)
    store.put(f"{NEW.key}/shard0", b"half")
    store.put(f"{NEW.key}0/shard0", b"another checkpoint's")
    clear(store, NEW)
    assert not list(store.keys(f"{NEW.key}/"))
    assert list(store.keys(f"{NEW.key}0/"))
    with pytest.raises(ConflictError, match="step 100 of attempt 1 is committed already"):
        clear(store, OLD)


def test_one_listing_shows_complete_and_torn(store: Any, commit: Commit) -> None:
    commit(100)
    commit(10, attempt=2)
    store.put(f"{NEW.key}/shard0", b"half")
    store.put(f"{NEW.key}/sub/manifest.json", b"a file of the checkpoint")
    store.put("checkpoints/step-7/x", b"no checkpoint of ours")
    assert list_checkpoints(store) == (
        Found(OLD, complete=True),
        Found(NEW, complete=False),
        Found(CheckpointRef(2, 10), complete=True),
    )


def test_a_manifest_must_be_that_of_its_folder(store: Any, commit: Commit) -> None:
    store.put(f"{NEW.key}/manifest.json", commit(100).to_json())
    with pytest.raises(CheckpointError, match="its manifest is that of step 100 of attempt 1"):
        read_manifest(store, NEW)
