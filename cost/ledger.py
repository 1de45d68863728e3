"""Every dollar has a row: what each node cost, by price and by what its time was good for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Literal

from burst.cost.meter import Meter, total
from burst.cost.moments import utc
from burst.cost.quotes import Quote
from burst.cost.timeline import Kind, Span

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
    legs: Iterable[Leg],
    spans: Iterable[Span],
    until: datetime,
    *,
    cuts: Iterable[datetime] = (),
) -> tuple[Row, ...]:
    """Return the rows of all legs up to a moment; no row reaches across a cut.

    A leg that still runs costs what it would cost if it ended at `until`, its pool's billing unit
    and minimum included (at the last price): a last row of kind `idle`, noted "billed minimum".
    Rows are in order of the leg's start, node and time; the arguments' own order does not matter.
    """
    in_order = sorted(spans, key=lambda span: span.start)
    where = sorted(utc(cut) for cut in cuts)
    found: list[Row] = []
    for leg in sorted(legs, key=lambda leg: (leg.started_at, leg.node_id)):
        found += _leg_rows(leg, in_order, utc(until), where)
    return tuple(found)


def spent(legs: Iterable[Leg], until: datetime) -> Decimal:
    """Return what the legs cost up to a moment; it is the sum of their rows for any spans."""
    return total(row.usd for row in rows(legs, (), until))


@dataclass(frozen=True, slots=True)
class _Charge:
    """One stretch of a leg with one price and one kind, and what it cost."""

    point: PricePoint
    kind: Kind
    start: datetime
    end: datetime
    usd: Decimal
    native: Decimal
    note: str


def _leg_rows(
    leg: Leg, spans: Sequence[Span], until: datetime, cuts: Sequence[datetime]
) -> Iterator[Row]:
    groups: dict[tuple[object, ...], list[_Charge]] = {}
    for charge in _charges(leg, spans, until, cuts):
        between = bisect_right(cuts, charge.start)
        key = (charge.point.at, charge.kind, charge.note, between)
        groups.setdefault(key, []).append(charge)
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
        usd=total(charge.usd for charge in charges),
        usd_per_hour=quote.usd_per_hour,
        currency=quote.currency,
        native=total(charge.native for charge in charges),
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
    usd, native = Meter(), Meter()

    def charge(
        kind: Kind, begin: datetime, finish: datetime, paid: timedelta, note: str
    ) -> _Charge:
        point = _price_at(points, begin)
        dollars = usd.run(point.quote.usd_per_hour, paid)
        as_billed = native.run(point.quote.billed_per_hour, paid)
        return _Charge(point, kind, begin, finish, dollars, as_billed, note)

    for begin, finish in pairwise(moments):
        if begin < finish:
            yield charge(_kind_at(spans, begin), begin, finish, finish - begin, "")
    quote = _price_at(points, end).quote
    extra = quote.billing.billed(end - start) - (end - start)
    if extra > timedelta() and quote.usd_per_hour:
        note = f"billed minimum: {extra.total_seconds():g} s more, {quote.billing}"
        yield charge("idle", end, end, extra, note)


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
