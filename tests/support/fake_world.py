"""Time, a cloud and a training in memory, and a controller over them that can be killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from burst.controller.book import Book, read_history
from burst.controller.loop import Controller, Tools
from burst.cost.state import Limits
from burst.provision.fake import FakeCloud, FakeProvisioner
from burst.records import (
    ORDER,
    AttemptRecord,
    Outcome,
    WorkerRecord,
    attempt_key,
    chunk_key,
    desired_key,
    encode,
    outcome_key,
    stamp,
)
from burst.storage.journal import Journal
from burst.storage.lease import Lease, Owner
from burst.storage.memory import MemoryStore
from some_run import CHOICE, OWN, RUN, SPOT

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = Owner(host="here", pid=1, started_at="0", name="test")
LIMITS = Limits(nodes=2, least_nodes=1, choices=(CHOICE,), head_apart=True)


class Quiet:
    """A watcher that looks away."""

    def decided(self, *_: object) -> None: ...
    def fact(self, _: object) -> None: ...
    def tick(self, *_: object) -> None: ...


class World:
    """Time, and what workers would do in it: one step a second once somebody drives them."""

    def __init__(self, steps: int = 10) -> None:
        self.store = MemoryStore()
        self.cloud = FakeCloud(self)
        self.outlives = False
        self.run = RUN
        self.steps = steps
        self.step = 0
        self.saved = 0
        self.gradient_bytes = 0
        self.attempt = 0
        self.chunk = 0
        self.seconds = 0.0
        self.drivers: set[tuple[str, int]] = set()
        self.over: set[tuple[str, int]] = set()  # drivers whose training has ended
        self.at: dict[float, list[Callable[[], None]]] = {}

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def elapsed(self) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        before = self.seconds
        self.seconds += seconds
        for when in [w for w in self.at if before < w <= self.seconds]:
            for act in self.at.pop(when):
                act()
        if int(self.seconds) > int(before):
            self.work()

    def when(self, seconds: float, act: Callable[[], None]) -> None:
        self.at.setdefault(seconds, []).append(act)

    def work(self) -> None:
        """Let the workers of a live driver do a step."""
        driven = [
            (n, d)
            for n in self.nodes()
            if (d := self._wanted(n).get("driver")) and (n, d["attempt"]) not in self.over
        ]
        if not driven:
            return
        head, driver = max(driven, key=lambda pair: pair[1]["attempt"])
        if (head, driver["attempt"]) not in self.drivers:
            self.drivers.add((head, driver["attempt"]))
            self.begin(driver["attempt"])
            return
        self.do_step()

    def nodes(self) -> list[str]:
        return [machine.request.node_id for machine in self.cloud.alive().values()]

    def ever(self) -> list[str]:
        return [machine.request.node_id for machine in self.cloud.machines.values()]

    def lose(self, node_id: str) -> None:
        self.cloud.lose(f"r-abcdef/{node_id}")

    def _wanted(self, node_id: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.store.get(desired_key(node_id)))
        except FileNotFoundError:
            return {}
        return found

    def begin(self, driver: int) -> None:
        self.attempt += 1
        self.chunk = 0
        self.step = self.saved
        joined = [
            node
            for node in self.nodes()
            if (self._wanted(node).get("ray") or {}).get("cluster") == driver
        ]
        workers = tuple(
            WorkerRecord(rank=n, node_id=node, host="h", pid=n, start_time=0.0)
            for n, node in enumerate(joined)
        )
        record = AttemptRecord(
            attempt=self.attempt,
            world_size=2,
            started=stamp(self.now()),
            driver=driver,
            workers=workers,
        )
        self.store.create(attempt_key(self.attempt), record.encode())
        self.tell({"kind": "resumed", "step": self.step, "world": 2})

    def do_step(self) -> None:
        self.step += 1
        start = stamp(self.now() - timedelta(seconds=0.9))
        common = {"attempt": self.attempt, "start": start, "end": stamp(self.now())}
        self.tell(
            {
                "kind": "step",
                "step": self.step,
                "epoch": 0,
                "samples": 4,
                "tokens": 8,
                "loss": 1.0 / self.step,
                "lr": 0.1,
                "total": self.steps,
                **common,
            }
        )
        stop = self._stop_ordered()
        if stop or self.step == self.steps or self.step % 4 == 0:
            self.saved = self.step
            saved = {"kind": "saved", "step": self.step, "size_bytes": 1}
            self.tell({**saved, "gradient_bytes": self.gradient_bytes, **common})
        if stop or self.step == self.steps:
            self.end("stopped" if stop else "finished")

    def _stop_ordered(self) -> bool:
        try:
            return b'"kind":"stop"' in self.store.get(ORDER)
        except FileNotFoundError:
            return False

    def end(self, kind: str, error: str = "") -> None:
        outcome = Outcome(
            attempt=self.attempt,
            kind=kind,  # type: ignore[arg-type]  # a literal in every caller
            step=self.step,
            time=stamp(self.now()),
            error=error,
            error_type="TrainingError" if error else "",
        )
        self.store.put(outcome_key(self.attempt), outcome.encode())
        if kind != "failed":
            self.over |= self.drivers

    def tell(self, fact: dict[str, Any]) -> None:
        self.chunk += 1
        line = {"time": stamp(self.now()), **fact}
        self.store.put(chunk_key(self.attempt, self.chunk), encode(line) + b"\n")

    def controller(
        self,
        limits: Limits = LIMITS,
        store: Any = None,
        owner: Owner = OWNER,
        alive: Callable[[Owner], bool | None] = lambda _: False,
        wait_s: float = 0.0,
    ) -> Controller:
        place = store or self.store
        lease = Lease.acquire(place, owner, ttl_s=15, clock=self, alive=alive, wait_s=wait_s)
        journal = Journal(place)
        tools = Tools(
            store=place,
            provisioner=FakeProvisioner(self.cloud, self.store, outlives=self.outlives),
            clock=self,
            book=Book(journal),
            lease=lease,
            watcher=Quiet(),
            env={},
            driver_argv=("python",),
        )
        return Controller(self.run, limits, read_history(journal), tools)


class Killed(BaseException):
    """The controller's process is gone at this very write."""


class Deadly:
    """A store that kills its writer at its n-th journal entry, before or after it is written."""

    def __init__(self, inner: MemoryStore, at: int, *, after: bool) -> None:
        self._inner = inner
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create(self, key: str, data: bytes) -> None:
        if not key.startswith("journal/"):
            self._inner.create(key, data)
            return
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Killed
        self._inner.create(key, data)
        if self._left == 0:
            raise Killed


def check_books(world: World) -> None:
    """Hold the ledger against the machines that there were: no row without one, none without."""
    assert world.cloud.alive() == {}
    spans = read_history(Journal(world.store)).spans
    made = {m.request.node_id: m for m in world.cloud.machines.values()}
    paid = {span.node_id: span for span in spans if not span.refused}
    assert made.keys() <= paid.keys(), "a machine without a row"
    assert len({span.node_id for span in spans}) == len(spans), "two rows for one launch"
    assert all(span.ended for span in spans)
    for name, machine in made.items():
        ended = paid[name].ended
        assert machine.ended is not None
        assert ended is not None
        assert (paid[name].launched, ended) == (machine.born, machine.ended)


def own_and_rented(steps: int) -> World:
    """Return a world whose run may have machines of one's own and rented ones."""
    world = World(steps=steps)
    world.outlives = True
    world.run = replace(RUN, nodes=2, choices=(OWN, SPOT), head_apart=False)
    return world
