"""What burst needs of an object store. Callers depend on the narrowest protocol that serves.

Keys are relative to the store's root, use `/`, never start or end with one and never hold `..`,
`.` or an empty part; a key that breaks this is a ValueError (our bug, not the user's). A key and
one below it (`a` and `a/b`) cannot both be had everywhere: a folder refuses the second.

Every method may block on the network. Every failure is a burst.errors.StorageError, a
TransientError once the backend's own retries are used up, or FileNotFoundError where stated. No
vendor exception leaves a backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What a store knows of an object.

    `version` is opaque and differs whenever the bytes do. Writing the same bytes again may keep it
    (S3), so what must never be mistaken for an earlier state holds a counter or a nonce.
    """

    key: str
    size_bytes: int
    version: str


class Readable(Protocol):
    """Get and list."""

    def get(self, key: str) -> bytes:
        """Return the whole object; FileNotFoundError if there is none.

        A body that ends early is never returned: it is retried, then a TransientError.
        """
        ...

    def download(self, key: str, target: BinaryIO) -> int:
        """Write the object's bytes to `target` in pieces, return how many; else as `get`.

        On failure `target` may hold a part; the caller throws it away.
        """
        ...

    def stat(self, key: str) -> Stat:
        """Size and version; FileNotFoundError if there is none."""
        ...

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that start with `prefix`, sorted by code point.

        Never lists outside the store's root. Half-written objects never show.
        """
        ...


class Writable(Protocol):
    """Put and delete."""

    def put(self, key: str, data: bytes) -> None:
        """Store the object whole or not at all; overwrite silently. Durable on return."""
        ...

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        """Like put, from the current position of a seekable file, in parts when it is large.

        Reads `source` again from there when a try fails. ValueError if it holds another size.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects; those already gone are no error."""
        ...


class Conditional(Protocol):
    """The one write that loses to another writer instead of overwriting it.

    All that burst decides by a race (who controls a run, which entry is the journal's next, which
    checkpoint counts) is decided by it. Writes that compare versions are not asked for: not every
    store has them.
    """

    def create(self, key: str, data: bytes) -> None:
        """Like put; ConflictError if the key exists, even by a race.

        After a try whose answer was lost, the one found there may be our own: a caller that must
        know puts a nonce into `data` and looks.
        """
        ...


class ObjectStore(Readable, Writable, Conditional, Protocol):
    """All of it."""

    @property
    def uri(self) -> str:
        """The root, as a person would type it: `s3://bucket/prefix`, `file:///abs/dir`."""
        ...

    @property
    def conditional(self) -> bool:
        """Whether create is atomic here. False: best effort, and `doctor` says so."""
        ...

    def at(self, prefix: str) -> ObjectStore:
        """Return a store rooted `prefix` below this one."""
        ...

    def sweep_unfinished(self, older_than_s: float) -> int:
        """Remove what killed writers left half-written below the root; return its bytes.

        Such parts never show and still take (paid) space. Takes only what was last touched more
        than `older_than_s` ago by the store's own clock, so that living writers keep theirs.
        """
        ...
