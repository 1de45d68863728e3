"""A store behind any other URL that fsspec knows: gs, az, sftp, memory and so on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeAlias

import fsspec

from burst.errors import BurstError, ConflictError, SetupError, StorageError, TransientError
from burst.storage.keys import check_key, check_prefix, is_key, join
from burst.storage.port import ObjectStore, Stat
from burst.storage.transfer import PIECE_BYTES, check_size, copy_exactly

FileSystem: TypeAlias = Any  # fsspec has no types


class FsspecStore:
    """See burst.storage.port.ObjectStore.

    fsspec promises neither conditional writes nor that an object appears whole: `create` looks and
    then writes, which `conditional` says, and an upload that fails is removed after the fact.
    """

    conditional = False

    def __init__(self, uri: str) -> None:
        self._uri = uri

    @property
    def uri(self) -> str:
        return self._uri

    def at(self, prefix: str) -> ObjectStore:
        return FsspecStore(f"{self._uri}/{check_key(prefix)}")

    def get(self, key: str) -> bytes:
        with self._using(key) as (files, path):
            return self._read(files, path)

    def download(self, key: str, target: BinaryIO) -> int:
        with self._using(key) as (files, path):
            wanted = _stat(files, path, key).size_bytes
            source = files.open(path, "rb")
        written = 0
        with source:
            while piece := self._read_piece(source, key):
                written += len(piece)
                target.write(piece)  # its errors are the caller's, not the store's
        if written != wanted:
            raise TransientError(f"{self._uri}/{key}: got {written} of {wanted} bytes")
        return written

    def stat(self, key: str) -> Stat:
        with self._using(key) as (files, path):
            return _stat(files, path, key)

    def keys(self, prefix: str = "") -> Iterator[str]:
        folder, _, _ = check_prefix(prefix).rpartition("/")
        with self._translated(folder):
            files, path = self._open(folder)
            files.invalidate_cache()
            found = files.find(path) if files.isdir(path) else []
            root = path.removesuffix(folder).rstrip("/") + "/"
        names = (name.removeprefix(root) for name in found)
        return iter(sorted(name for name in names if name.startswith(prefix) and is_key(name)))

    def put(self, key: str, data: bytes) -> None:
        with self._using(key) as (files, path):
            _make_room(files, path)
            files.pipe_file(path, data)

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        check_size(source, size_bytes)
        with self._using(key) as (files, path):
            _make_room(files, path)
            try:
                with files.open(path, "wb") as target:
                    copy_exactly(source, target, size_bytes)
            except BaseException:
                if files.exists(path):
                    files.rm_file(path)
                raise

    def create(self, key: str, data: bytes) -> None:
        with self._using(key) as (files, path):
            if files.exists(path):
                raise ConflictError(f"{self._uri}/{key} exists already")
        self.put(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._using(key) as (files, path):
                if files.isfile(path):
                    files.rm_file(path)

    def sweep_unfinished(self, older_than_s: float) -> int:  # noqa: ARG002  fsspec shows none
        return 0

    def _read(self, files: FileSystem, path: str) -> bytes:
        if files.isdir(path):
            raise FileNotFoundError(path)
        wanted = int(files.info(path)["size"])
        data: bytes = files.cat_file(path)
        if len(data) != wanted:
            raise TransientError(f"{path}: got {len(data)} of {wanted} bytes")
        return data

    def _read_piece(self, source: BinaryIO, key: str) -> bytes:
        with self._translated(key):
            return source.read(PIECE_BYTES)

    @contextmanager
    def _using(self, key: str) -> Iterator[tuple[FileSystem, str]]:
        """Lend the file system and the key's path in it.

        fsspec keeps one file system per process and thread, so none is carried over a fork.
        """
        with self._translated(check_key(key)):
            yield self._open(key)

    def _open(self, key: str) -> tuple[FileSystem, str]:
        try:
            files, path = fsspec.url_to_fs(join(self._uri, key), use_listings_cache=False)
        except ValueError as error:
            raise StorageError(
                f"{self._uri}: {error}", hint="use s3://, file:// or a scheme that fsspec knows"
            ) from error
        return files, path

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except (BurstError, FileNotFoundError, ValueError):
            raise
        except ImportError as error:
            raise SetupError(
                f"{self._uri} needs a package: {error}", hint="install it beside burst"
            ) from error
        except PermissionError as error:
            raise StorageError(f"no right to use {self._uri}/{key}: {error}") from error
        # Each of fsspec's dozens of file systems has exceptions of its own.
        except Exception as error:
            raise TransientError(f"{self._uri}/{key}: {error!r}") from error


def _stat(files: FileSystem, path: str, key: str) -> Stat:
    found = files.info(path)
    if found["type"] != "file":
        raise FileNotFoundError(path)
    return Stat(key=key, size_bytes=int(found["size"]), version=str(files.ukey(path)))


def _make_room(files: FileSystem, path: str) -> None:
    """Make the folder, which the file systems that are no object stores ask for."""
    files.makedirs(path.rpartition("/")[0], exist_ok=True)
