"""What to do next: a pure function from state, event and limits to state and actions.

Nothing here reads a clock, a price list or a cloud. The controller feeds events in and carries
actions out, and so does the simulator: what was simulated is what spends the money.

Failures are told apart by who is to blame, and each kind has its own limit. A lost node or a
killed worker costs only time and never fails a run, unless so many come in a row that nothing is
trained between them. A place without machines costs nothing: another is asked, or the same later.
The user's own error, in training or in set-up, counts against `max_failures`.

A node that no better place gives is rented after a while, or at once when the run is late. Once
a better place is vacant and a move there pays, a successor is asked for; when all successors are
set up, the run saves, and the nodes that they succeed are given back.

Nodes form a Ray cluster around a head; each such cluster has one driver and its number. When head
or driver is lost, the nodes that are left form the next one; they are not set up again.

A node joins nodes of another island only once the network between them was measured. Islands that
do not reach each other, or too slowly, are kept apart for the rest of the run: it goes on in one
of them, and moves to the other as a whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import combinations
from typing import Literal, assert_never

from burst.cost.events import (
    Action,
    AgentUp,
    Drive,
    DriverLost,
    End,
    Event,
    Finished,
    Launch,
    LaunchRefused,
    Lead,
    Measured,
    NodeLost,
    NodeUp,
    NoticeGiven,
    Progressed,
    Save,
    SaveAndStop,
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
from burst.cost.mixing import apart_here, fits, stray
from burst.cost.moves import pays
from burst.cost.network import (
    Bridge,
    are_apart,
    bridge_of,
    island,
    joining_why_not,
    with_bridge,
)
from burst.cost.placement import NEVER_S, Choice, Place, Refusal, choose, free_at, patience, refused

NodeState = Literal["asked", "ready", "up"]
Reason = Literal["finished", "stopped", "failed", "budget", "deadline", "stuck"]
MOVE_SAVE_S = 60.0  # how long the save before a move may take
NOTICE_GRACE_S = 60.0  # how long a node may stay after the moment it was to be taken
MOST_CHANGES = 3  # of the side that a run is on whose islands must be apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the task allows, and where its nodes may be."""

    nodes: int
    least_nodes: int  # training starts with fewer than `nodes` only after `patience_s`
    choices: tuple[Choice, ...]  # best first
    head_apart: bool = False  # the head is a node of its own, index 0, without workers
    max_failures: int = 0  # restarts after the user's own code failed
    max_idle_losses: int = 6  # losses in a row without a new step between them
    patience_s: float = 60.0
    stop_grace_s: float = 60.0  # how long saving may take once a stop was asked for
    budget_usd: Decimal | None = None
    deadline_s: float | None = None
    reserve_usd: Decimal = Decimal(0)  # kept for the last save and the release
    reserve_s: float = 30.0
    return_after_s: float = 120.0  # how long a better place must be vacant before nodes move there


# State -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that was asked for.

    asked: no sign of life yet; ready: its agent answers; up: in the present Ray cluster.
    """

    node_id: str
    index: int
    state: NodeState
    since_s: float
    place: Place
    wanted_s: float = 0.0  # since when a node with its index is wanted
    taken_s: float | None = None  # a notice said that it goes at this moment
    moving: bool = False  # a successor at a better place was asked for
    met: tuple[str, ...] = ()  # other islands, of which it measured a node and may train with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A node that is wanted and cannot be asked for before a moment."""

    index: int
    until_s: float
    wanted_s: float = 0.0


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
    waiting: tuple[Slot, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    refusal: str = ""  # the last one, in words
    launched: int = 0  # nodes ever asked for; makes ids unique
    head: str = ""  # the node that leads the present Ray cluster
    driver: int = 0  # clusters ever formed, each with a driver of its own
    driving: bool = False
    attempt: int = 0  # the newest start of the worker group
    world_size: int = 0
    step: int = 0  # the highest step reached
    saved_step: int = 0
    failures: int = 0
    failed_attempt: int = 0  # the newest whose failure is counted
    idle_losses: int = 0
    preemptions: int = 0  # nodes lost, in all
    restarts: int = 0  # starts of the worker group after the first, and of the driver
    stopping: Stopping | None = None
    late: bool = False  # at its present pace it ends after its deadline
    vacant_s: float | None = None  # since when a better place is vacant without a break
    parting_s: float | None = None  # when the save before the end of moving nodes was ordered
    bridges: tuple[Bridge, ...] = ()  # what was measured between islands
    changes: int = 0  # of the side, because two islands must be apart


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
Decision = tuple[State, tuple[Action, ...]]


@dataclass(frozen=True, slots=True)
class _Step:
    """A state with the actions that lead to it, for rules that build on each other."""

    state: Active
    actions: tuple[Action, ...] = field(default=())

    def then(self, *actions: Action, **changes: object) -> _Step:
        state = replace(self.state, **changes)  # type: ignore[arg-type]  # names of Active's fields
        return _Step(state, self.actions + actions)

    @property
    def decision(self) -> Decision:
        return self.state, self.actions


def decide(  # noqa: C901, PLR0911, PLR0912 - one case per event
    state: State, event: Event, limits: Limits
) -> Decision:
    """Return the next state and what must be carried out, in order, to get there."""
    if isinstance(state, Done):
        return state, ()
    match event:
        case Started():
            return _after_start(state, event, limits)
        case TakenOver():
            return _after_takeover(state, event, limits)
        case LaunchRefused():
            return _after_refusal(state, event, limits)
        case AgentUp(node_id=node_id):
            ready = _Step(_set(state, node_id, "ready", event.at_s))
            return _elect(ready, event.at_s, limits).decision
        case NodeUp():
            return _after_up(state, event, limits)
        case Measured():
            return _after_measurement(state, event, limits)
        case NodeLost():
            return _after_loss(state, event, limits)
        case SetupFailed():
            return _after_setup(state, event, limits)
        case DriverLost():
            return _after_driver(state, event, limits)
        case WorkersStarted():
            return _after_workers(state, event, limits)
        case Progressed(step=step):
            fresh = step > state.step
            idle = 0 if fresh else state.idle_losses
            return replace(state, step=max(step, state.step), idle_losses=idle), ()
        case Saved():
            return _after_save(state, event, limits)
        case UserFailed(attempt=attempt, error=error):
            if attempt <= state.failed_attempt:  # an earlier controller has counted it
                return state, ()
            return _after_failure(replace(state, failed_attempt=attempt), error, limits)
        case Finished():
            return _done(state, "finished")
        case Stopped():
            return _after_stop(state, event.at_s, limits)
        case StopAsked():
            return _after_request(state, event)
        case NoticeGiven():
            return _after_notice(state, event, limits)
        case Vacant():
            return _after_vacant(state, event, limits)
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


# Getting nodes -----------------------------------------------------------------------------------


def _launch(
    step: _Step, index: int, at_s: float, limits: Limits, wanted_s: float | None = None
) -> _Step:
    """Ask for a node at the best free place, or remember to ask once one is free."""
    wanted_s = at_s if wanted_s is None else wanted_s
    choice, when = _choose(step.state, wanted_s, at_s, limits)
    if choice is None or when > at_s:
        slot = Slot(index=index, until_s=when, wanted_s=wanted_s)
        return step.then(waiting=(*step.state.waiting, slot))
    return _ask(step, index, choice, at_s, wanted_s, limits)


def _choose(
    state: Active, wanted_s: float, at_s: float, limits: Limits
) -> tuple[Choice | None, float]:
    """Choose a place that the nodes reach; a run that is late waits for no better one."""
    fitting = tuple(choice for choice in limits.choices if fits(state, choice))
    return choose(fitting, state.refusals, at_s, _since(state, wanted_s))


def _since(state: Active, wanted_s: float) -> float:
    return float("-inf") if state.late else wanted_s


def _ask(
    step: _Step, index: int, choice: Choice, at_s: float, wanted_s: float, limits: Limits
) -> _Step:
    """Ask for a node at a place."""
    number = step.state.launched + 1
    node = Node(
        node_id=f"n{number:03d}",
        index=index,
        state="asked",
        since_s=at_s,
        place=choice.place,
        wanted_s=wanted_s,
    )
    since_s = float("inf") if step.state.late else at_s - wanted_s
    wait_s = patience(limits.choices, choice, since_s)
    return step.then(
        Launch(node_id=node.node_id, index=index, choice=choice, wait_s=wait_s),
        launched=number,
        nodes=(*step.state.nodes, node),
    )


def _after_start(state: Active, event: Started, limits: Limits) -> Decision:
    """Start from no nodes: all are asked for."""
    ends = tuple(End(node_id=node.node_id) for node in reversed(state.nodes))
    fresh = replace(state, stopping=None, idle_losses=0, failures=0, head="", driving=False)
    fresh = replace(fresh, late=False, vacant_s=None, parting_s=None, bridges=(), changes=0)
    step = _Step(fresh).then(*ends, nodes=(), waiting=(), refusals=())
    for index in range(limits.nodes + limits.head_apart):
        step = _launch(step, index, event.at_s, limits)
    return step.decision


def _after_takeover(state: Active, event: TakenOver, limits: Limits) -> Decision:
    """Go on with the nodes that are still there; the others are lost."""
    step = _Step(replace(state, stopping=None, idle_losses=0))
    for node in state.nodes:
        if node.node_id not in event.found:
            step = _replace_node(step, node, event.at_s, limits)
    return _elect(step, event.at_s, limits).decision


def _after_refusal(state: Active, event: LaunchRefused, limits: Limits) -> Decision:
    node = _node(state, event.node_id)
    if node is None:
        return state, ()
    known = state.refusals
    for one in event.refusals:
        known = refused(known, one.place, one.reason, event.at_s, one.again_s or 0.0)
    words = "; ".join(map(str, event.refusals))
    step = _Step(replace(state, refusals=known, refusal=words))
    if state.stopping:
        return _drop(step, node).decision
    return _or_stuck(_replace_node(step, node, event.at_s, limits, node.wanted_s), limits)


def _or_stuck(step: _Step, limits: Limits) -> Decision:
    """End the run when a node is wanted, none is there, and no place will ever give one."""
    state = step.state
    never = choose(limits.choices, state.refusals, 0.0)[1] >= NEVER_S
    if not state.nodes and state.waiting and never:
        done, ends = _done(state, "stuck", f"no place is left to ask; {state.refusal}")
        return done, step.actions + ends
    return step.decision


def _drop(step: _Step, node: Node) -> _Step:
    """Take a node out; what is left of it is cleared away."""
    left = tuple(n for n in step.state.nodes if n.node_id != node.node_id)
    step = step.then(End(node_id=node.node_id), nodes=left)
    return _leaderless(step) if node.node_id == step.state.head else step


def _leaderless(step: _Step) -> _Step:
    """Dissolve the Ray cluster: its nodes are ready for the next one."""
    nodes = tuple(replace(n, state="ready") if n.state == "up" else n for n in step.state.nodes)
    return step.then(head="", driving=False, nodes=nodes)


def _replace_node(
    step: _Step, node: Node, at_s: float, limits: Limits, wanted_s: float | None = None
) -> _Step:
    """Take a node out and ask for another in its stead, unless that was done before.

    One that a notice announced does not stand in for its successor, only for a while.
    """
    step = _drop(step, node)
    if node.index in _taken(step.state):
        return step
    return _launch(step, node.index, at_s, limits, wanted_s)


def _taken(state: Active) -> set[int]:
    """Return the indices of the nodes that there are and stay, and of those waited for."""
    stay = {n.index for n in state.nodes if n.taken_s is None}
    return stay | {slot.index for slot in state.waiting}


# Forming a Ray cluster ---------------------------------------------------------------------------


def _node(state: Active, node_id: str) -> Node | None:
    return next((n for n in state.nodes if n.node_id == node_id), None)


def _set(state: Active, node_id: str, new: NodeState, at_s: float) -> Active:
    nodes = tuple(
        replace(n, state=new, since_s=at_s) if n.node_id == node_id else n for n in state.nodes
    )
    return replace(state, nodes=nodes)


def _elect(step: _Step, at_s: float, limits: Limits) -> _Step:
    """Choose a head if there is none: a node that stays, of those that answer the longest."""
    state = step.state
    if state.head or state.stopping:
        return step
    able = [n for n in state.nodes if n.index == 0] if limits.head_apart else list(state.nodes)
    able = [n for n in able if n.taken_s is None] or able
    steady = [n for n in able if not n.place.spot] or able
    ready = [n for n in steady if n.state == "ready"]
    others = [n for n in able if n.state == "ready"]
    if not ready and others and at_s - min(n.since_s for n in others) >= limits.patience_s:
        ready = others
    if not ready:
        return step
    head = min(ready, key=lambda n: (n.since_s, n.index))
    driver = state.driver + 1
    return step.then(Lead(node_id=head.node_id, driver=driver), head=head.node_id, driver=driver)


def _after_up(state: Active, event: NodeUp, limits: Limits) -> Decision:
    if event.driver != state.driver:  # of a cluster that is dissolved
        return state, ()
    step = _Step(_set(state, event.node_id, "up", event.at_s))
    return _maybe_drive(step, event.at_s, limits).decision


def _maybe_drive(step: _Step, at_s: float, limits: Limits) -> _Step:
    """Start the driver once all nodes are up, or enough of them for long enough.

    Once there has been training, it goes on with the nodes there are; others join it later.
    """
    state = step.state
    if state.driving or state.stopping:
        return step
    up = [node for node in state.nodes if node.state == "up"]
    if state.head not in {node.node_id for node in up}:
        return step
    carriers = [n for n in up if not (limits.head_apart and n.node_id == state.head)]
    waited = at_s - min(node.since_s for node in up)
    here = state.attempt > 0 and not any(node.state == "ready" for node in state.nodes)
    enough = len(carriers) >= limits.least_nodes and (here or waited >= limits.patience_s)
    if len(carriers) < limits.nodes and not enough:
        return step
    return step.then(Drive(driver=state.driver), driving=True)


# Islands -----------------------------------------------------------------------------------------


def _after_measurement(state: Active, event: Measured, limits: Limits) -> Decision:
    """Let a node train with another island's, or keep the two islands apart from now on."""
    node, peer = _node(state, event.node_id), _node(state, event.peer_id)
    if node is None or peer is None or state.stopping:
        return state, ()
    pair = (island(peer.place), island(node.place))
    why = _why_apart(state, event)
    bridge = Bridge(islands=_sorted(pair), link=event.link, apart=why)
    step = _Step(replace(state, bridges=with_bridge(state.bridges, bridge)))
    if why:
        return _elect(_separate(step, event.at_s, limits), event.at_s, limits).decision
    met = replace(node, met=(*node.met, pair[0]))
    return step.then(nodes=tuple(met if n is node else n for n in state.nodes)).decision


def _why_apart(state: Active, event: Measured) -> str:
    """Say why a node must not join those that train; what is not known speaks for it."""
    if event.link.error or event.work is None:
        return event.link.error
    up = {n.node_id for n in state.nodes if n.state == "up" and not n.moving}
    if not up.issuperset(event.work.nodes):  # its pace is that of another group
        return ""
    why = joining_why_not(event.work, event.link, len(up) + 1, late=state.late)
    return why and f"{event.link}: {why}"


def _sorted(pair: tuple[str, str]) -> tuple[str, str]:
    one, other = sorted(pair)
    return one, other


def _after_save(state: Active, event: Saved, limits: Limits) -> Decision:
    """Let nodes go that have successors, or that only slow the others: nothing is lost now."""
    step = _Step(replace(state, saved_step=max(event.step, state.saved_step)))
    if state.stopping:
        return step.decision
    if state.parting_s is not None:
        return _part(step).decision
    found = stray(state, event.work) if event.work else None
    if found is None:
        return step.decision
    home, other, why = found
    bridge = bridge_of(state.bridges, home, other)
    assert bridge is not None
    apart = replace(bridge, apart=f"{bridge.link}: {why}")
    step = step.then(bridges=with_bridge(state.bridges, apart))
    return _separate(step, event.at_s, limits).decision


def _separate(step: _Step, at_s: float, limits: Limits) -> _Step:
    """Give nodes back until those that stay reach each other, and look for others instead."""
    while (pair := apart_here(step.state)) is not None:
        goes = _leaving_side(step.state, pair, at_s, limits)
        leaving = [n for n in step.state.nodes if island(n.place) == goes and not n.moving]
        for node in leaving:
            step = _drop(step, node)
        for node in leaving:
            if node.index not in _taken(step.state):
                step = _launch(step, node.index, at_s, limits, node.wanted_s)
    return step


def _leaving_side(state: Active, pair: tuple[str, str], at_s: float, limits: Limits) -> str:
    """Return the island to leave: not the head's, unless only the other can give enough nodes."""
    home, other = pair
    count = sum(island(n.place) == home for n in state.nodes)
    if state.driving or count >= limits.least_nodes:
        return other
    here, there = (tuple(c for c in limits.choices if island(c.place) == i) for i in pair)
    full = all(any(r.covers(c.place) for r in state.refusals) for c in here)
    return home if full and choose(there, state.refusals, at_s)[1] <= at_s else other


def _change_sides(step: _Step, at_s: float, limits: Limits) -> _Step:
    """Move the whole run to an island that its nodes do not reach, when theirs gives too few.

    So does a run that is late. Without training to save, its nodes are given back at once.
    """
    state = step.state
    lacks = len(state.nodes) < limits.least_nodes or state.late
    busy = any(n.moving for n in state.nodes) or state.changes >= MOST_CHANGES
    if not (state.waiting and lacks) or busy:
        return step
    wanted_s = min(slot.wanted_s for slot in state.waiting)
    beyond = tuple(choice for choice in limits.choices if not fits(state, choice))
    choice, when = choose(beyond, state.refusals, at_s, _since(state, wanted_s))
    if choice is None or when > at_s:
        return step
    first, *others = sorted({n.index for n in state.nodes} | {s.index for s in state.waiting})
    if state.driving:
        step = step.then(nodes=tuple(replace(n, moving=True) for n in state.nodes))
    else:
        for node in state.nodes:
            step = _drop(step, node)
    step = step.then(waiting=(), changes=state.changes + 1)
    step = _ask(step, first, choice, at_s, wanted_s, limits)
    for index in others:
        step = _launch(step, index, at_s, limits, at_s - choice.after_s)
    return step


# Losses ------------------------------------------------------------------------------------------


def _after_loss(state: Active, event: NodeLost, limits: Limits) -> Decision:
    lost = _node(state, event.node_id)
    if lost is None:
        return state, ()
    counted = replace(state, preemptions=state.preemptions + 1, idle_losses=state.idle_losses + 1)
    if counted.stopping and (lost.node_id == state.head or len(state.nodes) == 1):
        return _done(counted, counted.stopping.reason, counted.stopping.detail)
    if counted.idle_losses > limits.max_idle_losses:
        return _stuck(counted, f"{event.node_id} was lost: {event.why}")
    if lost.place.spot:
        known = refused(counted.refusals, lost.place, "preempted", event.at_s)
        counted = replace(counted, refusals=known, refusal=f"{lost.place}: preempted")
    if lost.node_id == state.head and state.driving:
        counted = replace(counted, restarts=counted.restarts + 1)
    step = _Step(counted)
    if counted.stopping:  # nothing is replaced any more
        return _drop(step, lost).decision
    step = _replace_node(step, lost, event.at_s, limits)
    return _or_stuck(_elect(step, event.at_s, limits), limits)


def _after_driver(state: Active, event: DriverLost, limits: Limits) -> Decision:
    if event.driver != state.driver or not state.head:
        return state, ()
    if state.stopping:
        return _done(state, state.stopping.reason, state.stopping.detail)
    counted = replace(state, restarts=state.restarts + 1, idle_losses=state.idle_losses + 1)
    if counted.idle_losses > limits.max_idle_losses:
        return _stuck(counted, f"the driver ended: {event.why}")
    return _elect(_leaderless(_Step(counted)), event.at_s, limits).decision


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


def _after_failure(state: Active, error: str, limits: Limits) -> Decision:
    failures = state.failures + 1
    after = replace(state, failures=failures)
    if failures > limits.max_failures or state.stopping:
        return _done(after, "failed", error)
    return after, ()  # Ray Train starts the workers again by itself


def _after_setup(state: Active, event: SetupFailed, limits: Limits) -> Decision:
    """Fail the run, for set-up is the user's own, or let another machine try."""
    node = _node(state, event.node_id)
    if node is None:
        return state, ()
    after, ends = _after_failure(state, f"set-up failed on {node.node_id}: {event.error}", limits)
    if isinstance(after, Done):
        return after, ends
    return _replace_node(_Step(after), node, event.at_s, limits).decision


def _after_notice(state: Active, event: NoticeGiven, limits: Limits) -> Decision:
    """Save while there is time, and ask for another node at once."""
    node = _node(state, event.node_id)
    save = Save(reason=f"{event.node_id} leaves in {event.deadline_s:.0f} s")
    if node is None or state.stopping or node.taken_s is not None:
        return state, (save,)
    asked = node.moving  # its successor is on its way
    taken = replace(node, taken_s=event.at_s + event.deadline_s)
    nodes = tuple(taken if n is node else n for n in state.nodes)
    step = _Step(replace(state, nodes=nodes), (save,))
    if node.place.spot:
        known = refused(step.state.refusals, node.place, "preempted", event.at_s)
        step = step.then(refusals=known, refusal=f"{node.place}: notice")
    return step.decision if asked else _launch(step, node.index, event.at_s, limits).decision


# Moving ------------------------------------------------------------------------------------------


def _after_vacant(state: Active, event: Vacant, limits: Limits) -> Decision:
    """Ask for successors at better places once these are vacant for long enough, if that pays."""
    vacant = tuple(p for p in event.places if free_at(state.refusals, p) <= event.at_s)
    moves = _moves(state, vacant, limits)
    if not moves or _torn(state, moves):
        return replace(state, vacant_s=None), ()
    if state.vacant_s is None:
        return replace(state, vacant_s=event.at_s), ()
    busy = state.stopping or not state.driving or any(node.moving for node in state.nodes)
    if busy or event.at_s - state.vacant_s < limits.return_after_s:
        return state, ()
    prices = {choice.place: choice.usd_per_hour for choice in limits.choices}
    everything = sum((prices.get(n.place, Decimal(0)) for n in state.nodes), Decimal(0))
    gains = [(prices[node.place], choice.usd_per_hour) for node, choice in moves]
    if not pays(gains, everything, event.left_s):
        return state, ()
    leaving = {node.node_id for node, _ in moves}
    nodes = tuple(replace(n, moving=n.node_id in leaving) for n in state.nodes)
    step = _Step(replace(state, nodes=nodes, vacant_s=None))
    for node, choice in moves:
        step = _ask(step, node.index, choice, event.at_s, event.at_s, limits)
    return step.decision


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


def _move_on(step: _Step, at_s: float) -> _Step:
    """Save once every moving node's successor is set up; forget the moves that have none."""
    state = step.state
    heirs = {n.index: n for n in state.nodes if not n.moving}
    alone = {n.node_id for n in state.nodes if n.moving and n.index not in heirs}
    if alone:
        nodes = tuple(replace(n, moving=n.moving and n.node_id not in alone) for n in state.nodes)
        step = step.then(nodes=nodes)
    moving = [n for n in step.state.nodes if n.moving]
    if not moving:
        return step if state.parting_s is None else step.then(parting_s=None)
    if any(heirs[node.index].state == "asked" for node in moving):
        return step
    if state.parting_s is None:
        names = ", ".join(f"{n.node_id} to {heirs[n.index].place}" for n in moving)
        return step.then(Save(reason=f"the run moves: {names}"), parting_s=at_s)
    return _part(step) if at_s - state.parting_s >= MOVE_SAVE_S else step


def _part(step: _Step) -> _Step:
    """Give the nodes back whose successors took over; one may have been lost since the save."""
    step = step.then(parting_s=None)
    heirs = {n.index for n in step.state.nodes if not n.moving and n.state != "asked"}
    for node in step.state.nodes:
        if node.moving and node.index in heirs:
            step = _drop(step, node)
    return step


# Stopping ----------------------------------------------------------------------------------------


def _after_stop(state: Active, at_s: float, limits: Limits) -> Decision:
    """End, or go on if it was an earlier controller that told the workers to stop."""
    if state.stopping is None:
        again = replace(state, restarts=state.restarts + 1)
        return _elect(_leaderless(_Step(again)), at_s, limits).decision
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
    return replace(state, stopping=stopping, waiting=()), (SaveAndStop(reason=detail),)


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
    step = _ask_again(_Step(_lateness(state, event, limits)), event.at_s, limits)
    step = _separate(_move_on(_let_go(step, event.at_s), event.at_s), event.at_s, limits)
    step = _change_sides(step, event.at_s, limits)
    step = _elect(step, event.at_s, limits)
    return _maybe_drive(step, event.at_s, limits).decision


def _lateness(state: Active, event: Tick, limits: Limits) -> Active:
    """Note whether the run would end after its deadline; while that is unknown, what was last."""
    if limits.deadline_s is None or event.left_s is None:
        return state
    late = event.at_s + event.left_s + limits.reserve_s > limits.deadline_s
    return state if late == state.late else replace(state, late=late)


def _ask_again(step: _Step, at_s: float, limits: Limits) -> _Step:
    """Ask for the nodes that a place can be asked for now."""
    state = step.state
    due = [s for s in state.waiting if _choose(state, s.wanted_s, at_s, limits)[1] <= at_s]
    if not due:
        return step
    step = step.then(waiting=tuple(s for s in state.waiting if s not in due))
    for slot in due:
        step = _launch(step, slot.index, at_s, limits, slot.wanted_s)
    return step


def _let_go(step: _Step, at_s: float) -> _Step:
    """Give back a node that a notice announced and nobody took, once its successor is up.

    The head moves like a node to a better place: the run saves before.
    """
    up = {n.index for n in step.state.nodes if n.state == "up" and n.taken_s is None}
    for node in step.state.nodes:
        over = node.taken_s is not None and at_s >= node.taken_s + NOTICE_GRACE_S
        if not (over and node.index in up):
            continue
        if node.node_id == step.state.head and step.state.driving:
            moving = replace(node, moving=True)
            step = step.then(nodes=tuple(moving if n is node else n for n in step.state.nodes))
        else:
            step = _drop(step, node)
    return step
