"""How many nodes are asked for, when and where; and how they are given back.

A run wants a node of each index, from 0 up. It is asked for at the best place that is free, which
`burst.cost.placement` chooses; when none is, its index waits. A node that no better place gives is
rented after a while, or at once when the run is late. A refusal costs nothing: another place is
asked, or the same later.
"""

from __future__ import annotations

from burst.cost.draft import Decision, Draft
from burst.cost.events import End, Launch, LaunchRefused
from burst.cost.forming import dissolve
from burst.cost.mixing import fits
from burst.cost.placement import NEVER_S, Choice, choose, patience, refused
from burst.cost.state import Active, Node, Slot


def ask(draft: Draft, index: int, wanted_s: float | None = None) -> Draft:
    """Ask for a node at the best free place, or remember to ask once one is free.

    `wanted_s` is since when a node of this index is wanted; None: since now.
    """
    wanted_s = draft.at_s if wanted_s is None else wanted_s
    choice, when = _best(draft, wanted_s)
    if choice is None or when > draft.at_s:
        slot = Slot(index=index, until_s=when, wanted_s=wanted_s)
        return draft.then(waiting=(*draft.state.waiting, slot))
    return ask_at(draft, index, choice, wanted_s)


def _best(draft: Draft, wanted_s: float) -> tuple[Choice | None, float]:
    """Choose a place that the nodes reach, and when to ask for it."""
    state = draft.state
    fitting = tuple(choice for choice in draft.limits.choices if fits(state, choice))
    return choose(fitting, state.refusals, draft.at_s, waiting_since(state, wanted_s))


def waiting_since(state: Active, wanted_s: float) -> float:
    """Return since when better places are waited for; a late run has waited long enough."""
    return float("-inf") if state.late else wanted_s


def ask_at(draft: Draft, index: int, choice: Choice, wanted_s: float) -> Draft:
    """Ask for a node at a place."""
    state, at_s = draft.state, draft.at_s
    number = state.launched + 1
    node = Node(
        node_id=f"n{number:03d}",
        index=index,
        state="asked",
        since_s=at_s,
        place=choice.place,
        wanted_s=wanted_s,
    )
    wait_s = patience(draft.limits.choices, choice, at_s - waiting_since(state, wanted_s))
    return draft.then(
        Launch(node_id=node.node_id, index=index, choice=choice, wait_s=wait_s),
        launched=number,
        nodes=(*state.nodes, node),
    )


def ask_again(draft: Draft) -> Draft:
    """Ask for the nodes that a place can be asked for now."""
    waiting = draft.state.waiting
    due = [slot for slot in waiting if _best(draft, slot.wanted_s)[1] <= draft.at_s]
    draft = draft.then(waiting=tuple(slot for slot in waiting if slot not in due))
    for slot in due:
        draft = ask(draft, slot.index, slot.wanted_s)
    return draft


def after_refusal(draft: Draft, event: LaunchRefused) -> Decision:
    """Ask for the node elsewhere, or there again once the place has cooled down."""
    node = draft.state.node(event.node_id)
    if node is None:
        return draft.decision
    known = draft.state.refusals
    for one in event.refusals:
        known = refused(known, one.place, one.reason, draft.at_s, one.again_s or 0.0)
    draft = draft.then(refusals=known, refusal="; ".join(map(str, event.refusals)))
    if draft.state.stopping:
        return give_back(draft, node).decision
    return unless_stuck(replace_node(draft, node, node.wanted_s))


def unless_stuck(draft: Draft) -> Decision:
    """End the run when a node is wanted, none is there, and no place will ever give one."""
    state = draft.state
    never = choose(draft.limits.choices, state.refusals, 0.0)[1] >= NEVER_S
    if not state.nodes and state.waiting and never:
        return draft.done("stuck", f"no place is left to ask; {state.refusal}")
    return draft.decision


def give_back(draft: Draft, node: Node) -> Draft:
    """Take a node out; what is left of it is cleared away."""
    left = tuple(n for n in draft.state.nodes if n.node_id != node.node_id)
    draft = draft.then(End(node_id=node.node_id), nodes=left)
    return dissolve(draft) if node.node_id == draft.state.head else draft


def replace_node(draft: Draft, node: Node, wanted_s: float | None = None) -> Draft:
    """Take a node out and ask for another in its stead, unless that was done before."""
    return ask_unless_there(give_back(draft, node), node.index, wanted_s)


def ask_unless_there(draft: Draft, index: int, wanted_s: float | None) -> Draft:
    """Ask for a node, unless one of its index is there and stays, or is waited for.

    One that a notice announced does not stand in for its successor, only for a while.
    """
    there = {n.index for n in draft.state.nodes if n.taken_s is None}
    there |= {slot.index for slot in draft.state.waiting}
    return draft if index in there else ask(draft, index, wanted_s)
