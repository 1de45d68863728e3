"""Stand-ins for S3 and OSS on this machine, which fail on purpose."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from fault_proxy import FaultProxy
from moto_s3 import one_write_at_a_time
from oss_front import OssFront

hypothesis.settings.register_profile("burst", deadline=None)  # how long a test takes proves nothing
hypothesis.settings.load_profile("burst")

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Return the address of a moto server that lives as long as the tests."""
    from moto.server import ThreadedMotoServer

    one_write_at_a_time()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def proxy(moto_url: str) -> Iterator[FaultProxy]:
    """Return a proxy before the moto server, without rules yet."""
    proxy = FaultProxy(moto_url)
    yield proxy
    proxy.close()


@pytest.fixture
def aws_env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Set an environment of which S3 clients see nothing but made-up keys."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-test")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    return monkeypatch


@pytest.fixture
def new_bucket(moto_url: str, aws_env: pytest.MonkeyPatch) -> Callable[[], str]:
    """Return what makes an empty bucket and returns its name."""
    del aws_env
    import boto3

    def make() -> str:
        name = f"bucket-{next(_NUMBERS)}"
        boto3.session.Session().client("s3", endpoint_url=moto_url).create_bucket(Bucket=name)
        return name

    return make


@pytest.fixture(scope="session")
def oss_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a certificate for the hosts of OssFront, with its key."""
    from certificate import make_certificate
    from oss_front import NAMES

    return make_certificate(tmp_path_factory.mktemp("oss") / "ca.pem", *NAMES)


@pytest.fixture
def oss_front(
    moto_url: str, oss_certificate: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[OssFront]:
    """Return a strict OSS, and an environment that says of it what a person would say."""
    from oss_front import Key

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(oss_certificate)
    front = OssFront(moto_url, tls)
    front.keys["LTAItest"] = Key("secret-of-test")
    for name in [name for name in os.environ if name.startswith(("AWS_", "OSS_", "ALIBABA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # no profile of the aliyun command line
    monkeypatch.setenv("OSS_ENDPOINT", front.endpoint)
    monkeypatch.setenv("OSS_REGION", "ap-southeast-1")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAItest")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "secret-of-test")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(oss_certificate))
    resolve = socket.getaddrinfo

    def resolve_here(host: str, *rest: Any, **named: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    yield front
    front.close()


@pytest.fixture
def new_oss_bucket(moto_url: str) -> Callable[[], str]:
    """Return what makes an empty bucket behind `oss_front` and returns its name."""
    import boto3

    def make() -> str:
        name = f"bucket-{next(_NUMBERS)}"
        behind = boto3.session.Session("any", "any", region_name="us-east-1")
        behind.client("s3", endpoint_url=moto_url).create_bucket(Bucket=name)
        return name

    return make
