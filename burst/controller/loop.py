"""The controller: take over a run, then observe, decide, write down and act until it is done."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol, assert_never

from burst.controller.book import Book, History, NodeSpan, close
from burst.controller.observe import Fact, Observer, read_json
from burst.cost.decide import (
    Action,
    Active,
    Done,
    Drive,
    End,
    Event,
    Finished,
    Launch,
    Limits,
    NodeLost,
    Progressed,
    Save,
    SaveAndStop,
    Saved,
    Started,
    State,
    StopAsked,
    Tick,
    decide,
)
from burst.errors import StorageError, TransientError
from burst.ports import Clock, NodeRequest, Provisioner
from burst.records import (
    ORDER,
    Order,
    RunRecord,
    desired_key,
    encode,
    moment,
    outcome_key,
    read_outcome,
    status_key,
)
from burst.storage.lease import Lease
from burst.storage.port import ObjectStore

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Whoever shows the run to a person. Calls come from the loop and must be quick."""

    def decided(self, state: State, event: Event, at: datetime) -> None:
        """Take note that the state changed."""
        ...

    def fact(self, fact: Fact) -> None:
        """Training reported something."""
        ...

    def tick(self, state: State, spent_usd: Decimal) -> None:
        """Time passed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the loop works with; wiring puts it together."""

    store: ObjectStore
    provisioner: Provisioner
    clock: Clock
    book: Book
    lease: Lease
    watcher: Watcher
    env: Mapping[str, str]  # for every node: the user's variables and secrets
    driver_argv: tuple[str, ...]
    tick_s: float = 0.25
    renew_s: float = 5.0


class Controller:
    """One controller of one run. `run` returns when the run is done or another took over."""

    def __init__(self, run: RunRecord, limits: Limits, history: History, tools: Tools) -> None:
        self._run = run
        self._limits = limits
        self._history = history
        self._tools = tools
        self._store = tools.store
        self._observer = Observer(run.run_id, tools.store, tools.provisioner)
        self._spans = history.spans
        self._asked: list[StopAsked] = []
        self._order = 0
        self._joined: set[str] = set()
        self._began = tools.clock.monotonic()
        self._age_at_start = max(0.0, (tools.clock.now() - moment(run.created)).total_seconds())
        self._renewed = self._began

    @property
    def error_type(self) -> str:
        """The class of burst.errors that the user's failure stands for."""
        return self._observer.error_type

    def ask_stop(self, who: str, *, now: bool = False) -> None:
        """Ask for a stop from a signal handler or another thread."""
        self._asked.append(StopAsked(who=who, now=now, at_s=self._age()))

    def run(self) -> Done:
        """Drive the run to its end."""
        state = self._take_over()
        while isinstance(state, Active):
            for event in self._events(state):
                state = self._apply(state, event)
                if isinstance(state, Done):
                    break
            else:
                self._tools.clock.sleep(self._tools.tick_s)
        return state

    def close(self) -> None:
        """Give the lease back, so that a resume need not wait."""
        self._tools.lease.release()

    # Taking over ----------------------------------------------------------------------------------

    def _take_over(self) -> State:
        """Clear away what an earlier controller left, then start or go on."""
        now = self._tools.clock.now()
        self._tools.book.controller(self._tools.lease.token, self._tools.lease.owner_json(), now)
        self._store.delete([ORDER])
        step, saved = self._catch_up()
        self._confirm_found()
        for span in self._spans:
            if span.ended is None:
                self._end_found(span)
        for found in self._tools.provisioner.sweep(self._run.run_id):
            log.warning("cleared away: %s", found)
        state = self._history.state
        if isinstance(state, Done):
            state = Active(
                step=state.step,
                saved_step=state.saved_step,
                driver=state.driver,
                launched=state.launched,
                preemptions=state.preemptions,
                restarts=state.restarts,
            )
        state = replace(
            state,
            attempt=self._observer.facts.attempt,
            driving=False,
            nodes=(),
            step=max(step, state.step),
            saved_step=max(saved, state.saved_step),
        )
        if self._last_outcome() == "finished":
            return self._apply(state, Finished(at_s=self._age()))
        return self._apply(state, Started(at_s=self._age()))

    def _catch_up(self) -> tuple[int, int]:
        """Show the watcher all facts there are; return the highest step done and saved."""
        highest = {"step": 0, "saved": 0}
        for fact in self._observer.catch_up():
            self._tools.watcher.fact(fact)
            if fact["kind"] in highest:
                highest[fact["kind"]] = max(highest[fact["kind"]], int(fact["step"]))
        return highest["step"], highest["saved"]

    def _last_outcome(self) -> str | None:
        attempt = self._observer.facts.attempt
        try:
            return read_outcome(self._store.get(outcome_key(attempt))).kind
        except FileNotFoundError:
            return None

    def _confirm_found(self) -> None:
        """Count the machines that came of launches which an earlier controller only decided."""
        there = {view.node_id for view in self._tools.provisioner.observe(self._run.run_id)}
        for intent in self._history.intents:
            if intent.node_id in there:
                self._count(intent.node_id, intent.index, intent.decided)

    def _end_found(self, span: NodeSpan) -> None:
        """End a node of an earlier controller; it counts until its last sign of life."""
        status = read_json(self._store, status_key(span.node_id)) or {}
        last = moment(status["time"]) if "time" in status else span.launched
        self._tools.provisioner.end(self._run.run_id, span.node_id)
        self._close(span.node_id, last, "its controller was gone; until its last heartbeat")

    # Observing ------------------------------------------------------------------------------------

    def _events(self, state: Active) -> Iterator[Event]:
        """Yield what happened since the last pass; facts go to the watcher on their way."""
        while self._asked:
            yield self._asked.pop(0)
        for found in self._observer.events(state, self._age()):
            if isinstance(found, Mapping):
                self._tools.watcher.fact(found)
            else:
                yield found
        self._renew()
        self._join(state)
        spent = self._spent()
        self._tools.watcher.tick(state, spent)
        yield Tick(at_s=self._age(), spent_usd=spent)

    def _age(self) -> float:
        return self._age_at_start + self._tools.clock.monotonic() - self._began

    def _renew(self) -> None:
        """Show that this controller lives; the store's failures are no reason to give up."""
        if self._tools.clock.monotonic() - self._renewed < self._tools.renew_s:
            return
        try:
            self._tools.lease.renew()
        except StorageError as error:
            log.warning("the lease was not renewed: %s", error)
            return
        self._renewed = self._tools.clock.monotonic()

    def _spent(self) -> Decimal:
        """Dollars for all nodes so far, before billing minimums."""
        now = self._tools.clock.now()
        total = Decimal(0)
        for span in self._spans:
            seconds = max(((span.ended or now) - span.launched).total_seconds(), 0.0)
            total += span.usd_per_hour * Decimal(repr(seconds)) / 3600
        return total

    # Acting ---------------------------------------------------------------------------------------

    def _apply(self, state: State, event: Event) -> State:
        """Decide, write down, act."""
        after, actions = decide(state, event, self._limits)
        at = self._tools.clock.now()
        routine = isinstance(event, Progressed | Saved)  # the facts tell those, many a minute
        if actions or (after != state and not routine):
            self._tools.book.decision(event, actions, after, at)
        if after != state:
            self._tools.watcher.decided(after, event, at)
        for action in actions:
            self._act(action, after, event)
        return after

    def _act(self, action: Action, state: State, event: Event) -> None:
        match action:
            case Launch():
                self._launch(action)
            case End(node_id=node_id):
                self._end(node_id, event)
            case Drive(driver=driver):
                self._drive(state, driver)
            case Save(reason=reason):
                self._give(Order(number=self._next_order(), kind="save", reason=reason))
            case SaveAndStop(reason=reason):
                self._give(Order(number=self._next_order(), kind="stop", reason=reason))
            case _:
                assert_never(action)

    def _launch(self, action: Launch) -> None:
        if action.index == 0:
            self._observer.address = None
            self._desire(action.node_id, {"role": "head", "address": None, "num_cpus": 0})
        request = NodeRequest(
            run_id=self._run.run_id,
            node_id=action.node_id,
            run_uri=self._store.uri,
            index=action.index,
            env=self._tools.env,
        )
        asked = self._tools.clock.now()
        try:
            self._tools.provisioner.launch(request)
        except TransientError as error:  # no machine: it shows as a lost node in the next pass
            log.warning("%s could not be launched: %s", action.node_id, error)
            return
        self._count(action.node_id, action.index, asked)

    def _count(self, node_id: str, index: int, since: datetime) -> None:
        """Write down that a node is paid for from a moment on; the head is the controller's."""
        span = NodeSpan(
            node_id=node_id,
            index=index,
            usd_per_hour=Decimal(self._run.usd_per_node_hour if index else 0),
            price_source=self._run.price_source,
            launched=since,
        )
        self._tools.book.launched(span)
        self._spans = (*self._spans, span)

    def _join(self, state: Active) -> None:
        """Tell the nodes that wait for it where Ray's head is."""
        address = self._observer.address
        if address is None:
            return
        for node in state.nodes:
            if node.index > 0 and node.node_id not in self._joined:
                slots = self._run.slots_per_node
                ray = {"role": "worker", "address": address, "num_cpus": slots}
                self._desire(node.node_id, ray)
                self._joined.add(node.node_id)

    def _desire(
        self, node_id: str, ray: Mapping[str, Any], driver: Mapping[str, Any] | None = None
    ) -> None:
        wanted = {"version": 1 if driver is None else 2, "ray": dict(ray), "driver": driver}
        self._store.put(desired_key(node_id), encode(wanted))

    def _drive(self, state: State, driver: int) -> None:
        assert isinstance(state, Active)
        head = next(node for node in state.nodes if node.index == 0)
        argv = [*self._tools.driver_argv, "--run-uri", self._store.uri, "--driver", str(driver)]
        ray = {"role": "head", "address": None, "num_cpus": 0}
        wanted = {"attempt": driver, "argv": argv, "env": {}, "log": "logs/driver.log"}
        self._desire(head.node_id, ray, wanted)

    def _end(self, node_id: str, event: Event) -> None:
        lost = isinstance(event, NodeLost) and event.node_id == node_id
        seen = self._tools.clock.now()
        self._tools.provisioner.end(self._run.run_id, node_id)
        self._close(node_id, seen, "lost" if lost else "released")

    def _close(self, node_id: str, ended: datetime, note: str) -> None:
        self._tools.book.ended(node_id, ended, note, self._tools.clock.now())
        self._spans = close(self._spans, node_id, ended, {"note": note})

    def _next_order(self) -> int:
        """Orders are numbered by time, so that a later controller's are newer."""
        self._order = max(self._order + 1, int(self._age() * 1000))
        return self._order

    def _give(self, order: Order) -> None:
        if order.kind == "save":
            order = replace(order, attempt=self._observer.facts.attempt)
        self._store.put(ORDER, order.encode())
