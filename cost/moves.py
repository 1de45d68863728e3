"""How nodes of a run move to a better place while it is on, and whether that pays.

Once a better place is vacant and a move there pays, a successor is asked for; when all successors
are set up, the run saves, and the nodes that they succeed are given back. Then all workers start
again from that checkpoint. So a move costs a restart of every node, and the successor's price while
it is set up. What it brings is the difference of the prices until the run's end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from itertools import combinations

from burst.cost.asking import ask_at, give_back
from burst.cost.draft import Decision, Draft
from burst.cost.events import Save, Vacant
from burst.cost.network import are_apart, island
from burst.cost.placement import Choice, Place, free_at
from burst.cost.state import Active, Limits, Node

RESTART_S = 60  # in which all nodes are paid for and none trains
SET_UP_S = 120  # in which a successor is paid for as well as the node it succeeds
UNKNOWN_LEFT_S = 3600.0  # what a run is taken to last on that does not say
MARGIN = 2  # a move must bring so many times what it costs
MOVE_SAVE_S = 60.0  # how long the save before a move may take


def after_vacant(draft: Draft, event: Vacant) -> Decision:
    """Ask for successors at better places once these are vacant for long enough, if that pays."""
    state, limits, at_s = draft.state, draft.limits, draft.at_s
    vacant = tuple(p for p in event.places if free_at(state.refusals, p) <= at_s)
    moves = _moves(state, vacant, limits)
    if not moves or _torn(state, moves):
        return draft.then(vacant_s=None).decision
    if state.vacant_s is None:
        return draft.then(vacant_s=at_s).decision
    busy = state.stopping or not state.driving or any(node.moving for node in state.nodes)
    if busy or at_s - state.vacant_s < limits.return_after_s:
        return draft.decision
    prices = {choice.place: choice.usd_per_hour for choice in limits.choices}
    everything = sum((prices.get(n.place, Decimal(0)) for n in state.nodes), Decimal(0))
    gains = [(prices[node.place], choice.usd_per_hour) for node, choice in moves]
    if not pays(gains, everything, event.left_s):
        return draft.decision
    leaving = {node.node_id for node, _ in moves}
    nodes = tuple(replace(n, moving=n.node_id in leaving) for n in state.nodes)
    draft = draft.then(nodes=nodes, vacant_s=None)
    for node, choice in moves:
        draft = ask_at(draft, node.index, choice, at_s)
    return draft.decision


def _moves(
    state: Active, places: tuple[Place, ...], limits: Limits
) -> tuple[tuple[Node, Choice], ...]:
    """Pair nodes, the worst placed first, with vacant places that are better and cheaper."""
    rank = {choice.place: n for n, choice in enumerate(limits.choices)}
    there = [n for n in state.nodes if n.state == "up" and n.taken_s is None and n.place in rank]
    there.sort(key=lambda node: -rank[node.place])
    vacant = (limits.choices[n] for n in sorted(rank[p] for p in places if p in rank))
    return tuple(
        (node, choice)
        for node, choice in zip(there, vacant, strict=False)
        if rank[choice.place] < rank[node.place]
        and choice.usd_per_hour < limits.choices[rank[node.place]].usd_per_hour
    )


def _torn(state: Active, moves: tuple[tuple[Node, Choice], ...]) -> bool:
    """Whether nodes would be on both sides of islands that must be apart."""
    moved = {node.node_id: choice.place for node, choice in moves}
    there = {island(moved.get(node.node_id, node.place)) for node in state.nodes}
    return any(are_apart(state.bridges, *pair) for pair in combinations(sorted(there), 2))


def pays(
    moves: Iterable[tuple[Decimal, Decimal]], all_usd_per_hour: Decimal, left_s: float | None
) -> bool:
    """Say whether moves, each from one price per hour to another, bring enough.

    `all_usd_per_hour` is the price of every node of the run, `left_s` how long it goes on.
    """
    prices = list(moves)
    hours = Decimal(repr(UNKNOWN_LEFT_S if left_s is None else left_s)) / 3600
    saved = sum((old - new for old, new in prices), Decimal(0)) * hours
    set_up = sum((new for _, new in prices), Decimal(0)) * SET_UP_S
    return saved > MARGIN * (all_usd_per_hour * RESTART_S + set_up) / 3600


def move_on(draft: Draft) -> Draft:
    """Save once every moving node's successor is set up; forget the moves that have none."""
    heirs = {n.index: n for n in draft.state.nodes if not n.moving}
    nodes = tuple(replace(n, moving=n.moving and n.index in heirs) for n in draft.state.nodes)
    draft = draft.then(nodes=nodes)
    moving = [n for n in nodes if n.moving]
    if not moving:
        return draft.then(parting_s=None)
    if any(heirs[node.index].state == "asked" for node in moving):
        return draft
    since_s = draft.state.parting_s
    if since_s is None:
        names = ", ".join(f"{n.node_id} to {heirs[n.index].place}" for n in moving)
        return draft.then(Save(reason=f"the run moves: {names}"), parting_s=draft.at_s)
    return part(draft) if draft.at_s - since_s >= MOVE_SAVE_S else draft


def part(draft: Draft) -> Draft:
    """Give the nodes back whose successors took over; one may have been lost since the save."""
    state = draft.state
    draft = draft.then(parting_s=None)
    heirs = {n.index for n in state.nodes if not n.moving and n.state != "asked"}
    for node in state.nodes:
        if node.moving and node.index in heirs:
            draft = give_back(draft, node)
    return draft
