"""What the controller decides, told as traces of events."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from burst.cost.decide import decide
from burst.cost.events import (
    Action,
    AgentUp,
    Drive,
    DriverLost,
    End,
    Event,
    Finished,
    Launch,
    LaunchRefused,
    Lead,
    NodeLost,
    NodeUp,
    NoticeGiven,
    Progressed,
    Refused,
    Save,
    SaveAndStop,
    Saved,
    Started,
    StopAsked,
    Stopped,
    TakenOver,
    Tick,
    UserFailed,
    WorkersStarted,
)
from burst.cost.placement import Choice, Place
from burst.cost.state import Active, Done, Limits, State

HERE = Choice(
    place=Place(pool="local", machine_type="box", owned=True), usd_per_hour=Decimal("3.60")
)
LIMITS = Limits(
    nodes=2,
    least_nodes=1,
    choices=(HERE,),
    head_apart=True,
    budget_usd=Decimal(10),
    deadline_s=3600.0,
)


def play(
    *events: Event, limits: Limits = LIMITS, state: State | None = None
) -> tuple[Any, tuple[Action, ...]]:
    """Return the last state and all actions of a trace."""
    now: State = state or Active()
    done: list[Action] = []
    for event in events:
        now, actions = decide(now, event, limits)
        done.extend(actions)
    return now, tuple(done)


def ups(*numbers: int, at_s: float, driver: int = 1) -> tuple[Event, ...]:
    """Return what is seen of nodes whose machines and then whose Ray come up."""
    names = [f"n{number:03d}" for number in numbers]
    agents = [AgentUp(node_id=name, at_s=at_s) for name in names]
    return (*agents, *(NodeUp(node_id=name, driver=driver, at_s=at_s) for name in names))


def training(limits: Limits = LIMITS) -> Active:
    """A run whose three nodes are up and whose workers have reached step 5."""
    state, _ = play(
        Started(at_s=0),
        *ups(1, 2, 3, at_s=5),
        WorkersStarted(attempt=1, world_size=2, at_s=10),
        Progressed(step=5, at_s=20),
        limits=limits,
    )
    assert isinstance(state, Active)
    return state


def test_a_start_asks_for_the_head_and_every_node() -> None:
    state, actions = play(Started(at_s=0))
    assert actions == tuple(Launch(node_id=f"n00{i + 1}", index=i, choice=HERE) for i in range(3))
    assert [node.state for node in state.nodes] == ["asked"] * 3


def test_training_starts_when_all_nodes_are_up() -> None:
    _, actions = play(Started(at_s=0), *ups(1, 2, at_s=1))
    assert not [a for a in actions if isinstance(a, Drive)]
    state, actions = play(Started(at_s=0), *ups(3, 1, 2, at_s=2))
    assert actions[-1] == Drive(driver=1)
    assert state.driving


def test_training_starts_with_fewer_nodes_once_patience_is_over() -> None:
    start = (Started(at_s=0), *ups(1, 2, at_s=1))
    _, early = play(*start, Tick(at_s=60.9, spent_usd=Decimal(0)))
    _, late = play(*start, Tick(at_s=61, spent_usd=Decimal(0)))
    assert Drive(driver=1) not in early
    assert Drive(driver=1) in late


def test_a_lost_node_alone_is_replaced_and_the_others_stay() -> None:
    state, actions = play(NodeLost(node_id="n003", why="gone", at_s=30), state=training())
    assert actions == (End(node_id="n003"), Launch(node_id="n004", index=2, choice=HERE))
    assert [n.node_id for n in state.nodes] == ["n001", "n002", "n004"]
    assert state.preemptions == 1
    assert state.driving


def test_a_lost_head_apart_is_replaced_and_the_others_wait_for_it() -> None:
    state, actions = play(NodeLost(node_id="n001", why="gone", at_s=30), state=training())
    assert actions == (End(node_id="n001"), Launch(node_id="n004", index=0, choice=HERE))
    assert [(n.node_id, n.state) for n in state.nodes] == [
        ("n002", "ready"),
        ("n003", "ready"),
        ("n004", "asked"),
    ]
    assert (state.driving, state.head) == (False, "")
    state, actions = play(AgentUp(node_id="n004", at_s=35), state=state)
    assert actions == (Lead(node_id="n004", driver=2),)


def test_a_lost_driver_makes_the_nodes_form_a_new_cluster_and_a_stale_report_does_not() -> None:
    state, actions = play(DriverLost(driver=1, why="exit code -9", at_s=30), state=training())
    assert not state.driving
    assert actions == (Lead(node_id="n001", driver=2),)
    assert play(DriverLost(driver=1, why="exit code -9", at_s=31), state=state) == (state, ())
    stale = NodeUp(node_id="n001", driver=1, at_s=31)
    assert play(stale, state=state) == (state, ())


def test_preemptions_alone_never_fail_a_run() -> None:
    state: Any = training()
    for n in range(50):
        lost = next(node for node in state.nodes if node.index == 1)
        state, _ = play(
            NodeLost(node_id=lost.node_id, why="gone", at_s=30 + n),
            Progressed(step=6 + n, at_s=31 + n),
            state=state,
        )
    assert isinstance(state, Active)
    assert state.preemptions == 50


def test_losses_without_a_step_between_them_end_the_run_and_say_so() -> None:
    state: State = training()
    for n in range(LIMITS.max_idle_losses + 1):
        assert isinstance(state, Active)
        lost = next(node for node in state.nodes if node.index == 1)
        state, _ = play(NodeLost(node_id=lost.node_id, why="no disk", at_s=30 + n), state=state)
    assert isinstance(state, Done)
    assert state.reason == "stuck"
    assert "no disk" in state.detail


def test_the_users_error_ends_the_run_at_once_unless_restarts_are_allowed() -> None:
    error = UserFailed(attempt=1, error="ValueError: no", at_s=30)
    state, actions = play(error, state=training())
    assert state == Done(
        reason="failed", detail="ValueError: no", step=5, restarts=0, launched=3, driver=1
    )
    assert actions == tuple(End(node_id=n) for n in ("n003", "n002", "n001"))
    twice = replace(LIMITS, max_failures=1)
    again, none = play(error, state=training(twice), limits=twice)
    assert isinstance(again, Active)
    assert none == ()
    assert play(error, state=again, limits=twice) == (again, ())  # counted already
    assert isinstance(play(replace(error, attempt=2), state=again, limits=twice)[0], Done)


def test_a_stop_saves_first_and_releases_after() -> None:
    state, actions = play(StopAsked(who="ann", now=False, at_s=30), state=training())
    assert actions == (SaveAndStop(reason="asked by ann"),)
    state, actions = play(Stopped(at_s=31), state=state)
    assert isinstance(state, Done)
    assert state.reason == "stopped"
    assert len(actions) == 3


def test_a_second_stop_does_not_wait() -> None:
    state, _ = play(StopAsked(who="ann", now=False, at_s=30), state=training())
    state, actions = play(StopAsked(who="ann", now=True, at_s=31), state=state)
    assert isinstance(state, Done)
    assert all(isinstance(action, End) for action in actions)


def test_a_stop_that_nobody_answers_ends_after_its_grace() -> None:
    state, _ = play(StopAsked(who="ann", now=False, at_s=30), state=training())
    waiting, _ = play(Tick(at_s=89, spent_usd=Decimal(0)), state=state)
    assert isinstance(waiting, Active)
    assert isinstance(play(Tick(at_s=90, spent_usd=Decimal(0)), state=state)[0], Done)


def test_a_run_that_stops_waits_for_no_node_any_more() -> None:
    full = Refused(place=HERE.place, reason="capacity")
    gone = NodeLost(node_id="n002", why="gone", at_s=30)
    no = LaunchRefused(node_id="n004", refusals=(full,), at_s=31)
    state, _ = play(gone, no, state=training())
    assert [slot.index for slot in state.waiting] == [1]
    state, _ = play(StopAsked(who="ann", now=False, at_s=32), state=state)
    assert state.waiting == ()
    assert play(Tick(at_s=80, spent_usd=Decimal(0)), state=state) == (state, ())


@pytest.mark.parametrize("when", ["before the stop", "while it stops"])
def test_a_run_that_goes_on_after_a_stop_asks_for_the_nodes_that_it_lacks(when: str) -> None:
    """Whoever drove it was gone before it had stopped, and somebody resumes it."""
    full = Refused(place=HERE.place, reason="capacity")
    stop = StopAsked(who="ann", now=False, at_s=30)
    gone = NodeLost(node_id="n002", why="gone", at_s=30)
    no = LaunchRefused(node_id="n004", refusals=(full,), at_s=30)
    events = (gone, no, stop) if when == "before the stop" else (stop, gone)
    state, _ = play(*events, state=training())
    found = ("n001", "n003")
    state, actions = play(TakenOver(found=found, at_s=90), state=state)
    assert [action.index for action in actions if isinstance(action, Launch)] == [1]
    assert sorted(node.index for node in state.nodes) == [0, 1, 2]
    again = TakenOver(found=tuple(node.node_id for node in state.nodes), at_s=91)
    assert play(again, state=state)[1] == ()


def test_budget_and_deadline_save_before_they_stop() -> None:
    limits = replace(LIMITS, reserve_usd=Decimal(1))
    state, actions = play(
        Tick(at_s=30, spent_usd=Decimal("9.00")), state=training(limits), limits=limits
    )
    assert actions == (SaveAndStop(reason="spending reached $9.00 of $10.00"),)
    assert state.stopping is not None
    assert state.stopping.reason == "budget"
    late, actions = play(Tick(at_s=3570, spent_usd=Decimal(0)), state=training())
    assert len(actions) == 1
    assert late.stopping.reason == "deadline"


def test_a_notice_saves_and_asks_for_another_node_at_once() -> None:
    """C71: recovery starts before the loss."""
    notice = NoticeGiven(node_id="n002", deadline_s=120, at_s=30)
    state, actions = play(notice, notice, state=training())
    save = Save(reason="n002 leaves in 120 s")
    assert actions == (save, Launch(node_id="n004", index=1, choice=HERE), save)
    state, actions = play(NodeLost(node_id="n002", why="gone", at_s=150), state=state)
    assert actions == (End(node_id="n002"),)
    assert [n.node_id for n in state.nodes] == ["n001", "n003", "n004"]


def test_a_notice_while_a_run_stops_changes_no_order() -> None:
    """The order to save and stop would be replaced by one to save, and training go on."""
    stop = StopAsked(who="ann", now=False, at_s=30)
    notice = NoticeGiven(node_id="n002", deadline_s=120, at_s=31)
    state, actions = play(stop, state=training())
    assert play(notice, state=state) == (state, ())
    assert len(actions) == 1


def test_a_successor_that_is_refused_while_the_notice_lasts_is_asked_for_elsewhere_at_once() -> (
    None
):
    zones = tuple(
        replace(HERE, place=Place(pool="aws", zone=zone, machine_type="m", spot=True))
        for zone in "abc"
    )
    limits = replace(LIMITS, choices=zones)
    notice = NoticeGiven(node_id="n002", deadline_s=120, at_s=30)
    state, actions = play(notice, limits=limits, state=training(limits))
    assert actions[1] == Launch(node_id="n004", index=1, choice=zones[1])
    full = Refused(place=zones[1].place, reason="capacity")
    no = LaunchRefused(node_id="n004", refusals=(full,), at_s=35)
    state, actions = play(no, limits=limits, state=state)
    assert actions == (End(node_id="n004"), Launch(node_id="n005", index=1, choice=zones[2]))
    gone = NodeLost(node_id="n002", why="taken", at_s=150)
    state, actions = play(gone, limits=limits, state=state)
    assert actions == (End(node_id="n002"),)
    assert [node.node_id for node in state.nodes] == ["n001", "n003", "n005"]


def test_a_node_that_was_announced_to_go_and_stays_is_given_back_once_replaced() -> None:
    state, _ = play(NoticeGiven(node_id="n002", deadline_s=120, at_s=30), state=training())
    late = Tick(at_s=211, spent_usd=Decimal(0))
    assert play(late, state=state)[1] == ()
    state, _ = play(*ups(4, at_s=60), state=state)
    assert play(Tick(at_s=209, spent_usd=Decimal(0)), state=state)[1] == ()
    assert play(late, state=state)[1] == (End(node_id="n002"),)


def test_a_resumed_run_never_reuses_a_node_id() -> None:
    state, _ = play(Started(at_s=100), state=replace(training(), nodes=(), driving=False))
    assert [n.node_id for n in state.nodes] == ["n004", "n005", "n006"]


EVENTS = st.one_of(
    st.builds(NodeUp, node_id=st.sampled_from(["n001", "n002", "n003", "n004"]), at_s=st.just(1.0)),
    st.builds(
        NodeLost,
        node_id=st.sampled_from(["n001", "n002", "n003", "n004", "n007"]),
        why=st.just("gone"),
        at_s=st.just(1.0),
    ),
    st.builds(DriverLost, driver=st.integers(1, 3), why=st.just("x"), at_s=st.just(1.0)),
    st.builds(WorkersStarted, attempt=st.integers(1, 9), world_size=st.just(2), at_s=st.just(1.0)),
    st.builds(Progressed, step=st.integers(0, 99), at_s=st.just(1.0)),
    st.builds(Saved, step=st.integers(0, 99), at_s=st.just(1.0)),
    st.builds(UserFailed, attempt=st.just(1), error=st.just("e"), at_s=st.just(1.0)),
    st.builds(Finished, at_s=st.just(1.0)),
    st.builds(Stopped, at_s=st.just(1.0)),
    st.builds(StopAsked, who=st.just("a"), now=st.booleans(), at_s=st.just(1.0)),
    st.builds(
        Tick,
        at_s=st.floats(0, 4000),
        spent_usd=st.decimals(0, 20, allow_nan=False, places=2),
    ),
)


@given(st.lists(EVENTS, max_size=30))
def test_every_node_asked_for_is_ended_exactly_once_when_the_run_is_done(
    events: list[Event],
) -> None:
    state, actions = play(Started(at_s=0), *events, Finished(at_s=9))
    asked = [a.node_id for a in actions if isinstance(a, Launch)]
    ended = [a.node_id for a in actions if isinstance(a, End)]
    assert isinstance(state, Done)
    assert len(set(asked)) == len(asked)
    assert sorted(asked) == sorted(ended)


@given(st.lists(EVENTS, max_size=30))
@example([Tick(at_s=0.0, spent_usd=Decimal(10)), NodeLost(node_id="n001", why="gone", at_s=1.0)])
def test_at_most_one_node_serves_each_place(events: list[Event]) -> None:
    state, _ = play(Started(at_s=0), *events)
    if isinstance(state, Active):
        served = sorted(node.index for node in state.nodes)
        assert served == sorted(set(served) & {0, 1, 2})
        assert state.stopping or len(served) == 3  # what a stop waits for is not replaced
