"""Results: JSON for machines, plain aligned tables for people; and where they are printed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TextIO

from burst.records import stamp


class UnprintedError(OSError):
    """Standard output takes no more: its cause says why."""


class Output:
    """Standard output, whose errors are told apart from those of all other files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write as the stream does; UnprintedError."""
        try:
            return self._stream.write(text)
        except OSError as error:
            raise UnprintedError(error.strerror) from error

    def flush(self) -> None:
        """Flush as the stream does; UnprintedError."""
        try:
            self._stream.flush()
        except OSError as error:
            raise UnprintedError(error.strerror) from error

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the stream's
        """Have everything else of the stream."""
        return getattr(self._stream, name)


def discard(stream: TextIO) -> None:
    """Let what is still buffered, and all that follows, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(value: object) -> None:
    """Print a result as JSON: money as text with all its digits, times as ISO 8601 with Z."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text + "\n")


def plain(value: Any) -> Any:  # noqa: ANN401, PLR0911 - JSON
    """Turn dataclasses and the like into what JSON knows; nan and inf become text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: plain(getattr(value, f.name)) for f in fields if f.repr}
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: str = "") -> str:
    """Align columns; those whose letter in `right` is `r` to the right.

    >>> print(table(["a", "usd"], [["x", "1.00"], ["yy", "10.00"]], right="lr"))
    a     usd
    x    1.00
    yy  10.00
    """
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    sides = right.ljust(len(header), "l")
    return "\n".join(
        "  ".join(
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(line, widths, sides, strict=True)
        ).rstrip()
        for line in lines
    )
