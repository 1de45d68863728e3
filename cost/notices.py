"""What a run does about a cloud's notice that a node will be taken.

The run saves while there is time, and another node is asked for at once. A node that nobody takes
in the end stays until its successor is up.
"""

from __future__ import annotations

from dataclasses import replace

from burst.cost.asking import ask, give_back
from burst.cost.draft import Decision, Draft
from burst.cost.events import NoticeGiven, Save
from burst.cost.placement import refused

NOTICE_GRACE_S = 60.0  # how long a node may stay after the moment it was to be taken


def after_notice(draft: Draft, event: NoticeGiven) -> Decision:
    """Save while there is time, and ask for another node at once."""
    state = draft.state
    node = state.node(event.node_id)
    if state.stopping:  # it saves already, and the workers follow their newest order
        return draft.decision
    draft = draft.then(Save(reason=f"{event.node_id} leaves in {event.deadline_s:.0f} s"))
    if node is None or node.taken_s is not None:
        return draft.decision
    draft = draft.with_node(replace(node, taken_s=draft.at_s + event.deadline_s))
    if node.place.spot:
        known = refused(state.refusals, node.place, "preempted", draft.at_s)
        draft = draft.then(refusals=known, refusal=f"{node.place}: notice")
    if node.moving:  # its successor is on its way
        return draft.decision
    return ask(draft, node.index).decision


def let_go(draft: Draft) -> Draft:
    """Give back a node that a notice announced and nobody took, once its successor is up.

    The head moves like a node to a better place: the run saves before.
    """
    state = draft.state
    up = {n.index for n in state.nodes if n.state == "up" and n.taken_s is None}
    for node in state.nodes:
        over = node.taken_s is not None and draft.at_s >= node.taken_s + NOTICE_GRACE_S
        if not (over and node.index in up):
            continue
        if node.node_id == state.head and state.driving:
            draft = draft.with_node(replace(node, moving=True))
        else:
            draft = give_back(draft, node)
    return draft
