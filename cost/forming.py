"""How nodes form a Ray cluster: around which head, and when its driver starts.

Each such cluster has one driver and its number. When head or driver is lost, the nodes that are
left form the next one; they are not set up again.
"""

from __future__ import annotations

from dataclasses import replace

from burst.cost.draft import Decision, Draft
from burst.cost.events import AgentUp, Drive, Lead, NodeUp
from burst.cost.state import NodeState


def after_agent(draft: Draft, event: AgentUp) -> Decision:
    """Take a node as ready; it may be the head."""
    return elect(_now(draft, event.node_id, "ready")).decision


def after_up(draft: Draft, event: NodeUp) -> Decision:
    """Take a node as up; it may be the last that the driver waits for."""
    if event.driver != draft.state.driver:  # of a cluster that is dissolved
        return draft.decision
    return maybe_drive(_now(draft, event.node_id, "up")).decision


def _now(draft: Draft, node_id: str, new: NodeState) -> Draft:
    node = draft.state.node(node_id)
    if node is None:
        return draft
    return draft.with_node(replace(node, state=new, since_s=draft.at_s))


def elect(draft: Draft) -> Draft:
    """Choose a head if there is none: a node that stays, of those that answer the longest."""
    state, limits = draft.state, draft.limits
    if state.head or state.stopping:
        return draft
    able = [n for n in state.nodes if n.index == 0] if limits.head_apart else list(state.nodes)
    able = [n for n in able if n.taken_s is None] or able
    steady = [n for n in able if not n.place.spot] or able
    ready = [n for n in steady if n.state == "ready"]
    others = [n for n in able if n.state == "ready"]
    if not ready and others and draft.at_s - min(n.since_s for n in others) >= limits.patience_s:
        ready = others
    if not ready:
        return draft
    head = min(ready, key=lambda n: (n.since_s, n.index))
    driver = state.driver + 1
    return draft.then(Lead(node_id=head.node_id, driver=driver), head=head.node_id, driver=driver)


def maybe_drive(draft: Draft) -> Draft:
    """Start the driver once all nodes are up, or enough of them for long enough.

    Once there has been training, it goes on with the nodes there are; others join it later.
    """
    state, limits = draft.state, draft.limits
    if state.driving or state.stopping:
        return draft
    up = [node for node in state.nodes if node.state == "up"]
    if state.head not in {node.node_id for node in up}:
        return draft
    carriers = [n for n in up if not (limits.head_apart and n.node_id == state.head)]
    waited = draft.at_s - min(node.since_s for node in up)
    here = state.attempt > 0 and not any(node.state == "ready" for node in state.nodes)
    enough = len(carriers) >= limits.least_nodes and (here or waited >= limits.patience_s)
    if len(carriers) < limits.nodes and not enough:
        return draft
    return draft.then(Drive(driver=state.driver), driving=True)


def dissolve(draft: Draft) -> Draft:
    """Give up the Ray cluster: its nodes are ready for the next one."""
    nodes = tuple(replace(n, state="ready") if n.state == "up" else n for n in draft.state.nodes)
    return draft.then(head="", driving=False, nodes=nodes)
