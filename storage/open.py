"""From a URI to a store: the one place that chooses a backend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from burst.storage.oss import oss_env, oss_settings_from
from burst.storage.port import ObjectStore
from burst.storage.settings import StoreSettings, s3_env, settings_from
from burst.storage.uri import parse_uri


def open_store(uri: str, *, settings: StoreSettings | None = None) -> ObjectStore:
    """Return the store at `uri`; nothing is read, made or connected before its first use.

    Without `settings` the environment says them. StorageError when `uri` is none.
    """
    where = parse_uri(uri)
    match where.scheme:
        case "file":
            from burst.storage.backends.local import LocalStore

            return LocalStore(Path(where.path))
        case "s3":
            from burst.storage.backends.s3 import S3Store

            return S3Store(where.bucket, where.path, settings or settings_from(os.environ))
        case "oss":
            from burst.storage.backends.s3 import S3Store

            found = settings or oss_settings_from(os.environ)
            return S3Store(where.bucket, where.path, found)
        case _:
            from burst.storage.backends.fsspec_store import FsspecStore

            return FsspecStore(str(where))


def shared_env(uri: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that every process which opens `uri` must have, keys excepted."""
    return oss_env(environ) if parse_uri(uri).scheme == "oss" else s3_env(environ)
