"""Who measures to whom, who joins whom, and what a run does about islands that stay apart."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from burst.cost.decide import decide
from burst.cost.events import (
    End,
    Event,
    Launch,
    Measured,
    NodeLost,
    Save,
    Saved,
    Tick,
    Vacant,
)
from burst.cost.mixing import members, to_measure
from burst.cost.network import Bridge, Link, Work
from burst.cost.placement import Choice, Place, refused
from burst.cost.state import Active, Done, Limits, Node, NodeState, Slot

OWN = Place(pool="ssh/lab", owned=True)
EAST = Place(pool="aws", region="east", zone="a")
WEST = Place(pool="aws", region="west", zone="b")
CHOICES = tuple(
    Choice(place=place, usd_per_hour=Decimal(usd))
    for place, usd in [(OWN, 1), (EAST, 9), (WEST, 10)]
)
LIMITS = Limits(nodes=3, least_nodes=1, choices=CHOICES, return_after_s=0.0)
LAN = Link(round_trip_s=0.0002, bytes_per_s=1.25e9)
WAN = Link(round_trip_s=0.012, bytes_per_s=1e7)
APART = Bridge(islands=("aws/east", "ssh/lab"), link=Link(error="no"), apart="no")


def node(number: int, place: Place, state: NodeState = "up", **more: object) -> Node:
    made = Node(node_id=f"n{number:03d}", index=number - 1, state=state, since_s=0.0, place=place)
    return replace(made, **more)  # type: ignore[arg-type]  # names of Node's fields


def run(*nodes: Node, **more: object) -> Active:
    state = Active(nodes=nodes, head="n001", driver=1, driving=True, attempt=1, launched=len(nodes))
    return replace(state, **more)  # type: ignore[arg-type]  # names of Active's fields


def pairs(state: Active) -> list[tuple[str, str]]:
    return sorted((one.node_id, other.node_id) for one, other in to_measure(state))


def after(state: Active, event: Event, limits: Limits = LIMITS) -> tuple[Active, list[str]]:
    """Return the state, and what was asked for and ended."""
    found, actions = decide(state, event, limits)
    assert not isinstance(found, Done)
    said = [
        f"ask {a.choice.place.pool}" if isinstance(a, Launch) else f"end {a.node_id}"
        for a in actions
        if isinstance(a, Launch | End)
    ]
    return found, said


def measured(one: str, other: str, link: Link, work: Work | None = None) -> Measured:
    return Measured(node_id=one, peer_id=other, link=link, work=work, at_s=9.0)


def test_inside_an_island_nothing_is_measured_and_nobody_waits() -> None:
    state = run(node(1, EAST), node(2, replace(EAST, zone="c"), "ready"))
    assert pairs(state) == []
    assert members(state) == {"n001", "n002"}


def test_a_node_joins_once_it_has_met_each_other_island() -> None:
    state = run(node(1, OWN), node(2, EAST, met=("ssh/lab",)), node(3, WEST, "ready"))
    assert pairs(state) == [("n003", "n001"), ("n003", "n002")]
    assert "n003" not in members(state)
    for peer in ("n001", "n002"):
        state, said = after(state, measured("n003", peer, LAN))
        assert said == []
    assert pairs(state) == []
    assert "n003" in members(state)


def test_a_node_of_the_heads_own_island_meets_the_other_one_too() -> None:
    state = run(node(1, OWN), node(2, EAST, met=("ssh/lab",)), node(3, OWN, "ready"))
    assert pairs(state) == [("n003", "n002")]


def test_islands_that_do_not_reach_each_other_are_left_to_the_heads() -> None:
    state = run(node(1, OWN), node(2, EAST, "ready"), node(3, WEST, met=("ssh/lab",)))
    state, said = after(state, measured("n002", "n001", Link(error="no way")))
    assert said == ["end n002", "ask ssh/lab"]
    assert state.bridges == (replace(APART, link=Link(error="no way"), apart="no way"),)
    assert [n.place.pool for n in state.nodes] == ["ssh/lab", "aws", "ssh/lab"]


def test_what_was_measured_too_late_changes_nothing() -> None:
    state = run(node(1, OWN))
    assert decide(state, measured("n002", "n001", WAN), LIMITS) == (state, ())


def test_a_node_that_would_only_slow_the_others_does_not_join() -> None:
    work = Work(step_s=0.8, nodes=("n001",), gradient_bytes=30_000_000)
    state = run(node(1, OWN), node(2, EAST, "ready"))
    stays, said = after(state, measured("n002", "n001", WAN, work))
    assert said[0] == "end n002"
    assert stays.bridges[0].apart == ("12 ms, 80 Mbit/s: a step would take 3.41 s instead of 0.8 s")
    joined, said = after(state, measured("n002", "n001", LAN, work))
    assert said == []
    assert "n002" in members(joined)
    other, said = after(state, measured("n002", "n001", WAN, replace(work, nodes=("n009",))))
    assert (said, other.bridges[0].apart) == ([], ""), "the pace of another group says nothing"


def test_a_mixed_group_parts_after_a_save_only() -> None:
    bridge = replace(APART, link=WAN, apart="")
    state = run(node(1, OWN), node(2, EAST, met=("ssh/lab",)), bridges=(bridge,))
    work = Work(step_s=1.0, nodes=("n001", "n002"), gradient_bytes=8_000_000)
    _, said = after(state, Saved(step=8, work=work, at_s=9.0))
    assert said == ["end n002", "ask ssh/lab"]
    _, said = after(state, Saved(step=8, at_s=9.0))
    assert said == []
    fast = replace(state, bridges=(replace(bridge, link=LAN),))
    assert after(fast, Saved(step=8, work=work, at_s=9.0))[1] == []
    moving = replace(state, nodes=(state.nodes[0], replace(state.nodes[1], moving=True)))
    assert after(moving, Saved(step=8, work=work, at_s=9.0))[1] == []


def test_nobody_leaves_for_a_pace_to_which_the_heads_island_gave_nothing() -> None:
    bridge = replace(APART, link=WAN, apart="")
    state = run(node(1, OWN), node(2, EAST, met=("ssh/lab",)), bridges=(bridge,))
    work = Work(step_s=1.0, nodes=("n002",), gradient_bytes=8_000_000)
    found, said = after(state, Saved(step=8, work=work, at_s=9.0))
    assert (found.bridges, found.saved_step, said) == ((bridge,), 8, [])


def test_a_move_that_would_tear_the_run_apart_is_none() -> None:
    state = run(node(1, EAST), node(2, EAST), bridges=(APART,), vacant_s=0.0)
    one = Vacant(places=(OWN,), left_s=1e6, at_s=9.0)
    assert after(state, one) == (replace(state, vacant_s=None), [])
    both = Vacant(places=(OWN, OWN), left_s=1e6, at_s=9.0)
    moves, said = after(state, both)
    assert said == ["ask ssh/lab", "ask ssh/lab"]
    assert [n.moving for n in moves.nodes] == [True, True, False, False]
    ready = tuple(n if n.moving else replace(n, state="ready") for n in moves.nodes)
    waiting = replace(moves, nodes=ready)
    assert pairs(waiting) == [], "they will never train together"
    assert members(waiting) == {"n001", "n002"}
    found, actions = decide(waiting, Tick(at_s=10.0, spent_usd=Decimal(0)), LIMITS)
    assert [type(a) for a in actions] == [Save]
    assert isinstance(found, Active)
    left, said = after(found, Saved(step=9, at_s=11.0))
    assert said == ["end n001", "end n002"]
    assert left.head == ""


def test_a_run_that_lacks_nodes_goes_to_the_other_side_as_a_whole_so_many_times() -> None:
    full = refused((), OWN, "capacity", 8.0)
    waiting = (Slot(index=1, until_s=20.0), Slot(index=2, until_s=20.0))
    state = run(
        node(1, OWN), bridges=(APART,), waiting=waiting, refusals=full, driving=False, attempt=0
    )
    least = replace(LIMITS, least_nodes=3, choices=CHOICES[:2])
    tick = Tick(at_s=9.0, spent_usd=Decimal(0))
    moved, said = after(state, tick, least)
    assert said == ["end n001", "ask aws", "ask aws", "ask aws"]
    assert (moved.changes, moved.waiting) == (1, ())
    assert after(replace(state, changes=3), tick, least)[1] == []
    assert after(state, tick, replace(least, least_nodes=1))[1] == [], "it has enough"


def test_when_all_nodes_of_one_side_are_lost_the_other_may_be_asked() -> None:
    full = refused((), OWN, "rights", 8.0)
    state = run(node(1, OWN), bridges=(APART,), refusals=full)
    _, said = after(state, NodeLost(node_id="n001", why="gone", at_s=9.0))
    assert said == ["end n001", "ask aws"]
