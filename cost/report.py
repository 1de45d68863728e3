"""What a run cost, as one record: for the summary at its end, `burst cost`, JSON and CSV alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

from burst.cost.bill import Bill, SharedCost, bill_rows, native_sums, notes
from burst.cost.ledger import FailedLaunch, Row
from burst.cost.meter import exact_cost, millionths, total
from burst.cost.moments import show, utc
from burst.cost.timeline import Timeline

Machine = tuple[str, str, str]  # pool, region, machine type
WORKING = frozenset({"useful", "checkpoint"})  # what a run that nothing interrupts also does


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What a run cost up to a moment. All money is exact to a millionth of a dollar.

    `rows` are split at UTC midnights; they sum to `workers_usd`, and so does each `by_…` of
    dollars. `total_usd` has the shared costs as well. Prices per step and per token are those of
    the workers, over useful steps alone. They are None where nothing useful was done, and, as
    steps are not dated, in a report `since` a moment.
    """

    run_id: str
    until: datetime
    since: datetime | None
    total_usd: Decimal
    workers_usd: Decimal  # machines and their disks
    by_kind: Mapping[str, Decimal]
    by_node: Mapping[str, Decimal]
    by_pool: Mapping[str, Decimal]
    by_day: Mapping[str, Decimal]  # UTC days
    by_currency: Mapping[str, Decimal]  # as billed, in each currency's own units
    time_by_kind: Mapping[str, timedelta]  # of nodes, without disks
    steps_useful: int
    steps_repeated: int
    usd_per_useful_step: Decimal | None
    usd_per_million_tokens: Decimal | None
    on_demand_usd: Decimal | None  # the useful and checkpoint time at on-demand prices
    savings: Decimal | None  # on_demand_usd less what was paid for all machine time
    shared: tuple[SharedCost, ...]
    failed_launches: tuple[FailedLaunch, ...]
    notes: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def repeated_part(self) -> float:
        """Which part of the steps was done again, 0 to 1."""
        done = self.steps_useful + self.steps_repeated
        return self.steps_repeated / done if done else 0.0


def summarise(
    run_id: str,
    bill: Bill,
    timeline: Timeline,
    until: datetime,
    *,
    since: datetime | None = None,
    on_demand: Mapping[Machine, Decimal] | None = None,
) -> RunCost:
    """Add everything up to a moment, or from `since` on.

    `on_demand` has the price per hour of the same machines on demand. The comparison is a modest
    one: an undisturbed run on demand would also have had to start once, which is left out.
    """
    until, since = utc(until), since and utc(since)
    found = bill_rows(bill, timeline, until, since)
    workers = total(row.usd for row in found)
    machines = tuple(row for row in found if row.kind != "disk")
    undisturbed = _on_demand(machines, on_demand or {})
    whole = since is None
    return RunCost(
        run_id=run_id,
        until=until,
        since=since,
        total_usd=workers + total(part.usd for part in bill.shared),
        workers_usd=workers,
        by_kind=_sums(found, lambda row: row.kind),
        by_node=_sums(found, lambda row: row.node_id),
        by_pool=_sums(found, lambda row: row.pool),
        by_day=_sums(found, lambda row: row.start.date().isoformat()),
        by_currency=native_sums(found),
        time_by_kind=_times(machines),
        steps_useful=timeline.steps_useful,
        steps_repeated=timeline.steps_repeated,
        usd_per_useful_step=_per(workers, timeline.steps_useful if whole else 0),
        usd_per_million_tokens=_per(workers * 1_000_000, timeline.tokens_useful if whole else 0),
        on_demand_usd=undisturbed,
        savings=None if undisturbed is None else undisturbed - total(r.usd for r in machines),
        shared=bill.shared,
        failed_launches=bill.failed,
        notes=notes(bill, found, until),
        rows=found,
    )


def dollars(amount: Decimal, digits: int = 2) -> str:
    """Write money for people, halves rounded up: the only place where it loses digits."""
    return f"{amount.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}"


def to_json(cost: RunCost) -> dict[str, object]:
    """Return it in JSON's types: money as text, so that no digit is lost; times in UTC."""
    plain = _plain(cost)
    assert isinstance(plain, dict)
    return plain


COLUMNS = (
    "run", "node", "pool", "region", "zone", "machine", "spot", "kind", "start", "end",
    "seconds", "usd", "usd_per_hour", "currency", "native", "price_source", "priced_at", "note",
)  # fmt: skip


def to_csv_rows(cost: RunCost) -> tuple[tuple[str, ...], ...]:
    """Return a header and a line for each row and shared cost; `usd` sums to the total."""
    blank = dict.fromkeys(COLUMNS, "")
    lines = [_csv_row(cost.run_id, row) for row in cost.rows]
    for part in cost.shared:
        named = {"run": cost.run_id, "kind": "shared", "node": part.name, "note": part.note}
        lines.append(tuple({**blank, **named, "usd": str(part.usd)}.values()))
    return (COLUMNS, *lines)


def _csv_row(run_id: str, row: Row) -> tuple[str, ...]:
    return (
        run_id,
        row.node_id,
        row.pool,
        row.region,
        row.zone,
        row.machine_type,
        "yes" if row.spot else "no",
        row.kind,
        show(row.start),
        show(row.end),
        str(row.duration.total_seconds()),
        str(row.usd),
        str(row.usd_per_hour),
        row.currency,
        str(row.native),
        row.price_source,
        show(row.priced_at),
        row.note,
    )


def _sums(found: Iterable[Row], key: Callable[[Row], str]) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for row in found:
        sums[key(row)] = sums.get(key(row), Decimal(0)) + row.usd
    return sums


def _times(found: Iterable[Row]) -> dict[str, timedelta]:
    times: dict[str, timedelta] = {}
    for row in found:
        times[row.kind] = times.get(row.kind, timedelta()) + row.duration
    return times


def _per(usd: Decimal, count: int) -> Decimal | None:
    return millionths(Fraction(usd) / count) if count else None


def _on_demand(machines: Iterable[Row], prices: Mapping[Machine, Decimal]) -> Decimal | None:
    """Price the working time on demand; None without spot machines or with a price missing."""
    exact, spot = Fraction(), False
    for row in machines:
        spot = spot or row.spot
        price = row.usd_per_hour
        if row.spot:
            known = prices.get((row.pool, row.region, row.machine_type))
            if known is None:
                return None
            price = known
        if row.kind in WORKING:
            exact += exact_cost(price, row.duration)
    return millionths(exact) if spot else None


def _plain(value: object) -> object:
    plain: object
    match value:
        case Decimal():
            plain = str(value)
        case datetime():
            plain = show(value)
        case timedelta():
            plain = value.total_seconds()
        case Mapping():
            plain = {str(key): _plain(item) for key, item in value.items()}
        case tuple():
            plain = [_plain(item) for item in value]
        case Row() | FailedLaunch() | SharedCost() | RunCost():
            plain = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            plain = value
    return plain
