"""The store in a folder: full disks, left-over parts, versions; alike with the reference."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burst.errors import ConflictError, StorageError
from burst.storage.backends.local import LocalStore
from burst.storage.keys import UNFINISHED
from burst.storage.memory import MemoryStore
from burst.storage.port import ObjectStore

KEYS = st.sampled_from(["a", "b/c", "b/d", "b.e", "b/f/g"])
DATA = st.binary(max_size=4)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, DATA),
        st.tuples(st.just("upload"), KEYS, DATA),
        st.tuples(st.just("create"), KEYS, DATA),
        st.tuples(st.just("delete"), KEYS, DATA),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_folder_and_memory_behave_alike(operations: list[tuple[str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stores: list[ObjectStore] = [MemoryStore(), LocalStore(Path(folder, "root"))]
        for operation in operations:
            one, two = (apply(store, *operation) for store in stores)
            assert one == two
            assert contents(stores[0]) == contents(stores[1])
        assert list(Path(folder).rglob(f"{UNFINISHED}*")) == []


def apply(store: ObjectStore, verb: str, key: str, data: bytes) -> str:
    """Carry the operation out; return how it ended, in words the stores share."""
    try:
        match verb:
            case "put":
                store.put(key, data)
            case "upload":
                store.upload(key, io.BytesIO(data), len(data))
            case "create":
                store.create(key, data)
            case _:
                store.delete([key])
    except (ConflictError, FileNotFoundError) as error:
        return type(error).__name__
    return "done"


def contents(store: ObjectStore) -> list[tuple[str, bytes, int]]:
    keys = store.keys()
    return [(key, store.get(key), store.stat(key).size_bytes) for key in keys]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_full_disk_is_said_with_numbers_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C40."""
    store = LocalStore(tmp_path / "root")
    store.put("step/shard", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (store.put, store.create):
        with pytest.raises(StorageError) as caught:
            write("step/shard", b"x" * 1234)
        place = tmp_path / "root/step/shard"
        assert caught.value.message.startswith(f"no space to write {place}: 1234 bytes needed, ")
        assert caught.value.message.endswith(" free")
        assert caught.value.hint
    assert names(tmp_path / "root/step") == ["shard"]
    assert store.get("step/shard") == b"old"


def test_full_disk_in_the_middle_of_an_upload(tmp_path: Path) -> None:
    """C40: the pieces written before are removed as well."""

    class Filling(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().read(size)

    store = LocalStore(tmp_path)
    with pytest.raises(StorageError, match="no space to write"):
        store.upload("a", Filling(bytes(3 << 20)), 3 << 20)
    assert names(tmp_path) == []


def test_right_that_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    store = LocalStore(tmp_path)
    store.put("a", b"")
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    for call in (store.get, store.stat):
        with pytest.raises(StorageError, match="no right to use"):
            call("a")
    with pytest.raises(StorageError, match="no right to use"):
        store.put("b", b"")
    with pytest.raises(StorageError, match="no right to use"):
        store.delete(["a"])


def test_object_where_a_folder_is_needed_is_an_error_not_a_loop(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a/b", b"")
    for write in (store.put, store.create):
        with pytest.raises(StorageError):
            write("a", b"")
        with pytest.raises(StorageError):
            write("a/b/c", b"")
    assert list(store.keys()) == ["a/b"]


def test_parts_of_dead_writers_are_hidden_then_swept_by_age(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a/b", b"x")
    old, young = tmp_path / f"a/{UNFINISHED}old", tmp_path / f"a/{UNFINISHED}young"
    old.write_bytes(b"12345")
    young.write_bytes(b"123")
    os.utime(old, (1.0, 1.0))
    assert list(store.keys()) == ["a/b"]
    assert store.sweep_unfinished(older_than_s=3600) == 5
    assert names(tmp_path / "a") == [young.name, "b"]


def test_same_bytes_written_again_are_another_version(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    versions = []
    for _ in range(50):
        store.put("a", b"same")
        versions.append(store.stat("a").version)
    assert len(set(versions)) == 50


def test_folders_that_became_empty_go_but_never_the_root(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    store.put("a/b/c", b"")
    store.put("a/d", b"")
    store.delete(["a/b/c"])
    assert names(tmp_path / "root/a") == ["d"]
    store.delete(["a/d"])
    assert names(tmp_path) == ["root"]
    assert names(tmp_path / "root") == []


def test_bytes_are_durable_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.put("a/first", b"")  # makes the folder
    steps: list[str] = []
    fsync, link, replace = os.fsync, os.link, Path.replace

    def watched_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("fsync folder" if is_folder else f"fsync {os.fstat(descriptor).st_size}")
        fsync(descriptor)

    def watched_link(source: Path, target: Path) -> None:
        steps.append(f"link {target.name}")
        link(source, target)

    def watched_replace(source: Path, target: Path) -> None:
        steps.append(f"replace {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", watched_link)
    store.create("a/b", b"12345")
    assert steps == ["fsync 5", "link b", "fsync folder"]
    steps.clear()
    monkeypatch.setattr(Path, "replace", watched_replace)
    store.put("a/b", b"123")
    assert steps == ["fsync 3", "replace b", "fsync folder"]
