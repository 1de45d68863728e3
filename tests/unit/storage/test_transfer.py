"""Parts (C44), and files that are not as long as they should be."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.errors import StorageError
from burst.storage.transfer import check_size, copy_exactly, part_size, read_exactly

MIB = 1 << 20
TIB = 1 << 40


@pytest.mark.parametrize(
    ("size_bytes", "smallest", "wanted", "parts"),
    [
        (52_428_800_000, 5 * MIB, 5_242_880, 10_000),
        (52_428_800_001, 5 * MIB, 10_485_760, 5_001),
        (83_886_080_001, 8 * MIB, 16_777_216, 5_001),
        (268_435_456_000, 5 * MIB, 41_943_040, 6_400),
        (5 * TIB, 5 * MIB, 671_088_640, 8_192),
        (1, 5 * MIB, 5_242_880, 1),
        (0, 5 * MIB, 5_242_880, 0),
    ],
)
def test_parts_grow_before_they_are_too_many(
    size_bytes: int, smallest: int, wanted: int, parts: int
) -> None:
    """C44: the table."""
    size = part_size(size_bytes, limit_bytes=5 * TIB, smallest=smallest)
    assert size == wanted
    assert -(-size_bytes // size) == parts


def test_what_the_store_cannot_hold_is_refused_before_the_first_byte() -> None:
    """C44: the limit is a setting of the store."""
    part_size(5 * TIB, limit_bytes=5 * TIB)
    with pytest.raises(StorageError) as caught:
        part_size(5 * TIB + 1, limit_bytes=5 * TIB)
    assert caught.value.message == (
        "an object of 5497558138881 bytes is more than the store takes (5497558138880)"
    )
    assert caught.value.hint
    part_size(50 * 10**12, limit_bytes=50 * 10**12)


@given(st.integers(0, 60 * TIB), st.integers(1, 20), st.integers(1, 10_000))
def test_parts_are_always_few_and_large_enough(size: int, smallest: int, most: int) -> None:
    part = part_size(size, limit_bytes=60 * TIB, smallest=smallest * MIB, most_parts=most)
    assert part >= smallest * MIB
    assert part * most >= size


@pytest.mark.parametrize(("wanted", "says"), [(3, "holds more"), (5, "holds 4"), (0, "holds more")])
def test_source_of_another_size(wanted: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        copy_exactly(io.BytesIO(b"body"), io.BytesIO(), wanted)
    with pytest.raises(ValueError, match=says):
        read_exactly(io.BytesIO(b"body"), wanted)
    with pytest.raises(ValueError, match=says):
        check_size(io.BytesIO(b"body"), wanted)


def test_size_is_checked_from_where_the_file_stands() -> None:
    source = io.BytesIO(b"headbody")
    source.seek(4)
    assert check_size(source, 4) == 4
    assert source.read() == b"body"
