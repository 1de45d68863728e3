"""The report: whole, dated in UTC, one number wherever it is read."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.cost.bill import Bill, SharedCost
from burst.cost.disks import Disk
from burst.cost.ledger import FailedLaunch, Leg, PricePoint
from burst.cost.meter import shares
from burst.cost.moments import read_since
from burst.cost.quotes import PER_SECOND, Quote, Rate, rate_on
from burst.cost.report import RunCost, dollars, summarise, to_csv_rows, to_json
from burst.cost.timeline import AttemptStarted, Saved, StepDone, Timeline
from burst.errors import BurstError, UsageError

T0 = datetime(2026, 3, 1, tzinfo=UTC)
LATE = T0 + timedelta(days=400)
NEW_YORK = ZoneInfo("America/New_York")
CNY = (
    Rate("CNY", Decimal("0.14"), date(2025, 6, 1), "rates.yaml"),
    Rate("CNY", Decimal("0.141"), date(2025, 7, 1), "rates.yaml"),
)


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


def usd(price: str) -> Quote:
    return Quote(
        usd_per_hour=Decimal(price), source="price list", observed_at=T0, billing=PER_SECOND
    )


def leg(
    start: datetime, end: datetime | None, quote: Quote, *, node: str = "n1", **kwargs: object
) -> Leg:
    values: dict[str, object] = {
        "node_id": node,
        "pool": "aws",
        "region": "us-east-1",
        "zone": "us-east-1a",
        "machine_type": "p4d",
        "spot": False,
        "started_at": start,
        "ended_at": end,
        "prices": (PricePoint(start, quote),),
        "state": "running" if end is None else "gone",
        **kwargs,
    }
    return Leg(**values)  # type: ignore[arg-type]


def report(bill: Bill, timeline: Timeline | None = None, until: datetime = LATE) -> RunCost:
    return summarise("r-1", bill, timeline or Timeline(), until)


def assert_whole(cost: RunCost) -> None:
    """Every way to add a report up gives the same."""
    for sums in (cost.by_kind, cost.by_node, cost.by_pool, cost.by_day):
        assert sum(sums.values(), Decimal(0)) == cost.workers_usd
    header, *lines = to_csv_rows(cost)
    column = header.index("usd")
    assert sum((Decimal(line[column]) for line in lines), Decimal(0)) == cost.total_usd
    told = json.loads(json.dumps(to_json(cost)))
    assert told["total_usd"] == str(cost.total_usd)
    assert sum((Decimal(row["usd"]) for row in told["rows"]), Decimal(0)) == cost.workers_usd


def test_launches_that_never_became_machines_cost_nothing_and_are_listed() -> None:
    """C88, first: 100 nodes asked for, none made, 4,051 s."""
    failed = FailedLaunch(
        pool="aws",
        region="us-east-1",
        zone="",
        machine_type="p4d",
        count=100,
        started_at=at(0),
        ended_at=at(0) + timedelta(seconds=4051),
        reason="no capacity",
    )
    cost = report(Bill(failed=(failed,)))
    assert cost.total_usd == 0
    assert cost.failed_launches == (failed,)
    assert cost.notes == (
        "100 x p4d in us-east-1 never became machines: 67.5 min waited, no cost (no capacity)",
    )
    assert_whole(cost)


def test_launches_that_failed_alike_are_one_note() -> None:
    """A pool of one's own that is full is asked again and again."""
    asked = [
        FailedLaunch(
            pool="ssh/lab",
            region="",
            zone="",
            machine_type="8-cpu",
            count=1,
            started_at=at(minute),
            ended_at=at(minute) + timedelta(seconds=30),
            reason="capacity",
        )
        for minute in range(3)
    ]
    assert report(Bill(failed=tuple(asked))).notes == (
        "3 x 8-cpu in ssh/lab never became machines: 1.5 min waited, no cost (capacity)",
    )


def test_machines_torn_down_before_training_and_found_later_do_cost() -> None:
    """C88, second and third: 3 nodes for 90 s; one found by its tag after 600 s."""
    torn_down = [
        leg(at(0), at(0.025), usd("7.824"), node=f"n{n}", note="provisioning") for n in range(3)
    ]
    found = leg(at(1), at(1) + timedelta(seconds=600), usd("7.824"), note="found later", node="x")
    cost = report(Bill(legs=(*torn_down, found)))
    by_note: dict[str, Decimal] = {}
    for row in cost.rows:
        by_note[row.note] = by_note.get(row.note, Decimal(0)) + row.usd
    assert by_note == {"provisioning": Decimal("0.5868"), "found later": Decimal("1.304")}
    assert_whole(cost)


@pytest.mark.parametrize(("month_h", "disk_usd", "all_usd"), [
    (730, "4.9315", "24.93"),
    (720, "5.0000", "25.00"),
])  # fmt: skip
def test_a_stopped_machine_still_pays_for_its_disk(
    month_h: int, disk_usd: str, all_usd: str
) -> None:
    """C89: 1,000 GB; 5 h running, 40 h stopped; both month rules."""
    disk = Disk(
        node_id="n1",
        pool="aws",
        region="us-east-1",
        zone="us-east-1a",
        size_gb=1000,
        usd_per_gb_month=Decimal("0.08"),
        source="price list",
        observed_at=T0,
        created_at=at(0),
        deleted_at=at(45),
        month_h=month_h,
    )
    cost = report(Bill(legs=(leg(at(0), at(5), usd("4.00"), state="stopped"),), disks=(disk,)))
    assert cost.by_kind["idle"] == 20
    assert dollars(cost.by_kind["disk"], 4) == disk_usd
    assert dollars(cost.total_usd) == all_usd
    hours = {"running": 0.0, "stopped": 0.0}
    for row in cost.rows:
        if row.kind == "disk":
            hours[row.note.split(";")[0].split()[1]] += row.duration / timedelta(hours=1)
            assert f"0.08 USD per GB-month of {month_h} h" in row.note
    assert hours == {"running": 5, "stopped": 40}
    assert_whole(cost)


def test_a_disk_that_is_kept_says_since_when_and_how_much() -> None:
    """C89: while it is stopped."""
    disk = Disk(
        node_id="n1",
        pool="aws",
        region="r",
        zone="z",
        size_gb=1000,
        usd_per_gb_month=Decimal("0.08"),
        source="price list",
        observed_at=T0,
        created_at=at(0),
        deleted_at=None,
    )
    bill = Bill(legs=(leg(at(0), at(5), usd("4.00"), state="stopped"),), disks=(disk,))
    assert report(bill, until=at(8)).notes[0] == (
        "n1 is stopped since 2026-03-01T05:00:00Z, its disk is not free: 1000 GB at 0.08 USD "
        "per GB-month of 730 h, 0.1096 USD per hour"
    )


@pytest.fixture(params=["America/New_York", "Asia/Shanghai", "UTC"])
def local_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("local_zone")
def test_the_hour_that_happens_twice_is_paid_twice() -> None:
    """C91: 4 h in autumn, 1 h in spring, wherever the report is read."""
    autumn = leg(
        datetime(2025, 11, 2, 0, 30, tzinfo=NEW_YORK),
        datetime(2025, 11, 2, 3, 30, tzinfo=NEW_YORK),
        usd("1"),
        node="autumn",
    )
    spring = leg(
        datetime(2025, 3, 9, 1, 30, tzinfo=NEW_YORK),
        datetime(2025, 3, 9, 3, 30, tzinfo=NEW_YORK),
        usd("1"),
        node="spring",
    )
    cost = report(Bill(legs=(autumn, spring)))
    assert cost.by_node == {"spring": 1, "autumn": 4}
    assert [line[8] for line in to_csv_rows(cost)[1:]] == [
        "2025-03-09T06:30:00Z",
        "2025-11-02T04:30:00Z",
    ]


@pytest.mark.usefixtures("local_zone")
def test_days_are_utc_days_and_sum_to_the_whole() -> None:
    """C91: a leg across two midnights."""
    one = leg(
        datetime(2025, 6, 30, 23, 30, tzinfo=UTC), datetime(2025, 7, 2, 1, tzinfo=UTC), usd("1")
    )
    cost = report(Bill(legs=(one,)))
    assert cost.by_day == {
        "2025-06-30": Decimal("0.5"),
        "2025-07-01": Decimal(24),
        "2025-07-02": Decimal(1),
    }
    assert "days are UTC days; an invoice may cut them elsewhere" in cost.notes
    assert_whole(cost)


@pytest.mark.usefixtures("local_zone")
def test_since_without_a_zone_is_utc_and_says_so() -> None:
    """C91: a row at 23:30Z is in the report since that day, though it is the next day in Asia."""
    moment, understood = read_since("2025-06-30")
    assert understood == "since 2025-06-30T00:00:00Z (no zone was given: UTC)"
    start = datetime(2025, 7, 1, 7, 30, tzinfo=ZoneInfo("Asia/Shanghai"))
    bill = Bill(legs=(leg(start, start + timedelta(minutes=15), usd("4")),))
    cost = summarise("r-1", bill, Timeline(), at(0), since=moment)
    assert [row.start for row in cost.rows] == [datetime(2025, 6, 30, 23, 30, tzinfo=UTC)]
    assert cost.total_usd == 1
    assert read_since("2025-06-30T23:30+08:00")[1] == "since 2025-06-30T15:30:00Z"


def test_since_counts_only_what_came_after_and_no_steps() -> None:
    timeline = Timeline.of([StepDone(1, 1, at(0), at(4), 8, 8)])
    bill = Bill(legs=(leg(at(0), at(4), usd("2")),))
    cost = summarise("r-1", bill, timeline, at(9), since=at(3))
    assert cost.total_usd == 2
    assert cost.usd_per_useful_step is None


def test_a_since_that_cannot_be_read_says_how_to_write_it() -> None:
    with pytest.raises(UsageError, match="'last week' is not a day or a moment"):
        read_since("last week")


@pytest.mark.parametrize(
    ("day", "in_usd", "all_usd"),
    [(date(2025, 6, 30), "15.9432", "17.94"), (date(2025, 7, 1), "16.0571", "18.06")],
)
def test_another_currency_is_shown_apart_and_converted_by_a_dated_rate(
    day: date, in_usd: str, all_usd: str
) -> None:
    """C92"""
    quote = Quote.converted(
        Decimal("0.156"),
        rate_on(CNY, "CNY", day),
        source="price list",
        observed_at=T0,
        billing=PER_SECOND,
    )
    legs = (
        leg(at(0), at(1), usd("2"), node="us"),
        leg(at(0), at(730), quote, node="cn", pool="alibaba"),
    )
    cost = report(Bill(legs=legs))
    assert cost.by_currency == {"USD": Decimal(2), "CNY": Decimal("113.88")}
    assert dollars(cost.by_node["cn"], 4) == in_usd
    assert dollars(cost.total_usd) == all_usd
    assert "113.88 CNY were billed; rows tell rate, day and source" in cost.notes
    rate = rate_on(CNY, "CNY", day)
    assert f"1 CNY = {rate.usd} USD on {rate.on} (rates.yaml)" in cost.rows[0].note
    assert_whole(cost)


@pytest.mark.parametrize(("currency", "day"), [("CNY", date(2025, 5, 31)), ("JPY", date.max)])
def test_without_a_rate_there_is_no_price(currency: str, day: date) -> None:
    """C92: so nothing can be started on it, and nothing is added up."""
    with pytest.raises(BurstError, match=f"no rate from {currency} to USD is known for {day}"):
        rate_on(CNY, currency, day)


def worked_through() -> Timeline:
    """3,600 useful steps of 8,192 tokens, 400 of them done again by two further attempts."""
    timeline, now = Timeline(), T0
    for attempt, (first, last) in enumerate([(1, 1200), (1001, 2400), (2201, 3600)], start=1):
        timeline.add(AttemptStarted(attempt, now))
        for step in range(first, last + 1):
            end = now + timedelta(seconds=9)
            timeline.add(StepDone(attempt, step, now, end, 8, 8192))
            now = end
    return timeline


def test_what_an_experiment_cost() -> None:
    """C94"""
    controller = shares(Decimal("0.40"), {"r-1": timedelta(hours=6), "r-2": timedelta(hours=4)})
    assert controller == {"r-1": Decimal("0.24"), "r-2": Decimal("0.16")}
    bill = Bill(
        legs=(leg(at(0), at(10), usd("3.60")),),
        shared=(SharedCost(name="controller", usd=controller["r-1"]),),
    )
    cost = report(bill, worked_through())
    assert cost.workers_usd == 36
    assert cost.total_usd == Decimal("36.24")
    assert (cost.steps_useful, cost.steps_repeated, cost.repeated_part) == (3600, 400, 0.1)
    assert cost.by_kind == {"useful": Decimal("32.4"), "repeated": Decimal("3.6")}
    assert cost.usd_per_useful_step == Decimal("0.01")
    assert cost.usd_per_million_tokens is not None
    assert dollars(cost.usd_per_million_tokens, 4) == "1.2207"
    assert_whole(cost)


@pytest.mark.parametrize("skew_s", [-7200, -600, 0, 600, 7200])
def test_a_wrong_clock_on_a_node_does_not_change_the_bill(skew_s: int) -> None:
    """C43: the first node's clock is wrong; it is replaced by one whose clock is right."""
    skew = timedelta(seconds=skew_s)
    timeline = Timeline.of(
        [
            AttemptStarted(1, at(0) + skew),
            StepDone(1, 1, at(1) + skew, at(3) + skew, 1, 1),
            Saved(1, 1, at(3) + skew, at(4) + skew),
            AttemptStarted(2, at(4)),
            StepDone(2, 1, at(5), at(7), 1, 1),
            StepDone(2, 2, at(7), at(8), 1, 1),
        ]
    )
    legs = (leg(at(0), at(4), usd("1"), node="a"), leg(at(4), at(8), usd("2"), node="b"))
    cost = report(Bill(legs=legs), timeline, at(8))
    assert cost.by_kind == {"restart": 3, "useful": 4, "checkpoint": 1, "repeated": 4}
    assert_whole(cost)


def test_savings_are_against_the_useful_time_on_demand() -> None:
    timeline = Timeline.of(
        [AttemptStarted(1, at(0)), StepDone(1, 1, at(1), at(8), 1, 1), Saved(1, 1, at(8), at(9))]
    )
    bill = Bill(legs=(leg(at(0), at(10), usd("3"), spot=True),))
    prices = {("aws", "us-east-1", "p4d"): Decimal(10)}
    cost = summarise("r-1", bill, timeline, at(20), on_demand=prices)
    assert cost.on_demand_usd == 80
    assert cost.savings == 50
    unknown = summarise("r-1", bill, timeline, at(20))
    assert (unknown.on_demand_usd, unknown.savings) == (None, None)


def test_machines_that_still_run_and_free_ones_are_said() -> None:
    free = Quote(
        usd_per_hour=Decimal(0), source="own machine", observed_at=T0, billing=PER_SECOND, free=True
    )
    cost = report(Bill(legs=(leg(at(0), None, free),)), until=at(1))
    assert cost.notes == (
        "nodes still running and costing: 1",
        "0 USD per hour according to: own machine",
    )


def test_csv_is_a_table() -> None:
    cost = report(Bill(legs=(leg(at(0), at(1), usd("2"), note='a "note", with commas'),)))
    text = io.StringIO()
    csv.writer(text).writerows(to_csv_rows(cost))
    (line,) = csv.DictReader(io.StringIO(text.getvalue()))
    assert line["usd"] == "2.000000"
    assert line["note"] == 'a "note", with commas'


def test_halves_are_rounded_up_for_display_only() -> None:
    """C95"""
    assert dollars(Decimal("2.73105"), 4) == "2.7311"
    assert dollars(Decimal("1234.005")) == "1,234.01"


@given(
    usd=st.decimals(0, 10_000, places=6),
    hours=st.dictionaries(st.text(max_size=3), st.integers(1, 999), min_size=1, max_size=6),
)
def test_shares_sum_to_the_whole(usd: Decimal, hours: dict[str, int]) -> None:
    """C94"""
    parts = shares(usd, {name: timedelta(seconds=n) for name, n in hours.items()})
    assert sum(parts.values(), Decimal(0)) == usd
    assert all(part >= 0 for part in parts.values())
