"""Keys that could leave the root, or meet a part file, are our bug."""

from __future__ import annotations

import pytest

from burst.storage.keys import check_key, check_prefix

BAD = [
    "",
    "/a",
    "a/",
    "a//b",
    "..",
    "a/../b",
    "./a",
    "a/.",
    ".burst-part-1",
    "a/.burst-part-1",
    "a\0",
]


@pytest.mark.parametrize("key", BAD)
def test_bad_key(key: str) -> None:
    with pytest.raises(ValueError, match="bad object key"):
        check_key(key)


@pytest.mark.parametrize("prefix", ["/", "/a", "../", "a/../b", "a//", "//"])
def test_bad_prefix(prefix: str) -> None:
    with pytest.raises(ValueError, match="bad"):
        check_prefix(prefix)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "a.b/c-", "...a"])
def test_good_prefix(prefix: str) -> None:
    assert check_prefix(prefix) == prefix
