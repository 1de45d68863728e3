"""What to do next: a pure function from state, event and limits to state and actions.

Nothing here reads a clock, a price list or a cloud. The controller feeds events in and carries
actions out, and so does the simulator: what was simulated is what spends the money.

Failures are told apart by who is to blame, and each kind has its own limit. A lost node or a
killed worker costs only time and never fails a run, unless so many come in a row that nothing is
trained between them. The user's own error counts against `max_failures`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal, assert_never

NodeState = Literal["asked", "up", "lost"]
Reason = Literal["finished", "stopped", "failed", "budget", "deadline", "stuck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the task allows."""

    nodes: int
    least_nodes: int  # training starts with fewer than `nodes` only after `patience_s`
    max_failures: int = 0  # restarts after the user's own code failed
    max_idle_losses: int = 6  # losses in a row without a new step between them
    patience_s: float = 60.0
    stop_grace_s: float = 60.0  # how long saving may take once a stop was asked for
    budget_usd: Decimal | None = None
    deadline_s: float | None = None
    reserve_usd: Decimal = Decimal(0)  # kept for the last save and the release
    reserve_s: float = 30.0


# State -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that was asked for. Index 0 is the head: Ray's own head and the driver."""

    node_id: str
    index: int
    state: NodeState
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Why and since when training is being stopped."""

    reason: Reason
    detail: str
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """The run is on."""

    nodes: tuple[Node, ...] = ()
    launched: int = 0  # nodes ever asked for; makes ids unique
    driver: int = 0  # drivers ever started
    driving: bool = False
    attempt: int = 0  # the newest start of the worker group
    world_size: int = 0
    step: int = 0  # the highest step reached
    saved_step: int = 0
    failures: int = 0
    idle_losses: int = 0
    preemptions: int = 0  # nodes lost, in all
    restarts: int = 0  # starts of the worker group after the first, and of the driver
    stopping: Stopping | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Nothing more will happen."""

    reason: Reason
    detail: str = ""
    step: int = 0
    saved_step: int = 0
    preemptions: int = 0
    restarts: int = 0
    launched: int = 0  # as in Active, for a resume
    driver: int = 0


State = Active | Done

# Events. `at_s` is the age of the run in seconds, over all its controllers ------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A controller takes over: a new run, or one whose controller is gone with its nodes."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUp:
    """A node is ready for workers."""

    node_id: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost:
    """A node is gone or broken."""

    node_id: str
    why: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLost:
    """The driver ended although training is not over."""

    driver: int
    why: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersStarted:
    """A new attempt: the worker group was started, for the first time or again."""

    attempt: int
    world_size: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The workers reached a step."""

    step: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint was committed."""

    step: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFailed:
    """The user's own code raised, or its command failed."""

    attempt: int
    error: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Training is over and its last checkpoint committed."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The workers saved and stopped, as they were told."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """A person wants the run saved and stopped; `now` forgoes the saving."""

    who: str
    now: bool
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeGiven:
    """A node will be taken at a deadline."""

    node_id: str
    deadline_s: float  # seconds from now
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time and money passed."""

    at_s: float
    spent_usd: Decimal


Event = (
    Started
    | NodeUp
    | NodeLost
    | DriverLost
    | WorkersStarted
    | Progressed
    | Saved
    | UserFailed
    | Finished
    | Stopped
    | StopAsked
    | NoticeGiven
    | Tick
)

# Actions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Ask for a node."""

    node_id: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Give a node back, or clear away what is left of a lost one."""

    node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """Start training on the nodes that are up."""

    driver: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Tell the workers to save at the next step."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAndStop:
    """Tell the workers to save at the next step and to end."""

    reason: str


Action = Launch | End | Drive | Save | SaveAndStop
Decision = tuple[State, tuple[Action, ...]]


@dataclass(frozen=True, slots=True)
class _Step:
    """A state with the actions that lead to it, for rules that build on each other."""

    state: Active
    actions: tuple[Action, ...] = field(default=())

    def then(self, *actions: Action, **changes: object) -> _Step:
        state = replace(self.state, **changes)  # type: ignore[arg-type]  # names of Active's fields
        return _Step(state, self.actions + actions)


def decide(  # noqa: C901, PLR0911, PLR0912 - one case per event
    state: State, event: Event, limits: Limits
) -> Decision:
    """Return the next state and what must be carried out, in order, to get there."""
    if isinstance(state, Done):
        return state, ()
    match event:
        case Started():
            return _after_start(state, event, limits)
        case NodeUp():
            return _after_up(state, event, limits)
        case NodeLost():
            return _after_loss(state, event, limits)
        case DriverLost():
            return _after_driver(state, event, limits)
        case WorkersStarted():
            return _after_workers(state, event, limits)
        case Progressed(step=step):
            fresh = step > state.step
            idle = 0 if fresh else state.idle_losses
            return replace(state, step=max(step, state.step), idle_losses=idle), ()
        case Saved(step=step):
            return replace(state, saved_step=max(step, state.saved_step)), ()
        case UserFailed():
            return _after_user_failure(state, event, limits)
        case Finished():
            return _done(state, "finished")
        case Stopped():
            return _after_stop(state)
        case StopAsked():
            return _after_request(state, event)
        case NoticeGiven(node_id=node_id, deadline_s=seconds):
            return state, (Save(reason=f"{node_id} leaves in {seconds:.0f} s"),)
        case Tick():
            return _after_tick(state, event, limits)
        case _:
            assert_never(event)


def _done(state: Active, reason: Reason, detail: str = "") -> Decision:
    """End the run: every node that was not ended yet is given back."""
    done = Done(
        reason=reason,
        detail=detail,
        step=state.step,
        saved_step=state.step if reason == "finished" else state.saved_step,
        preemptions=state.preemptions,
        restarts=state.restarts,
        launched=state.launched,
        driver=state.driver,
    )
    return done, tuple(End(node_id=node.node_id) for node in reversed(state.nodes))


def _launch(step: _Step, index: int, at_s: float) -> _Step:
    number = step.state.launched + 1
    node = Node(node_id=f"n{number:03d}", index=index, state="asked", since_s=at_s)
    return step.then(
        Launch(node_id=node.node_id, index=index),
        launched=number,
        nodes=(*step.state.nodes, node),
    )


def _relaunch_all(state: Active, limits: Limits, at_s: float) -> _Step:
    """Start from no nodes: those there are are ended, all are asked for anew."""
    ends = tuple(End(node_id=node.node_id) for node in reversed(state.nodes))
    step = _Step(state).then(*ends, nodes=(), driving=False)
    for index in range(limits.nodes + 1):  # the head, then the workers' nodes
        step = _launch(step, index, at_s)
    return step


def _after_start(state: Active, event: Started, limits: Limits) -> Decision:
    fresh = replace(state, stopping=None, idle_losses=0, failures=0)
    step = _relaunch_all(fresh, limits, event.at_s)
    return step.state, step.actions


def _set(state: Active, node_id: str, new: NodeState, at_s: float) -> Active:
    nodes = tuple(
        replace(n, state=new, since_s=at_s) if n.node_id == node_id else n for n in state.nodes
    )
    return replace(state, nodes=nodes)


def _after_up(state: Active, event: NodeUp, limits: Limits) -> Decision:
    return _maybe_drive(_set(state, event.node_id, "up", event.at_s), event.at_s, limits)


def _maybe_drive(state: Active, at_s: float, limits: Limits) -> Decision:
    """Start the driver once all nodes are up, or enough of them for long enough."""
    if state.driving or state.stopping:
        return state, ()
    up = [node for node in state.nodes if node.state == "up"]
    workers = [node for node in up if node.index > 0]
    if len(up) == len(workers):  # the head is not there yet
        return state, ()
    waited = at_s - min(node.since_s for node in up)
    enough = len(workers) >= limits.least_nodes and waited >= limits.patience_s
    if len(workers) < limits.nodes and not enough:
        return state, ()
    driver = state.driver + 1
    return replace(state, driver=driver, driving=True), (Drive(driver=driver),)


def _after_loss(state: Active, event: NodeLost, limits: Limits) -> Decision:
    lost = next((n for n in state.nodes if n.node_id == event.node_id), None)
    if lost is None:
        return state, ()
    counted = replace(state, preemptions=state.preemptions + 1, idle_losses=state.idle_losses + 1)
    if counted.stopping:  # nothing is replaced any more, and nothing more can be saved
        return _done(counted, counted.stopping.reason, counted.stopping.detail)
    if counted.idle_losses > limits.max_idle_losses:
        return _stuck(counted, f"{event.node_id} was lost: {event.why}")
    if lost.index == 0:
        step = _relaunch_all(counted, limits, event.at_s)
        return step.state, step.actions
    left = replace(counted, nodes=tuple(n for n in counted.nodes if n is not lost))
    step = _launch(_Step(left).then(End(node_id=lost.node_id)), lost.index, event.at_s)
    return step.state, step.actions


def _after_driver(state: Active, event: DriverLost, limits: Limits) -> Decision:
    if event.driver != state.driver or not state.driving:
        return state, ()
    if state.stopping:
        return _done(state, state.stopping.reason, state.stopping.detail)
    counted = replace(state, restarts=state.restarts + 1, idle_losses=state.idle_losses + 1)
    if counted.idle_losses > limits.max_idle_losses:
        return _stuck(counted, f"the driver ended: {event.why}")
    step = _relaunch_all(counted, limits, event.at_s)
    return step.state, step.actions


def _stuck(state: Active, last: str) -> Decision:
    detail = f"{state.idle_losses} losses in a row without a new step; the last: {last}"
    return _done(state, "stuck", detail)


def _after_workers(state: Active, event: WorkersStarted, limits: Limits) -> Decision:
    again = state.attempt > 0 and event.attempt > state.attempt
    losses = state.restarts + again
    after = replace(state, attempt=event.attempt, world_size=event.world_size, restarts=losses)
    if again:
        after = replace(after, idle_losses=after.idle_losses + 1)
        if after.idle_losses > limits.max_idle_losses:
            return _stuck(after, f"attempt {event.attempt} had to be started")
    return after, ()


def _after_user_failure(state: Active, event: UserFailed, limits: Limits) -> Decision:
    failures = state.failures + 1
    after = replace(state, failures=failures)
    if failures > limits.max_failures or state.stopping:
        return _done(after, "failed", event.error)
    return after, ()  # Ray Train starts the workers again by itself


def _after_stop(state: Active) -> Decision:
    if state.stopping is None:
        return _done(state, "stopped", "the workers stopped")
    return _done(state, state.stopping.reason, state.stopping.detail)


def _after_request(state: Active, event: StopAsked) -> Decision:
    if event.now or not state.driving or state.attempt == 0:
        reason: Reason = state.stopping.reason if state.stopping else "stopped"
        return _done(state, reason, f"asked by {event.who}")
    return _stop(state, "stopped", f"asked by {event.who}", event.at_s)


def _stop(state: Active, reason: Reason, detail: str, at_s: float) -> Decision:
    if state.stopping:
        return state, ()
    stopping = Stopping(reason=reason, detail=detail, since_s=at_s)
    return replace(state, stopping=stopping), (SaveAndStop(reason=detail),)


def _after_tick(state: Active, event: Tick, limits: Limits) -> Decision:
    if state.stopping:
        if event.at_s - state.stopping.since_s >= limits.stop_grace_s:
            return _done(state, state.stopping.reason, state.stopping.detail)
        return state, ()
    if limits.budget_usd is not None and event.spent_usd + limits.reserve_usd >= limits.budget_usd:
        detail = f"spending reached ${event.spent_usd:.2f} of ${limits.budget_usd:.2f}"
        return _stop(state, "budget", detail, event.at_s)
    if limits.deadline_s is not None and event.at_s + limits.reserve_s >= limits.deadline_s:
        detail = f"{event.at_s:.0f} s of {limits.deadline_s:.0f} s are over"
        return _stop(state, "deadline", detail, event.at_s)
    return _maybe_drive(state, event.at_s, limits)
