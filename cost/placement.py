"""Where the next node is asked for: the best place that has not just refused or lost one.

SkyPilot goes straight back to the zone that preempted. Here a refusal keeps a place out of the
choice for a while that doubles with each further one, as long as they come close together, and is
forgotten after a long quiet. How far a refusal reaches depends on its reason: missing stock is a
matter of one machine type in one zone, a quota of a region, missing rights of the whole pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

Reason = Literal["capacity", "preempted", "price", "quota", "rights", "unknown"]

NEVER_S = 3650 * 86_400.0  # ten years

COOL_S: dict[Reason, float] = {
    "capacity": 300.0,
    "preempted": 600.0,
    "price": 300.0,
    "quota": 1800.0,
    "rights": NEVER_S,
    "unknown": 30.0,
}
OWNED_COOL_S = 2.0  # own machines cost nothing to ask; only to not spin
MOST_COOL_S = 3600.0
MOST_OWNED_COOL_S = 60.0
FORGET = 4  # times its own cool-down without a refusal, and it is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node can be, and as what. Empty parts: the pool has no such thing."""

    pool: str
    region: str = ""
    zone: str = ""
    machine_type: str = ""
    spot: bool = False
    owned: bool = False  # the person's own: not rented

    def __str__(self) -> str:
        where = "/".join(part for part in (self.pool, self.zone or self.region) if part)
        market = " spot" if self.spot else "" if self.owned else " on-demand"
        return f"{where} {self.machine_type}{market}".replace("  ", " ").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A place with the price of one node there, frozen when the plan was made."""

    place: Place
    usd_per_hour: Decimal
    price_source: str = ""
    observed_at: str = ""  # ISO 8601 with Z
    billing_unit_s: int = 0
    billing_minimum_s: int = 0
    most_usd_per_hour: Decimal | None = None  # what the task pays for a node there at most
    candidate: int = 0  # which of the task's candidates it is for
    after_s: float = 0.0  # how long better places are waited for before this one is asked

    @property
    def steady(self) -> bool:
        """Whether nobody takes it away: it is owned, or on-demand."""
        return not self.place.spot


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A place that could not give a node, or took one back."""

    place: Place
    reason: Reason
    at_s: float
    count: int = 1  # in a row, this one included
    again_s: float = 0.0  # the place expects to have a machine so long after `at_s`

    @property
    def cool_s(self) -> float:
        """How long the place stays out of the choice."""
        base = COOL_S[self.reason]
        if base == NEVER_S:
            return base
        most = MOST_COOL_S
        if self.place.owned:
            base, most = OWNED_COOL_S, MOST_OWNED_COOL_S
        return float(min(base * 2 ** min(self.count - 1, 30), most))

    @property
    def until_s(self) -> float:
        """When the place may be asked again."""
        return self.at_s + self.cool_s

    def covers(self, place: Place) -> bool:
        """Whether what was refused speaks against this place as well."""
        mine = self.place
        if self.reason == "rights":
            return mine.pool == place.pool
        whole = (mine.pool, mine.region, mine.machine_type, mine.spot)
        other = (place.pool, place.region, place.machine_type, place.spot)
        return whole == other and (self.reason == "quota" or mine.zone == place.zone)


def refused(
    known: tuple[Refusal, ...], place: Place, reason: Reason, at_s: float, again_s: float = 0.0
) -> tuple[Refusal, ...]:
    """Return the refusals with one more; what is long past is left out."""
    fresh = tuple(r for r in known if at_s - r.at_s < FORGET * r.cool_s)
    same = next((r for r in fresh if r.place == place and r.reason == reason), None)
    if same is None:
        return (*fresh, Refusal(place=place, reason=reason, at_s=at_s, again_s=again_s))
    again = replace(same, at_s=at_s, count=same.count + 1, again_s=again_s)
    return tuple(again if r is same else r for r in fresh)


def free_at(known: Iterable[Refusal], place: Place) -> float:
    """Return from when on a place may be asked; 0 if nothing speaks against it."""
    return max((r.until_s for r in known if r.covers(place)), default=0.0)


def _expected_at(known: Iterable[Refusal], place: Place) -> float:
    """Return when a place has a machine again, in its own words; 0 if it said nothing."""
    return max((r.at_s + r.again_s for r in known if r.place == place), default=0.0)


def patience(choices: Iterable[Choice], asked: Choice, since_s: float) -> float | None:
    """Return how long a choice that is asked may take, `since_s` after its node was wanted first.

    Then those that wait for it are asked; None if there are none.
    """
    waiting = [c.after_s - since_s for c in choices if c.after_s > asked.after_s]
    return max(0.0, min(waiting)) if waiting else None


def choose(
    choices: tuple[Choice, ...],
    known: tuple[Refusal, ...],
    at_s: float,
    wanted_s: float = float("-inf"),
) -> tuple[Choice | None, float]:
    """Return the first choice (they come best first) that is free, and when to ask for it.

    When all cool down, it is the one that is free first, with its time; None and `NEVER_S` when
    none ever will be. A choice that others are waited for comes so long after `wanted_s`, when
    the node was wanted first; at once if all of those expect to have none by then.
    """

    def due_s(choice: Choice) -> float:
        end_s = wanted_s + choice.after_s
        better = [c.place for c in choices if c.after_s < choice.after_s]
        in_vain = better and all(_expected_at(known, place) > end_s for place in better)
        return wanted_s if in_vain else end_s

    times = [(max(free_at(known, c.place), at_s, due_s(c)), n) for n, c in enumerate(choices)]
    when, number = min(times, default=(NEVER_S, 0))
    return (None, NEVER_S) if when >= NEVER_S else (choices[number], when)
