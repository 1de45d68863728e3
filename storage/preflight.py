"""Trying a store before anything is spent on machines that need it."""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable
from contextlib import suppress

from burst.errors import ConflictError, CredentialsError, StorageError
from burst.storage.keys import join
from burst.storage.port import ObjectStore
from burst.storage.transfer import SMALLEST_PART_BYTES

_LARGE_BYTES = SMALLEST_PART_BYTES + (2 << 20)  # two parts: another right than one-shot writes


def check_store(store: ObjectStore) -> None:
    """Write, read, list, claim, upload in two parts and delete, below a name nobody else uses.

    StorageError names the step that fails; CredentialsError: none could be tried. Leaves nothing
    behind that it can delete. About 10 MiB go over the network.
    """
    folder = f"preflight-{secrets.token_hex(4)}"
    small, claim, large = (join(folder, name) for name in ("small", "claim", "large"))
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("write", lambda: store.put(small, b"burst")),
        ("read", lambda: _expect(store.get(small), b"burst")),
        ("list", lambda: _expect(list(store.keys(folder + "/")), [small])),
        ("claim", lambda: _claim(store, claim)),
        ("upload in parts", lambda: store.upload(large, _zeros(), _LARGE_BYTES)),
        ("read back", lambda: _expect(store.stat(large).size_bytes, _LARGE_BYTES)),
        ("delete", lambda: store.delete([small, claim, large])),
        ("list", lambda: _expect(list(store.keys(folder + "/")), [])),
    )
    for name, step in steps:
        try:
            step()
        except CredentialsError:
            raise
        except (StorageError, FileNotFoundError) as error:
            with suppress(StorageError):  # the first failure is the one to tell
                store.delete([small, claim, large])
            hint = error.hint if isinstance(error, StorageError) else None
            raise StorageError(f"{store.uri} cannot {name}: {error}", hint=hint) from error


def _claim(store: ObjectStore, key: str) -> None:
    """Check that a second claim loses, which a store that ignores conditions lets win."""
    store.create(key, b"first")
    try:
        store.create(key, b"second")
    except ConflictError:
        return
    raise StorageError(
        "a second conditional write went through",
        hint="this store ignores the condition of a write (OSS does in a bucket that has, or had, "
        "versions): two controllers could own one run; use another bucket",
    )


def _expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise StorageError(f"it gave {found!r} instead of {wanted!r}")


def _zeros() -> io.BytesIO:
    return io.BytesIO(bytes(_LARGE_BYTES))
