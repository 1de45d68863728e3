"""Turning what providers, agents and workers left in the run's store into events.

Each source is read from where it was read last, so a pass costs a few small reads, however long
the run is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from burst.cost.events import (
    AgentUp,
    DriverLost,
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
    StopAsked,
    Stopped,
    UserFailed,
    WorkersStarted,
)
from burst.cost.mixing import to_measure
from burst.cost.network import Link, Work
from burst.cost.placement import Choice, Place
from burst.cost.state import Active, Node
from burst.errors import StorageError, TransientError
from burst.ports import Clock, NodeView, Provisioner
from burst.records import (
    STOP_REQUEST,
    AttemptRecord,
    Outcome,
    attempt_key,
    chunk_key,
    outcome_key,
    read_attempt,
    read_outcome,
    status_key,
)
from burst.storage.port import Readable

Fact = Mapping[str, Any]
log = logging.getLogger(__name__)

DOUBT_S = 15.0  # without a heartbeat for so long, a node's pool is asked about it
SILENT_S = 60.0  # for so long, and it is lost whatever its pool says
PROBE_S = 60.0  # how long a node may take to measure the network to another


def read_json(store: Readable, key: str) -> dict[str, Any] | None:
    """Return a small JSON object, or None if there is none."""
    try:
        data = store.get(key)
    except FileNotFoundError:
        return None
    found: dict[str, Any] = json.loads(data)
    return found


@dataclass(slots=True)
class FactReader:
    """Reads attempts and their facts in order, each once."""

    store: Readable
    attempt: int = 0  # the newest seen
    chunks: dict[int, int] = field(default_factory=dict)  # attempt -> pieces read

    def new_attempts(self) -> Iterator[AttemptRecord]:
        """Yield the attempts that started since the last call."""
        while True:
            try:
                data = self.store.get(attempt_key(self.attempt + 1))
            except FileNotFoundError:
                return
            self.attempt += 1
            self.chunks[self.attempt] = 0
            yield read_attempt(data)

    def new_facts(self) -> Iterator[Fact]:
        """Yield the facts that arrived since the last call, from this and the last attempt."""
        for attempt in (self.attempt - 1, self.attempt):
            while attempt in self.chunks:
                try:
                    data = self.store.get(chunk_key(attempt, self.chunks[attempt] + 1))
                except FileNotFoundError:
                    break
                self.chunks[attempt] += 1
                yield from _facts(data, chunk_key(attempt, self.chunks[attempt]))


def _begun(record: AttemptRecord) -> Fact:
    nodes = sorted({worker.node_id for worker in record.workers})
    found = {"kind": "attempt", "attempt": record.attempt, "time": record.started}
    return {**found, "nodes": nodes}


def _facts(data: bytes, key: str) -> Iterator[Fact]:
    for line in data.splitlines():
        try:
            yield json.loads(line)
        except ValueError as error:
            raise StorageError(f"{key} is damaged: {error}") from error


@dataclass(slots=True)
class Pulse:
    """The heartbeat of a node: its last number, and when it changed by this machine's clock."""

    beat: int = -1
    at_s: float = 0.0

    def silent_s(self, status: Mapping[str, Any], now_s: float) -> float:
        """Take a status; return for how long nothing new has come."""
        beat = int(status.get("beat", -1))
        if beat != self.beat:
            self.beat, self.at_s = beat, now_s
        return now_s - self.at_s if beat >= 0 else 0.0


class Observer:
    """What changed since the last look at one run."""

    def __init__(
        self, run_id: str, store: Readable, provisioner: Provisioner, clock: Clock
    ) -> None:
        self.facts = FactReader(store)
        self.address: tuple[int, str] | None = None  # of Ray's head: which driver's, and where
        self.views: Mapping[str, NodeView] = {}  # as last seen
        self.looked_s = float("-inf")  # when that was
        self._run_id = run_id
        self._store = store
        self._provisioner = provisioner
        self._clock = clock
        self._outcomes: set[int] = set()
        self._notices: set[str] = set()
        self._pulses: dict[str, Pulse] = {}
        self._doubted: set[str] = set()
        self._statuses: dict[str, Mapping[str, Any]] = {}  # of the nodes, as read in this pass
        self._probes: dict[tuple[str, str], float] = {}  # since when nodes are to be measured
        self.answering: dict[str, str] = {}  # where nodes can be measured to
        self._stop_seen = False
        self.error_type = "TrainingError"

    def catch_up(self, *, going_on: bool) -> Iterator[Fact]:
        """Yield all facts there are, once, when a controller takes over; no events.

        `going_on`: the newest attempt may still run, so its end is news.
        """
        for record in self.facts.new_attempts():
            yield _begun(record)
            yield from self.facts.new_facts()
        self._outcomes = set(range(1, self.facts.attempt + (not going_on)))

    def events(
        self, state: Active, at_s: float, work: Callable[[], Work | None]
    ) -> Iterator[Event | Fact]:
        """Yield what happened, facts of the training included, in an order that makes sense.

        Outcomes come before losses: a group that ended well takes its driver with it. `work` is
        asked only once the facts before are taken.
        """
        yield from self._training(at_s, work)
        yield from self._outcome(state, at_s)
        yield from self._nodes(state, at_s)
        yield from self._measured(state, at_s, work)
        yield from self._requests(at_s)

    def _training(self, at_s: float, work: Callable[[], Work | None]) -> Iterator[Event | Fact]:
        for record in self.facts.new_attempts():
            yield _begun(record)
            yield WorkersStarted(attempt=record.attempt, world_size=record.world_size, at_s=at_s)
        highest = 0
        for fact in self.facts.new_facts():
            yield fact
            if fact["kind"] == "step":
                highest = max(highest, int(fact["step"]))
            elif fact["kind"] == "saved":
                yield Saved(step=int(fact["step"]), work=work(), at_s=at_s)
        if highest:
            yield Progressed(step=highest, at_s=at_s)

    def _outcome(self, state: Active, at_s: float) -> Iterator[Event]:
        attempt = self.facts.attempt
        if attempt == 0 or attempt in self._outcomes or not state.driving:
            return
        try:
            outcome = read_outcome(self._store.get(outcome_key(attempt)))
        except FileNotFoundError:
            return
        self._outcomes.add(attempt)
        yield self._event_of(outcome, at_s)

    def _event_of(self, outcome: Outcome, at_s: float) -> Event:
        match outcome.kind:
            case "finished":
                return Finished(at_s=at_s)
            case "stopped":
                return Stopped(at_s=at_s)
            case "failed":
                self.error_type = outcome.error_type
                return UserFailed(attempt=outcome.attempt, error=outcome.error, at_s=at_s)

    def look(self) -> bool:
        """Ask the pool for its nodes; say whether it answered. If not, the last answer stays."""
        looked_s = self._clock.monotonic()
        try:
            found = self._provisioner.observe(self._run_id, self._doubted)
        except TransientError as error:
            log.warning("the pool does not say what nodes there are: %s", error)
            return False
        self.views = {view.node_id: view for view in found}
        self.looked_s = looked_s
        return True

    def _nodes(self, state: Active, at_s: float) -> Iterator[Event]:
        self._doubted &= {node.node_id for node in state.nodes}
        known = self.look()
        self._statuses = {}
        for node in state.nodes:
            status = read_json(self._store, status_key(node.node_id)) or {}
            self._statuses[node.node_id] = status
            view = self.views.get(node.node_id)
            if view is not None and view.state == "refused":
                yield LaunchRefused(node_id=node.node_id, refusals=view.refusals, at_s=at_s)
            elif (why := self._loss(node, view, status, known=known)) is not None:
                yield NodeLost(node_id=node.node_id, why=why, at_s=at_s)
            else:
                yield from self._status(state, node, status, at_s)

    def _loss(
        self, node: Node, view: NodeView | None, status: Mapping[str, Any], *, known: bool
    ) -> str | None:
        """Return why a node has to be taken for lost, or None."""
        name = node.node_id
        if status.get("ray") in {"failed", "ended"}:
            return str(status.get("error") or "its agent ended it")
        if known and (view is None or view.state == "gone"):
            return (view.detail if view else "") or "the machine is gone"
        silent_s = self._pulses.setdefault(name, Pulse()).silent_s(status, self._clock.monotonic())
        (self._doubted.add if silent_s > DOUBT_S else self._doubted.discard)(name)
        return f"no sign of life for {silent_s:.0f} s" if silent_s > SILENT_S else None

    def _status(
        self, state: Active, node: Node, status: Mapping[str, Any], at_s: float
    ) -> Iterator[Event]:
        name = node.node_id
        if status.get("setup_error"):
            self.error_type = "SetupError"
            yield SetupFailed(node_id=name, error=str(status["setup_error"]), at_s=at_s)
            return
        if node.state == "asked" and status.get("setup") == "done":
            yield AgentUp(node_id=name, at_s=at_s)
        if status.get("ray") == "up" and status.get("cluster") == state.driver:
            if name == state.head:
                self.address = (state.driver, str(status["address"]))
            if node.state != "up":
                yield NodeUp(node_id=name, driver=state.driver, at_s=at_s)
        if name == state.head and status.get("ray") == "down":
            if status.get("cluster") == state.driver:
                why = f"Ray's head ended on {name}"
                yield DriverLost(driver=state.driver, why=why, at_s=at_s)
            return
        driver = status.get("driver") or {}
        if name == state.head and driver.get("state") == "exited" and state.driving:
            code = driver.get("exit_code")
            number = int(driver["attempt"])
            yield DriverLost(driver=number, why=f"exit code {code}", at_s=at_s)
        notice = status.get("notice")
        if notice and name not in self._notices:
            self._notices.add(name)
            left = float(notice.get("left_s", 0.0))
            yield NoticeGiven(node_id=name, deadline_s=left, at_s=at_s)

    def _measured(
        self, state: Active, at_s: float, work: Callable[[], Work | None]
    ) -> Iterator[Event]:
        """Yield what nodes measured; one that does not in time does not reach the other."""
        wanted = {(node.node_id, peer.node_id) for node, peer in to_measure(state)}
        now_s = self._clock.monotonic()
        self._probes = {pair: self._probes.get(pair, now_s) for pair in sorted(wanted)}
        self.answering = {}
        for name, peer in self._probes:
            link = self._link(name, peer)
            if link is None and now_s - self._probes[name, peer] > PROBE_S:
                link = Link(error=f"{name} and {peer}: not measured within {PROBE_S:.0f} s")
            if link is not None:
                yield Measured(node_id=name, peer_id=peer, link=link, work=work(), at_s=at_s)

    def _link(self, name: str, peer: str) -> Link | None:
        """Return what a node measured to another, once that one tried the way back."""
        told, answers = (self._statuses[one].get("probe") or {} for one in (name, peer))
        for one, said in ((name, told), (peer, answers)):
            if said.get("address"):
                self.answering[one] = said["address"]
        there, back = told.get("links", {}).get(peer), answers.get("reached", {}).get(name)
        links = [Link(**found) for found in (there, back) if found is not None]
        failed = next((link for link in links if link.error), None)
        return failed or (links[0] if len(links) == 2 else None)  # noqa: PLR2004 - both ways

    def vacancies(self, state: Active, choices: tuple[Choice, ...]) -> tuple[Place, ...] | None:
        """Return the vacant places that would be better than a node's; None if no node has any."""
        rank = {choice.place: n for n, choice in enumerate(choices)}
        worst = max((rank.get(node.place, 0) for node in state.nodes), default=0)
        better = [c.place for c in choices[:worst] if c.place.owned]
        return self._provisioner.vacant(better) if better else None

    def _requests(self, at_s: float) -> Iterator[Event]:
        if self._stop_seen:
            return
        request = read_json(self._store, STOP_REQUEST)
        if request is not None:
            self._stop_seen = not request.get("now", False)
            yield StopAsked(who=str(request["who"]), now=bool(request.get("now")), at_s=at_s)
