"""Which nodes of a run may form one group, and what is still to be measured between them.

Every node is measured against one node of each other island that trains; between some islands
it turns out that they must stay apart. A node that moves leaves its successors alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from burst.cost.network import are_apart, bridge_of, island, staying_why_not
from burst.cost.placement import Choice

if TYPE_CHECKING:
    from burst.cost.decide import Active, Node
    from burst.cost.network import Work


def islands_here(state: Active) -> tuple[str, ...]:
    """Return the islands of the nodes that stay, each once, the head's first."""
    stay = sorted((n for n in state.nodes if not n.moving), key=lambda n: n.node_id != state.head)
    return tuple(dict.fromkeys(island(node.place) for node in stay))


def fits(state: Active, choice: Choice) -> bool:
    """Whether a node there could train with those that stay, as far as is known."""
    there = island(choice.place)
    return not any(are_apart(state.bridges, there, here) for here in islands_here(state))


def apart_here(state: Active) -> tuple[str, str] | None:
    """Return two islands that nodes stay in and that must be apart, if any; the head's first."""
    pairs = combinations(islands_here(state), 2)
    return next((pair for pair in pairs if are_apart(state.bridges, *pair)), None)


def joins(state: Active, node: Node) -> bool:
    """Whether a node may be part of the head's Ray cluster: the head itself, or one it met."""
    return node.node_id == state.head or not any(
        True for peer in _peers(state, node) if island(peer.place) not in node.met
    )


def to_measure(state: Active) -> Iterator[tuple[Node, Node]]:
    """Yield the pairs that are to be measured, each node with one of another island."""
    for node in state.nodes:
        if node.state != "ready" or node.moving or node.node_id == state.head:
            continue
        for peer in _peers(state, node):
            there = island(peer.place)
            known = there in node.met or are_apart(state.bridges, island(node.place), there)
            if not (peer.moving or known):
                yield node, peer


def _peers(state: Active, node: Node) -> tuple[Node, ...]:
    """Return a node of each other island that is in the cluster; the head for its own."""
    there = [n for n in state.nodes if n.node_id == state.head]
    there += [n for n in state.nodes if n.state == "up"]
    first: dict[str, Node] = {}
    for one in there:
        first.setdefault(island(one.place), one)
    first.pop(island(node.place), None)
    return tuple(first.values())


def stray(state: Active, work: Work) -> tuple[str, str, str] | None:
    """Return two islands that had better be apart, and why, going by the pace of the training.

    The first is the head's, which stays.
    """
    places = {n.node_id: island(n.place) for n in state.nodes}
    trained = [places[name] for name in work.nodes if name in places]
    home = places.get(state.head)
    if home is None or len(trained) != len(work.nodes) or any(n.moving for n in state.nodes):
        return None
    for other in sorted(set(trained) - {home}):
        bridge = bridge_of(state.bridges, home, other)
        kept = len(trained) - trained.count(other)
        if bridge is None or bridge.link.error:
            continue
        if why := staying_why_not(work, bridge.link, kept, late=state.late):
            return home, other, why
    return None
