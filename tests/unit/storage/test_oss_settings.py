"""What variables, files and the machine say of OSS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burst.errors import CredentialsError, SetupError
from burst.storage.backends import oss_keys
from burst.storage.backends.oss_client import oss_endpoint
from burst.storage.backends.oss_keys import METADATA, Metadata, find_keys, metadata_of
from burst.storage.backends.s3_client import client_config
from burst.storage.open import shared_env
from burst.storage.oss import oss_settings_from, region_of
from burst.storage.settings import PATIENCE, StoreSettings

OWN = "https://oss-cn-hangzhou.aliyuncs.com"
OTHER = "https://oss.lab:8443"
AK = {"mode": "AK", "access_key_id": "LTAI1", "access_key_secret": "tok-SECRET"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home, on a machine that is none of Alibaba's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(oss_keys, "_PRODUCT", tmp_path / "product_name")
    return tmp_path


def write_profiles(home: Path, **profiles: dict[str, str]) -> None:
    (home / ".aliyun").mkdir()
    named = [{"name": name, **profile} for name, profile in profiles.items()]
    known = {"current": "default", "profiles": named}
    (home / ".aliyun" / "config.json").write_text(json.dumps(known))


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        (OWN, "cn-hangzhou"),
        ("oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"),
        ("http://oss-us-west-1-internal.aliyuncs.com/", "us-west-1"),
        ("https://s3.oss-eu-central-1.aliyuncs.com", "eu-central-1"),
        ("https://s3.oss-eu-central-1-internal.aliyuncs.com", "eu-central-1"),
        ("https://oss-accelerate.aliyuncs.com", None),
        ("https://oss-accelerate-overseas.aliyuncs.com", None),
        ("https://oss-cn-hangzhou.aliyuncs.com.example.org", None),
        (OTHER, None),
        ("", None),
    ],
)
def test_region_of_an_endpoint(endpoint: str, region: str | None) -> None:
    assert region_of(endpoint) == region


@pytest.mark.parametrize(
    ("environ", "endpoint", "region"),
    [
        ({"OSS_REGION": "cn-beijing"}, None, "cn-beijing"),
        ({"OSS_REGION": "oss-cn-beijing"}, None, "cn-beijing"),
        ({"ALIBABA_CLOUD_REGION_ID": "cn-beijing"}, None, "cn-beijing"),
        ({"OSS_REGION": "a-1", "ALIBABA_CLOUD_REGION_ID": "b-1"}, None, "a-1"),
        ({"OSS_ENDPOINT": OWN}, OWN, "cn-hangzhou"),
        ({"OSS_ENDPOINT": OWN.removeprefix("https://")}, OWN, "cn-hangzhou"),
        ({"OSS_ENDPOINT": "http://oss.lab"}, "http://oss.lab", "oss"),
        ({"OSS_ENDPOINT": OTHER, "OSS_REGION": "lab-1"}, OTHER, "lab-1"),
        ({"OSS_REGION": "cn-beijing", "AWS_ENDPOINT_URL_S3": "http://x"}, None, "cn-beijing"),
    ],
)
def test_where_oss_is(environ: dict[str, str], endpoint: str | None, region: str) -> None:
    found = oss_settings_from(environ)
    assert (found.scheme, found.endpoint, found.region) == ("oss", endpoint, region)
    assert found.addressing == "virtual"


def test_region_of_the_profile_is_the_last_resort(home: Path) -> None:
    write_profiles(home, default={**AK, "region_id": "cn-a"}, other={**AK, "region_id": "cn-b"})
    assert oss_settings_from({}).region == "cn-a"
    assert oss_settings_from({"ALIBABA_CLOUD_PROFILE": "other"}).region == "cn-b"
    assert oss_settings_from({"OSS_REGION": "cn-c"}).region == "cn-c"


def test_no_word_of_the_region_is_told_with_the_variable_to_set() -> None:
    with pytest.raises(SetupError, match="in which region") as caught:
        oss_settings_from({})
    assert caught.value.hint == "set OSS_REGION to the bucket's region, as in cn-hangzhou"


def test_what_all_stores_share_is_read_and_what_is_only_s3s_is_not() -> None:
    found = oss_settings_from(
        {
            "OSS_REGION": "r",
            "AWS_CA_BUNDLE": "/ca.pem",
            "BURST_S3_THREADS": "3",
            "BURST_S3_KMS_KEY": "K9",
            "BURST_S3_ADDRESSING": "path",
        }
    )
    shared = StoreSettings(ca_bundle="/ca.pem", max_threads=3)
    assert (found.ca_bundle, found.max_threads) == (shared.ca_bundle, shared.max_threads)
    assert (found.kms_key, found.addressing) == (None, "virtual")


def test_no_checksums_that_oss_refuses() -> None:
    config = client_config(oss_settings_from({"OSS_REGION": "cn-beijing"}), "bucket")
    assert config.request_checksum_calculation == "when_required"
    assert config.response_checksum_validation == "when_required"
    assert config.s3 == {"addressing_style": "virtual"}


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, {}),
        ({"OSS_REGION": "cn-beijing"}, {"OSS_REGION": "cn-beijing"}),
        ({"ALIBABA_CLOUD_REGION_ID": "cn-beijing"}, {"OSS_REGION": "cn-beijing"}),
        ({"OSS_ENDPOINT": OWN}, {"OSS_REGION": "cn-hangzhou"}),
        (
            {"OSS_ENDPOINT": "oss-cn-hangzhou-internal.aliyuncs.com"},
            {"OSS_REGION": "cn-hangzhou"},
        ),
        ({"OSS_ENDPOINT": OTHER}, {"OSS_ENDPOINT": OTHER}),
        (
            {"OSS_ENDPOINT": OTHER, "OSS_REGION": "lab-1"},
            {"OSS_ENDPOINT": OTHER, "OSS_REGION": "lab-1"},
        ),
        (
            {
                "OSS_REGION": "r",
                "ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI1",
                "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "tok-SECRET",
                "OSS_SESSION_TOKEN": "tok-SECRET",
            },
            {"OSS_REGION": "r"},
        ),
    ],
)
def test_nodes_are_told_the_region_and_no_keys(
    environ: dict[str, str], told: dict[str, str]
) -> None:
    """Each takes the endpoint that is near: the inner one of the controller is of no use abroad."""
    s3s = {"AWS_REGION": "us-east-1", "BURST_S3_KMS_KEY": "K9"}
    assert shared_env("oss://bkt/runs/r1", {**environ, **s3s}) == told
    assert shared_env("s3://bkt/runs/r1", {**environ, **s3s}) == {**PATIENCE, **s3s}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"profiles": [{}], "current": "x"}', "tok-SECRET"]
)
def test_damaged_profiles_are_named_and_not_quoted(home: Path, text: str) -> None:
    (home / ".aliyun").mkdir()
    (home / ".aliyun" / "config.json").write_text(text)
    with pytest.raises(SetupError, match="is no file of the aliyun command line") as caught:
        find_keys({})
    assert "tok-SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        (
            {"ALIBABA_CLOUD_ACCESS_KEY_ID": "a", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "b"},
            ("a", "b", None),
        ),
        (
            {
                "ALIBABA_CLOUD_ACCESS_KEY_ID": "a",
                "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "b",
                "ALIBABA_CLOUD_SECURITY_TOKEN": "c",
            },
            ("a", "b", "c"),
        ),
        (
            {
                "OSS_ACCESS_KEY_ID": "x",
                "OSS_ACCESS_KEY_SECRET": "y",
                "ALIBABA_CLOUD_ACCESS_KEY_ID": "a",
                "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "b",
                "ALIBABA_CLOUD_SECURITY_TOKEN": "c",
            },
            ("x", "y", None),
        ),
        ({"ALIBABA_CLOUD_ACCESS_KEY_ID": "alone"}, ("LTAI1", "tok-SECRET", None)),
        ({"ALIBABA_CLOUD_PROFILE": "sts"}, ("STS.1", "s", "t")),
    ],
)
def test_whose_keys_are_used(
    home: Path, environ: dict[str, str], wanted: tuple[str, str, str | None]
) -> None:
    keys = {"access_key_id": "STS.1", "access_key_secret": "s", "sts_token": "t"}
    write_profiles(home, default=AK, sts={"mode": "StsToken", **keys})
    found = find_keys(environ)
    assert (found.access_key, found.secret_key, found.token) == wanted


@pytest.mark.parametrize("mode", ["OAuth", "RamRoleArn", "External", "CloudSSO"])
def test_profile_that_burst_cannot_use_is_said(home: Path, mode: str) -> None:
    write_profiles(home, default={**AK, "mode": mode})
    with pytest.raises(CredentialsError, match=f"with the mode {mode}$") as caught:
        find_keys({})
    assert "aliyun configure" in (caught.value.hint or "")


def test_no_keys_anywhere() -> None:
    with pytest.raises(CredentialsError, match="no keys for OSS") as caught:
        find_keys({})
    assert "ALIBABA_CLOUD_ACCESS_KEY_ID" in (caught.value.hint or "")


def test_only_machines_of_alibaba_are_asked_for_their_metadata(home: Path) -> None:
    """Elsewhere the address may hang, or be somebody else's."""
    assert metadata_of({}) is None
    assert metadata_of({"ALIBABA_CLOUD_ECS_METADATA": "my-role"}) == Metadata(METADATA)
    (home / "product_name").write_text("Standard PC\n")
    assert metadata_of({}) is None
    (home / "product_name").write_text("Alibaba Cloud ECS\n")
    assert metadata_of({}) == Metadata(METADATA)
    assert metadata_of({"ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true"}) is None
    service = {"BURST_ALIBABA_METADATA": "http://127.0.0.1:9"}
    assert metadata_of(service) == Metadata("http://127.0.0.1:9")


def test_laptop_goes_in_by_the_front_door() -> None:
    settings = oss_settings_from({"OSS_REGION": "cn-beijing"})
    assert oss_endpoint(settings) == "https://s3.oss-cn-beijing.aliyuncs.com"
    assert oss_endpoint(oss_settings_from({"OSS_ENDPOINT": OWN})) == OWN
