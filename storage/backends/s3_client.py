"""How burst makes its S3 clients: one place, so that every one of them has the same settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from burst.errors import StorageError
from burst.storage.backends.oss_client import oss_endpoint, oss_session, speak_oss
from burst.storage.settings import Addressing, StoreSettings

S3Client: TypeAlias = Any  # boto3 makes the class at run time
_Config: TypeAlias = Any  # botocore has no types

_ENDPOINT_HINT = "write the endpoint as https://host or http://host:port"
_VIRTUAL_ONLY = (".aliyuncs.com", ".myqcloud.com", ".volces.com")


def addressing_style(wanted: Addressing, endpoint: str | None, bucket: str) -> Addressing:
    """Return where the bucket's name goes: into the path, or into the host's name.

    "auto" is the SDK's choice on AWS, the host's name for clouds that take nothing else, and the
    path for all other endpoints (addresses, localhost, MinIO and its like). A dotted name breaks
    the certificate check of host names, so it goes into the path wherever that is possible.
    """
    if wanted != "auto":
        return wanted
    host = urlsplit(endpoint).hostname if endpoint else None
    if host is not None and host.endswith(_VIRTUAL_ONLY):
        if "." in bucket:
            raise StorageError(
                f"the bucket {bucket!r} has a dot in its name, which {host} cannot serve over TLS",
                hint="use a bucket without dots",
            )
        return "virtual"
    return "path" if host is not None or "." in bucket else "auto"


def client_config(settings: StoreSettings, bucket: str) -> _Config:
    """Return botocore's settings from ours. Tries are counted here once, not in two layers."""
    # Other stores than AWS refuse the checksums that botocore adds by default since 2025.
    is_aws = settings.scheme == "s3" and settings.endpoint is None
    checksums = "when_supported" if is_aws else "when_required"
    return Config(
        region_name=settings.region,
        s3={"addressing_style": addressing_style(settings.addressing, settings.endpoint, bucket)},
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
        max_pool_connections=settings.max_threads,
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": 1},
        tcp_keepalive=True,
    )


@dataclass(frozen=True, slots=True)
class _Made:
    pid: int
    client: S3Client
    slots: threading.BoundedSemaphore


class Connection:
    """The client of this process, made at its first use here and never carried over a fork.

    Botocore refreshes the credentials by itself; `renew` is for when the store calls them expired
    all the same, and reads them again from where they come.
    """

    def __init__(self, settings: StoreSettings, bucket: str) -> None:
        self._settings = settings
        self._config = client_config(settings, bucket)
        self._made: _Made | None = None
        self._locks: dict[int, threading.Lock] = {}  # by pid: one copied by a fork may be held

    @contextmanager
    def client(self) -> Iterator[S3Client]:
        """Lend the client to one of at most `max_threads` callers at a time."""
        made = self._current()
        with made.slots:
            yield made.client

    def renew(self) -> None:
        """Make a new client for the calls that begin from now on."""
        self._made = None

    def _current(self) -> _Made:
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            if self._made is None or self._made.pid != os.getpid():
                self._made = self._make()
            return self._made

    def _make(self) -> _Made:
        bundle = self._settings.ca_bundle
        if bundle is not None and not Path(bundle).exists():  # else retried as a lost connection
            raise StorageError(f"there is no CA bundle {bundle}", hint="check AWS_CA_BUNDLE")
        try:
            client = _client(self._settings, self._config)
        except ValueError as error:
            raise StorageError(f"cannot make an S3 client: {error}", hint=_ENDPOINT_HINT) from error
        return _Made(os.getpid(), client, threading.BoundedSemaphore(self._settings.max_threads))


def _client(settings: StoreSettings, config: _Config) -> S3Client:
    is_oss = settings.scheme == "oss"
    session = oss_session() if is_oss else boto3.session.Session()
    endpoint = oss_endpoint(settings) if is_oss else settings.endpoint
    client = session.client("s3", endpoint_url=endpoint, verify=settings.ca_bundle, config=config)
    if is_oss:
        speak_oss(client)
    return client
