"""Every dollar has a row: what each node cost, by price interval and by what its time was good for.

Exactness. What a leg has cost up to a moment is one exact fraction, rounded to a millionth of a
dollar only when it is read. A part gets the difference of two such readings, so that the parts
add up to the whole to the last digit, however finely time is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from burst.cost.moments import utc
from burst.cost.quotes import Quote
from burst.cost.timeline import Kind, Span

HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)

RowKind = Literal[Kind, "disk"]
LegState = Literal["running", "stopped", "gone"]


@dataclass(frozen=True, slots=True)
class PricePoint:
    """From `at` on this was the price, until the next point. A new point means a new price."""

    at: datetime
    quote: Quote

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", utc(self.at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One machine from the moment it was billed for to the moment it was not.

    A machine stopped and started again has two legs of one node id, and a `Disk` beside them.
    A launch that never became a machine is no leg but a `FailedLaunch`.
    """

    node_id: str
    pool: str
    region: str
    zone: str
    machine_type: str
    spot: bool
    started_at: datetime
    ended_at: datetime | None
    prices: tuple[PricePoint, ...]  # any order, one currency; the first holds from the start
    state: LegState
    note: str = ""  # "provisioning", "found later"; shown on its rows

    def __post_init__(self) -> None:
        assert self.prices, f"{self.node_id} has no price"
        assert len({point.quote.currency for point in self.prices}) == 1, self.node_id
        assert (self.state == "running") == (self.ended_at is None), self.node_id
        object.__setattr__(self, "started_at", utc(self.started_at))
        object.__setattr__(self, "ended_at", self.ended_at and utc(self.ended_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLaunch:
    """Launches that made no machine: they cost nothing, and waiting is shown as time."""

    pool: str
    region: str
    zone: str
    machine_type: str
    count: int
    started_at: datetime
    ended_at: datetime
    reason: str

    @property
    def waited(self) -> timedelta:
        """How long was waited, never below zero."""
        return max(timedelta(), self.ended_at - self.started_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one node cost in one price interval for one kind of time.

    `duration` is the time of this kind between `start` and `end`, which may hold other kinds too.
    """

    node_id: str
    pool: str
    region: str
    zone: str
    machine_type: str
    spot: bool
    kind: RowKind
    start: datetime
    end: datetime
    duration: timedelta
    usd: Decimal
    usd_per_hour: Decimal
    currency: str  # what the pool bills in
    native: Decimal  # the same cost in that currency
    price_source: str
    priced_at: datetime
    note: str = ""


def rows(
    legs: Sequence[Leg],
    spans: Sequence[Span],
    until: datetime,
    *,
    since: datetime | None = None,
) -> tuple[Row, ...]:
    """Return the rows of all legs up to a moment, from `since` on if given.

    A leg that still runs costs what it would cost if it ended at `until`, its pool's billing unit
    and minimum included (at the last price): a last row of kind `idle`, noted "billed minimum".
    Rows are in order of the leg's start, node and time; the arguments' own order does not matter.
    """
    ordered = sorted(legs, key=lambda leg: (leg.started_at, leg.node_id))
    sorted_spans = sorted(spans, key=lambda span: span.start)
    found: list[Row] = []
    for leg in ordered:
        found += _leg_rows(leg, sorted_spans, utc(until), since and utc(since))
    return tuple(found)


def spent(legs: Sequence[Leg], until: datetime) -> Decimal:
    """Return what the legs cost up to a moment; it is the sum of their rows for any spans."""
    return sum((row.usd for row in rows(legs, (), until)), Decimal(0))


@dataclass(frozen=True, slots=True)
class _Charge:
    """One stretch of a leg with one price and one kind, and what it cost."""

    point: PricePoint
    kind: Kind
    start: datetime
    end: datetime
    usd: Decimal
    native: Decimal
    note: str = ""


def _leg_rows(
    leg: Leg, spans: Sequence[Span], until: datetime, since: datetime | None
) -> Iterator[Row]:
    groups: dict[tuple[datetime, Kind, str], list[_Charge]] = {}
    for charge in _charges(leg, spans, until, () if since is None else (since,)):
        if since is None or charge.start >= since:
            groups.setdefault((charge.point.at, charge.kind, charge.note), []).append(charge)
    for charges in groups.values():
        yield _row(leg, charges)


def _row(leg: Leg, charges: Sequence[_Charge]) -> Row:
    quote = charges[0].point.quote
    notes = [leg.note, charges[0].note]
    if leg.spot and len(leg.prices) == 1:
        notes.append("price at launch")
    if not quote.billing.known:
        notes.append("billing " + str(quote.billing))
    if quote.rate is not None:
        notes.append(str(quote.rate))
    return Row(
        node_id=leg.node_id,
        pool=leg.pool,
        region=leg.region,
        zone=leg.zone,
        machine_type=leg.machine_type,
        spot=leg.spot,
        kind=charges[0].kind,
        start=charges[0].start,
        end=charges[-1].end,
        duration=sum((charge.end - charge.start for charge in charges), timedelta()),
        usd=sum((charge.usd for charge in charges), Decimal(0)),
        usd_per_hour=quote.usd_per_hour,
        currency=quote.currency,
        native=sum((charge.native for charge in charges), Decimal(0)),
        price_source=quote.source,
        priced_at=quote.observed_at,
        note="; ".join(note for note in notes if note),
    )


def _charges(
    leg: Leg, spans: Sequence[Span], until: datetime, cuts: Sequence[datetime]
) -> Iterator[_Charge]:
    """Cut a leg wherever price or kind changes, and at the cuts; price each piece exactly."""
    start = leg.started_at
    end = max(start, min(leg.ended_at or until, until))
    points = sorted(leg.prices, key=_price_order)
    edges = {moment for span in spans for moment in (span.start, span.end)}
    edges |= {point.at for point in points} | set(cuts)
    moments = [start, *sorted(edge for edge in edges if start < edge < end), end]
    meter = _Meter()
    for begin, finish in pairwise(moments):
        if begin < finish:
            point = _price_at(points, begin)
            usd, native = meter.run(point.quote, finish - begin)
            yield _Charge(point, _kind_at(spans, begin), begin, finish, usd, native)
    point = _price_at(points, end)
    extra = point.quote.billing.billed(end - start) - (end - start)
    if extra > timedelta() and point.quote.usd_per_hour:
        usd, native = meter.run(point.quote, extra)
        note = f"billed minimum: {extra.total_seconds():g} s more, {point.quote.billing}"
        yield _Charge(point, "idle", end, end, usd, native, note)


class _Meter:
    """Adds up a leg's cost as an exact fraction and reads it in millionths."""

    def __init__(self) -> None:
        self._usd = Fraction()
        self._native = Fraction()

    def run(self, quote: Quote, time: timedelta) -> tuple[Decimal, Decimal]:
        """Go on for a while; return by how much the two readings grew."""
        hours = Fraction(time // MICROSECOND, HOUR // MICROSECOND)
        before = millionths(self._usd), millionths(self._native)
        self._usd += Fraction(quote.usd_per_hour) * hours
        self._native += Fraction(quote.billed_per_hour) * hours
        return millionths(self._usd) - before[0], millionths(self._native) - before[1]


def millionths(exact: Fraction) -> Decimal:
    """Round to a millionth, halves to the even one."""
    return Decimal(round(exact * 1_000_000)).scaleb(-6)


def _price_order(point: PricePoint) -> tuple[object, ...]:
    quote = point.quote
    return (point.at, quote.observed_at, quote.usd_per_hour, quote.source)


def _price_at(points: Sequence[PricePoint], moment: datetime) -> PricePoint:
    """Return the price in force; the first one also holds before it was observed."""
    return points[max(0, bisect_right(points, moment, key=lambda point: point.at) - 1)]


def _kind_at(spans: Sequence[Span], moment: datetime) -> Kind:
    number = bisect_right(spans, moment, key=lambda span: span.start) - 1
    covered = number >= 0 and moment < spans[number].end
    return spans[number].kind if covered else "idle"
