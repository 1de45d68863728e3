"""Own machines first, rented ones after a wait, and back again: told as traces of events."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.cost.decide import decide
from burst.cost.events import (
    Action,
    AgentUp,
    End,
    Event,
    Launch,
    LaunchRefused,
    Lead,
    NodeLost,
    NodeUp,
    NoticeGiven,
    Progressed,
    Refused,
    Save,
    Saved,
    Started,
    StopAsked,
    Tick,
    Vacant,
    WorkersStarted,
)
from burst.cost.moves import pays
from burst.cost.placement import Choice, Place
from burst.cost.state import Active, Done, Limits

OWN = Choice(
    place=Place(pool="slurm/lab", machine_type="8xA100", owned=True), usd_per_hour=Decimal("0.5")
)
SPOT = Choice(
    place=Place(pool="aws", region="r", zone="ra", machine_type="p4d", spot=True),
    usd_per_hour=Decimal(9),
    after_s=600.0,
)
LIMITS = Limits(nodes=2, least_nodes=1, choices=(OWN, SPOT), deadline_s=100_000.0)


class Trace:
    """A run's state and what was done to get there."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.state: Any = Active()
        self.done: list[Action] = []
        self.owned = 2  # how many own machines can be had
        self.again_s: float | None = None  # when the own pool expects to have more
        self.at_s = 0.0

    def play(self, *events: Event) -> tuple[Action, ...]:
        """Play events; own machines beyond those there are refuse."""
        new: list[Action] = []
        for event in events:
            self.state, actions = decide(self.state, event, self.limits)
            new += actions
            self.at_s = getattr(event, "at_s", self.at_s)
            for action in actions:
                if isinstance(action, Launch) and self._full(action.choice.place):
                    new += self.play(self.refusal(action))
        self.done += new
        return tuple(new)

    def _full(self, place: Place) -> bool:
        there = sum(n.place == place for n in self.state.nodes)
        return place == OWN.place and there > self.owned

    def refusal(self, launch: Launch) -> LaunchRefused:
        refused = Refused(place=OWN.place, reason="capacity", again_s=self.again_s)
        return LaunchRefused(node_id=launch.node_id, refusals=(refused,), at_s=self.at_s)

    def until(self, end_s: int, **tick: Any) -> tuple[Action, ...]:
        """Let time pass, a tick every second."""
        new: list[Action] = []
        for at_s in range(int(self.at_s) + 1, end_s + 1):
            new += self.play(Tick(at_s=at_s, spent_usd=Decimal(0), **tick))
        return tuple(new)

    def up(self) -> None:
        """Bring up all that was asked for."""
        for node in self.state.nodes:
            if node.state == "asked":
                self.play(AgentUp(node_id=node.node_id, at_s=self.at_s))
        for node in self.state.nodes:
            if node.state != "up":
                self.play(NodeUp(node_id=node.node_id, driver=self.state.driver, at_s=self.at_s))

    def places(self) -> list[str]:
        return sorted(node.place.pool for node in self.state.nodes)

    def vacant(self, nodes: int, at_s: float, left_s: float | None = 7200.0) -> tuple[Action, ...]:
        return self.play(Vacant(places=(OWN.place,) * nodes, left_s=left_s, at_s=at_s))


def overflowed(limits: Limits = LIMITS) -> Trace:
    """A run on one own machine and a rented one, at step 5."""
    trace = Trace(limits)
    trace.owned = 1
    trace.play(Started(at_s=0))
    trace.until(601)
    trace.up()
    trace.play(WorkersStarted(attempt=1, world_size=2, at_s=700), Progressed(step=5, at_s=710))
    assert trace.places() == ["aws", "slurm/lab"]
    return trace


def moving() -> tuple[Trace, Launch]:
    """The same run, whose rented node's successor was asked for at second 920."""
    trace = overflowed()
    trace.owned = 2
    trace.vacant(1, 800)
    (asked,) = trace.vacant(1, 920)
    assert isinstance(asked, Launch)
    return trace, asked


def test_own_machines_are_taken_while_there_are_any() -> None:
    trace = Trace()
    trace.play(Started(at_s=0))
    assert trace.places() == ["slurm/lab", "slurm/lab"]


def test_a_full_own_pool_is_waited_for_and_then_one_is_rented() -> None:
    trace = Trace()
    trace.owned = 1
    trace.play(Started(at_s=0))
    asked = [a for a in trace.until(599) if isinstance(a, Launch)]
    assert {a.choice for a in asked} == {OWN}
    assert len(asked) >= 8, "it is asked again, at least once a minute"
    assert trace.places() == ["slurm/lab"]
    (rented,) = [a for a in trace.until(600) if isinstance(a, Launch)]
    assert rented.choice == SPOT


def test_without_a_wait_it_is_rented_at_once() -> None:
    trace = Trace(replace(LIMITS, choices=(OWN, replace(SPOT, after_s=0.0))))
    trace.owned = 0
    trace.play(Started(at_s=0))
    assert trace.places() == ["aws", "aws"]


def test_a_place_may_queue_a_node_until_another_is_asked() -> None:
    trace = Trace()
    trace.owned = 1
    (first, second) = [a for a in trace.play(Started(at_s=0)) if isinstance(a, Launch)]
    assert (first.wait_s, second.wait_s) == (600.0, 600.0)
    (again,) = [a for a in trace.until(3) if isinstance(a, Launch)]
    assert again.wait_s == 598.0
    (rented,) = [a for a in trace.until(600) if isinstance(a, Launch) and a.choice == SPOT]
    assert rented.wait_s is None


def test_a_place_that_expects_to_have_none_in_time_is_not_waited_for() -> None:
    trace = Trace()
    trace.again_s, trace.owned = 590.0, 0
    trace.play(Started(at_s=0))
    assert trace.places() == []
    trace.again_s = 601.0
    trace.until(20)
    assert trace.places() == ["aws", "aws"]


def test_what_a_place_expected_does_not_keep_it_from_being_asked() -> None:
    """Jobs end before their time limits; the estimate is of no use by then."""
    trace = Trace()
    trace.again_s, trace.owned = 86_400.0, 0
    trace.play(Started(at_s=0))
    trace.up()
    trace.owned = 1
    rented = trace.state.nodes[0]
    (asked,) = [
        a for a in trace.play(NodeLost(node_id=rented.node_id, why="gone", at_s=3000))
        if isinstance(a, Launch)
    ]  # fmt: skip
    assert asked.choice == OWN


def test_a_lost_node_starts_a_wait_of_its_own() -> None:
    trace = overflowed()
    trace.owned = 0
    own = next(n for n in trace.state.nodes if n.place == OWN.place)
    trace.play(NodeLost(node_id=own.node_id, why="gone", at_s=1000))
    trace.until(1599)
    assert trace.places() == ["aws"]
    trace.until(1600)
    assert trace.places() == ["aws", "aws"]


def test_a_run_that_is_late_does_not_wait() -> None:
    trace = Trace(replace(LIMITS, deadline_s=4000.0))
    trace.owned = 1
    trace.play(Started(at_s=0))
    assert trace.until(100, left_s=3000.0) is not None
    assert trace.places() == ["slurm/lab"]
    trace.until(101, left_s=3900.0)
    assert trace.state.late
    assert trace.places() == ["aws", "slurm/lab"]
    own = next(n for n in trace.state.nodes if n.place == OWN.place)
    lost = trace.play(NodeLost(node_id=own.node_id, why="gone", at_s=500))
    assert [a.wait_s for a in lost if isinstance(a, Launch)] == [0.0], "nor in a queue"


def test_a_place_that_is_vacant_for_a_moment_moves_nothing() -> None:
    trace = overflowed()
    trace.owned = 2
    assert trace.vacant(1, 800) == ()
    assert trace.vacant(0, 850) == ()
    assert trace.vacant(1, 900) == ()
    assert trace.vacant(1, 1019) == ()


def test_the_run_goes_back_with_a_save_and_without_a_gap() -> None:
    trace = overflowed()
    trace.owned = 2
    trace.vacant(1, 800)
    rented = next(n for n in trace.state.nodes if n.place == SPOT.place)
    (asked,) = trace.vacant(1, 920)
    assert isinstance(asked, Launch)
    assert (asked.choice, asked.index) == (OWN, rented.index)
    assert trace.until(940) == (), "nothing happens before the successor is set up"
    trace.play(AgentUp(node_id=asked.node_id, at_s=941))
    (save,) = trace.until(942)
    assert isinstance(save, Save)
    assert "slurm/lab" in save.reason
    assert trace.play(Saved(step=6, at_s=943))[0] == End(node_id=rented.node_id)
    assert trace.places() == ["slurm/lab", "slurm/lab"]
    assert trace.state.preemptions == 0
    assert not any(node.moving for node in trace.state.nodes)


def test_a_head_that_moves_is_followed_by_one_of_its_successors() -> None:
    trace = Trace(replace(LIMITS, choices=(OWN, replace(SPOT, after_s=0.0))))
    trace.owned = 0
    trace.play(Started(at_s=0))
    trace.until(70)
    trace.up()
    trace.play(WorkersStarted(attempt=1, world_size=2, at_s=80), Progressed(step=5, at_s=90))
    trace.owned = 2
    trace.vacant(2, 100)
    asked = [a.node_id for a in trace.vacant(2, 220) if isinstance(a, Launch)]
    assert len(asked) == 2
    trace.play(AgentUp(node_id=asked[0], at_s=230))
    assert trace.until(240) == (), "one move, not two"
    trace.play(AgentUp(node_id=asked[1], at_s=241))
    trace.until(242)
    trace.play(Saved(step=6, at_s=243))
    assert trace.places() == ["slurm/lab", "slurm/lab"]
    (lead,) = [a for a in trace.until(244) if isinstance(a, Lead)]
    assert lead.node_id in asked


def test_a_head_that_was_announced_to_go_and_stays_is_given_back_after_a_save() -> None:
    """Else a notice that was not meant costs one more node until the run's end."""
    trace = overflowed()
    head = trace.state.head
    trace.owned = 3
    trace.play(NoticeGiven(node_id=head, deadline_s=120, at_s=720))
    trace.up()
    trace.until(899)
    assert len(trace.state.nodes) == 3
    (save,) = trace.until(900)
    assert isinstance(save, Save)
    assert End(node_id=head) in trace.play(Saved(step=6, at_s=901))
    assert len(trace.state.nodes) == 2


def test_a_node_whose_successor_was_lost_after_the_save_was_ordered_stays() -> None:
    trace, asked = moving()
    trace.play(AgentUp(node_id=asked.node_id, at_s=930))
    trace.until(931)
    trace.play(NodeLost(node_id=asked.node_id, why="gone", at_s=932), Saved(step=6, at_s=932))
    assert trace.places() == ["aws", "slurm/lab"]


def test_a_save_that_does_not_come_does_not_hold_a_move_up_for_ever() -> None:
    trace, asked = moving()
    trace.play(AgentUp(node_id=asked.node_id, at_s=930))
    trace.until(980)
    assert len(trace.state.nodes) == 3
    trace.until(1000)
    assert trace.places() == ["slurm/lab", "slurm/lab"]


def test_a_successor_that_is_refused_leaves_all_as_it_was() -> None:
    trace = overflowed()
    trace.vacant(1, 800)
    trace.vacant(1, 920)  # somebody else was quicker
    before = [a for a in trace.done if isinstance(a, End)]
    trace.until(1100)
    assert trace.places() == ["aws", "slurm/lab"]
    assert not any(node.moving for node in trace.state.nodes)
    assert [a for a in trace.done if isinstance(a, End)] == before


def test_a_move_that_does_not_pay_is_not_made() -> None:
    trace = overflowed()
    trace.owned = 2
    trace.vacant(1, 800, left_s=60.0)
    assert trace.vacant(1, 920, left_s=60.0) == ()
    dear = replace(LIMITS, choices=(replace(OWN, usd_per_hour=Decimal(10)), SPOT))
    trace = overflowed(dear)
    trace.vacant(1, 800)
    assert trace.vacant(1, 920) == ()


def test_a_notice_to_a_node_that_moves_asks_for_no_second_successor() -> None:
    trace, _ = moving()
    rented = next(n for n in trace.state.nodes if n.place == SPOT.place)
    told = trace.play(NoticeGiven(node_id=rented.node_id, deadline_s=120.0, at_s=925))
    assert [type(action) for action in told] == [Save]


def test_what_moves_is_lost_and_its_successor_takes_its_place() -> None:
    trace, _ = moving()
    rented = next(n for n in trace.state.nodes if n.place == SPOT.place)
    lost = trace.play(NodeLost(node_id=rented.node_id, why="gone", at_s=925))
    assert lost == (End(node_id=rented.node_id),)
    assert trace.places() == ["slurm/lab", "slurm/lab"]


def test_a_stop_ends_a_move_with_everything_else() -> None:
    trace, _ = moving()
    trace.play(StopAsked(who="you", now=False, at_s=925))
    trace.play(Saved(step=7, at_s=926))
    assert len(trace.state.nodes) == 3, "the head is needed until training has stopped"
    trace.until(990)
    assert isinstance(trace.state, Done)
    assert len({a.node_id for a in trace.done if isinstance(a, End)}) >= 3


@pytest.mark.parametrize(
    ("left_s", "moves"), [(None, True), (3600.0, True), (400.0, True), (200.0, False)]
)
def test_what_a_move_must_bring(left_s: float | None, moves: bool) -> None:
    """Two nodes of $9: a restart costs 60 s of both, $0.30, set-up is free; it must bring twice.

    One node that costs nothing from then on brings $9 an hour: 240 s.
    """
    assert pays([(Decimal(9), Decimal(0))], Decimal(18), left_s) is moves


STEPS = st.sampled_from(["vacant", "none", "up", "lose", "save", "tick"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 2)), max_size=40))
def test_there_is_one_node_for_each_place_that_does_not_move(steps: list[tuple[str, int]]) -> None:
    """Whatever happens: as many nodes and slots as wanted, and at most one successor for each."""
    trace = overflowed()
    for what, number in steps:
        at_s = trace.at_s + 61
        if what == "vacant":
            trace.owned = number
            trace.vacant(number, at_s)
        elif what == "none":
            trace.vacant(0, at_s)
        elif what == "up":
            trace.up()
        elif what == "lose" and trace.state.nodes:
            lost = trace.state.nodes[number % len(trace.state.nodes)]
            trace.play(NodeLost(node_id=lost.node_id, why="gone", at_s=at_s))
            trace.play(Progressed(step=trace.state.step + 1, at_s=at_s))
        elif what == "save":
            trace.play(Saved(step=trace.state.step, at_s=at_s))
        else:
            trace.play(Tick(at_s=at_s, spent_usd=Decimal(0), left_s=7200.0))
        staying = [n.index for n in trace.state.nodes if not n.moving]
        waiting = [slot.index for slot in trace.state.waiting]
        moving = [n.index for n in trace.state.nodes if n.moving]
        assert len(set(staying)) == len(staying)
        assert len(set(moving)) == len(moving)
        assert {*staying, *waiting, *moving} == {0, 1}
