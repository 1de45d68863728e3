"""Moving bytes between files and stores: in pieces, and never a byte short."""

from __future__ import annotations

from typing import BinaryIO

PIECE_BYTES = 1 << 20


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
    more = " or more" if got > wanted else ""
    return f"source was to hold {wanted} bytes but holds {got}{more}"
