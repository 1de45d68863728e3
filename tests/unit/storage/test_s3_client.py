"""The settings of every S3 client burst makes, and what a refusal means."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions as boto

from burst.errors import ConflictError, CredentialsError, SetupError, StorageError, TransientError
from burst.storage.backends.s3_client import addressing_style, client_config
from burst.storage.backends.s3_errors import translate
from burst.storage.settings import StoreSettings, settings_from

OSS = "https://oss-cn-example.aliyuncs.com"


@pytest.mark.parametrize(
    ("wanted", "endpoint", "bucket", "style"),
    [
        ("auto", None, "plain-data", "auto"),
        ("auto", None, "my.team.data", "path"),
        ("auto", "http://127.0.0.1:9000", "plain-data", "path"),
        ("auto", "http://localhost:9000", "plain-data", "path"),
        ("auto", "http://[::1]:9000", "plain-data", "path"),
        ("auto", "https://minio.lab", "plain-data", "path"),
        ("auto", OSS, "plain-data", "virtual"),
        ("auto", "https://notaliyuncs.com", "plain-data", "path"),
        ("path", OSS, "plain-data", "path"),
        ("virtual", "http://127.0.0.1:9000", "plain-data", "virtual"),
        ("virtual", None, "my.team.data", "virtual"),
    ],
)
def test_where_the_bucket_goes(wanted: Any, endpoint: str | None, bucket: str, style: str) -> None:
    """C49, C50: a setting wins; else by the endpoint, and a dotted name goes into the path."""
    assert addressing_style(wanted, endpoint, bucket) == style


def test_dotted_bucket_where_only_host_names_work() -> None:
    """C50: refused with advice; nobody is told to switch verification off."""
    with pytest.raises(StorageError, match="has a dot in its name") as caught:
        addressing_style("auto", OSS, "my.team.data")
    assert caught.value.hint == "use a bucket without dots"


@pytest.mark.parametrize(
    ("endpoint", "checksums"), [(None, "when_supported"), (OSS, "when_required")]
)
def test_checksums_that_other_stores_refuse(endpoint: str | None, checksums: str) -> None:
    """C47."""
    config = client_config(StoreSettings(endpoint=endpoint), "bucket")
    assert config.request_checksum_calculation == checksums
    assert config.response_checksum_validation == checksums


def test_pool_follows_the_threads() -> None:
    """C62."""
    assert client_config(StoreSettings(max_threads=32), "b").max_pool_connections == 32


def test_settings_come_from_the_environment() -> None:
    found = settings_from(
        {
            "AWS_ENDPOINT_URL": "http://a",
            "AWS_ENDPOINT_URL_S3": "http://b",
            "AWS_DEFAULT_REGION": "r",
            "AWS_CA_BUNDLE": "/ca.pem",
            "BURST_S3_ADDRESSING": "virtual",
            "BURST_S3_KMS_KEY": "K9",
            "BURST_S3_THREADS": "3",
        }
    )
    assert found == StoreSettings(
        endpoint="http://b",
        region="r",
        ca_bundle="/ca.pem",
        addressing="virtual",
        kms_key="K9",
        max_threads=3,
    )
    assert settings_from({}) == StoreSettings()


@pytest.mark.parametrize(
    ("name", "value"),
    [("BURST_S3_ADDRESSING", "host"), ("BURST_S3_THREADS", "0"), ("BURST_S3_THREADS", "many")],
)
def test_bad_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(SetupError, match=f"{name} is '{value}'"):
        settings_from({name: value})


def refused(code: str, status: int, date: str | None = None) -> Exception:
    headers = {} if date is None else {"date": date}
    answer = {
        "Error": {"Code": code, "Message": "Access Denied, perhaps SlowDown"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    error: Exception = boto.ClientError(answer, "PutObject")
    return error


@pytest.mark.parametrize(
    ("code", "status", "kind", "hint"),
    [
        ("AccessDenied", 403, StorageError, "s3:PutObject|PutObject"),
        ("NoSuchBucket", 404, StorageError, "make the bucket"),
        ("NoSuchKey", 404, FileNotFoundError, None),
        ("404", 404, FileNotFoundError, None),
        ("PreconditionFailed", 412, ConflictError, None),
        ("FileAlreadyExists", 409, ConflictError, None),
        ("SecurityTokenExpired", 403, TransientError, "renew the credentials"),
        ("PublicEndpointForbidden", 400, StorageError, "inside its region"),
        ("SecondLevelDomainForbidden", 403, StorageError, "BURST_S3_ADDRESSING=virtual"),
        ("NotImplemented", 501, StorageError, "may not accept new checksum headers"),
        ("Unauthorized", 403, StorageError, "may not accept new checksum headers"),
        ("XAmzContentSHA256Mismatch", 400, StorageError, "may not accept new checksum headers"),
        ("ExpiredToken", 400, TransientError, "renew the credentials"),
        ("SlowDown", 503, TransientError, None),
        ("ServiceUnavailable", 503, TransientError, None),
        ("Strange", 502, TransientError, None),
        ("Strange", 400, StorageError, None),
        ("ConditionalRequestConflict", 409, TransientError, None),
        ("SignatureDoesNotMatch", 403, StorageError, "secret key"),
    ],
)
def test_refusals_are_told_apart_by_code(
    code: str, status: int, kind: type[Exception], hint: str | None
) -> None:
    found = translate(refused(code, status), "s3://b/k")
    assert type(found) is kind
    assert "s3://b/k" in str(found)
    if hint is not None:
        assert isinstance(found, StorageError)
        assert any(part in (found.hint or "") for part in hint.split("|"))


def test_whole_text_of_a_refusal() -> None:
    found = translate(refused("NoSuchBucket", 404), "s3://b/k")
    assert str(found) == "s3://b/k: there is no such bucket (PutObject: NoSuchBucket)"
    found = translate(refused("Strange", 400), "s3://b/k")
    assert str(found) == "s3://b/k: PutObject was refused: Strange"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (boto.NoCredentialsError(), "there are no credentials for AWS"),
        (
            boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
            "of the credentials for AWS AWS_SECRET_ACCESS_KEY is missing",
        ),
        (boto.ProfileNotFound(profile="lab"), "AWS's configuration has no profile lab"),
    ],
)
def test_whole_text_of_missing_credentials(error: Exception, words: str) -> None:
    found = translate(error, "s3://b/k")
    assert isinstance(found, CredentialsError)
    assert (found.exit_code, found.message) == (9, f"s3://b/k cannot be opened: {words}")
    assert found.hint == (
        "run `aws configure`, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or "
        "give the machine a role"
    )


def test_whole_text_of_an_endpoint_where_nobody_answers() -> None:
    found = translate(boto.EndpointConnectionError(endpoint_url="http://x"), "s3://b/k")
    assert isinstance(found, TransientError)
    assert found.message == "s3://b/k: nobody answers at http://x"
    assert found.hint == "check the network, and AWS_ENDPOINT_URL_S3 if it is set"


@pytest.mark.parametrize(
    ("date", "says"),
    [
        ("Thu, 01 Jan 1970 00:00:00 GMT", "about 5000 s ahead of the store"),
        ("Thu, 01 Jan 1970 03:00:00 GMT", "about 5800 s behind the store"),
        (None, "too far from the store's"),
    ],
)
def test_clock_that_is_wrong_is_said_in_seconds(
    date: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C55: from the Date header, and never "access denied"."""
    monkeypatch.setattr("burst.storage.backends.s3_errors.time.time", lambda: 5000.0)
    found = translate(refused("RequestTimeTooSkewed", 403, date), "s3://b/k")
    assert isinstance(found, TransientError)
    assert says in found.message
    assert found.hint == "set this machine's clock"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (boto.EndpointConnectionError(endpoint_url="http://x"), TransientError),
        (boto.ReadTimeoutError(endpoint_url="http://x"), TransientError),
        (boto.ConnectionClosedError(endpoint_url="http://x"), TransientError),
        (boto.ResponseStreamingError(error="cut"), TransientError),
        (boto.CredentialRetrievalError(provider="p", error_msg="down"), TransientError),
        (boto.ParamValidationError(report="bad"), StorageError),
    ],
)
def test_failures_on_the_way(error: Exception, kind: type[Exception]) -> None:
    assert type(translate(error, "s3://b/k")) is kind


def test_certificate_that_does_not_verify() -> None:
    """C50: the advice is the authority's certificate, never less checking."""
    found = translate(boto.SSLError(endpoint_url="https://x", error="bad"), "s3://b/k")
    assert isinstance(found, StorageError)
    assert found.hint == "set AWS_CA_BUNDLE to the authority of the store's certificate"
