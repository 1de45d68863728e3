"""Disks, which are paid for by the month and also while their machine is stopped."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from burst.cost.ledger import Leg, Row
from burst.cost.meter import Meter, millionths, total
from burst.cost.moments import show, utc

MONTH_H = 730  # a twelfth of 365 days; clouds that bill by 30 days of 24 h have 720


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk of one node, from its creation to its deletion."""

    node_id: str
    pool: str
    region: str
    zone: str
    size_gb: int
    usd_per_gb_month: Decimal
    source: str
    observed_at: datetime
    created_at: datetime
    deleted_at: datetime | None
    month_h: int = MONTH_H

    def __post_init__(self) -> None:
        for name in ("observed_at", "created_at"):
            object.__setattr__(self, name, utc(getattr(self, name)))
        object.__setattr__(self, "deleted_at", self.deleted_at and utc(self.deleted_at))

    @property
    def usd_per_hour(self) -> Fraction:
        """Exactly; it is seldom a finite decimal."""
        return Fraction(self.usd_per_gb_month) * self.size_gb / self.month_h

    @property
    def rule(self) -> str:
        """How its price is reckoned."""
        return (
            f"{self.size_gb} GB at {self.usd_per_gb_month} USD per GB-month of {self.month_h} h, "
            f"{float(self.usd_per_hour):.4f} USD per hour"
        )


def disk_rows(
    disks: Iterable[Disk],
    legs: Iterable[Leg],
    until: datetime,
    *,
    cuts: Iterable[datetime] = (),
) -> tuple[Row, ...]:
    """Return the rows of disks: for each, its time beside a running machine and without one."""
    legs, where = tuple(legs), sorted(utc(cut) for cut in cuts)
    found: list[Row] = []
    for disk in sorted(disks, key=lambda disk: (disk.created_at, disk.node_id)):
        own = [leg for leg in legs if leg.node_id == disk.node_id]
        groups: dict[tuple[bool, int], list[_Part]] = {}
        for part in _parts(disk, own, utc(until), where):
            key = (part.running, bisect_right(where, part.start))
            groups.setdefault(key, []).append(part)
        found += [_row(disk, parts) for parts in groups.values()]
    return tuple(found)


def kept_note(disk: Disk, legs: Iterable[Leg], now: datetime) -> str:
    """Say since when a disk is kept for a machine that does not run; "" if that is not so."""
    own = [leg for leg in legs if leg.node_id == disk.node_id]
    ends = [leg.ended_at for leg in own if leg.ended_at is not None]
    if disk.deleted_at is not None or len(ends) < len(own):
        return ""
    since = min(max(ends, default=disk.created_at), utc(now))
    return f"{disk.node_id} is stopped since {show(since)}, its disk is not free: {disk.rule}"


@dataclass(frozen=True, slots=True)
class _Part:
    running: bool
    start: datetime
    end: datetime
    usd: Decimal


def _parts(
    disk: Disk, legs: Sequence[Leg], until: datetime, cuts: Sequence[datetime]
) -> Iterator[_Part]:
    start = disk.created_at
    end = max(start, min(disk.deleted_at or until, until))
    lives = [(leg.started_at, leg.ended_at or end) for leg in legs]
    edges = {moment for life in lives for moment in life} | set(cuts)
    meter = Meter()
    moments = [start, *sorted(edge for edge in edges if start < edge < end), end]
    for begin, finish in pairwise(moments):
        running = any(born <= begin < died for born, died in lives)
        if begin < finish:
            yield _Part(running, begin, finish, meter.run(disk.usd_per_hour, finish - begin))


def _row(disk: Disk, parts: Sequence[_Part]) -> Row:
    usd = total(part.usd for part in parts)
    return Row(
        node_id=disk.node_id,
        pool=disk.pool,
        region=disk.region,
        zone=disk.zone,
        machine_type="disk",
        spot=False,
        kind="disk",
        start=parts[0].start,
        end=parts[-1].end,
        duration=sum((p.end - p.start for p in parts[1:]), parts[0].end - parts[0].start),
        usd=usd,
        usd_per_hour=millionths(disk.usd_per_hour),
        currency="USD",
        native=usd,
        price_source=disk.source,
        priced_at=disk.observed_at,
        note=f"machine {'running' if parts[0].running else 'stopped'}; {disk.rule}",
    )
