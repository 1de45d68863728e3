"""Uploads in parts that are killed, refused or swept (C56), and claims (C32)."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from burst.errors import StorageError
from burst.storage.backends.s3 import S3Store
from burst.storage.settings import StoreSettings
from fault_proxy import Answer, Drop, FaultProxy, Request

pytestmark = pytest.mark.integration

MIB = 1 << 20
LARGE = bytes(17 * MIB)  # three parts


def open_store(url: str, bucket: str, prefix: str = "runs/r1", **settings: Any) -> S3Store:
    given = StoreSettings(endpoint=url, region="us-east-1", give_up_after_s=1.0, **settings)
    return S3Store(bucket, prefix, given)


def unfinished(url: str, bucket: str) -> list[str]:
    client = boto3.session.Session().client("s3", endpoint_url=url)
    return [
        found["Key"] for found in client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())
    ]


def part(request: Request) -> bool:
    return "partNumber=3" in request.path


def completing(request: Request) -> bool:
    return request.verb == "POST" and "uploadId=" in request.path


@pytest.mark.parametrize("where", [part, completing])
def test_upload_that_fails_leaves_no_parts(
    proxy: FaultProxy,
    moto_url: str,
    new_bucket: Callable[[], str],
    where: Callable[[Request], bool],
) -> None:
    """C56: also when the last call of all fails."""
    bucket = new_bucket()
    proxy.rule(Answer(403, "AccessDenied"), where)
    with pytest.raises(StorageError, match="AccessDenied"):
        open_store(proxy.url, bucket).upload("a", io.BytesIO(LARGE), len(LARGE))
    assert unfinished(moto_url, bucket) == []


def test_upload_whose_last_answer_was_lost_counts(
    proxy: FaultProxy, moto_url: str, new_bucket: Callable[[], str]
) -> None:
    bucket = new_bucket()
    proxy.rule(Drop(after=True), completing, times=1)
    store = open_store(proxy.url, bucket)
    store.upload("a", io.BytesIO(LARGE), len(LARGE))
    assert store.stat("a").size_bytes == len(LARGE)
    assert unfinished(moto_url, bucket) == []


def test_file_that_shrinks_while_it_is_sent_is_not_stored(
    moto_url: str, new_bucket: Callable[[], str]
) -> None:
    class Shrinking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(size)[:-1]

    bucket = new_bucket()
    store = open_store(moto_url, bucket)
    with pytest.raises(ValueError, match="source ended within part"):
        store.upload("a", Shrinking(LARGE), len(LARGE))
    assert list(store.keys()) == []
    assert unfinished(moto_url, bucket) == []


def test_too_large_an_object_sends_nothing(
    proxy: FaultProxy, new_bucket: Callable[[], str]
) -> None:
    """C44: refused before the first byte."""
    store = open_store(proxy.url, new_bucket(), max_object_bytes=16 * MIB)
    with pytest.raises(StorageError, match="more than the store takes"):
        store.upload("a", io.BytesIO(LARGE), len(LARGE))
    assert proxy.requests == []


KILLED = """
import os, signal, sys
from burst.storage.backends import s3_upload
from burst.storage.backends.s3 import S3Store
from burst.storage.settings import StoreSettings
import io
url, bucket = sys.argv[1:]
read = s3_upload._Parts.read
def dying(self, number):
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(self, number)
s3_upload._Parts.read = dying
store = S3Store(bucket, "runs/r1", StoreSettings(endpoint=url, region="us-east-1"))
store.upload("shard", io.BytesIO(bytes(48 << 20)), 48 << 20)
"""


def test_parts_of_killed_uploads_are_swept_and_no_others(
    moto_url: str, new_bucket: Callable[[], str]
) -> None:
    """C56: under our own prefix only, and not those of a living attempt."""
    bucket = new_bucket()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, moto_url, bucket], check=False, env=os.environ
    )
    assert killed.returncode == -signal.SIGKILL
    client = boto3.session.Session().client("s3", endpoint_url=moto_url)
    client.create_multipart_upload(Bucket=bucket, Key="runs/r10/shard")
    store = open_store(moto_url, bucket)
    assert list(store.keys()) == []
    age_s = 10 * 365 * 86400  # this stand-in dates every upload to 2010
    assert store.sweep_unfinished(older_than_s=10 * age_s) == 0
    assert sorted(unfinished(moto_url, bucket)) == ["runs/r1/shard", "runs/r10/shard"]
    assert store.sweep_unfinished(older_than_s=age_s) > 0
    assert unfinished(moto_url, bucket) == ["runs/r10/shard"]


def test_whole_bucket_is_never_swept(moto_url: str, new_bucket: Callable[[], str]) -> None:
    """C56, C58."""
    with pytest.raises(ValueError, match="whole bucket"):
        open_store(moto_url, new_bucket(), prefix="").sweep_unfinished(older_than_s=0)


def test_without_the_right_to_abort_one_warning_says_what_is_held(
    proxy: FaultProxy,
    moto_url: str,
    new_bucket: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C56."""
    bucket = new_bucket()
    client = boto3.session.Session().client("s3", endpoint_url=moto_url)
    for key in ("runs/r1/a", "runs/r1/b"):
        upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"12345")
    proxy.rule(Answer(403, "AccessDenied"), lambda request: request.verb == "DELETE")
    with caplog.at_level(logging.WARNING, "burst"):
        assert open_store(proxy.url, bucket).sweep_unfinished(older_than_s=0) == 0
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("burst")]
    assert line.startswith("10 bytes of unfinished uploads stay under s3://")
    assert "AbortIncompleteMultipartUpload" in line


CLAIM = """
import sys
from burst.errors import ConflictError
from burst.storage.backends.s3 import S3Store
from burst.storage.settings import StoreSettings
url, bucket, who = sys.argv[1:]
store = S3Store(bucket, "", StoreSettings(endpoint=url, region="us-east-1"))
print("ready", flush=True)
sys.stdin.readline()
for repeat in range(20):
    try:
        store.create(f"claim-{repeat}", who.encode())
        print(repeat)
    except ConflictError:
        pass
"""


def test_of_two_processes_one_gets_each_claim(moto_url: str, new_bucket: Callable[[], str]) -> None:
    """C32: twenty repeats, with versioning on so that an overwrite would show."""
    bucket = new_bucket()
    client = boto3.session.Session().client("s3", endpoint_url=moto_url)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    claimants = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, moto_url, bucket, who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in "ab"
    ]
    for process in claimants:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    won = [process.communicate("go\n")[0].split() for process in claimants]
    assert sorted(won[0] + won[1], key=int) == [str(repeat) for repeat in range(20)]
    versions = client.list_object_versions(Bucket=bucket)["Versions"]
    assert len(versions) == 20
    for who, claims in zip("ab", won, strict=True):
        for repeat in claims:
            body = client.get_object(Bucket=bucket, Key=f"claim-{repeat}")["Body"].read()
            assert body == who.encode()
