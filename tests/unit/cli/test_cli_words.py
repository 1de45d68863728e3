from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, get_args

import pytest

from burst.cli import words
from burst.controller.account import Progress
from burst.cost.events import (
    AgentUp,
    DriverLost,
    Event,
    Finished,
    LaunchRefused,
    Measured,
    NodeLost,
    NodeUp,
    NoticeGiven,
    Progressed,
    Refused,
    Saved,
    SetupFailed,
    Started,
    StopAsked,
    Stopped,
    TakenOver,
    Tick,
    UserFailed,
    Vacant,
    WorkersStarted,
)
from burst.cost.network import Bridge, Link, Work
from burst.cost.placement import Place
from burst.cost.state import Active, Done, Node, Slot, State, Stopping
from burst.records import stamp
from cli_scene import BEGIN, at

HERE = Place(pool="local", machine_type="box", owned=True)
OWN = Place(pool="ssh/lab", machine_type="2-cpu", owned=True)
AWS = Place(pool="aws", region="us-east-1", zone="us-east-1a", machine_type="m6i.large", spot=True)
EAST = Place(pool="aws", region="us-east-1", zone="us-east-1b", machine_type="m6i.large", spot=True)


def active(*states: str, driving: bool = True, since_s: float = 1.0, first: int = 1) -> Active:
    nodes = tuple(
        Node(node_id=f"n{n + first:03d}", index=n, state=state, since_s=since_s, place=HERE)  # type: ignore[arg-type]  # a literal in every caller
        for n, state in enumerate(states)
    )
    return Active(nodes=nodes, driving=driving, attempt=1)


UP = active("up", "up", "up")
TICK = Tick(at_s=9.0, spent_usd=Decimal(1))
STOPPING = Active(stopping=Stopping(reason="budget", detail="spending reached $1", since_s=9.0))
REPLACED = Active(
    driving=True,
    nodes=(
        Node(node_id="n001", index=0, state="up", since_s=1.0, place=HERE),
        Node(node_id="n003", index=1, state="asked", since_s=9.0, place=HERE),
    ),
)
LOST = NodeLost(node_id="n002", why="Traceback\n  OSError: gone\n", at_s=9.0)
CHANGES: list[tuple[State, Event, tuple[str, str] | None]] = [
    (active("asked", "asked"), Started(at_s=0), ("launching", "1 node and the head")),
    (active("asked", "asked", "asked"), Started(at_s=0), ("launching", "2 nodes and the head")),
    (UP, NodeUp(node_id="n003", driver=1, at_s=9), ("ready", "2 nodes; starting the workers")),
    (active("up", "asked"), NodeUp(node_id="n001", driver=1, at_s=9), None),
    (active("up", "up", driving=False), NodeUp(node_id="n001", driver=1, at_s=9), None),
    (REPLACED, LOST, ("lost", "n002 (OSError: gone); n003 takes its place")),
    (
        active("asked", "asked", driving=False, since_s=9.0, first=4),
        NodeLost(node_id="n001", why="the machine is gone", at_s=9.0),
        (
            "lost",
            (
                "n001 (the machine is gone); n005 takes its place; "
                "starting over from the last checkpoint"
            ),
        ),
    ),
    (
        UP,
        DriverLost(driver=1, why="exit code -9", at_s=9),
        ("lost", "the driver (exit code -9); starting over from the last checkpoint"),
    ),
    (UP, WorkersStarted(attempt=1, world_size=2, at_s=9), ("starting", "2 workers")),
    (UP, WorkersStarted(attempt=2, world_size=1, at_s=9), ("starting", "1 worker (attempt 2)")),
    (UP, Progressed(step=4, at_s=9), None),
    (UP, Saved(step=4, at_s=9), None),
    (
        UP,
        UserFailed(attempt=1, error="Traceback\nValueError: no", at_s=9),
        ("failed", "ValueError: no; starting the workers again"),
    ),
    (
        Done(reason="finished", step=8, saved_step=8),
        Finished(at_s=9),
        ("finished", "step 8, saved 8"),
    ),
    (
        Done(reason="stopped", detail="asked by ann", step=8, saved_step=6),
        Stopped(at_s=9),
        ("stopped", "step 8, saved 6; asked by ann"),
    ),
    (
        UP,
        StopAsked(who="ann", now=False, at_s=9),
        ("stopping", "asked by ann; saving first, once more stops at once"),
    ),
    (
        UP,
        NoticeGiven(node_id="n002", deadline_s=119.6, at_s=9),
        ("notice", "n002 leaves in 120 s; saving"),
    ),
    (UP, AgentUp(node_id="n002", at_s=9), None),
    (UP, TakenOver(found=("n001",), at_s=9), ("taken over", "3 nodes; from step 0")),
    (
        UP,
        SetupFailed(node_id="n002", error="exit code 1; its last lines:\nno pip", at_s=9),
        ("failed", "set-up on n002: no pip; another tries"),
    ),
    (
        Active(
            nodes=(Node(node_id="n002", index=0, state="asked", since_s=9.0, place=EAST),),
            refusal=f"{AWS}: capacity",
        ),
        LaunchRefused(node_id="n001", refusals=(Refused(place=AWS, reason="capacity"),), at_s=9.0),
        (
            "refused",
            (
                "n001 by aws/us-east-1a m6i.large spot: capacity; "
                "asking aws/us-east-1b m6i.large spot for n002"
            ),
        ),
    ),
    (
        Active(waiting=(Slot(index=0, until_s=309.0),), refusal=f"{AWS}: capacity"),
        LaunchRefused(node_id="n001", refusals=(Refused(place=AWS, reason="capacity"),), at_s=9.0),
        ("refused", "n001 by aws/us-east-1a m6i.large spot: capacity; asking again in 5 min 0 s"),
    ),
    (
        Active(
            nodes=(
                Node(node_id="n001", index=0, state="up", since_s=1.0, place=AWS, moving=True),
                Node(node_id="n002", index=0, state="asked", since_s=9.0, place=OWN),
            )
        ),
        Vacant(places=(OWN,), left_s=None, at_s=9.0),
        ("moving", "n001 in aws/us-east-1a m6i.large spot to ssh/lab 2-cpu"),
    ),
    (UP, Vacant(places=(), left_s=None, at_s=9.0), None),
    (
        Active(
            nodes=(Node(node_id="n002", index=0, state="asked", since_s=9.0, place=AWS),), late=True
        ),
        TICK,
        ("launching", "n002 in aws/us-east-1a m6i.large spot; the run is late"),
    ),
    (
        Active(nodes=(Node(node_id="n002", index=0, state="asked", since_s=9.0, place=OWN),)),
        TICK,
        None,
    ),
    (STOPPING, TICK, ("stopping", "spending reached $1; saving first")),
    (UP, TICK, None),
]


@pytest.mark.parametrize(("state", "event", "expected"), CHANGES)
def test_a_change_is_one_line_or_nothing(
    state: State, event: Event, expected: tuple[str, str] | None
) -> None:
    assert words.change(state, event) == expected


LINK = Link(round_trip_s=0.012, bytes_per_s=1e7)
BRIDGE = Bridge(islands=("aws/us-east-1", "ssh/lab"), link=LINK)
SLOW = replace(BRIDGE, apart="12 ms, 80 Mbit/s: a step would take 3.2 s instead of 0.8 s")


def test_what_was_measured_between_two_nodes_is_said_with_what_follows() -> None:
    event = Measured(node_id="n002", peer_id="n001", link=LINK, work=None, at_s=1.0)
    state = replace(active("up", "ready"), bridges=(BRIDGE,))
    assert words.change(state, event) == ("network", "n002 and n001: 12 ms, 80 Mbit/s")
    said = words.change(replace(state, bridges=(SLOW,)), event)
    assert said == (
        "network",
        f"n002 and n001: {SLOW.apart}; aws/us-east-1 and ssh/lab are kept apart",
    )


def test_nodes_that_leave_after_a_save_because_of_the_network_are_told_of() -> None:
    work = Work(step_s=3.2, nodes=("n001", "n002"), gradient_bytes=1)
    saved = Saved(step=8, at_s=1.0, work=work)
    left = replace(active("up"), bridges=(SLOW,))
    assert words.change(left, saved) == ("network", words.network(SLOW))
    assert words.change(replace(active("up", "up"), bridges=(SLOW,)), saved) is None
    assert words.change(replace(active("up", "up"), bridges=(BRIDGE,)), saved) is None


def test_a_run_that_moves_as_a_whole_says_why() -> None:
    there = active("up")
    moving = replace(there.nodes[0], moving=True)
    heir = Node(node_id="n002", index=0, state="asked", since_s=9.0, place=AWS)
    state = replace(there, nodes=(moving, heir), late=True)
    said = words.change(state, Tick(at_s=9.0, spent_usd=Decimal(0)))
    assert said == (
        "moving",
        "n001 in local box to aws/us-east-1a m6i.large spot; the run is late",
    )


def test_every_kind_of_event_is_above() -> None:
    assert {type(event) for _, event, _ in CHANGES} | {Measured} == set(get_args(Event))


def test_a_node_lost_before_training_began_is_replaced_and_nothing_starts_over() -> None:
    state = Active(
        nodes=(
            Node(node_id="n001", index=0, state="up", since_s=1.0, place=HERE),
            Node(node_id="n003", index=1, state="asked", since_s=9.0, place=HERE),
        )
    )
    said = words.change(state, NodeLost(node_id="n002", why="gone", at_s=9.0))
    assert said == ("lost", "n002 (gone); n003 takes its place")


def test_a_line_has_time_word_and_text() -> None:
    assert words.line(at(3661), "saved", "step 4") == "01:01:01  saved     step 4"
    assert words.line(BEGIN, "ready", "") == "00:00:00  ready"


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        ({"kind": "started", "world": 1}, ("running", "1 worker, from the beginning")),
        ({"kind": "resumed", "world": 2, "step": 40}, ("resumed", "2 workers, from step 40")),
        (
            {
                "kind": "saved",
                "step": 4,
                "size_bytes": 3 * 1024**2,
                "start": stamp(at(1)),
                "end": stamp(at(2.25)),
            },
            ("saved", "step 4, 3.0 MiB in 1.2 s"),
        ),
        (
            {"kind": "save_failed", "step": 4, "error": "Traceback\nOSError: disk full"},
            ("unsaved", "step 4: OSError: disk full"),
        ),
        ({"kind": "step", "step": 4}, None),
        ({"kind": "of a later version"}, None),
    ],
)
def test_a_fact_is_one_line_or_nothing(
    fact: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    told = words.told({"time": stamp(at(7)), **fact})
    assert told == (None if expected is None else (at(7), *expected))


def test_progress_says_what_is_known_and_no_more() -> None:
    nothing = words.progress(Progress(), Decimal(0), None)
    assert nothing == "step 0  $0.00"


def step(now: Progress, number: int, tokens: int) -> None:
    start, end = at(2 * number), at(2 * number + 2)
    common = {"attempt": 1, "epoch": 0, "samples": 1, "total": 130, "lr": 0.1}
    moments = {"start": stamp(start), "end": stamp(end)}
    now.add(
        {"kind": "step", "step": number, "tokens": tokens, "loss": 1.23456, **common, **moments}
    )


@pytest.mark.parametrize(("tokens", "speed"), [(5000, "2,500 tokens/s"), (0, "2.00 s/step")])
def test_progress_has_step_loss_speed_dollars_and_time_left(tokens: int, speed: str) -> None:
    now = Progress()
    now.add({"kind": "attempt", "attempt": 1, "time": stamp(BEGIN)})
    for number in range(1, 11):
        step(now, number, tokens)
    said = words.progress(now, Decimal("1.5"), Decimal(20))
    assert said == f"step 10 of 130  loss 1.235  {speed}  $1.50 of $20.00  4 min 0 s left"


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        ("0", "$0.00"),
        ("0.00001", "$0.0000"),
        ("0.0123", "$0.0123"),
        ("0.1", "$0.10"),
        ("1234567.891", "$1,234,567.89"),
    ],
)
def test_dollars(usd: str, text: str) -> None:
    assert words.dollars(Decimal(usd)) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_plural(count: int, text: str) -> None:
    assert words.plural(count, "node") == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        (" \n \n", ""),
        ("one", "one"),
        ("Traceback:\n  File x\nKeyError: 1\n\n", "KeyError: 1"),
    ],
)
def test_the_line_of_an_error_that_says_what_it_is(text: str, line: str) -> None:
    assert words.first_line(text) == line


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (61 * 1024**3, "61.0 GiB"),
        (5000 * 1024**4, "5000.0 TiB"),
    ],
)
def test_human_bytes(size: int, text: str) -> None:
    assert words.human_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0.4, "0 s"),
        (59.6, "1 min 0 s"),
        (42, "42 s"),
        (190, "3 min 10 s"),
        (7500, "2 h 5 min"),
        (timedelta(days=4, hours=3, minutes=59).total_seconds(), "4 d 3 h"),
    ],
)
def test_human_time(seconds: float, text: str) -> None:
    assert words.human_time(seconds) == text
