"""Where the next node is asked for, after what places refused and took back."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.cost.placement import (
    COOL_S,
    MOST_COOL_S,
    NEVER_S,
    Choice,
    Place,
    Reason,
    Refusal,
    choose,
    refused,
)


def place(zone: str = "a", *, spot: bool = True, machine: str = "m6i.large") -> Place:
    return Place(
        pool="aws", region="us-east-1", zone=f"us-east-1{zone}", machine_type=machine, spot=spot
    )


def choice(where: Place, usd: str) -> Choice:
    return Choice(place=where, usd_per_hour=Decimal(usd))


A, B, C = place("a"), place("b"), place("c")
STEADY = place("a", spot=False)
CHOICES = (choice(A, "0.034"), choice(B, "0.036"), choice(C, "0.037"), choice(STEADY, "0.096"))


def test_without_refusals_the_best_is_asked_now() -> None:
    assert choose(CHOICES, (), 7.0) == (CHOICES[0], 7.0)


def test_a_zone_that_preempted_is_avoided_until_it_has_cooled_down() -> None:
    known = refused((), A, "preempted", 100.0)
    assert choose(CHOICES, known, 100.0)[0] == CHOICES[1]
    assert choose(CHOICES, known, 100.0 + COOL_S["preempted"])[0] == CHOICES[0]


def test_when_all_spot_zones_preempted_on_demand_is_next() -> None:
    """C74: the fallback costs more, and is taken only while the cheaper places cool down."""
    known: tuple[Refusal, ...] = ()
    for where in (A, B, C):
        known = refused(known, where, "preempted", 10.0)
    assert choose(CHOICES, known, 10.0)[0] == CHOICES[3]


def test_when_nothing_is_free_the_first_to_be_is_asked_then() -> None:
    known = refused((), A, "capacity", 0.0)
    known = refused(known, B, "capacity", 50.0)
    assert choose(CHOICES[:2], known, 60.0) == (CHOICES[0], 300.0)


def test_each_further_refusal_doubles_the_time_up_to_an_hour() -> None:
    known: tuple[Refusal, ...] = ()
    times = []
    now = 0.0
    for _ in range(6):
        known = refused(known, A, "capacity", now)
        times.append(known[0].cool_s)
        now = known[0].until_s
    assert times == [300, 600, 1200, 2400, MOST_COOL_S, MOST_COOL_S]


def test_a_long_quiet_forgets() -> None:
    known = refused((), A, "capacity", 0.0)
    known = refused(known, A, "capacity", 4 * 300.0)
    assert known == (Refusal(place=A, reason="capacity", at_s=1200.0, count=1),)


@pytest.mark.parametrize(
    ("reason", "other", "covered"),
    [
        ("capacity", B, False),
        ("capacity", place("a", machine="m6i.xlarge"), False),
        ("capacity", STEADY, False),
        ("quota", B, True),
        ("quota", STEADY, False),
        ("rights", STEADY, True),
        ("rights", Place(pool="lambda", region="us-east-1"), False),
    ],
)
def test_how_far_a_refusal_reaches(reason: Reason, other: Place, covered: bool) -> None:
    assert Refusal(place=A, reason=reason, at_s=0.0).covers(other) is covered


def test_missing_rights_are_for_good() -> None:
    assert choose(CHOICES, refused((), A, "rights", 0.0), 1e6) == (None, NEVER_S)


def test_an_own_machine_is_tried_again_within_seconds() -> None:
    mine = Place(pool="local", machine_type="box", owned=True)
    known = refused((), mine, "unknown", 0.0)
    assert choose((choice(mine, "0"),), known, 0.0)[1] <= 2.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from([A, B, C, STEADY]),
            st.sampled_from(["capacity", "preempted", "quota", "unknown", "price"]),
            st.floats(0, 500),
        )
    )
)
def test_there_is_always_a_next_place_and_a_time(
    history: list[tuple[Place, Reason, float]],
) -> None:
    known: tuple[Refusal, ...] = ()
    now = 0.0
    for where, reason, later in history:
        now += later
        known = refused(known, where, reason, now)
    found, when = choose(CHOICES, known, now)
    assert found in CHOICES
    assert now <= when <= now + MOST_COOL_S
