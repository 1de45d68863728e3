"""A stand-in for S3 on this machine, and a proxy before it that fails on purpose."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import hypothesis
import pytest

from fault_proxy import FaultProxy

hypothesis.settings.register_profile("burst", deadline=None)  # how long a test takes proves nothing
hypothesis.settings.load_profile("burst")

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Return the address of a moto server that lives as long as the tests."""
    from moto.server import ThreadedMotoServer

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
