"""All that a run is billed for, its rows, and what a reader of the numbers must know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from burst.cost.disks import Disk, disk_rows, kept_note
from burst.cost.ledger import FailedLaunch, Leg, Row, rows
from burst.cost.moments import midnights
from burst.cost.quotes import USD
from burst.cost.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCost:
    """A run's part of something that serves several runs; a line of its own, never hidden."""

    name: str
    usd: Decimal  # see `burst.cost.meter.shares`
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Everything of a run that costs money, or could have."""

    legs: tuple[Leg, ...] = ()
    disks: tuple[Disk, ...] = ()
    failed: tuple[FailedLaunch, ...] = ()
    shared: tuple[SharedCost, ...] = ()


def bill_rows(
    bill: Bill, timeline: Timeline, until: datetime, since: datetime | None
) -> tuple[Row, ...]:
    """Return the rows of machines and disks, cut at UTC midnights and at `since`."""
    starts = [leg.started_at for leg in bill.legs] + [disk.created_at for disk in bill.disks]
    if not starts:
        return ()
    first = min(starts)
    cuts = (*midnights(first, until), *(() if since is None else (since,)))
    spans = timeline.spans(until, since=first)
    found = (
        *rows(bill.legs, spans, until, cuts=cuts),
        *disk_rows(bill.disks, bill.legs, until, cuts=cuts),
    )
    return tuple(row for row in found if since is None or row.start >= since)


def notes(bill: Bill, found: tuple[Row, ...], until: datetime) -> tuple[str, ...]:
    """Say what a reader of the numbers must know."""
    said = _failed(bill.failed)
    if running := sum(leg.ended_at is None for leg in bill.legs):
        said.append(f"nodes still running and costing: {running}")
    said += [note for disk in bill.disks if (note := kept_note(disk, bill.legs, until))]
    said += [
        f"{native.normalize():f} {currency} were billed; rows tell rate, day and source"
        for currency, native in native_sums(found).items()
        if currency != USD
    ]
    if free := sorted({row.price_source for row in found if not row.usd_per_hour}):
        said.append(f"0 USD per hour according to: {', '.join(free)}")
    if len({row.start.date() for row in found}) > 1:
        said.append("days are UTC days; an invoice may cut them elsewhere")
    return tuple(said)


def _failed(launches: Iterable[FailedLaunch]) -> list[str]:
    """Return a line for each kind of machine and reason, however often it was asked for."""
    alike: dict[tuple[str, str, str], list[FailedLaunch]] = {}
    for one in launches:
        where = one.zone or one.region or one.pool
        alike.setdefault((one.machine_type, where, one.reason), []).append(one)
    return [
        f"{sum(one.count for one in its)} x {machine_type} in {where} never became machines: "
        f"{sum(one.waited.total_seconds() for one in its) / 60:.1f} min waited, no cost ({reason})"
        for (machine_type, where, reason), its in alike.items()
    ]


def native_sums(found: Iterable[Row]) -> dict[str, Decimal]:
    """Add up what was billed in each currency; currencies are never added to each other."""
    sums: dict[str, Decimal] = {}
    for row in found:
        sums[row.currency] = sums.get(row.currency, Decimal(0)) + row.native
    return sums
