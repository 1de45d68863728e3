"""Where a run stands, read from its store by anybody, without being its controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from burst.controller.account import Progress, failed_launches, legs
from burst.controller.book import History, NodeSpan, read_history
from burst.controller.observe import FactReader
from burst.controller.runs import Run
from burst.cost.bill import Bill
from burst.cost.ledger import spent
from burst.cost.network import Bridge
from burst.cost.placement import Place
from burst.cost.report import RunCost, summarise
from burst.cost.state import Active
from burst.ports import Clock
from burst.records import WorkerRecord, moment
from burst.storage.journal import Journal
from burst.storage.lease import Owner, current_owner

Alive = Callable[[Owner], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node as the journal knows it."""

    node_id: str
    index: int
    state: str  # asked, ready, up, ended, refused
    head: bool
    place: Place
    launched: datetime
    ended: datetime | None
    usd_per_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """What `burst status` shows."""

    run_id: str
    uri: str
    state: str  # launching, running, stopping, orphaned, or how it ended
    live: bool  # a controller drives it
    owner: str
    owner_pid: int | None
    created: str
    step: int
    saved_step: int
    preemptions: int
    restarts: int
    detail: str
    spent_usd: Decimal
    nodes: tuple[NodeStatus, ...]
    workers: tuple[WorkerRecord, ...]
    progress: Progress
    network: tuple[Bridge, ...]  # what was measured between the run's islands


def status_of(run: Run, clock: Clock, alive: Alive) -> RunStatus:
    """Read where a run stands."""
    history = read_history(Journal(run.store))
    progress, workers = read_progress(run)
    owner = current_owner(run.store)
    live = owner is not None and alive(owner) is not False
    state = history.state
    return RunStatus(
        run_id=run.record.run_id,
        uri=run.store.uri,
        state=_word(history, progress, live=live),
        live=live,
        owner=str(owner) if owner else "nobody",
        owner_pid=owner.pid if owner else None,
        created=run.record.created,
        step=max(state.step, progress.timeline.highest_step),
        saved_step=max(state.saved_step, progress.saved_step or 0),
        preemptions=state.preemptions,
        restarts=state.restarts,
        detail="" if isinstance(state, Active) else state.detail,
        spent_usd=spent(legs(history.spans, run.record), _until(history, clock, live=live)),
        nodes=tuple(_node(span, state) for span in history.spans),
        workers=workers if live else (),
        progress=progress,
        network=state.bridges if isinstance(state, Active) else (),
    )


def read_progress(run: Run) -> tuple[Progress, tuple[WorkerRecord, ...]]:
    """Fold all facts of a run; also return the workers of its newest attempt."""
    reader, progress = FactReader(run.store), Progress(began=moment(run.record.created))
    workers: tuple[WorkerRecord, ...] = ()
    for record in reader.new_attempts():
        workers = record.workers
        progress.add({"kind": "attempt", "attempt": record.attempt, "time": record.started})
        for fact in reader.new_facts():
            progress.add(fact)
    return progress, workers


def worker_names(run: Run) -> dict[int, str]:
    """Return node and rank of every process that ever was a worker of the run."""
    reader = FactReader(run.store)
    found = [worker for record in reader.new_attempts() for worker in record.workers]
    return {worker.pid: f"{worker.node_id} rank {worker.rank}" for worker in found}


def _word(history: History, progress: Progress, *, live: bool) -> str:
    state = history.state
    if not isinstance(state, Active):
        return state.reason
    if not live:
        return "orphaned" if history.number else "new"
    if state.stopping:
        return "stopping"
    return "running" if progress.step and state.driving else "launching"


def _until(history: History, clock: Clock, *, live: bool) -> datetime:
    """Until when open nodes are counted: now, or the last word of a controller that is gone."""
    return clock.now() if live or history.last_entry is None else history.last_entry


def _node(span: NodeSpan, state: object) -> NodeStatus:
    known = {n.node_id: n.state for n in state.nodes} if isinstance(state, Active) else {}
    word = "refused" if span.refused else "ended" if span.ended else ""
    return NodeStatus(
        node_id=span.node_id,
        index=span.index,
        state=word or known.get(span.node_id, "leaving"),
        head=isinstance(state, Active) and state.head == span.node_id,
        place=span.choice.place,
        launched=span.launched,
        ended=span.ended,
        usd_per_hour=span.choice.usd_per_hour,
    )


def cost_of(run: Run, clock: Clock, alive: Alive) -> RunCost:
    """Return what a run cost up to now, row by row."""
    history = read_history(Journal(run.store))
    progress, _ = read_progress(run)
    owner = current_owner(run.store)
    live = owner is not None and alive(owner) is not False
    bill = Bill(legs=legs(history.spans, run.record), failed=failed_launches(history.spans))
    until = _until(history, clock, live=live)
    return summarise(run.record.run_id, bill, progress.timeline, until)
