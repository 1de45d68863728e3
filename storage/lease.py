"""Who controls a run: one owner at a time, with a number that grows at every change of hands.

Each change of hands is an object of its own, `lease/<number>.json`, made by a create that loses to
whoever was faster; none is ever removed, so nobody can win a number twice and the numbers have no
gaps. The owner proves that it lives by writing `lease.json` again and again. That asks no more of
a store than to create an object only where there is none, which not only S3 can do.

No two machines' clocks are compared: whoever waits sees the proof stand still for the owner's whole
time to live, by its own clock, and only then takes over. `token` fences: what carries an old one is
void.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol, Self

from burst.errors import ConflictError, OwnedError, StorageError, TransientError
from burst.storage.port import Conditional
from burst.storage.retry import WaitingClock

LEASE = "lease.json"
CLAIMS = "lease/"
_LOOK_EVERY_S = 1.0
_HINT = "make sure that no controller of this run lives, then remove the file"


class Legible(Protocol):
    """What it takes to see who holds a lease; see burst.storage.port.Readable."""

    def get(self, key: str) -> bytes: ...
    def keys(self, prefix: str = "") -> Iterator[str]: ...


class LeaseStore(Legible, Conditional, Protocol):
    """What a lease needs of a store; see burst.storage.port.Writable."""

    def put(self, key: str, data: bytes) -> None: ...


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
    """What lease.json holds: that the maker of a claim lives, and what it does with the lease.

    No two of them are alike, so that none can be taken for an earlier one.
    """

    token: int
    nonce: str
    number: int
    state: Literal["taking", "held", "released"]

    def of(self, claim: _Claim) -> bool:
        return (self.token, self.nonce) == (claim.token, claim.nonce)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The newest claim and the last proof of life, whoever's it is."""

    claim: _Claim | None
    pulse: _Pulse | None

    @property
    def state(self) -> Literal["taking", "held", "released"]:
        """What the maker of the claim showed last; if nothing, it may still be waiting."""
        if self.claim is None:
            return "released"
        return self.pulse.state if self.pulse and self.pulse.of(self.claim) else "taking"

    @property
    def owner(self) -> Owner | None:
        return None if self.claim is None or self.state == "released" else self.claim.owner


def _unknown(_: Owner) -> bool | None:
    return None


class Lease:
    """A held lease. Renew it several times per `ttl_s`; OwnedError from then on means: stop."""

    def __init__(self, store: LeaseStore, claim: _Claim) -> None:
        self._store = store
        self._claim = claim
        self._num_pulses = 0

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
            looked_at = clock.monotonic()  # a look may take long, and what it saw be old by then
            found = _look(store)
            if found != seen:
                seen, seen_at = found, clock.monotonic()
            if _free(found, looked_at - seen_at, alive):
                claim = _take(store, mine, found)
                if claim is not None:
                    held = cls(store, claim)
                    held._settle(found, clock)
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
        self._prove("held")

    def release(self) -> None:
        """Give it back, so that the next owner need not wait. Not an error if it is lost."""
        self._show("released")

    def _settle(self, before: _Seen, clock: WaitingClock) -> None:
        """Wait until the owner before must have noticed, if it may have come back.

        It did if it showed itself between our look and our claim, and may have if the one we took
        the lease from had not waited to the end itself. It renews within its time to live.
        """
        came_back = before.claim is not None and _pulse(self._store) != before.pulse
        if before.claim is not None and (came_back or before.state == "taking"):
            over_at = clock.monotonic() + before.claim.ttl_s
            while clock.monotonic() < over_at:
                self._prove("taking")
                clock.sleep(min(_LOOK_EVERY_S, before.claim.ttl_s))
        self._prove("held")

    def _prove(self, state: Literal["taking", "held"]) -> None:
        """Write first and look then: who finds no newer claim now had none while it wrote.

        A proof that came too late makes others wait for nothing, and no more than that.
        """
        self._show(state)
        if not _is_newest(self._store, self._claim):
            raise _owned(_newest(self._store))

    def _show(self, state: Literal["taking", "held", "released"]) -> None:
        self._num_pulses += 1  # also of those that fail
        pulse = _Pulse(
            token=self.token, nonce=self._claim.nonce, number=self._num_pulses, state=state
        )
        self._store.put(LEASE, _dump(pulse))


def current_owner(store: Legible) -> Owner | None:
    """Return who holds the lease now, for showing; None if nobody does."""
    return _look(store).owner


def _free(seen: _Seen, standing_s: float, alive: Callable[[Owner], bool | None]) -> bool:
    """Whether the lease may be taken from whoever was seen to hold it."""
    if seen.claim is None or seen.owner is None or standing_s >= seen.claim.ttl_s:
        return True
    return alive(seen.owner) is False


def _take(store: LeaseStore, mine: _Claim, seen: _Seen) -> _Claim | None:
    """Make the claim after the one seen; None if another was faster.

    Unless the lease was given back it has the longer time to live of the two, for whoever takes
    over before it is settled has to wait as long for the one before.
    """
    claim = mine
    if seen.claim is not None:
        ttl_s = mine.ttl_s if seen.owner is None else max(mine.ttl_s, seen.claim.ttl_s)
        claim = replace(mine, token=seen.claim.token + 1, ttl_s=ttl_s)
    try:
        store.create(claim.key, _dump(claim))
    except (ConflictError, TransientError) as error:
        if _read(store, claim.key) != _dump(claim):  # else it is ours, whose answer was lost
            if isinstance(error, TransientError):
                raise
            return None
    return claim


def _is_newest(store: Legible, claim: _Claim) -> bool:
    """Whether a claim is there, and none after it.

    Two reads, a tenth of a listing's price. The claim itself is read because a store may have no
    creates that lose, or somebody may have removed what was there.
    """
    after = replace(claim, token=claim.token + 1)
    return _read(store, claim.key) == _dump(claim) and _read(store, after.key) is None


def _look(store: Legible) -> _Seen:
    return _Seen(_newest(store), _pulse(store))


def _newest(store: Legible) -> _Claim | None:
    key = max(store.keys(CLAIMS), default=None)
    if key is None:
        return None
    fields = _fields(key, store.get(key))
    try:
        return _Claim(**{**fields, "owner": Owner(**fields["owner"])})
    except (TypeError, KeyError) as error:
        raise StorageError(f"{key} is damaged: {error}", hint=_HINT) from error


def _pulse(store: Legible) -> _Pulse | None:
    data = _read(store, LEASE)
    try:
        return None if data is None else _Pulse(**_fields(LEASE, data))
    except TypeError as error:
        raise StorageError(f"{LEASE} is damaged: {error}", hint=_HINT) from error


def _fields(key: str, data: bytes) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = dict(json.loads(data))
    except (ValueError, TypeError) as error:
        raise StorageError(f"{key} is damaged: {error}", hint=_HINT) from error
    return fields


def _read(store: Legible, key: str) -> bytes | None:
    try:
        return store.get(key)
    except FileNotFoundError:
        return None


def _dump(record: _Claim | _Pulse) -> bytes:
    return json.dumps(asdict(record), sort_keys=True).encode()


def _owned(claim: _Claim | None) -> OwnedError:
    if claim is None:
        return OwnedError("the run's lease was taken away from this controller")
    return OwnedError(
        f"the run is controlled by {claim.owner}",
        hint=f"stop it there, or try again when it has been silent for {claim.ttl_s:.0f} s",
    )
