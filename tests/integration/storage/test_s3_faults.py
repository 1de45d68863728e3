"""S3 behind a proxy that fails: what is retried, what is said, and that no short body passes."""

from __future__ import annotations

import io
import logging
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from burst.errors import ConflictError, StorageError, TransientError
from burst.storage.backends.s3 import S3Store
from burst.storage.preflight import check_store
from burst.storage.settings import StoreSettings
from fault_proxy import Answer, Cut, Delay, Drop, FaultProxy, Request

pytestmark = pytest.mark.integration

MIB = 1 << 20
Make = Callable[..., S3Store]


class SkippingClock:
    """Does not wait: time passes only here."""

    def __init__(self) -> None:
        self.time = 0.0
        self.at: dict[float, Callable[[], None]] = {}

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        for when in [when for when in self.at if when <= self.time]:
            self.at.pop(when)()


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture
def make(proxy: FaultProxy, new_bucket: Callable[[], str], clock: SkippingClock) -> Make:
    bucket = new_bucket()

    def store(**settings: object) -> S3Store:
        given = {"endpoint": proxy.url, "region": "us-east-1", **settings}
        return S3Store(bucket, "root", StoreSettings(**given), clock=clock)  # type: ignore[arg-type]

    return store


def verb(name: str, part: str = "") -> Callable[[Request], bool]:
    return lambda request: request.verb == name and part in request.path


def test_store_that_is_busy_is_asked_again(make: Make, proxy: FaultProxy) -> None:
    store = make()
    proxy.rule(Answer(503, "SlowDown"), times=3)
    store.put("a", b"x")
    proxy.rule(Answer(500, "InternalError"), times=2)
    assert store.get("a") == b"x"
    proxy.rule(Answer(503, "SlowDown"), times=1)
    assert list(store.keys()) == ["a"]


def test_store_that_stays_busy_ends_in_an_error_in_time(
    make: Make, proxy: FaultProxy, clock: SkippingClock
) -> None:
    store = make(give_up_after_s=60.0)
    proxy.rule(Answer(503, "SlowDown"))
    with pytest.raises(TransientError, match="SlowDown"):
        store.put("a", b"x")
    assert clock.time <= 60
    assert 5 < len(proxy.requests) < 40


@pytest.mark.parametrize("read", ["get", "download"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size_bytes", [1000, 3 * MIB])
def test_body_that_ends_early_is_read_again(
    make: Make,
    proxy: FaultProxy,
    read: str,
    chunked: bool,
    size_bytes: int,
) -> None:
    """C53 a, b, d: also when the end looks clean."""
    store = make()
    data = bytes(range(250)) * (size_bytes // 250)
    store.put("a", data)
    proxy.rule(Cut(400, chunked), verb("GET"), times=2)
    target = io.BytesIO()
    if read == "get":
        assert store.get("a") == data
    else:
        assert store.download("a", target) == len(data)
        assert target.getvalue() == data


@pytest.mark.parametrize("chunked", [False, True])
def test_body_that_always_ends_early_is_never_returned(
    make: Make,
    proxy: FaultProxy,
    chunked: bool,
) -> None:
    """C53."""
    store = make(give_up_after_s=5.0)
    store.put("a", bytes(1000))
    proxy.rule(Cut(400, chunked), verb("GET"))
    with pytest.raises(TransientError):
        store.get("a")


def test_download_goes_on_where_it_was_cut(make: Make, proxy: FaultProxy) -> None:
    """C53: and needs no seekable target."""
    store = make()
    data = bytes(range(256)) * (3 * MIB // 256)
    store.put("a", data)
    proxy.rule(Cut(2 * MIB, chunked=True), verb("GET"), times=1)
    assert store.download("a", io.BytesIO()) == len(data)
    first, second = proxy.asked("GET")
    assert "range" not in first.headers
    assert second.headers["range"] == f"bytes={2 * MIB}-"


def test_another_range_than_asked_is_not_taken(make: Make, proxy: FaultProxy) -> None:
    """C53 c: the proxy forgets the Range header, so the store sends it all."""
    store = make(give_up_after_s=5.0)
    store.put("a", bytes(1000))
    proxy.forgotten_headers.add("range")
    proxy.rule(Cut(400, chunked=True), verb("GET"), times=1)
    with pytest.raises(TransientError, match="another part"):
        store.download("a", io.BytesIO())


def test_object_that_changes_during_a_download_is_no_mixture(
    make: Make, proxy: FaultProxy, clock: SkippingClock
) -> None:
    store = make()
    store.put("a", b"1" * 1000)
    clock.at[0.0] = lambda: store.put("a", b"2" * 1000)
    proxy.rule(Cut(400, chunked=True), verb("GET"), times=1)
    with pytest.raises(ConflictError):
        store.download("a", io.BytesIO())


def test_connections_that_drop(make: Make, proxy: FaultProxy) -> None:
    store = make()
    proxy.rule(Drop(), verb("PUT"), times=2)
    store.put("a", b"x")
    proxy.rule(Drop(after=True), verb("PUT"), times=1)
    store.put("a", b"y")
    proxy.rule(Drop(), verb("GET"), times=1)
    assert store.get("a") == b"y"


def test_answer_lost_after_a_create_is_a_conflict_not_a_second_write(
    make: Make, proxy: FaultProxy
) -> None:
    store = make()
    proxy.rule(Drop(after=True), verb("PUT"), times=1)
    with pytest.raises(ConflictError):
        store.create("a", b"mine")
    assert store.get("a") == b"mine"


def needs_new_checksums(request: Request) -> bool:
    return (
        "aws-chunked" in request.headers.get("content-encoding", "")
        or "x-amz-trailer" in request.headers
        or (
            any(name.startswith("x-amz-checksum") for name in request.headers)
            and request.verb == "PUT"
        )
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [(501, "NotImplemented"), (403, "Unauthorized"), (400, "XAmzContentSHA256Mismatch")],
)
def test_store_that_refuses_new_checksums(
    make: Make, proxy: FaultProxy, status: int, code: str
) -> None:
    """C47, profiles 1 to 3: put, multipart, list, delete."""
    proxy.rule(Answer(status, code), needs_new_checksums)
    use_all(make())


def test_store_without_bulk_deletes(make: Make, proxy: FaultProxy) -> None:
    """C47, profile 4: falls back to single deletes, and remembers."""
    proxy.rule(Answer(400, "MissingContentMD5"), verb("POST", "?delete"))
    store = make()
    use_all(store)
    use_all(store)
    assert len(proxy.asked("POST", "?delete")) == 1


def test_plain_store(make: Make) -> None:
    """C47, profile 5."""
    use_all(make())


def use_all(store: S3Store) -> None:
    data = bytes(9 * MIB)
    store.put("small", b"x")
    store.upload("large", io.BytesIO(data), len(data))
    assert store.get("large") == data
    assert list(store.keys()) == ["large", "small"]
    store.delete(["large", "small"])
    assert list(store.keys()) == []


def test_one_failed_delete_among_many_is_said(make: Make, proxy: FaultProxy) -> None:
    store = make()
    for number in range(3):
        store.put(f"k{number}", b"")
    proxy.rule(Answer(403, "AccessDenied"), verb("POST", "?delete"))
    with pytest.raises(StorageError, match="AccessDenied"):
        store.delete(["k0", "k1", "k2"])


def test_bucket_that_must_be_in_the_host_name(
    make: Make, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C49 a: said with the setting that helps, which then works."""
    resolve = socket.getaddrinfo

    def resolve_here(host: str, *rest: Any, **named: Any) -> Any:
        return resolve("127.0.0.1" if host.endswith(".localhost") else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    proxy.rule(
        Answer(403, "SecondLevelDomainForbidden"),
        lambda request: not request.headers["host"].startswith("bucket-"),
    )
    with pytest.raises(StorageError) as caught:
        make().put("a", b"x")
    assert "BURST_S3_ADDRESSING=virtual" in (caught.value.hint or "")
    store = make(addressing="virtual", endpoint=f"http://localhost:{proxy.port}")
    store.put("a", b"x")
    assert store.get("a") == b"x"


def key_id(name: str) -> Callable[[Request], bool]:
    return lambda request: f"Credential={name}/" in request.headers.get("authorization", "")


def write_keys(path: Path, name: str) -> None:
    path.write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = tok-SECRET\n")


@pytest.fixture
def keys_file(aws_env: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    aws_env.delenv("AWS_ACCESS_KEY_ID")
    aws_env.delenv("AWS_SECRET_ACCESS_KEY")
    aws_env.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    write_keys(path, "AKIAONE")
    return path


def test_keys_that_expire_in_the_middle_of_an_upload(
    make: Make, proxy: FaultProxy, clock: SkippingClock, keys_file: Path
) -> None:
    """C46 b: the same upload goes on with the new keys, which come two seconds later."""
    store = make()
    store.put("before", b"x")
    proxy.rule(
        Answer(400, "ExpiredToken"), lambda r: key_id("AKIAONE")(r) and "partNumber=3" in r.path
    )
    clock.at[2.0] = lambda: write_keys(keys_file, "AKIATWO")
    data = bytes(40 * MIB)
    store.upload("large", io.BytesIO(data), len(data))
    assert store.stat("large").size_bytes == len(data)
    assert len(proxy.asked("POST", "?uploads")) == 1
    assert key_id("AKIATWO")(proxy.requests[-1])


def test_keys_that_expire_before_a_request_whose_refusal_has_no_body(
    make: Make, proxy: FaultProxy, clock: SkippingClock, keys_file: Path
) -> None:
    """C46 a: a HEAD is answered with a bare 400."""
    store = make()
    store.put("a", b"x")
    proxy.rule(Answer(400, "ExpiredToken"), key_id("AKIAONE"))
    clock.at[2.0] = lambda: write_keys(keys_file, "AKIATWO")
    assert store.stat("a").size_bytes == 1


def test_keys_that_stay_expired(
    make: Make,
    proxy: FaultProxy,
    clock: SkippingClock,
    keys_file: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C46 c: ends in a bounded time with one clear line, without the secret."""
    caplog.set_level(logging.DEBUG, "burst")
    proxy.rule(Answer(400, "ExpiredToken"), key_id("AKIAONE"))
    with pytest.raises(TransientError) as caught:
        make().put("a", b"x")
    assert "the credentials have expired (PutObject: ExpiredToken)" in caught.value.message
    assert clock.time <= 120
    assert "tok-SECRET" not in caplog.text + str(caught.value) + repr(caught.value)
    assert keys_file.exists()


def test_clock_that_is_wrong_then_right(
    make: Make, proxy: FaultProxy, clock: SkippingClock
) -> None:
    """C55: said in seconds; works as soon as the clock is right, with the same store."""
    store = make(give_up_after_s=10.0)
    skewed = proxy.rule(Answer(403, "RequestTimeTooSkewed", date_ahead_s=-1000))
    with pytest.raises(TransientError) as caught:
        store.put("a", b"x")
    ahead = re.search(
        r"this host's clock is about (\d+) s ahead of the store", caught.value.message
    )
    assert ahead is not None
    assert abs(int(ahead[1]) - 1000) < 20
    clock.at[clock.time] = lambda: proxy.rules.remove(skewed)
    store.put("a", b"x")
    assert store.get("a") == b"x"


def test_every_write_carries_the_key(make: Make, proxy: FaultProxy) -> None:
    """C61: one-shot, conditional and multipart, and nothing reads an ETag as MD5."""
    proxy.rule(
        Answer(403, "AccessDenied"),
        lambda r: (
            (
                (r.verb == "PUT" and "partNumber" not in r.path)
                or (r.verb == "POST" and "?uploads" in r.path)
            )
            and (
                r.headers.get("x-amz-server-side-encryption") != "aws:kms"
                or r.headers.get("x-amz-server-side-encryption-aws-kms-key-id") != "K9"
            )
        ),
    )
    store = make(kms_key="K9")
    use_all(store)
    store.create("pointer", b"1")
    with pytest.raises(StorageError) as caught:
        make().put("a", b"x")
    assert "the bucket policy may require encryption headers" in (caught.value.hint or "")


def test_many_threads_share_few_connections(
    make: Make,
    proxy: FaultProxy,
    recwarn: pytest.WarningsRecorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C62: all arrive, one connection in ten drops, no pool overflows."""
    caplog.set_level(logging.WARNING)
    store = make(max_threads=6)
    proxy.rule(Delay(0.005))
    seen = iter(range(10**6))
    proxy.rule(Drop(), lambda _: next(seen) % 10 == 3)
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda n: store.put(f"s{n:03d}", bytes(64 << 10)), range(100)))
    assert len(list(store.keys())) == 100
    assert proxy.open_at_most <= 6
    assert "pool is full" not in caplog.text
    assert [str(w.message) for w in recwarn if "pool" in str(w.message)] == []


def test_more_threads_are_faster(make: Make, proxy: FaultProxy) -> None:
    """C62: under a delay the calls overlap (counted, not timed)."""
    store = make(max_threads=12)
    proxy.rule(Delay(0.05))
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: store.put(f"s{n}", b"x"), range(24)))
    assert proxy.busy_at_most >= 6


def test_handles_do_not_grow(make: Make) -> None:
    """C62."""

    def handles() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    store = make()
    store.put("a", b"x")
    before = handles()
    for number in range(100):
        store.at(f"run-{number}").put("a", b"x")
    assert abs(handles() - before) <= 5


def test_preflight_finds_the_missing_key_before_the_machines_are_there(
    make: Make, proxy: FaultProxy
) -> None:
    """C61: encrypt but not decrypt: small writes work and only the parts are refused."""
    check_store(make())
    proxy.rule(Answer(403, "AccessDenied"), verb("PUT", "partNumber"))
    with pytest.raises(StorageError, match="cannot upload in parts") as caught:
        check_store(make())
    assert "encryption headers" in (caught.value.hint or "")
