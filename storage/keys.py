"""What a key may look like, the same for every store."""

from __future__ import annotations

UNFINISHED = ".burst-part-"  # a file a store is still writing; never a key


def is_key(text: str) -> bool:
    """Whether it may be a key."""
    return not any(
        part in {"", ".", ".."} or part.startswith(UNFINISHED) or "\0" in part
        for part in text.split("/")
    )


def check_key(key: str) -> str:
    """Return the key, or ValueError: our code built it, so a bad one is our bug."""
    if not is_key(key):
        raise ValueError(f"bad object key {key!r}: it has an empty, relative or reserved part")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix, which unlike a key may be empty, end in `/` or in part of a name."""
    head, _, tail = prefix.rpartition("/")
    if head:
        check_key(head)
    elif prefix.startswith("/"):
        raise ValueError(f"bad key prefix {prefix!r}: it starts with /")
    if tail:
        check_key(tail)
    return prefix


def join(*parts: str) -> str:
    """Join the parts that are not empty."""
    return "/".join(part for part in parts if part)
