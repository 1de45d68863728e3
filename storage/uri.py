"""Where a store is: parsing what a person types as a run URI."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from burst.errors import StorageError

_HINT = "write s3://bucket/folder, oss://bucket/folder, file:///absolute/folder or /absolute/folder"
_BUCKET_MIN, _BUCKET_MAX = 3, 63


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUri:
    """A parsed root. `path` has no slash at either end unless it is a folder of this machine."""

    scheme: str  # in lower case
    bucket: str  # "" for file
    path: str  # an absolute folder for file; a key prefix, perhaps "", for all others

    def __str__(self) -> str:
        if self.scheme == "file":
            return f"file://{self.path}"
        return f"{self.scheme}://{self.bucket}" + (f"/{self.path}" if self.path else "")


def parse_uri(text: str) -> StoreUri:
    """Read a URI; StorageError, naming the text and what to write, when it is none.

    A slash at the end never matters. Two slashes in a row inside are refused, for `a//b` and
    `a/b` are two places in a bucket and one in a folder.
    """
    if not text.strip():
        raise StorageError("the store's URI is empty", hint=_HINT)
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower() if separator else "file"
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise StorageError(f"{text!r} is not a URI: {scheme!r} is no scheme", hint=_HINT)
    if scheme == "file":
        return StoreUri(scheme=scheme, bucket="", path=_folder(text, rest if separator else text))
    bucket, _, path = rest.partition("/")
    if not bucket:
        raise StorageError(f"{text!r} names no bucket", hint=_HINT)
    if scheme in {"s3", "oss"}:
        check_bucket(bucket, dots=scheme == "s3")
    return StoreUri(scheme=scheme, bucket=bucket, path=_prefix(text, path))


def check_bucket(name: str, *, dots: bool = True) -> None:
    """Apply the naming rules of S3 buckets; StorageError says which one is broken.

    Sources: Amazon S3 user guide, "General purpose bucket naming rules"; OSS's "Bucket naming
    conventions", which has no dots.
    """
    if broken := _broken_bucket_rule(name, dots=dots):
        raise StorageError(
            f"{name!r} cannot be a bucket: {broken}", hint="check the bucket's name in the run URI"
        )


def _broken_bucket_rule(name: str, *, dots: bool) -> str | None:
    rules = (
        (_BUCKET_MIN <= len(name) <= _BUCKET_MAX, f"has 3 to 63 characters, this has {len(name)}"),
        (name == name.lower(), "has no capital letters"),
        (re.fullmatch(r"[a-z0-9.-]*", name), "holds only letters, digits, dots and hyphens"),
        (name[:1].isalnum() and name[-1:].isalnum(), "starts and ends with a letter or a digit"),
        (dots or "." not in name, "has no dots in OSS"),
        (".." not in name, "has no two dots in a row"),
        (not re.fullmatch(r"\d+\.\d+\.\d+\.\d+", name), "does not look like an IP address"),
    )
    return next((f"a name {rule}" for kept, rule in rules if not kept), None)


def _folder(text: str, path: str) -> str:
    found = Path.home() / path[2:] if path == "~" or path.startswith("~/") else Path(path)
    if not found.is_absolute():
        raise StorageError(f"{text!r} is a relative path; other machines read it too", hint=_HINT)
    _refuse_odd_parts(text, path.rstrip("/").removeprefix("/"))
    return str(found)


def _prefix(text: str, path: str) -> str:
    path = path.removesuffix("/")
    _refuse_odd_parts(text, path)
    return path


def _refuse_odd_parts(text: str, path: str) -> None:
    for part in path.split("/") if path else ():
        if part in {"", ".", ".."} or "\0" in part:
            odd = f"the part {part!r}" if part else "two slashes in a row"
            raise StorageError(f"{text!r} holds {odd}", hint="take it out")
