"""What to do next: a pure function from state, event and limits to state and actions.

Nothing here reads a clock, a price list or a cloud. The controller feeds events in and carries
actions out, and so does the simulator: what was simulated is what spends the money.

`decide` says which rule answers an event. The rules stand beside it, by what they are about:

  asking     how many nodes are asked for, when and where (placement: at which place)
  forming    which of them is the head of the Ray cluster, and when training starts
  islands    which of them train together (network, mixing: what of it is measured and too slow)
  moves      when nodes move to a better place
  losses     what losing nodes, drivers and workers leads to, and whose failures count
  notices    what is done about nodes that are about to be taken
  stopping   when the run ends before its training does

A rule takes a `Draft`, which is the state with the actions so far, and returns another. Later
rules build on earlier ones: `_after_tick` is the list of all that time alone brings about.
"""

from __future__ import annotations

from typing import assert_never

from burst.cost.asking import after_refusal, ask_again, ask_unless_there, replace_node
from burst.cost.draft import Decision, Draft
from burst.cost.events import (
    AgentUp,
    DriverLost,
    End,
    Event,
    Finished,
    LaunchRefused,
    Measured,
    NodeLost,
    NodeUp,
    NoticeGiven,
    Progressed,
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
from burst.cost.forming import after_agent, after_up, elect, maybe_drive
from burst.cost.islands import after_measurement, change_sides, leave_strays, separate
from burst.cost.losses import after_driver, after_failure, after_loss, after_setup, after_workers
from burst.cost.moves import after_vacant, move_on, part
from burst.cost.notices import after_notice, let_go
from burst.cost.state import Done, Limits, State
from burst.cost.stopping import after_request, after_stop, at_a_limit


def decide(  # noqa: C901, PLR0911, PLR0912 - one case per event
    state: State, event: Event, limits: Limits
) -> Decision:
    """Return the next state and what must be carried out, in order, to get there."""
    if isinstance(state, Done):
        return state, ()
    draft = Draft(state=state, limits=limits, at_s=event.at_s)
    match event:
        case Started():
            return _after_start(draft)
        case TakenOver():
            return _after_takeover(draft, event)
        case LaunchRefused():
            return after_refusal(draft, event)
        case AgentUp():
            return after_agent(draft, event)
        case NodeUp():
            return after_up(draft, event)
        case Measured():
            return after_measurement(draft, event)
        case NodeLost():
            return after_loss(draft, event)
        case SetupFailed():
            return after_setup(draft, event)
        case DriverLost():
            return after_driver(draft, event)
        case WorkersStarted():
            return after_workers(draft, event)
        case Progressed():
            return _after_progress(draft, event)
        case Saved():
            return _after_save(draft, event)
        case UserFailed():
            return after_failure(draft, event)
        case Finished():
            return draft.done("finished")
        case Stopped():
            return after_stop(draft)
        case StopAsked():
            return after_request(draft, event)
        case NoticeGiven():
            return after_notice(draft, event)
        case Vacant():
            return after_vacant(draft, event)
        case Tick():
            return _after_tick(draft, event)
        case _:
            assert_never(event)


def _after_start(draft: Draft) -> Decision:
    """Start from no nodes: all are asked for."""
    ends = tuple(End(node_id=node.node_id) for node in reversed(draft.state.nodes))
    draft = draft.then(*ends, nodes=(), waiting=(), refusals=(), bridges=(), changes=0)
    draft = draft.then(stopping=None, idle_losses=0, failures=0, head="", driving=False)
    draft = draft.then(late=False, vacant_s=None, parting_s=None)
    return _ask_for_all(draft).decision


def _after_takeover(draft: Draft, event: TakenOver) -> Decision:
    """Go on with the nodes that are still there; the others are lost.

    A run that was to stop lacks some besides: it did not replace any more.
    """
    nodes = draft.state.nodes
    draft = draft.then(stopping=None, idle_losses=0)
    for node in nodes:
        if node.node_id not in event.found:
            draft = replace_node(draft, node)
    return elect(_ask_for_all(draft)).decision


def _ask_for_all(draft: Draft) -> Draft:
    """Ask for the nodes that are neither there nor waited for."""
    for index in range(draft.limits.nodes + draft.limits.head_apart):
        draft = ask_unless_there(draft, index, None)
    return draft


def _after_progress(draft: Draft, event: Progressed) -> Decision:
    """Take note of a new step; one that is repeated is no progress."""
    if event.step <= draft.state.step:
        return draft.decision
    return draft.then(step=event.step, idle_losses=0).decision


def _after_save(draft: Draft, event: Saved) -> Decision:
    """Let nodes go that have successors, or that only slow the others: nothing is lost now."""
    draft = draft.then(saved_step=max(event.step, draft.state.saved_step))
    if draft.state.stopping:
        return draft.decision
    if draft.state.parting_s is not None:
        return part(draft).decision
    return (leave_strays(draft, event.work) if event.work else draft).decision


def _after_tick(draft: Draft, event: Tick) -> Decision:
    """Do what time alone brings about, in this order: a rule sees what those before it did."""
    ending = at_a_limit(draft, event)
    if ending is not None:
        return ending
    draft = _lateness(draft, event)
    for rule in (ask_again, let_go, move_on, separate, change_sides, elect, maybe_drive):
        draft = rule(draft)
    return draft.decision


def _lateness(draft: Draft, event: Tick) -> Draft:
    """Note whether the run would end after its deadline; while that is unknown, what was last."""
    limits = draft.limits
    if limits.deadline_s is None or event.left_s is None:
        return draft
    return draft.then(late=draft.at_s + event.left_s + limits.reserve_s > limits.deadline_s)
