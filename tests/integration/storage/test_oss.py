"""OSS, as strict as its documentation: what burst does there, and that nothing else would do."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from burst.errors import ConflictError, OwnedError, StorageError, TransientError
from burst.storage.backends.oss_client import oss_endpoint
from burst.storage.backends.s3 import S3Store
from burst.storage.journal import Journal
from burst.storage.lease import Lease, Owner, current_owner
from burst.storage.open import open_store
from burst.storage.oss import oss_settings_from
from burst.storage.preflight import check_store
from burst.storage.settings import StoreSettings
from ecs_metadata import EcsMetadata
from fault_proxy import Answer, Cut, Drop, Request
from oss_front import Key, OssFront

pytestmark = pytest.mark.integration

MIB = 1 << 20
STRICT: dict[str, Any] = {
    "s3": {"addressing_style": "virtual"},
    "request_checksum_calculation": "when_required",
}


class SkippingClock:
    """Does not wait: time passes only here."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture
def store(
    oss_front: OssFront, new_oss_bucket: Callable[[], str], clock: SkippingClock
) -> Iterator[S3Store]:
    """Return a store; whatever the test did, OSS had nothing to object to how it was asked."""
    yield S3Store(new_oss_bucket(), "root", oss_settings_from(os.environ), clock=clock)
    assert set(oss_front.refused) <= {"FileAlreadyExists", "InvalidAccessKeyId"}


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch, oss_front: OssFront) -> Iterator[EcsMetadata]:
    """Return the metadata service of a machine in OSS's region, on which nobody has left keys."""
    del oss_front
    monkeypatch.delenv("ALIBABA_CLOUD_ACCESS_KEY_ID")
    service = EcsMetadata()
    service.facts["/latest/meta-data/region-id"] = "ap-southeast-1"
    monkeypatch.setenv("BURST_ALIBABA_METADATA", service.url)
    yield service
    service.close()


def verb(name: str, part: str = "") -> Callable[[Request], bool]:
    return lambda request: request.verb == name and part in request.path


def client_of(front: OssFront, **config: Any) -> Any:
    session = boto3.session.Session("LTAItest", "secret-of-test", region_name="ap-southeast-1")
    once = Config(retries={"total_max_attempts": 1}, **config)
    return session.client("s3", endpoint_url=front.endpoint, config=once)


@pytest.mark.parametrize(
    ("config", "call", "code"),
    [
        ({"s3": {"addressing_style": "path"}}, "put_object", "SecondLevelDomainForbidden"),
        ({"s3": {"addressing_style": "virtual"}}, "put_object", "InvalidArgument"),
        (STRICT, "put_object if none", "NotImplemented"),
        (STRICT, "delete_objects", "MissingArgument"),
    ],
)
def test_what_an_s3_client_does_by_itself_is_refused(
    oss_front: OssFront,
    new_oss_bucket: Callable[[], str],
    config: dict[str, Any],
    call: str,
    code: str,
) -> None:
    """Over TLS, without which botocore sends no body in chunks and hides the second one."""
    name, _, condition = call.partition(" ")
    arguments: dict[str, Any] = {"Key": "a", "Body": b"x"}
    if condition:
        arguments["IfNoneMatch"] = "*"
    if name == "delete_objects":
        arguments = {"Delete": {"Objects": [{"Key": "a"}]}}
    with pytest.raises(ClientError) as caught:
        getattr(client_of(oss_front, **config), name)(Bucket=new_oss_bucket(), **arguments)
    assert caught.value.response["Error"]["Code"] == code


def test_everything_a_run_does(store: S3Store, oss_front: OssFront) -> None:
    data = bytes(range(256)) * (9 * MIB // 256)
    store.put("small", b"x")
    store.upload("large", io.BytesIO(data), len(data))
    assert store.get("large") == data
    target = io.BytesIO()
    assert store.download("large", target) == len(data)
    assert store.stat("small").version == '"9DD4E461268C8034F5C8564E155C67A6"'  # in capitals
    assert list(store.keys()) == ["large", "small"]
    store.delete(["large", "small", "nothing"])
    assert list(store.keys()) == []
    assert oss_front.refused == []
    assert store.at("b").uri == f"oss://{store.uri.split('/')[2]}/root/b"


def test_lease_and_journal_have_one_owner(store: S3Store, clock: SkippingClock) -> None:
    ann = Owner(host="a", pid=1, started_at="1", name="ann")
    bob = Owner(host="b", pid=2, started_at="2", name="bob")
    held = Lease.acquire(store, ann, ttl_s=20, clock=clock)
    journal = Journal(store)
    assert journal.append({"n": 1}) == 1
    with pytest.raises(OwnedError, match="ann"):
        Lease.acquire(store, bob, ttl_s=20, clock=clock)
    taken = Lease.acquire(store, bob, ttl_s=20, clock=clock, wait_s=60)
    assert (held.token, taken.token) == (1, 2)
    other = Journal(store)
    assert other.append({"n": 2}) == 2
    with pytest.raises(OwnedError):
        held.renew()
    with pytest.raises(OwnedError):
        journal.append({"n": 2})
    taken.release()
    assert current_owner(store) is None
    assert [entry for _, entry in other.read()] == [{"n": 1}, {"n": 2}]


def test_preflight_passes_and_leaves_nothing(store: S3Store) -> None:
    check_store(store)
    assert list(store.keys()) == []


def test_bucket_with_versions_is_found_out_before_a_run(
    store: S3Store, oss_front: OssFront
) -> None:
    """OSS ignores x-oss-forbid-overwrite there."""
    oss_front.versioned.add(store.uri.split("/")[2])
    with pytest.raises(StorageError, match="cannot claim: a second conditional") as caught:
        check_store(store)
    assert "has, or had, versions" in (caught.value.hint or "")
    assert list(store.keys()) == []


def test_busy_store_and_lost_answers(store: S3Store, oss_front: OssFront) -> None:
    oss_front.rule(Answer(503, "ServiceUnavailable"), times=3)
    store.put("a", b"x")
    oss_front.rule(Drop(after=True), verb("PUT"), times=1)
    store.put("a", b"y")
    oss_front.rule(Cut(1000, chunked=True), verb("GET"), times=1)
    store.put("long", bytes(5000))
    assert store.get("long") == bytes(5000)
    oss_front.rule(Drop(after=True), verb("PUT"), times=1)
    with pytest.raises(ConflictError):
        store.create("b", b"mine")
    assert store.get("b") == b"mine"
    oss_front.rule(Drop(after=True), verb("POST", "uploadId"), times=1)
    store.upload("large", io.BytesIO(bytes(9 * MIB)), 9 * MIB)
    assert store.stat("large").size_bytes == 9 * MIB


def test_store_that_stays_busy_ends_in_an_error_in_time(
    store: S3Store, oss_front: OssFront, clock: SkippingClock
) -> None:
    oss_front.rule(Answer(503, "ServiceUnavailable"))
    with pytest.raises(TransientError, match="ServiceUnavailable"):
        store.create("a", b"x")
    assert clock.time <= 120


def test_leftovers_of_killed_uploads(
    store: S3Store, oss_front: OssFront, caplog: pytest.LogCaptureFixture
) -> None:
    place = {"Bucket": store.uri.split("/")[2], "Key": "root/a"}
    client = client_of(oss_front, **STRICT)
    upload = client.create_multipart_upload(**place)["UploadId"]
    client.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"12345")
    oss_front.lists_uploads = False
    with caplog.at_level(logging.WARNING, "burst"):
        assert store.sweep_unfinished(older_than_s=0) == 0
    assert f"unfinished uploads under {store.uri}/ cannot be found" in caplog.text
    assert "lifecycle rule" in caplog.text
    oss_front.lists_uploads = True
    oss_front.refused.clear()
    assert store.sweep_unfinished(older_than_s=0) == 5
    assert store.sweep_unfinished(older_than_s=0) == 0


def write_profile(folder: Path, **profile: str) -> None:
    path = folder / ".aliyun" / "config.json"
    path.parent.mkdir(exist_ok=True)
    known = {"current": "default", "profiles": [{"name": "default", **profile}]}
    path.write_text(json.dumps(known))


def test_keys_of_the_aliyun_command_line(
    store: S3Store, oss_front: OssFront, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Read anew when the store calls them expired; in no repr and no pickle."""
    monkeypatch.delenv("ALIBABA_CLOUD_ACCESS_KEY_ID")

    def write(number: int) -> None:
        token = f"TOKEN{number}"
        oss_front.keys[f"STS.{number}"] = Key("tok-SECRET", token)
        named = {"access_key_id": f"STS.{number}", "access_key_secret": "tok-SECRET"}
        write_profile(tmp_path, mode="StsToken", **named, sts_token=token)

    write(1)
    store.put("a", b"x")
    oss_front.keys["STS.1"] = Key("tok-SECRET", "TOKEN1", expired=True)
    write(2)
    store.put("a", b"y")
    assert oss_front.refused == ["SecurityTokenExpired"]
    oss_front.refused.clear()
    connection = store._connection
    for shown in (store, vars(store), vars(connection), vars(connection)["_made"]):
        assert "tok-SECRET" not in repr(shown)
        assert "TOKEN" not in repr(shown)
    assert b"tok-SECRET" not in pickle.dumps(store)


def test_wrong_keys_are_said_without_them(
    store: S3Store, oss_front: OssFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "tok-SECRET")
    with pytest.raises(StorageError, match="SignatureDoesNotMatch") as caught:
        store.put("a", b"x")
    assert "check the secret key" in (caught.value.hint or "")
    assert "tok-SECRET" not in str(caught.value)
    oss_front.refused.clear()


def test_machine_uses_its_role_and_new_keys_before_the_old_ones_expire(
    store: S3Store, oss_front: OssFront, metadata: EcsMetadata
) -> None:
    oss_front.keys.clear()

    def new_keys() -> dict[str, str]:
        """Give keys that botocore calls too old to be used for long; forget those before."""
        name = f"STS.{len(metadata.asked)}"
        oss_front.keys = {name: Key("s", "t")}
        expires = datetime.now(UTC) + timedelta(minutes=5)
        told = {"AccessKeyId": name, "AccessKeySecret": "s", "SecurityToken": "t"}
        return {**told, "Expiration": f"{expires:%Y-%m-%dT%H:%M:%SZ}"}

    metadata.give_role("burst-node", new_keys)
    for number in range(3):
        store.put("a", str(number).encode())
    assert store.get("a") == b"2"
    assert metadata.asked.count("/latest/meta-data/ram/security-credentials/burst-node") >= 4
    assert oss_front.refused == []


def test_machine_without_a_role(store: S3Store, metadata: EcsMetadata) -> None:
    with pytest.raises(TransientError, match=f"{metadata.url} gives no keys of a RAM role"):
        store.put("a", b"x")


@pytest.mark.parametrize(
    ("region", "inside"), [("ap-southeast-1", "-internal"), ("cn-beijing", "")]
)
def test_machine_of_the_region_goes_in_by_the_inner_door(
    metadata: EcsMetadata, region: str, inside: str
) -> None:
    found = oss_endpoint(StoreSettings(scheme="oss", region=region))
    assert found == f"https://s3.oss-{region}{inside}.aliyuncs.com"


def test_machine_that_does_not_say_where_it_is(
    metadata: EcsMetadata, caplog: pytest.LogCaptureFixture
) -> None:
    metadata.facts.clear()
    found = oss_endpoint(StoreSettings(scheme="oss", region="ap-southeast-1"))
    assert found == "https://s3.oss-ap-southeast-1.aliyuncs.com"
    assert "reached from outside" in caplog.text


def test_nothing_of_aws_is_read_or_sent(
    oss_front: OssFront,
    new_oss_bucket: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    bucket = new_oss_bucket()
    (tmp_path / "config").write_text("[default]\ns3 =\n    addressing_style = path\n")
    for name, value in {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_PROFILE": "nobody-has-this",
        "AWS_ACCESS_KEY_ID": "AKIAother",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"oss://{bucket}/x")
    store.create("a", b"1")
    assert store.get("a") == b"1"
    assert not any(
        "AKIAother" in request.headers["authorization"] for request in oss_front.requests
    )
