"""The run URI: a folder in an object store, in one spelling."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from burst.task_specs.problems import nearest

SCHEMES = ("file", "s3", "gs", "az", "oss")
_BUCKETS = {
    "s3": re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"),  # Amazon's rule for names
    "oss": re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"),  # Alibaba's
}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(/?)(.*)", re.DOTALL)


def run_uri(text: str, *, num_nodes: int, absolute: Callable[[str], str]) -> str:
    """Return `s3://bucket/prefix` or `file:///folder`, without a slash at the end.

    A path means a folder of this machine. A relative one is made `absolute` where one node runs,
    and refused where several do, since each would mean a folder of its own. `//` and `..` inside
    an s3 key are refused: not every store keeps them apart. ValueError says what is wrong.
    """
    typed = text.strip()
    if not typed:
        raise ValueError(
            "empty; write s3://bucket/prefix, oss://bucket/prefix, file:///folder or a path"
        )
    match = _URI.fullmatch(typed)
    if match is None:
        if not typed.startswith(("/", "~")) and num_nodes > 1:
            raise ValueError(
                f"a relative path with {num_nodes} nodes; write s3://bucket/prefix or a path from /"
            )
        return _file(absolute(typed))
    scheme, rest = match[1].lower(), match[3].rstrip("/")
    if scheme not in SCHEMES:
        guess = nearest(scheme, SCHEMES)
        meant = f"; did you mean {guess}://?" if guess else ""
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ValueError(f"unknown scheme {scheme}://{meant} (known: {known})")
    if not match[2]:
        raise ValueError(f"needs two slashes: {scheme}://")
    return _file(rest) if scheme == "file" else _bucket(scheme, rest)


def _file(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("needs a path from the root, as in file:///data/runs")
    if ".." in PurePosixPath(path).parts:
        raise ValueError("holds a `..`")
    return f"file:///{str(PurePosixPath(path)).strip('/')}".rstrip("/") or "file:///"


def _bucket(scheme: str, rest: str) -> str:
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise ValueError(f"no bucket after {scheme}://")
    if not _BUCKETS.get(scheme, _BUCKET).fullmatch(bucket):
        raise ValueError(f"no {scheme}:// bucket can have this name")
    if key and any(part in {"", ".", ".."} for part in key.split("/")):
        raise ValueError("holds `//`, `.` or `..`; write each folder once")
    return f"{scheme}://{bucket}/{key}".rstrip("/")
