"""The controller: take over a run, then observe, decide, write down and act until it is done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeVar, assert_never

from burst.controller.book import Book, History, NodeSpan, bill, close
from burst.controller.observe import Fact, Observer, read_json
from burst.cost.decide import decide
from burst.cost.events import (
    Action,
    Drive,
    End,
    Event,
    Finished,
    Launch,
    LaunchRefused,
    Lead,
    Measured,
    NodeLost,
    Progressed,
    Save,
    SaveAndStop,
    Saved,
    Started,
    StopAsked,
    Stopped,
    TakenOver,
    Tick,
    Vacant,
)
from burst.cost.mixing import members, to_measure
from burst.cost.network import Bridge, Work
from burst.cost.pace import Pace
from burst.cost.placement import Choice
from burst.cost.state import Active, Done, Limits, Node, State
from burst.errors import LeftoverError, StorageError, TransientError
from burst.ports import Clock, NodeRequest, NodeView, Provisioner
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
T = TypeVar("T")

LAST_WORDS_S = 10.0  # how long a driver may take to end once its training has
END_AGAIN_S = 15.0  # how long an unheeded request to end a node waits for the next
LAST_LOGS_S = 15.0  # how long an agent may take to end its node and send the last of its logs
TOLD_LIMIT_S = 30.0  # how long it waits for the pool's word on when they went
STORE_LIMIT_S = 3600.0  # how long a store may be away before the controller gives up
LATE_S = 60.0  # what ended longer ago, and was never told of by its pool, never will be
END_LIMIT_S = 600.0  # how long the end of a run waits for its nodes to be gone


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


@dataclass(slots=True)
class _Leaving:
    """A node that is on its way out: since when it does not count, why, and how far it is."""

    seen: datetime
    note: str
    asked_s: float  # when its agent or its pool was asked last
    refused: bool = False
    agent: bool = False  # it was its agent that was asked, to send the last of its logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the loop works with; wiring puts it together."""

    store: ObjectStore
    provisioner: Provisioner
    clock: Clock
    book: Book
    lease: Lease
    watcher: Watcher
    env: Mapping[str, str] = field(repr=False)  # for every node: the user's variables and secrets
    driver_argv: tuple[str, ...]
    network: Callable[[Bridge, datetime], None] = lambda *_: None  # told what was measured
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
        self._observer = Observer(run.run_id, tools.store, tools.provisioner, tools.clock)
        self._spans = history.spans
        self._intents = {intent.node_id: intent for intent in history.intents}
        self._asked: list[StopAsked] = []
        self._order = 0
        self._told: dict[str, bytes] = {}  # what each node was told last
        self._leaving: dict[str, _Leaving] = {}  # nodes that were asked to end and are not gone
        self._gone_s: dict[str, float] = {}  # when nodes were seen to be gone
        self._began = tools.clock.elapsed()
        self._age_at_start = max(0.0, (tools.clock.now() - moment(run.created)).total_seconds())
        self._renewed = tools.clock.monotonic()
        self._pace = Pace()
        self._trains: tuple[str, ...] = ()  # the nodes of the newest attempt
        self._gradient_bytes = 0
        self._at: tuple[int, int | None] = (0, None)  # the last step, and how many there are
        self._reached: State = history.state  # the last that was written down and acted on

    @property
    def error_type(self) -> str:
        """The class of burst.errors that the user's failure stands for."""
        return self._observer.error_type

    def ask_stop(self, who: str, *, now: bool = False) -> None:
        """Ask for a stop: before `run`, from a signal handler, or from another thread."""
        self._asked.append(StopAsked(who=who, now=now, at_s=self._age()))

    def run(self) -> Done:
        """Drive the run to its end; LeftoverError if a node of it cannot be ended."""
        state = self.begin()
        answered_s = self._tools.clock.monotonic()
        while isinstance(state, Active):
            self._reached = state
            try:
                state = self.reconcile(state)
                answered_s = self._tools.clock.monotonic()
            except TransientError as error:  # of a read; `_insist` sees writes through
                state = self._reached
                self._bear(error, answered_s)
            self._tools.clock.sleep(self._tools.tick_s)
        self._wait_for_ends()
        self._give_up_intents()
        return state

    def _bear(self, error: TransientError, since_s: float) -> None:
        """Live with a store that has failed since a moment.

        StorageError after `STORE_LIMIT_S`, or when a person wants to stop at once.
        """
        away_s = self._tools.clock.monotonic() - since_s
        if away_s > STORE_LIMIT_S or any(asked.now for asked in self._asked):
            raise StorageError(
                f"the store of {self._run.run_id} is out of reach for {away_s:.0f} s: {error}",
                hint=f"go on once it is back: burst resume {self._run.run_id}; until then its "
                "nodes end by their dead-man switch",
            ) from error
        log.warning("the store fails, trying on: %s", error)
        self._renew()

    def _insist(self, write: Callable[[], None]) -> None:
        """Write to the store until it takes it: nodes work on meanwhile, and must not be lost."""
        began = self._tools.clock.monotonic()
        while True:
            try:
                return write()
            except TransientError as error:
                self._bear(error, began)
                self._tools.clock.sleep(self._tools.renew_s)

    def reconcile(self, state: Active) -> State:
        """Observe once, decide on all that happened, and act."""
        after: State = state
        for event in self._events(state):
            after = self._reached = self._apply(after, event)
            if isinstance(after, Done):
                return after
        assert isinstance(after, Active)
        self._steer(after)
        self._see_off()
        self._end_strays(after)
        return after

    def close(self) -> None:
        """Give the lease back, so that a resume need not wait."""
        self._tools.lease.release()

    # Taking over ----------------------------------------------------------------------------------

    def begin(self) -> State:
        """Go on with what an earlier controller left, or clear it away and start."""
        tools, state = self._tools, self._history.state
        now = tools.clock.now()
        tools.book.controller(tools.lease.token, tools.lease.owner_json(), now)
        tools.store.delete([ORDER])
        going_on = tools.provisioner.outlives and isinstance(state, Active) and state.launched > 0
        step, saved = self._catch_up(going_on=going_on)
        there = self._found()
        self._confirm_found(there)
        if isinstance(state, Done) and self._asked:  # only what is left of it has to go
            self._clear_away(set())
            return state
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
            step=max(step, state.step),
            saved_step=max(saved, state.saved_step),
        )
        if not going_on:
            state = replace(state, nodes=(), driving=False, head="")
        keep = {node.node_id for node in state.nodes} & there.keys()
        self._clear_away(keep)
        if self._last_outcome() == "finished":
            return self._apply(state, Finished(at_s=self._age()))
        if self._asked:  # it was taken over to be stopped: nothing is launched any more
            return self._apply(state, self._asked.pop(0))
        if going_on:
            after = self._apply(state, TakenOver(found=tuple(sorted(keep)), at_s=self._age()))
            self._launch_again(after, keep)
            return after
        return self._apply(state, Started(at_s=self._age()))

    def _launch_again(self, state: State, keep: set[str]) -> None:
        """Ask once more for nodes whose launch an earlier controller may not have seen through.

        A machine without an agent has no heartbeat to miss and no dead-man switch.
        """
        choices = {span.node_id: span.choice for span in self._spans}
        for node in state.nodes if isinstance(state, Active) else ():
            agent = read_json(self._store, status_key(node.node_id))
            if node.node_id in keep & choices.keys() and node.state == "asked" and agent is None:
                self._ask_for(node.node_id, node.index, choices[node.node_id])

    def _catch_up(self, *, going_on: bool) -> tuple[int, int]:
        """Show the watcher all facts there are; return the highest step done and saved."""
        highest = {"step": 0, "saved": 0}
        for fact in self._observer.catch_up(going_on=going_on):
            self._renew()
            self._keep_pace(fact)
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

    def _found(self) -> Mapping[str, NodeView]:
        """Return the machines there are; wait for a pool that does not say.

        TransientError when a person wants to stop at once meanwhile.
        """
        before = len(self._asked)
        while not self._while_renewing(self._observer.look):
            if any(asked.now for asked in self._asked[before:]):
                raise TransientError(
                    "the pool does not say what machines there are, so none was ended",
                    hint=f"once it answers: burst stop {self._run.run_id}",
                )
            self._renew()
            self._tools.clock.sleep(self._tools.renew_s)
        return {
            name: view
            for name, view in self._observer.views.items()
            if view.state in {"asked", "running"}
        }

    def _confirm_found(self, there: Mapping[str, NodeView]) -> None:
        """Count the machines that came of launches which an earlier controller only decided."""
        for name in self._intents.keys() & there.keys():
            intent = self._intents.pop(name)
            self._count(intent.node_id, intent.index, intent.choice, intent.decided)

    def _give_up_intents(self) -> None:
        """Write down the launches that an earlier controller decided, and nobody saw a machine of.

        Some pools forget a machine that has ended: whether there was one is not known.
        """
        note = "its controller died as it asked, and no machine of it was seen"
        outlives = self._tools.provisioner.outlives  # else it is gone with its controller
        for intent in self._intents.values() if outlives else ():
            self._count(intent.node_id, intent.index, intent.choice, intent.decided)
            ended = partial(
                self._tools.book.ended, intent.node_id, intent.decided, note,
                self._tools.clock.now(), refused=True,
            )  # fmt: skip
            self._insist(ended)
            self._spans = close(self._spans, intent.node_id, intent.decided, note, refused=True)
        self._intents = {}

    def _clear_away(self, keep: set[str]) -> None:
        """End what no decision of ours stands for; its time counts until its last sign of life."""
        for span in self._spans:
            if span.ended is None and span.node_id not in keep:
                status = read_json(self._store, status_key(span.node_id)) or {}
                last = moment(status["time"]) if "time" in status else span.launched
                note = "its controller was gone; until its last heartbeat"
                self._leave(span.node_id, _Leaving(last, note, self._tools.clock.monotonic()))
        sweep = partial(self._tools.provisioner.sweep, self._run.run_id, keep)
        for found in self._while_renewing(sweep):
            log.warning("cleared away: %s", found)

    # Observing ------------------------------------------------------------------------------------

    def _events(self, state: Active) -> Iterator[Event]:
        """Yield what happened since the last pass; facts go to the watcher on their way."""
        while self._asked:
            yield self._asked[0]  # it is there, and heeded, until it is written down
            del self._asked[0]
        for found in self._observer.events(state, self._age(), self._work):
            if isinstance(found, Mapping):
                self._keep_pace(found)
                self._tools.watcher.fact(found)
            else:
                yield found
        self._renew()
        left_s = self._pace.seconds_left(*self._at)
        places = self._observer.vacancies(state, self._limits.choices)
        if places is not None:
            yield Vacant(places=places, left_s=left_s, at_s=self._age())
        spent = self._spent()
        self._tools.watcher.tick(state, spent)
        yield Tick(at_s=self._age(), spent_usd=spent, left_s=left_s)

    def _keep_pace(self, fact: Fact) -> None:
        if fact["kind"] == "attempt":
            self._pace.restart()
            self._trains = tuple(fact["nodes"])
        elif fact["kind"] == "saved":
            self._gradient_bytes = int(fact.get("gradient_bytes", 0))
        elif fact["kind"] == "step":
            self._pace.add(moment(fact["end"]), int(fact["tokens"]))
            self._at = (int(fact["step"]), fact.get("total"))

    def _work(self) -> Work | None:
        """Return how the training goes; None while that is not known, or not for its nodes."""
        step_s = self._pace.steady_s
        if step_s is None or not self._gradient_bytes or not self._trains:
            return None
        return Work(step_s=step_s, nodes=self._trains, gradient_bytes=self._gradient_bytes)

    def _age(self) -> float:
        return self._age_at_start + self._tools.clock.elapsed() - self._began

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

    def _while_renewing(self, slow: Callable[[], T]) -> T:
        """Do what may take longer than a lease lives in a thread, and renew the lease meanwhile."""
        with ThreadPoolExecutor(1, thread_name_prefix="slow") as threads:
            work = threads.submit(slow)
            while not wait([work], timeout=self._tools.renew_s).done:
                self._renew()
            return work.result()

    def _spent(self) -> Decimal:
        """Dollars for all nodes so far, before billing minimums."""
        now = self._tools.clock.now()
        total = Decimal(0)
        for span in self._spans:
            if not span.refused:
                seconds = max(((span.ended or now) - span.launched).total_seconds(), 0.0)
                total += span.choice.usd_per_hour * Decimal(repr(seconds)) / 3600
        return total

    # Acting ---------------------------------------------------------------------------------------

    def _apply(self, state: State, event: Event) -> State:
        """Decide, write down, act."""
        after, actions = decide(state, event, self._limits)
        at = self._tools.clock.now()
        routine = isinstance(event, Progressed | Saved)  # the facts tell those, many a minute
        if actions or (after != state and not routine):
            self._insist(lambda: self._tools.book.decision(event, actions, after, at))
        if after != state:
            self._tools.watcher.decided(after, event, at)
        if isinstance(event, Measured) and isinstance(after, Active) and after != state:
            self._tools.network(after.bridges[-1], at)
        if isinstance(event, Finished | Stopped) and isinstance(state, Active) and state.driving:
            self._await_driver(state.head)
        for action in actions:
            self._renew()
            self._act(action, event)
        return after

    def _await_driver(self, head: str) -> None:
        """Let the driver come to its own end, so that what workers wrote last arrives."""
        began = self._tools.clock.monotonic()
        while self._tools.clock.monotonic() - began < LAST_WORDS_S:
            try:
                status = read_json(self._store, status_key(head)) or {}
            except TransientError:
                status = {"driver": {"state": "running"}}  # as far as is known
            if (status.get("driver") or {}).get("state") != "running":
                return
            self._renew()
            self._tools.clock.sleep(self._tools.tick_s)

    def _act(self, action: Action, event: Event) -> None:
        match action:
            case Launch():
                self._launch(action)
            case End(node_id=node_id):
                self._end(node_id, event)
            case Lead() | Drive():
                pass  # part of the state, which `_steer` tells the nodes
            case Save(reason=reason):
                self._give(Order(number=self._next_order(), kind="save", reason=reason))
            case SaveAndStop(reason=reason):
                self._give(Order(number=self._next_order(), kind="stop", reason=reason))
            case _:
                assert_never(action)

    def _launch(self, action: Launch) -> None:
        asked = self._tools.clock.now()
        if self._ask_for(action.node_id, action.index, action.choice, action.wait_s):
            self._count(action.node_id, action.index, action.choice, asked)

    def _ask_for(
        self, node_id: str, index: int, choice: Choice, wait_s: float | None = None
    ) -> bool:
        """Ask the pool for a node; say whether the request is in."""
        request = NodeRequest(
            run_id=self._run.run_id,
            node_id=node_id,
            run_uri=self._store.uri,
            index=index,
            choice=choice,
            wait_s=wait_s,
            env=self._tools.env,
        )
        try:
            self._tools.provisioner.launch(request)
        except TransientError as error:  # no machine: it shows as a lost node in the next pass
            log.warning("%s could not be launched: %s", node_id, error)
            return False
        return True

    def _count(self, node_id: str, index: int, choice: Choice, since: datetime) -> None:
        """Write down that a node is paid for from a moment on; a head apart is the controller's."""
        if self._run.head_apart and index == 0:
            choice = replace(choice, usd_per_hour=Decimal(0))
        span = NodeSpan(node_id=node_id, index=index, choice=choice, launched=since)
        self._insist(lambda: self._tools.book.launched(span))
        self._spans = (*self._spans, span)

    def _steer(self, state: Active) -> None:
        """Tell every node what it shall be, when that changed."""
        probes, joined = self._to_probe(state), members(state)
        for node in state.nodes:
            wanted = self._wanted(state, node) if node.node_id in joined else None
            if node.node_id in probes:
                part = wanted or {"ray": None, "driver": None}
                wanted = {**part, "probe": probes[node.node_id]}
            if wanted is not None and self._told.get(node.node_id) != encode(wanted):
                self._tell(node.node_id, wanted)

    def _to_probe(self, state: Active) -> Mapping[str, Any]:
        """Return to which addresses each node shall measure, and which it shall only reach."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for node, peer in to_measure(state):
            for what, one, other in (("ask", node, peer), ("reach", peer, node)):
                part = found.setdefault(one.node_id, {"ask": {}, "reach": {}})
                if (address := self._observer.answering.get(other.node_id)) is not None:
                    part[what][other.node_id] = address
        return found

    def _tell(self, node_id: str, wanted: Mapping[str, Any]) -> None:
        data = encode(wanted)
        self._insist(lambda: self._store.put(desired_key(node_id), data))
        self._told[node_id] = data

    def _wanted(self, state: Active, node: Node) -> Mapping[str, Any] | None:
        """Return a node's part in the present Ray cluster; None while it cannot be said."""
        if not state.head:
            return None
        cluster, run = state.driver, self._run
        if node.node_id == state.head:
            slots = 0 if run.head_apart else run.slots_per_node
            ray = {"role": "head", "address": None, "num_cpus": slots, "cluster": cluster}
            return {"ray": ray, "driver": self._driver(cluster) if state.driving else None}
        if self._observer.address is None or self._observer.address[0] != cluster:
            return None
        address, slots = self._observer.address[1], run.slots_per_node
        ray = {"role": "worker", "address": address, "num_cpus": slots, "cluster": cluster}
        return {"ray": ray, "driver": None}

    def _driver(self, number: int) -> Mapping[str, Any]:
        argv = [*self._tools.driver_argv, "--run-uri", self._store.uri, "--driver", str(number)]
        return {"attempt": number, "argv": argv, "env": {}}

    # Ending nodes ---------------------------------------------------------------------------------

    def _end(self, node_id: str, event: Event) -> None:
        refused = isinstance(event, LaunchRefused) and event.node_id == node_id
        lost = isinstance(event, NodeLost) and event.node_id == node_id
        note = "lost" if lost else "released"
        if refused and isinstance(event, LaunchRefused):
            note = "; ".join(map(str, event.refusals))
        now = self._tools.clock
        leaving = _Leaving(now.now(), note, now.monotonic(), refused=refused)
        if self._tools.provisioner.outlives and not (lost or refused):
            leaving.agent = True
            self._leaving[node_id] = leaving
            self._tell(node_id, {"end": True})
        else:
            if lost and self._tools.provisioner.outlives:  # it may come back
                self._tell(node_id, {"end": True})
            self._leave(node_id, leaving)

    def _leave(self, node_id: str, leaving: _Leaving) -> None:
        """Ask the pool to end a node; if it is not gone at once, `_see_off` looks after it."""
        leaving.asked_s, leaving.agent = self._tools.clock.monotonic(), False
        self._leaving[node_id] = leaving
        try:
            gone = self._tools.provisioner.end(self._run.run_id, node_id)
        except (TransientError, LeftoverError) as error:
            log.warning("%s is not ended yet: %s", node_id, error)
            return
        if gone:
            self._gone(node_id)

    def _gone(self, node_id: str) -> None:
        leaving = self._leaving[node_id]
        self._gone_s[node_id] = self._tools.clock.monotonic()
        at = self._tools.clock.now()
        self._insist(
            lambda: self._tools.book.ended(
                node_id, leaving.seen, leaving.note, at, refused=leaving.refused
            )
        )
        self._spans = close(
            self._spans, node_id, leaving.seen, leaving.note, refused=leaving.refused
        )
        del self._leaving[node_id]

    def _see_off(self) -> None:
        """Book what is gone by now, and ask again for what is not."""
        views = self._observer.views
        for node_id, leaving in list(self._leaving.items()):
            view, silent_s = views.get(node_id), self._tools.clock.monotonic() - leaving.asked_s
            if leaving.agent:
                status = read_json(self._store, status_key(node_id)) or {}
                if status.get("ray") in {None, "ended", "failed"} or silent_s >= LAST_LOGS_S:
                    self._leave(node_id, leaving)
            elif leaving.asked_s >= self._observer.looked_s:
                continue  # what was seen is older than the request
            elif view is None or view.state in {"gone", "refused"} or silent_s >= END_AGAIN_S:
                self._leave(node_id, leaving)  # a list may leave out what is there; `end` knows
        self._take_times(views)

    def _end_strays(self, state: Active) -> None:
        """End machines that nobody wants: of launches that an earlier controller left behind."""
        if not self._tools.provisioner.outlives:
            return
        wanted = {node.node_id for node in state.nodes} | self._leaving.keys()
        for view in self._observer.views.values():
            stale = self._gone_s.get(view.node_id, float("-inf")) >= self._observer.looked_s
            if view.state == "running" and view.node_id not in wanted and not stale:
                log.warning("%s is there and nobody wants it; it is ended", view.node_id)
                now = self._tools.clock
                self._leave(view.node_id, _Leaving(now.now(), "nobody wanted it", now.monotonic()))

    def _take_times(self, views: Mapping[str, NodeView]) -> None:
        """Put what the pool itself says of its machines' times for what we noted."""
        for view in views.values():
            there = view.since or view.state == "running"
            intent = self._intents.pop(view.node_id, None) if there else None
            if intent is not None:  # an earlier controller died before it could count it
                self._count(intent.node_id, intent.index, intent.choice, intent.decided)
        for span in self._spans:
            told = views.get(span.node_id)
            if told is not None and told.since is not None:
                times = (told.since, told.until or span.ended)
                if span.refused or times != (span.launched, span.ended):
                    write = partial(
                        self._tools.book.billed, span.node_id, *times, self._tools.clock.now()
                    )
                    self._insist(write)
                    self._spans = bill(self._spans, span.node_id, *times)

    def _wait_for_ends(self) -> None:
        """Wait until every node is gone, and for the pool's own word on when it went.

        LeftoverError with the nodes that are still there.
        """
        began = left_s = self._tools.clock.monotonic()  # left_s: when one was still there
        while True:
            self._observer.look()
            try:
                self._see_off()
            except TransientError as error:
                log.warning("the store fails, trying on: %s", error)
            self._renew()
            now_s = self._tools.clock.monotonic()
            left_s = now_s if self._leaving else left_s
            if now_s - began > END_LIMIT_S or now_s - left_s > TOLD_LIMIT_S:
                break
            if not (self._leaving or self._untold()):
                break
            self._tools.clock.sleep(self._tools.tick_s)
        if self._leaving:
            names = ", ".join(self._leaving)
            raise LeftoverError(
                f"{names} of {self._run.run_id} cannot be ended and may cost money",
                hint="burst doctor --reap lists and ends what carries burst's tags",
            )

    def _untold(self) -> bool:
        """Whether the pool says when machines began, and of a late one not yet when it ended."""
        views = self._observer.views
        if not any(view.since for view in views.values()):
            return False
        late = self._tools.clock.now() - timedelta(seconds=LATE_S)
        return any(
            view.until is None
            if (view := views.get(span.node_id)) is not None and view.since is not None
            else not span.refused and span.ended is not None and span.ended > late
            for span in self._spans
        )

    def _next_order(self) -> int:
        """Orders are numbered by time, so that a later controller's are newer."""
        self._order = max(self._order + 1, int(self._age() * 1000))
        return self._order

    def _give(self, order: Order) -> None:
        if order.kind == "save":
            order = replace(order, attempt=self._observer.facts.attempt)
        data = order.encode()
        self._insist(lambda: self._store.put(ORDER, data))
