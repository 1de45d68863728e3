"""How a run keeps to islands that train well together.

A node joins nodes of another island only once the network between them was measured. Islands that
do not reach each other, or too slowly, are kept apart for the rest of the run: it goes on in one
of them, and moves to the other as a whole or not at all. `burst.cost.network` says what is too
slow, `burst.cost.mixing` which nodes may be together.
"""

from __future__ import annotations

from dataclasses import replace

from burst.cost.asking import ask, ask_at, ask_unless_there, give_back, waiting_since
from burst.cost.draft import Decision, Draft
from burst.cost.events import Measured
from burst.cost.forming import elect
from burst.cost.mixing import apart_here, fits, stray
from burst.cost.network import Bridge, Work, bridge_of, island, joining_why_not, with_bridge
from burst.cost.placement import choose
from burst.cost.state import Active

MOST_CHANGES = 3  # of the side that a run is on whose islands must be apart


def after_measurement(draft: Draft, event: Measured) -> Decision:
    """Let a node train with another island's, or keep the two islands apart from now on."""
    state = draft.state
    node, peer = state.node(event.node_id), state.node(event.peer_id)
    if node is None or peer is None or state.stopping:
        return draft.decision
    here, there = island(node.place), island(peer.place)
    why = _why_apart(state, event)
    bridge = Bridge(islands=(min(here, there), max(here, there)), link=event.link, apart=why)
    draft = draft.then(bridges=with_bridge(state.bridges, bridge))
    if why:
        return elect(separate(draft)).decision
    return draft.with_node(replace(node, met=(*node.met, there))).decision


def _why_apart(state: Active, event: Measured) -> str:
    """Say why a node must not join those that train; what is not known speaks for it."""
    if event.link.error or event.work is None:
        return event.link.error
    up = {n.node_id for n in state.nodes if n.state == "up" and not n.moving}
    if not up.issuperset(event.work.nodes):  # its pace is that of another group
        return ""
    why = joining_why_not(event.work, event.link, len(up) + 1, late=state.late)
    return why and f"{event.link}: {why}"


def leave_strays(draft: Draft, work: Work) -> Draft:
    """Give back the nodes that only slow the others, right after a save: nothing is lost now."""
    found = stray(draft.state, work)
    if found is None:
        return draft
    home, other, why = found
    bridge = bridge_of(draft.state.bridges, home, other)
    assert bridge is not None
    apart = replace(bridge, apart=f"{bridge.link}: {why}")
    return separate(draft.then(bridges=with_bridge(draft.state.bridges, apart)))


def separate(draft: Draft) -> Draft:
    """Give nodes back until those that stay reach each other, and look for others instead."""
    while (pair := apart_here(draft.state)) is not None:
        goes = _leaving_side(draft, pair)
        leaving = [n for n in draft.state.nodes if island(n.place) == goes and not n.moving]
        for node in leaving:
            draft = give_back(draft, node)
        for node in leaving:
            draft = ask_unless_there(draft, node.index, node.wanted_s)
    return draft


def _leaving_side(draft: Draft, pair: tuple[str, str]) -> str:
    """Return the island to leave: not the head's, unless only the other can give enough nodes."""
    state, limits = draft.state, draft.limits
    home, other = pair
    count = sum(island(n.place) == home for n in state.nodes)
    if state.driving or count >= limits.least_nodes:
        return other
    here, there = (tuple(c for c in limits.choices if island(c.place) == i) for i in pair)
    full = all(any(r.covers(c.place) for r in state.refusals) for c in here)
    return home if full and choose(there, state.refusals, draft.at_s)[1] <= draft.at_s else other


def change_sides(draft: Draft) -> Draft:
    """Move the whole run to an island that its nodes do not reach, when theirs gives too few.

    So does a run that is late. Without training to save, its nodes are given back at once.
    """
    state, limits, at_s = draft.state, draft.limits, draft.at_s
    lacks = len(state.nodes) < limits.least_nodes or state.late
    busy = any(n.moving for n in state.nodes) or state.changes >= MOST_CHANGES
    if not (state.waiting and lacks) or busy:
        return draft
    wanted_s = min(slot.wanted_s for slot in state.waiting)
    beyond = tuple(choice for choice in limits.choices if not fits(state, choice))
    choice, when = choose(beyond, state.refusals, at_s, waiting_since(state, wanted_s))
    if choice is None or when > at_s:
        return draft
    first, *others = sorted({n.index for n in state.nodes} | {s.index for s in state.waiting})
    if state.driving:
        draft = draft.then(nodes=tuple(replace(n, moving=True) for n in state.nodes))
    else:
        for node in state.nodes:
            draft = give_back(draft, node)
    draft = draft.then(waiting=(), changes=state.changes + 1)
    draft = ask_at(draft, first, choice, wanted_s)
    for index in others:
        draft = ask(draft, index, at_s - choice.after_s)
    return draft
