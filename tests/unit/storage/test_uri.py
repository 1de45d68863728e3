"""What may stand for a run's place (C50, C58)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.errors import StorageError
from burst.storage.uri import parse_uri


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s3://bkt", "s3://bkt"),
        ("s3://bkt/", "s3://bkt"),
        ("s3://bkt/a/", "s3://bkt/a"),
        ("S3://bkt/a", "s3://bkt/a"),
        ("s3://my.team.data/a", "s3://my.team.data/a"),
        ("file:///abs/dir", "file:///abs/dir"),
        ("/abs/dir", "file:///abs/dir"),
        ("/abs/dir/", "file:///abs/dir"),
        ("FILE:///abs", "file:///abs"),
        ("gs://Some_Bucket/a", "gs://Some_Bucket/a"),
        ("memory://x", "memory://x"),
        ("OSS://bkt-1/a/", "oss://bkt-1/a"),
    ],
)
def test_same_place_reads_the_same(text: str, wanted: str) -> None:
    """C58: case of the scheme and a slash at the end do not matter."""
    assert str(parse_uri(text)) == wanted
    assert parse_uri(wanted) == parse_uri(text)


def test_home_is_a_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert parse_uri("~/d").path == "/home/ann/d"
    assert Path(parse_uri("~/d").path).is_absolute()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("s3://", "names no bucket"),
        ("s3:///a", "names no bucket"),
        ("bkt/a", "relative path"),
        ("./a", "relative path"),
        ("file://a/b", "relative path"),
        ("s3://bkt//a", "two slashes"),
        ("s3://bkt/a//b", "two slashes"),
        ("/a//b", "two slashes"),
        ("s3://bkt/../other", "part '..'"),
        ("/runs/../etc", "part '..'"),
        ("s3://My_Bucket/a", "capital letters"),
        ("oss://Bucket/a", "capital letters"),
        ("oss://my.bucket/a", "no dots in OSS"),
        ("oss:///a", "names no bucket"),
        ("s3://Bucket/", "capital letters"),
        ("s3://my_bucket/a", "only letters, digits"),
        ("s3://ab", "this has 2"),
        ("s3://" + "a" * 64, "this has 64"),
        ("s3://192.168.1.1/a", "IP address"),
        ("s3://-xy/a", "starts and ends"),
        ("s3://a..b/a", "two dots"),
    ],
)
def test_what_is_no_place_is_refused_with_the_rule(text: str, says: str) -> None:
    """C50, C58: refused here, before any call to a store."""
    with pytest.raises(StorageError, match=says) as caught:
        parse_uri(text)
    assert caught.value.hint


def test_whole_text_of_a_refusal() -> None:
    with pytest.raises(StorageError) as caught:
        parse_uri("bkt/a")
    assert caught.value.message == "'bkt/a' is a relative path; other machines read it too"
    assert caught.value.hint == (
        "write s3://bucket/folder, oss://bucket/folder, file:///absolute/folder or /absolute/folder"
    )


@given(
    st.text(max_size=40)
    | st.builds(
        str.__add__,
        st.sampled_from(["s3://", "gs://", "/", "file:///", ""]),
        st.text("ab.-/~\0", max_size=12),
    )
)
def test_any_text_is_a_place_for_good_or_our_error(text: str) -> None:
    try:
        found = parse_uri(text)
    except StorageError:
        return
    assert parse_uri(str(found)) == found
