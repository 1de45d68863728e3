"""What every store must do; run against each of them."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from burst.errors import ConflictError
from burst.storage.backends.fsspec_store import FsspecStore
from burst.storage.backends.local import LocalStore
from burst.storage.memory import MemoryStore
from burst.storage.open import open_store
from burst.storage.port import ObjectStore
from burst.storage.settings import StoreSettings


def open_s3(request: pytest.FixtureRequest) -> ObjectStore:
    from burst.storage.backends.s3 import S3Store

    settings = StoreSettings(endpoint=request.getfixturevalue("moto_url"), region="us-east-1")
    return S3Store(request.getfixturevalue("new_bucket")(), "root", settings)


def open_oss(request: pytest.FixtureRequest) -> ObjectStore:
    request.getfixturevalue("oss_front")
    return open_store(f"oss://{request.getfixturevalue('new_oss_bucket')()}/root")


OPENERS: dict[str, Callable[[pytest.FixtureRequest], ObjectStore]] = {
    "memory": lambda _: MemoryStore(),
    "local": lambda request: LocalStore(request.getfixturevalue("tmp_path") / "root"),
    "fsspec": lambda request: FsspecStore(f"memory://{request.getfixturevalue('tmp_path')}/root"),
    "s3": open_s3,
    "oss": open_oss,
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.integration] if name in {"s3", "oss"} else [])
        for name in OPENERS
    ]
)
def store(request: pytest.FixtureRequest) -> ObjectStore:
    return OPENERS[request.param](request)


def test_object_comes_back_whole(store: ObjectStore) -> None:
    for data in (b"", b"x", bytes(range(256)) * 9000):
        store.put("a/b.bin", data)
        target = io.BytesIO()
        assert store.get("a/b.bin") == data
        assert store.download("a/b.bin", target) == len(data)
        assert target.getvalue() == data
        assert store.stat("a/b.bin").size_bytes == len(data)


def test_what_is_absent(store: ObjectStore) -> None:
    store.put("folder/x", b"")
    for key in ("nothing", "folder", "folder/x/below", "folder/nothing"):
        with pytest.raises(FileNotFoundError):
            store.get(key)
        with pytest.raises(FileNotFoundError):
            store.stat(key)
        with pytest.raises(FileNotFoundError):
            store.download(key, io.BytesIO())
    store.delete(["nothing", "folder", "folder/x/below", "folder/x", "folder/x"])
    assert list(store.keys()) == []
    store.delete([])


def test_keys_are_sorted_by_code_point_and_start_with_the_prefix(store: ObjectStore) -> None:
    keys = ["a-b", "a.b", "a/b", "a/b0/c", "a/b.d/c", "a0", "aa/x", "b", "z/ü", "Z"]
    for key in keys:
        if key != "a/b":
            store.put(key, b"")
    store.put("a/b", b"")
    assert list(store.keys()) == sorted(keys)
    for prefix in ("a", "a/", "a/b", "a/b.", "zz", "a/b0/c", "nothing/at/all", "b/"):
        assert list(store.keys(prefix)) == sorted(k for k in keys if k.startswith(prefix))


def test_store_below_sees_only_what_is_below(store: ObjectStore) -> None:
    """C58: nothing outside the root is listed, read or deleted."""
    below = store.at("runs/r1")
    store.put("runs/r10/x", b"other")
    store.put("runs/r1/x", b"mine")
    below.put("y", b"")
    assert below.get("x") == b"mine"
    assert list(below.keys()) == ["x", "y"]
    assert list(below.keys("r1")) == []
    below.delete(["x", "y"])
    assert list(store.keys()) == ["runs/r10/x"]
    assert below.uri == store.uri + "/runs/r1"
    assert list(below.at("p").keys()) == []


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd", "a//b", "", "a/"])
def test_key_that_leaves_the_root_is_refused(store: ObjectStore, key: str) -> None:
    for call in (store.get, store.stat, store.at):
        with pytest.raises(ValueError, match="bad object key"):
            call(key)
    with pytest.raises(ValueError, match="bad object key"):
        store.put(key, b"")
    with pytest.raises(ValueError, match="bad object key"):
        store.create(key, b"")
    with pytest.raises(ValueError, match="bad object key"):
        store.delete([key])


def test_upload_goes_on_from_where_the_file_stands(store: ObjectStore) -> None:
    source = io.BytesIO(b"headbody")
    source.seek(4)
    store.upload("a", source, 4)
    assert store.get("a") == b"body"


@pytest.mark.parametrize("size_bytes", [3, 5, 0])
def test_upload_of_another_size_than_said_stores_nothing(
    store: ObjectStore, size_bytes: int
) -> None:
    store.put("a", b"before")
    with pytest.raises(ValueError, match=f"source was to hold {size_bytes} bytes"):
        store.upload("a", io.BytesIO(b"body"), size_bytes)
    assert store.get("a") == b"before"
    assert list(store.keys()) == ["a"]


def test_create_never_overwrites(store: ObjectStore) -> None:
    store.create("a/b", b"first")
    for _ in range(2):
        with pytest.raises(ConflictError):
            store.create("a/b", b"second")
    assert store.get("a/b") == b"first"
    store.put("a/b", b"third")
    with pytest.raises(ConflictError):
        store.create("a/b", b"first")
    assert store.get("a/b") == b"third"


def test_what_was_deleted_can_be_created_again(store: ObjectStore) -> None:
    store.create("a", b"1")
    store.delete(["a"])
    store.create("a", b"2")
    assert store.get("a") == b"2"


def test_other_bytes_have_another_version(store: ObjectStore) -> None:
    versions = set()
    for n in range(5):
        store.put("a", str(n).encode())
        version = store.stat("a").version
        assert store.stat("a").version == version
        versions.add(version)
    assert len(versions) == 5


def race(calls: list[Callable[[], object]]) -> list[object]:
    """Run the calls at once; return what each returned or raised."""
    barrier = threading.Barrier(len(calls))
    results: list[object] = [None] * len(calls)

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = calls[index]()
        except ConflictError as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_many_claims_exactly_one_wins(store: ObjectStore) -> None:
    """C32: twenty repeats."""
    if not store.conditional:
        pytest.skip("this store says that it cannot")
    for repeat in range(20):
        key = f"claim-{repeat}"
        results = race([partial(store.create, key, who) for who in (b"a", b"b", b"c")])
        (winner,) = [index for index, found in enumerate(results) if found is None]
        assert store.get(key) == (b"a", b"b", b"c")[winner]


def test_reader_never_sees_a_mixture(store: ObjectStore) -> None:
    stop = threading.Event()
    wanted = {bytes([n]) * 50_000 for n in range(5)}
    store.put("a", bytes([0]) * 50_000)

    def write() -> None:
        for n in range(40):
            store.put("a", bytes([n % 5]) * 50_000)
        stop.set()

    seen: list[bytes] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(store.get("a"))

    race([write, read])
    assert set(seen) <= wanted


def test_nothing_of_a_living_writer_is_swept(store: ObjectStore) -> None:
    store.put("a", b"x")
    assert store.sweep_unfinished(older_than_s=0) == 0
    assert store.get("a") == b"x"


def test_root_that_does_not_exist_is_empty(store: ObjectStore, tmp_path: Path) -> None:
    assert list(store.keys()) == []
    assert list(LocalStore(tmp_path / "never" / "made").keys()) == []
    assert not (tmp_path / "never").exists()
