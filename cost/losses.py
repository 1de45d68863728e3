"""What a run does about losses and failures, which are told apart by who is to blame.

A lost node or driver, or a killed worker, costs only time and never fails a run, unless so many
come in a row that nothing is trained between them. The user's own error, in training or in set-up,
counts against `max_failures`.
"""

from __future__ import annotations

from burst.cost.asking import give_back, replace_node, unless_stuck
from burst.cost.draft import Decision, Draft
from burst.cost.events import DriverLost, NodeLost, SetupFailed, UserFailed, WorkersStarted
from burst.cost.forming import dissolve, elect
from burst.cost.placement import refused


def after_loss(draft: Draft, event: NodeLost) -> Decision:
    """Ask for another node; without its head, the Ray cluster is formed again."""
    state, limits = draft.state, draft.limits
    lost = state.node(event.node_id)
    if lost is None:
        return draft.decision
    draft = draft.then(preemptions=state.preemptions + 1, idle_losses=state.idle_losses + 1)
    led = lost.node_id == state.head
    if state.stopping and (led or len(state.nodes) == 1):
        return draft.done(state.stopping.reason, state.stopping.detail)
    if draft.state.idle_losses > limits.max_idle_losses:
        return _stuck(draft, f"{event.node_id} was lost: {event.why}")
    if lost.place.spot:
        known = refused(state.refusals, lost.place, "preempted", draft.at_s)
        draft = draft.then(refusals=known, refusal=f"{lost.place}: preempted")
    if led and state.driving:
        draft = draft.then(restarts=state.restarts + 1)
    if state.stopping:  # nothing is replaced any more
        return give_back(draft, lost).decision
    return unless_stuck(elect(replace_node(draft, lost)))


def after_driver(draft: Draft, event: DriverLost) -> Decision:
    """Form the next Ray cluster of the same nodes."""
    state = draft.state
    if event.driver != state.driver or not state.head:
        return draft.decision
    if state.stopping:
        return draft.done(state.stopping.reason, state.stopping.detail)
    draft = draft.then(restarts=state.restarts + 1, idle_losses=state.idle_losses + 1)
    if draft.state.idle_losses > draft.limits.max_idle_losses:
        return _stuck(draft, f"the driver ended: {event.why}")
    return elect(dissolve(draft)).decision


def after_workers(draft: Draft, event: WorkersStarted) -> Decision:
    """Count a start of the workers that is not the first: some were lost."""
    state = draft.state
    again = state.attempt > 0 and event.attempt > state.attempt
    draft = draft.then(
        attempt=event.attempt,
        world_size=event.world_size,
        restarts=state.restarts + again,
        idle_losses=state.idle_losses + again,
    )
    if again and draft.state.idle_losses > draft.limits.max_idle_losses:
        return _stuck(draft, f"attempt {event.attempt} had to be started")
    return draft.decision


def _stuck(draft: Draft, last: str) -> Decision:
    losses = draft.state.idle_losses
    return draft.done("stuck", f"{losses} losses in a row without a new step; the last: {last}")


def after_failure(draft: Draft, event: UserFailed) -> Decision:
    """Count a failure of the user's code; Ray Train starts the workers again by itself."""
    state = draft.state
    if event.attempt <= state.failed_attempt:  # an earlier controller has counted it
        return draft.decision
    draft = draft.then(failed_attempt=event.attempt, failures=state.failures + 1)
    return draft.done("failed", event.error) if _no_further(draft) else draft.decision


def after_setup(draft: Draft, event: SetupFailed) -> Decision:
    """Fail the run, for set-up is the user's own, or let another machine try."""
    node = draft.state.node(event.node_id)
    if node is None:
        return draft.decision
    draft = draft.then(failures=draft.state.failures + 1)
    if _no_further(draft):
        return draft.done("failed", f"set-up failed on {node.node_id}: {event.error}")
    return replace_node(draft, node).decision


def _no_further(draft: Draft) -> bool:
    """Whether the run ends with the failure that was just counted."""
    return draft.state.failures > draft.limits.max_failures or draft.state.stopping is not None
