"""S3 over TLS with a private authority (C50)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

import self_signed
from burst.errors import StorageError
from burst.storage.backends.s3 import S3Store
from burst.storage.settings import StoreSettings
from fault_proxy import FaultProxy

pytestmark = pytest.mark.integration

DOTTED = "my.team.data"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed.certificate(tmp_path)


@pytest.fixture
def tls_proxy(moto_url: str, certificate: Path) -> Iterator[FaultProxy]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    proxy = FaultProxy(moto_url, context)
    yield proxy
    proxy.close()


def open_store(proxy: FaultProxy, ca_bundle: Path | None) -> S3Store:
    bundle = None if ca_bundle is None else str(ca_bundle)
    settings = StoreSettings(
        endpoint=proxy.url, region="us-east-1", ca_bundle=bundle, give_up_after_s=1.0
    )
    return S3Store(DOTTED, "root", settings)


def test_dotted_bucket_with_the_authority_given_once(
    tls_proxy: FaultProxy, certificate: Path, moto_url: str, new_bucket: Callable[[], str]
) -> None:
    new_bucket()
    boto3.session.Session().client("s3", endpoint_url=moto_url).create_bucket(Bucket=DOTTED)
    store = open_store(tls_proxy, certificate)
    store.put("a", b"x")
    assert store.at("b").uri == f"s3://{DOTTED}/root/b"
    assert store.get("a") == b"x"
    store.at("b").put("c", b"")


def test_certificate_of_nobody_known_is_refused(
    tls_proxy: FaultProxy, aws_env: pytest.MonkeyPatch
) -> None:
    """Verification stays on, and nothing proposes to switch it off."""
    del aws_env
    with pytest.raises(StorageError, match="SSLError") as caught:
        open_store(tls_proxy, None).put("a", b"x")
    assert caught.value.hint == "set AWS_CA_BUNDLE to the authority of the store's certificate"
    assert tls_proxy.requests == []


def test_authority_that_is_not_there(tls_proxy: FaultProxy, aws_env: pytest.MonkeyPatch) -> None:
    del aws_env
    with pytest.raises(StorageError, match=r"there is no CA bundle /nonexistent\.pem"):
        open_store(tls_proxy, Path("/nonexistent.pem")).get("a")
