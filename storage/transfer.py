"""Moving bytes between files and stores: in pieces, and never a byte short."""

from __future__ import annotations

import os
from typing import BinaryIO

from burst.errors import StorageError

PIECE_BYTES = 1 << 20
SMALLEST_PART_BYTES = 8 << 20  # S3 asks for 5 MiB at least, except of the last one
MOST_PARTS = 10_000  # of one upload in S3 and all that imitate it


def part_size(
    size_bytes: int,
    *,
    limit_bytes: int,
    smallest: int = SMALLEST_PART_BYTES,
    most_parts: int = MOST_PARTS,
) -> int:
    """Return the size of the parts: the smallest one, doubled until the parts are few enough.

    StorageError if the object would be larger than the store takes.
    """
    if size_bytes > limit_bytes:
        raise StorageError(
            f"an object of {size_bytes} bytes is more than the store takes ({limit_bytes})",
            hint="split the checkpoint into more shards: use more workers",
        )
    size = smallest
    while size * most_parts < size_bytes:
        size *= 2
    return size


def check_size(source: BinaryIO, size_bytes: int) -> int:
    """Return where a seekable source stands; ValueError unless `size_bytes` follow."""
    start = source.tell()
    found = source.seek(0, os.SEEK_END) - start
    source.seek(start)
    if found != size_bytes:
        raise ValueError(_wrong_size(size_bytes, found))
    return start


def copy_exactly(source: BinaryIO, target: BinaryIO, size_bytes: int) -> None:
    """Copy the rest of `source`; ValueError unless it is exactly `size_bytes` long."""
    copied = 0
    while piece := source.read(PIECE_BYTES):
        copied += len(piece)
        if copied > size_bytes:
            break
        target.write(piece)
    if copied != size_bytes:
        raise ValueError(_wrong_size(size_bytes, copied))


def read_exactly(source: BinaryIO, size_bytes: int) -> bytes:
    """Return the rest of `source`; ValueError unless it is exactly `size_bytes` long."""
    data = source.read(size_bytes + 1)
    if len(data) != size_bytes:
        raise ValueError(_wrong_size(size_bytes, len(data)))
    return data


def _wrong_size(wanted: int, got: int) -> str:
    return f"source was to hold {wanted} bytes but holds {'more' if got > wanted else got}"
