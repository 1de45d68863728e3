"""The ledger: exact, whole and never negative."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.cost.ledger import Leg, PricePoint, Row, rows, spent
from burst.cost.quotes import (
    PER_HOUR,
    PER_MINUTE,
    PER_SECOND,
    PER_SECOND_60,
    RULE_UNKNOWN,
    UNROUNDED,
    BillingRule,
    Quote,
)
from burst.cost.timeline import Kind, Span

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALL_KINDS: tuple[Kind, ...] = ("useful", "repeated", "restart", "checkpoint")
RULES = (PER_SECOND, PER_SECOND_60, PER_MINUTE, PER_HOUR, RULE_UNKNOWN, UNROUNDED)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def quote(usd: str, billing: BillingRule = PER_SECOND) -> Quote:
    return Quote(
        usd_per_hour=Decimal(usd), source="price list", observed_at=T0, billing=billing, free=True
    )


def leg(
    start: float,
    end: float | None,
    *prices: tuple[float, str],
    node: str = "n1",
    spot: bool = True,
    billing: BillingRule = PER_SECOND,
    note: str = "",
) -> Leg:
    return Leg(
        node_id=node,
        pool="aws",
        region="us-east-1",
        zone="us-east-1a",
        machine_type="p4d",
        spot=spot,
        started_at=at(start),
        ended_at=None if end is None else at(end),
        prices=tuple(PricePoint(at(when), quote(usd, billing)) for when, usd in prices),
        state="running" if end is None else "gone",
        note=note,
    )


def total(found: Iterable[Row]) -> Decimal:
    return sum((row.usd for row in found), Decimal(0))


def shown(usd: Decimal) -> str:
    return str(usd.quantize(Decimal("0.0001"), ROUND_HALF_UP))


def test_each_leg_has_its_own_price_and_gaps_are_free() -> None:
    """C86: three legs of two nodes, three prices, a gap without machines."""
    legs = []
    for node in ("a", "b"):
        legs += [
            leg(0, 5400, (0, "3.90"), node=node),
            leg(5700, 6930, (5700, "4.35"), node=node),
            leg(6930, 9630, (6930, "12.24"), node=node, spot=False),
        ]
    found = rows(legs, (), at(9630))
    by_start = {
        start: total(tuple(row for row in found if row.start == at(start)))
        for start in (0, 5700, 6930)
    }
    assert by_start == {0: Decimal("11.70"), 5700: Decimal("2.9725"), 6930: Decimal("18.36")}
    assert total(found) == Decimal("33.0325")
    assert [row.note for row in found if row.spot] == ["price at launch"] * 4


def test_a_price_that_changes_in_a_leg_counts_from_when_it_changed() -> None:
    """C86: the spot variant."""
    changing = leg(0, 6300, (0, "1.20"), (1800, "1.50"), (5400, "0.90"))
    found = rows([changing], (), at(6300))
    assert [row.usd for row in found] == [Decimal("0.6"), Decimal("1.5"), Decimal("0.225")]
    assert total(found) == Decimal("2.325")
    assert "price at launch" not in {row.note for row in found}


@pytest.mark.parametrize(
    ("rule", "once", "five"),
    [
        (
            PER_SECOND_60,
            {0: "0.0000", 12: "0.5462", 59: "0.5462", 60: "0.5462", 61: "0.5553"},
            "2.7311",
        ),
        (
            PER_MINUTE,
            {0: "0.0000", 12: "0.5462", 59: "0.5462", 60: "0.5462", 61: "1.0924"},
            "2.7311",
        ),
        (
            PER_HOUR,
            {0: "0.0000", 12: "32.7726", 59: "32.7726", 60: "32.7726", 61: "32.7726"},
            "163.8630",
        ),
    ],
)
def test_billing_units_and_minimums(rule: BillingRule, once: dict[int, str], five: str) -> None:
    """C95: each start has its own minimum; what never ran costs nothing."""
    for seconds, usd in once.items():
        one = leg(0, seconds, (0, "32.7726"), billing=rule)
        assert shown(spent([one], at(9999))) == usd, seconds
    tries = [leg(n * 100, n * 100 + 12, (0, "32.7726"), billing=rule) for n in range(5)]
    assert shown(spent(tries, at(9999))) == five


def test_the_billed_minimum_is_a_row_of_its_own() -> None:
    """C95"""
    one = leg(0, 12, (0, "36"), billing=PER_SECOND_60)
    used, rest = rows([one], [Span("useful", at(0), at(12))], at(100))
    assert (used.kind, used.usd) == ("useful", Decimal("0.12"))
    assert (rest.kind, rest.usd, rest.duration) == ("idle", Decimal("0.48"), timedelta())
    assert rest.note.startswith("billed minimum: 48 s more, in units of 1 s, at least 60 s")


def test_an_unknown_billing_rule_says_so() -> None:
    """C95"""
    (row,) = rows([leg(0, 60, (0, "1"), billing=RULE_UNKNOWN)], (), at(60))
    assert "rule unknown" in row.note


def test_own_machines_are_not_rounded() -> None:
    (row,) = rows([leg(0, 1.5, (0, "3600"), billing=UNROUNDED)], (), at(60))
    assert row.usd == Decimal("1.5")


def test_per_second_rounds_up_to_the_next_second() -> None:
    assert spent([leg(0, 1.5, (0, "3600"))], at(60)) == 2


def test_a_running_leg_already_owes_its_minimum() -> None:
    assert spent([leg(0, None, (0, "12"), billing=PER_HOUR)], at(60)) == Decimal(12)


def test_time_is_split_by_kind_and_what_is_left_is_idle() -> None:
    spans = [
        Span("restart", at(-50), at(100)),
        Span("useful", at(100), at(200)),
        Span("checkpoint", at(200), at(210)),
        Span("useful", at(210), at(300)),
    ]
    found = rows([leg(0, 360, (0, "36"))], spans, at(360))
    assert [(row.kind, row.duration.total_seconds(), row.usd) for row in found] == [
        ("restart", 100, Decimal("1.00")),
        ("useful", 190, Decimal("1.90")),
        ("checkpoint", 10, Decimal("0.10")),
        ("idle", 60, Decimal("0.60")),
    ]
    useful = found[1]
    assert (useful.start, useful.end) == (at(100), at(300))


def test_a_cut_splits_a_row_and_keeps_the_sum() -> None:
    one = leg(0, 7200, (0, "1.000001"))
    late = tuple(row for row in rows([one], (), at(7200), cuts=[at(3600)]) if row.start >= at(3600))
    assert total(late) == spent([one], at(7200)) - spent([one], at(3600))
    assert late[0].start == at(3600)


def test_a_clock_that_went_back_costs_nothing_and_never_less() -> None:
    """C43: the controller's clock went back an hour between start and end."""
    assert spent([leg(3600, 0, (3600, "4"))], at(7200)) == 0
    assert spent([leg(3600, None, (3600, "4"))], at(0)) == 0


prices = st.lists(
    st.tuples(
        st.integers(-100, 5000),
        st.decimals(0, 99, allow_nan=False, places=7).map(str),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def some_legs(draw: st.DrawFn) -> list[Leg]:
    return [
        leg(
            start := draw(st.floats(0, 4000)),
            draw(st.none() | st.floats(start, 5000)),
            *draw(prices),
            node=f"n{number}",
            billing=draw(st.sampled_from(RULES)),
        )
        for number in range(draw(st.integers(1, 4)))
    ]


@st.composite
def some_spans(draw: st.DrawFn) -> list[Span]:
    edges = sorted(draw(st.sets(st.integers(-100_000, 5_100_000), max_size=12)))
    return [
        Span(draw(st.sampled_from(ALL_KINDS)), at(a / 1000), at(b / 1000))
        for a, b in pairwise(edges)
        if draw(st.booleans())
    ]


def by_hand(one: Leg, until: datetime) -> Decimal:
    """The cost of a leg by plain arithmetic over its price intervals."""
    end = max(one.started_at, min(one.ended_at or until, until))
    points = sorted(one.prices, key=lambda p: (p.at, p.quote.observed_at, p.quote.usd_per_hour))
    exact = Decimal(0)
    moments = [one.started_at, *(min(max(p.at, one.started_at), end) for p in points), end]
    quotes = [points[0].quote, *(p.quote for p in points)]
    for (begin, finish), price in zip(pairwise(moments), quotes, strict=True):
        exact += price.usd_per_hour * ((finish - begin) // timedelta(microseconds=1))
    last = next((p.quote for p in reversed(points) if p.at <= end), points[0].quote)
    extra = last.billing.billed(end - one.started_at) - (end - one.started_at)
    exact += last.usd_per_hour * (extra // timedelta(microseconds=1))
    return exact / Decimal(3_600_000_000)


@given(legs=some_legs(), spans=some_spans(), until=st.floats(0, 6000))
def test_rows_sum_to_the_whole_to_the_last_digit(
    legs: list[Leg], spans: list[Span], until: float
) -> None:
    """C86: however time is cut, the parts add up to the leg."""
    for one in legs:
        parts = total(rows([one], spans, at(until)))
        assert parts == spent([one], at(until))
        assert abs(parts - by_hand(one, at(until))) <= Decimal("0.0000005001")
    assert total(rows(legs, spans, at(until))) == spent(legs, at(until))


@given(legs=some_legs(), spans=some_spans(), until=st.floats(0, 6000))
def test_no_row_is_negative_and_time_adds_up(
    legs: list[Leg], spans: list[Span], until: float
) -> None:
    """C43"""
    for one in legs:
        found = rows([one], spans, at(until))
        assert all(row.usd >= 0 and row.duration >= timedelta() for row in found)
        lived = max(timedelta(), min(one.ended_at or at(until), at(until)) - one.started_at)
        assert sum((row.duration for row in found), timedelta()) == lived


@given(legs=some_legs(), spans=some_spans(), shuffle=st.randoms(use_true_random=False))
def test_order_does_not_matter(legs: list[Leg], spans: list[Span], shuffle: Random) -> None:
    """C92: nor does it for the sum of any currency."""
    expected = rows(legs, spans, at(6000))
    shuffle.shuffle(legs)
    shuffle.shuffle(spans)
    assert rows(legs, spans, at(6000)) == expected


@given(legs=some_legs(), a=st.floats(0, 6000), b=st.floats(0, 6000))
def test_spending_never_goes_down_at_a_fixed_price(legs: list[Leg], a: float, b: float) -> None:
    legs = [replace(one, prices=one.prices[:1]) for one in legs]
    early, late = sorted((a, b))
    assert spent(legs, at(early)) <= spent(legs, at(late))
