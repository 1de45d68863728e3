"""Which nodes of a run may form one group, and what is still to be measured between them.

Every node is measured against one node of each other island that trains; between some islands
it turns out that they must stay apart. A node that moves leaves its successors alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from burst.cost.network import Work, are_apart, bridge_of, island, staying_why_not
from burst.cost.placement import Choice
from burst.cost.state import Active, Node


def islands_here(state: Active) -> tuple[str, ...]:
    """Return the islands of the nodes that stay, each once, the head's first."""
    stay = sorted((n for n in state.nodes if not n.moving), key=lambda n: n.node_id != state.head)
    return tuple(dict.fromkeys(island(node.place) for node in stay))


def fits(state: Active, choice: Choice) -> bool:
    """Whether a node there could train with those that stay, as far as is known."""
    there = island(choice.place)
    return not state.bridges or not any(
        are_apart(state.bridges, there, here) for here in islands_here(state)
    )


def apart_here(state: Active) -> tuple[str, str] | None:
    """Return two islands that nodes stay in and that must be apart, if any; the head's first."""
    pairs = combinations(islands_here(state), 2)
    return next((pair for pair in pairs if are_apart(state.bridges, *pair)), None)


def members(state: Active) -> frozenset[str]:
    """Return the nodes that may be in the head's Ray cluster: itself, and those it has met."""
    there = _met_at(state)
    return frozenset(
        node.node_id
        for node in state.nodes
        if node.node_id == state.head or there.keys() <= {island(node.place), *node.met}
    )


def to_measure(state: Active) -> Iterator[tuple[Node, Node]]:
    """Yield the pairs that are to be measured, each node with one of another island."""
    there = _met_at(state)
    for node in state.nodes:
        if node.state != "ready" or node.moving or node.node_id == state.head:
            continue
        mine = island(node.place)
        for theirs in sorted(there.keys() - {mine, *node.met}):
            if not (there[theirs].moving or are_apart(state.bridges, mine, theirs)):
                yield node, there[theirs]


def _met_at(state: Active) -> Mapping[str, Node]:
    """Return a node of each island in the cluster, to measure to; the head for its own."""
    there = [n for n in state.nodes if n.node_id == state.head]
    there += [n for n in state.nodes if n.state == "up"]
    return {island(one.place): one for one in reversed(there)}


def stray(state: Active, work: Work) -> tuple[str, str, str] | None:
    """Return two islands that had better be apart, and why, going by the pace of the training.

    The first is the head's, which stays. Of a pace to which the head's island gave nothing, no
    part could stay: it is that of another group, or the head has no workers.
    """
    places = {n.node_id: island(n.place) for n in state.nodes}
    trained = [places[name] for name in work.nodes if name in places]
    home = places.get(state.head)
    known = len(trained) == len(work.nodes) and not any(n.moving for n in state.nodes)
    if home is None or home not in trained or not known:
        return None
    for other in sorted(set(trained) - {home}):
        bridge = bridge_of(state.bridges, home, other)
        kept = len(trained) - trained.count(other)
        if bridge is None or bridge.link.error:
            continue
        if why := staying_why_not(work, bridge.link, kept, late=state.late):
            return home, other, why
    return None
