"""An append-only log: one object per entry, numbered without gaps from 1."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from burst.errors import ConflictError, OwnedError, StorageError
from burst.storage.port import Conditional, Readable

_NAME = re.compile(r"(\d{8})\.json")


class JournalStore(Readable, Conditional, Protocol):
    """What a journal needs of a store."""


class Journal:
    """One writer at a time: whoever appends behind another's back gets an OwnedError.

    An entry is any JSON object; Decimals and times are the caller's to write as text.
    """

    def __init__(
        self, store: JournalStore, *, prefix: str = "journal", writer: str | None = None
    ) -> None:
        """Nothing is read yet. `writer` tells this writer's entries from all others'."""
        self._store = store
        self._prefix = prefix
        self._writer = writer if writer is not None else secrets.token_hex(8)
        self._last: int | None = None

    def append(self, entry: Mapping[str, Any]) -> int:
        """Write the entry durably and return its number.

        OwnedError if another writer has taken the number after the last this one wrote, or after
        the end it found when it began: at its first whole read or, without one, its first append.
        After a TransientError the entry may be there or not; the same call again settles it.
        """
        if self._last is None:
            self._last = max(self._numbers(0), default=0)
        while True:
            number = self._last + 1
            data = _dump({"entry": dict(entry), "number": number, "writer": self._writer})
            try:
                self._store.create(self._key(number), data)
                found = data
            except ConflictError:
                found = self._store.get(self._key(number))
                self._check_mine(number, found)
            self._last = number
            if found == data:
                return number  # else it was an earlier entry of ours whose answer was lost

    def read(self, after: int = 0) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the entries whose number is above `after`, in order.

        StorageError names the key of one that is missing or damaged. What is appended after the
        call is not yielded.
        """
        last = after
        for number in self._numbers(after):
            if number != last + 1:
                raise StorageError(f"{self._key(last + 1)} is missing: the journal has a gap")
            yield number, self._entry(number)
            last = number
        if self._last is None:
            self._last = last

    def _check_mine(self, number: int, data: bytes) -> None:
        if self._fields(number, data)["writer"] != self._writer:
            raise OwnedError(
                f"another controller wrote entry {number} of {self._prefix}",
                hint="the run is in other hands now; see `burst status`",
            )

    def _numbers(self, after: int) -> list[int]:
        names = (
            key.removeprefix(f"{self._prefix}/") for key in self._store.keys(self._prefix + "/")
        )
        found = (match for match in map(_NAME.fullmatch, names) if match)
        return [number for number in (int(match[1]) for match in found) if number > after]

    def _entry(self, number: int) -> Mapping[str, Any]:
        fields = self._fields(number, self._store.get(self._key(number)))
        entry: Mapping[str, Any] = fields["entry"]
        return entry

    def _fields(self, number: int, data: bytes) -> Mapping[str, Any]:
        key = self._key(number)
        try:
            fields: Any = json.loads(data)
        except ValueError as error:
            raise StorageError(f"{key} is damaged: {error}") from error
        match fields:
            case {"entry": dict(), "number": int(written), "writer": str()} if written == number:
                whole: Mapping[str, Any] = fields
                return whole
            case _:
                raise StorageError(f"{key} is damaged: it is not entry {number} of a journal")

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number:08d}.json"


def _dump(fields: Mapping[str, Any]) -> bytes:
    """Return canonical JSON: the same fields are always the same bytes."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
