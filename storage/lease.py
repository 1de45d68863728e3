"""Who controls a run: one owner at a time, with a number that grows at every change of hands.

Each change of hands is an object of its own, `lease/<number>.json`, made by a create that loses to
whoever was faster; none is ever removed, so nobody can win a number twice. The owner proves that it
lives by writing `lease.json` again and again. That asks no more of a store than to create an object
only where there is none, which not only S3 can do.

No two machines' clocks are compared: whoever waits sees the proof stand still for the owner's whole
time to live, by its own clock, and only then takes over. `token` fences: what carries an old one is
void.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self

from burst.errors import ConflictError, OwnedError, StorageError, TransientError
from burst.storage.port import Conditional, Readable, Writable
from burst.storage.retry import WaitingClock

LEASE = "lease.json"
CLAIMS = "lease/"
_LOOK_EVERY_S = 1.0
_HINT = "make sure that no controller of this run lives, then remove the file"


class LeaseStore(Readable, Writable, Conditional, Protocol):
    """What a lease needs of a store."""


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
class _Claim:
    """One change of hands."""

    token: int
    ttl_s: float
    nonce: str  # tells our own write from another's
    owner: Owner

    @property
    def key(self) -> str:
        return f"{CLAIMS}{self.token:08d}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pulse:
    """What lease.json holds: that the owner of a claim lives, or has given the lease back."""

    token: int
    nonce: str
    renewals: int
    released: bool = False

    def of(self, claim: _Claim) -> bool:
        return (self.token, self.nonce) == (claim.token, claim.nonce)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The newest claim and the last proof of life, whoever's it is."""

    claim: _Claim | None
    pulse: _Pulse | None

    @property
    def owner(self) -> Owner | None:
        if self.claim is None or (self.pulse and self.pulse.released and self.pulse.of(self.claim)):
            return None
        return self.claim.owner


def _unknown(_: Owner) -> bool | None:
    return None


class Lease:
    """A held lease. Renew it several times per `ttl_s`; OwnedError from then on means: stop."""

    def __init__(self, store: LeaseStore, claim: _Claim) -> None:
        self._store = store
        self._claim = claim
        self._renewals = 0

    @classmethod
    def acquire(
        cls,
        store: LeaseStore,
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
        mine = _Claim(token=1, ttl_s=ttl_s, nonce=secrets.token_hex(8), owner=owner)
        seen, seen_at = None, clock.monotonic()
        give_up_at = seen_at + wait_s
        while True:
            found = _look(store)
            if found != seen:
                seen, seen_at = found, clock.monotonic()
            if _free(found, clock.monotonic() - seen_at, alive):
                claim = _take(store, mine, found, clock)
                if claim is not None:
                    held = cls(store, claim)
                    held.renew()
                    return held
            elif clock.monotonic() >= give_up_at:
                raise _owned(found.claim)
            else:
                clock.sleep(_LOOK_EVERY_S)

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier holder."""
        return self._claim.token

    def owner_json(self) -> Mapping[str, Any]:
        """Return who holds it, for a journal."""
        return asdict(self._claim.owner)

    def renew(self) -> None:
        """Prove that the owner lives; OwnedError if another took over in the meantime."""
        self._prove(released=False)

    def release(self) -> None:
        """Give it back, so that the next owner need not wait. Not an error if it is lost."""
        try:
            self._prove(released=True)
        except OwnedError:
            return

    def _prove(self, *, released: bool) -> None:
        """Write first and look then: who finds no newer claim now had none while it wrote.

        A proof that came too late makes others wait for nothing, and no more than that.
        """
        renewals = self._renewals + 1
        pulse = _Pulse(
            token=self.token, nonce=self._claim.nonce, renewals=renewals, released=released
        )
        self._store.put(LEASE, _dump(pulse))
        newest = _newest(self._store)
        if newest != self._claim:
            raise _owned(newest)
        self._renewals = renewals


def current_owner(store: Readable) -> Owner | None:
    """Return who holds the lease now, for showing; None if nobody does."""
    return _look(store).owner


def _free(seen: _Seen, standing_s: float, alive: Callable[[Owner], bool | None]) -> bool:
    """Whether the lease may be taken from whoever was seen to hold it."""
    if seen.claim is None or seen.owner is None or standing_s >= seen.claim.ttl_s:
        return True
    return alive(seen.owner) is False


def _take(store: LeaseStore, mine: _Claim, seen: _Seen, clock: WaitingClock) -> _Claim | None:
    """Make the claim after the one seen; None if another was faster.

    An owner who came back to life between our look and our claim learns of it when it renews next,
    which is within its time to live.
    """
    claim = replace(mine, token=seen.claim.token + 1) if seen.claim else mine
    try:
        store.create(claim.key, _dump(claim))
    except (ConflictError, TransientError) as error:
        if _newest(store) != claim:  # else it is this very write, whose answer was lost
            if isinstance(error, TransientError):
                raise
            return None
    if seen.claim is not None and _pulse(store) != seen.pulse:
        clock.sleep(seen.claim.ttl_s)
    return claim


def _look(store: Readable) -> _Seen:
    return _Seen(_newest(store), _pulse(store))


def _newest(store: Readable) -> _Claim | None:
    """Return the newest claim. One listing: the holder's own number proves nothing by itself."""
    keys = list(store.keys(CLAIMS))
    if not keys:
        return None
    fields = _fields(store, keys[-1])
    try:
        return _Claim(**{**fields, "owner": Owner(**fields["owner"])})
    except (TypeError, KeyError) as error:
        raise StorageError(f"{keys[-1]} is damaged: {error}", hint=_HINT) from error


def _pulse(store: Readable) -> _Pulse | None:
    try:
        return _Pulse(**_fields(store, LEASE))
    except FileNotFoundError:
        return None
    except TypeError as error:
        raise StorageError(f"{LEASE} is damaged: {error}", hint=_HINT) from error


def _fields(store: Readable, key: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = dict(json.loads(store.get(key)))
    except (ValueError, TypeError) as error:
        raise StorageError(f"{key} is damaged: {error}", hint=_HINT) from error
    return fields


def _dump(record: _Claim | _Pulse) -> bytes:
    return json.dumps(asdict(record), sort_keys=True).encode()


def _owned(claim: _Claim | None) -> OwnedError:
    if claim is None:
        return OwnedError("the run's lease was taken away from this controller")
    return OwnedError(
        f"the run is controlled by {claim.owner}",
        hint=f"stop it there, or try again when it has been silent for {claim.ttl_s:.0f} s",
    )
