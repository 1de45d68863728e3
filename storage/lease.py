"""Who controls a run: one owner at a time, with a number that grows at every change of hands.

No two machines' clocks are compared. An owner proves that it lives by renewing, which changes the
object's version; whoever waits sees the version stand still for the owner's whole time to live,
by its own clock, and only then takes over. `token` fences: what carries an old one is void.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from burst.errors import ConflictError, OwnedError, StorageError, TransientError
from burst.storage.port import Conditional
from burst.storage.retry import WaitingClock

LEASE = "lease.json"
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process, well enough to find it and to tell it from a later one with its pid."""

    host: str
    pid: int
    started_at: str  # when it started, as its host tells it; before a `@` for comparing alone
    name: str = ""  # of the person, or what the process is for

    def __str__(self) -> str:
        who = f"{self.name}, " if self.name else ""
        started = self.started_at.rpartition("@")[2]
        return f"{who}process {self.pid} on {self.host}, started {started}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What lease.json holds. `owner` None: given back."""

    token: int
    ttl_s: float
    nonce: str = ""  # of the acquisition: tells our own write from another's
    renewals: int = 0
    owner: Owner | None = None


def _unknown(_: Owner) -> bool | None:
    return None


class Lease:
    """A held lease. Renew it several times per `ttl_s`; OwnedError from then on means: stop."""

    def __init__(self, store: Conditional, record: _Record, version: str) -> None:
        self._store = store
        self._record = record
        self._version = version

    @classmethod
    def acquire(
        cls,
        store: Conditional,
        owner: Owner,
        *,
        ttl_s: float,
        clock: WaitingClock,
        alive: Callable[[Owner], bool | None] = _unknown,
        wait_s: float = 0.0,
    ) -> Self:
        """Take the lease, or OwnedError naming the owner once `wait_s` is over.

        `alive` says of an owner whether its process lives, None when it cannot know (another
        host): one known to be gone loses the lease at once, any other by not renewing, which
        takes at least the owner's own `ttl_s` of waiting.
        """
        mine = _Record(token=1, ttl_s=ttl_s, nonce=secrets.token_hex(8), owner=owner)
        seen, seen_at = "", clock.monotonic()
        give_up_at = seen_at + wait_s
        while True:
            record, version = _read(store)
            if version != seen:
                seen, seen_at = version, clock.monotonic()
            standing_s = clock.monotonic() - seen_at
            if record is None or _free(record, standing_s, alive):
                held = _take(store, mine, record, version)
                if held is not None:
                    return cls(store, *held)
            elif clock.monotonic() >= give_up_at:
                raise _owned(record)
            else:
                clock.sleep(_LOOK_EVERY_S)

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier holder."""
        return self._record.token

    def owner_json(self) -> Mapping[str, Any]:
        """Return who holds it, for a journal."""
        owner = self._record.owner
        return {} if owner is None else asdict(owner)

    def renew(self) -> None:
        """Prove that the owner lives; OwnedError if another took over in the meantime."""
        self._write(replace(self._record, renewals=self._record.renewals + 1))

    def release(self) -> None:
        """Give it back, so that the next owner need not wait. Not an error if it is lost."""
        try:
            self._write(replace(self._record, owner=None, renewals=self._record.renewals + 1))
        except OwnedError:
            return

    def _write(self, record: _Record) -> None:
        try:
            version = self._store.replace(LEASE, _dump(record), self._version)
        except (ConflictError, TransientError) as error:
            found, version = _read(self._store)
            if found != record:  # else it is this very write, whose answer was lost
                if isinstance(error, TransientError):
                    raise
                raise _owned(found) from None
        self._record, self._version = record, version


def current_owner(store: Conditional) -> Owner | None:
    """Return who holds the lease now, for showing; None if nobody does."""
    record, _ = _read(store)
    return None if record is None else record.owner


def _free(record: _Record, standing_s: float, alive: Callable[[Owner], bool | None]) -> bool:
    """Whether the lease may be taken from whoever the record names."""
    if record.owner is None or standing_s >= record.ttl_s:
        return True
    return alive(record.owner) is False


def _take(
    store: Conditional, mine: _Record, before: _Record | None, version: str
) -> tuple[_Record, str] | None:
    """Write our record over the one before; None if another was faster."""
    if before is not None:
        mine = replace(mine, token=before.token + 1)
    try:
        if before is None:
            return mine, store.create(LEASE, _dump(mine))
        return mine, store.replace(LEASE, _dump(mine), version)
    except (ConflictError, TransientError) as error:
        found, version = _read(store)
        if found == mine:  # this very write, whose answer was lost
            return mine, version
        if isinstance(error, TransientError):
            raise
        return None


def _read(store: Conditional) -> tuple[_Record | None, str]:
    try:
        data, version = store.get_versioned(LEASE)
    except FileNotFoundError:
        return None, ""
    try:
        fields = json.loads(data)
        owner = fields.pop("owner")
        owner = None if owner is None else Owner(**owner)
        return _Record(**fields, owner=owner), version
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(
            f"{LEASE} is damaged: {error}",
            hint="make sure that no controller of this run lives, then remove the file",
        ) from error


def _dump(record: _Record) -> bytes:
    return json.dumps(asdict(record), sort_keys=True).encode()


def _owned(record: _Record | None) -> OwnedError:
    if record is None or record.owner is None:
        return OwnedError("the run's lease was taken away from this controller")
    return OwnedError(
        f"the run is controlled by {record.owner}",
        hint=f"stop it there, or try again when it has been silent for {record.ttl_s:.0f} s",
    )
