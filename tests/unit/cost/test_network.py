"""When nodes with a slow network between them pay: the arithmetic, and cases worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.cost.network import (
    Bridge,
    Link,
    Work,
    are_apart,
    bridge_of,
    joining_why_not,
    ring_s,
    staying_why_not,
    why_not,
    with_bridge,
)

LAN = Link(round_trip_s=0.0002, bytes_per_s=1.25e9)
WAN = Link(round_trip_s=0.012, bytes_per_s=1e7)


def test_a_ring_of_two_sends_the_gradients_once_and_waits_for_two_messages() -> None:
    assert ring_s(1_000_000_000, 2, Link(round_trip_s=0.02, bytes_per_s=1e9)) == 1.02


def test_thirty_billion_parameters_in_eight_bits_over_a_gigabit_take_eight_minutes() -> None:
    """Of many sites, each sends and gets 60 GB: 480 s at 1 Gbit/s."""
    link = Link(round_trip_s=0.0, bytes_per_s=1e9 / 8)
    assert ring_s(30_000_000_000, 1000, link) == pytest.approx(480, rel=0.002)
    assert ring_s(30_000_000_000, 2, link) == 240


@given(st.integers(2, 500), st.integers(1, 10**12))
def test_more_nodes_never_make_a_ring_faster(nodes: int, size: int) -> None:
    assert ring_s(size, nodes + 1, WAN) >= ring_s(size, nodes, WAN)


def test_a_fast_network_pays_and_a_slow_one_does_not() -> None:
    work = Work(step_s=0.8, nodes=("n1", "n2"), gradient_bytes=20_000_000)
    assert joining_why_not(work, LAN, 4, late=False) == ""
    said = joining_why_not(work, WAN, 4, late=False)
    assert said == "a step would take 3.44 s instead of 0.8 s"


def test_added_nodes_must_bring_half_of_what_is_paid_for() -> None:
    assert why_not(0.5, 1.0, 0.15) == "", "1 / 0.65 = 1.54 of 2"
    assert why_not(0.5, 1.0, 0.18) != "", "1 / 0.68 = 1.47 of 2"


def test_for_a_late_run_any_speed_pays_but_no_loss_of_it() -> None:
    assert why_not(0.5, 1.0, 0.4, late=True) == ""
    assert why_not(0.5, 1.0, 0.6, late=True) == "a step would take 1.1 s instead of 1 s"


def test_a_mixed_group_parts_when_its_steps_are_mostly_waiting() -> None:
    slow = Work(step_s=1.0, nodes=("n1", "n2"), gradient_bytes=8_000_000)
    assert staying_why_not(slow, WAN, 1, late=False).startswith("a step would take 1 s instead")
    light = Work(step_s=1.0, nodes=("n1", "n2"), gradient_bytes=1_000_000)
    assert staying_why_not(light, WAN, 1, late=False) == ""


def test_a_prediction_that_the_steps_refute_decides_nothing() -> None:
    work = Work(step_s=0.5, nodes=("n1", "n2"), gradient_bytes=8_000_000)
    assert staying_why_not(work, WAN, 1, late=False) == ""


@given(st.floats(0.01, 100), st.floats(1.01, 64), st.floats(0, 1000), st.booleans())
def test_what_pays_over_a_network_pays_over_a_better_one(
    ideal_s: float, factor: float, wire_s: float, late: bool
) -> None:
    if not why_not(ideal_s, ideal_s * factor, wire_s, late=late):
        assert not why_not(ideal_s, ideal_s * factor, wire_s / 2, late=late)


def test_links_are_said_as_people_say_them() -> None:
    assert str(WAN) == "12 ms, 80 Mbit/s"
    assert str(LAN) == "0.2 ms, 10 Gbit/s"


def test_the_last_measurement_between_two_islands_counts() -> None:
    known = with_bridge((), Bridge(islands=("a", "b"), link=LAN))
    known = with_bridge(known, Bridge(islands=("a", "c"), link=LAN))
    assert not are_apart(known, "b", "a")
    known = with_bridge(known, Bridge(islands=("a", "b"), link=WAN, apart="too slow"))
    assert are_apart(known, "b", "a")
    assert not are_apart(known, "b", "c")
    assert len(known) == 2
    assert bridge_of(known, "b", "a") == known[1]
