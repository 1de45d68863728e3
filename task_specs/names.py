"""Names that every cloud and every path accepts, made from what the person typed."""

from __future__ import annotations

import hashlib
import re
import unicodedata

CLOUD_NAME = re.compile(r"[a-z]([-a-z0-9]{0,33}[a-z0-9])?")
MAX_CLOUD_NAME = 35
MAX_NAME = 256
_DERIVED = re.compile(r".*-[0-9a-f]{8}")
_RANDOM6 = re.compile(r"[a-z0-9]{6}")


def check_name(name: str) -> str:
    """Return the name, or raise ValueError: it is shown to people and is part of paths."""
    if not name.strip():
        raise ValueError("empty; give the task a name, or leave `name` out")
    if name in {".", ".."} or "/" in name or "\\" in name:
        raise ValueError("is part of storage paths: no / or \\, and not . or ..")
    if not name.isprintable():
        raise ValueError("holds a line break or another character that cannot be shown")
    if len(name) > MAX_NAME:
        raise ValueError(f"{len(name)} characters; a name has at most {MAX_NAME}")
    return name


def cloud_name(name: str) -> str:
    """Return a name that matches CLOUD_NAME, different for every different `name`.

    A name that fits already stays as it is. Any other is made to fit and gets 8 hex digits of the
    whole name's hash; so does one that only looks as if it had them, or the two could meet.
    """
    if CLOUD_NAME.fullmatch(name) and not _DERIVED.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_slug(name, MAX_CLOUD_NAME - 9)}-{digest}"


def run_id(name: str, random6: str) -> str:
    """Return `<name part>-<6 characters>`; it matches CLOUD_NAME too.

    `random6` is six letters or digits from the caller's source of randomness: runs of one name
    differ by them alone.
    """
    assert _RANDOM6.fullmatch(random6), random6
    return f"{_slug(name, MAX_CLOUD_NAME - 7)}-{random6}"


def _slug(name: str, limit: int) -> str:
    """Return the name in lower-case letters, digits and single dashes, beginning with a letter."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if not slug or not slug[0].isalpha():
        slug = f"run-{slug}".rstrip("-")
    return slug[:limit].rstrip("-")
