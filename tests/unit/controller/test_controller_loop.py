"""The loop against a fake pool and a scripted training, with a clock that only moves when asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from burst.controller.account import legs
from burst.controller.book import Book, read_history
from burst.controller.loop import Controller, Tools
from burst.cost.decide import Done, Limits
from burst.errors import OwnedError
from burst.provision.fake import FakeCloud, FakeProvisioner, Faults
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
from some_run import CHOICE, RUN

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
        self.steps = steps
        self.step = 0
        self.saved = 0
        self.attempt = 0
        self.chunk = 0
        self.seconds = 0.0
        self.drivers: set[tuple[str, int]] = set()
        self.at: dict[float, list[Callable[[], None]]] = {}

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

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
        driven = [(n, d) for n in self.nodes() if (d := self._wanted(n).get("driver"))]
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
        workers = tuple(
            WorkerRecord(rank=n, node_id=node, host="h", pid=n, start_time=0.0)
            for n, node in enumerate(self.nodes())
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
            self.tell({"kind": "saved", "step": self.step, "size_bytes": 1, **common})
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
        self.drivers = {(head, n) for head, n in self.drivers if head not in self.nodes()}

    def tell(self, fact: dict[str, Any]) -> None:
        self.chunk += 1
        line = {"time": stamp(self.now()), **fact}
        self.store.put(chunk_key(self.attempt, self.chunk), encode(line) + b"\n")

    def controller(self, limits: Limits = LIMITS, store: Any = None) -> Controller:
        place = store or self.store
        lease = Lease.acquire(
            place,
            OWNER,
            ttl_s=15,
            clock=self,
            alive=lambda _: False,
        )
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
        return Controller(RUN, limits, read_history(journal), tools)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    assert not made.nodes(), "nodes left over"
    spans = read_history(Journal(made.store)).spans
    assert sorted(s.node_id for s in spans) == sorted(made.ever()), "launched but not written"
    assert all(span.ended for span in spans), "a node without an end"


def test_an_undisturbed_run_finishes_and_gives_every_node_back(world: World) -> None:
    done = world.controller().run()
    assert done.reason == "finished"
    assert done.step == 10
    assert world.ever() == ["n001", "n002", "n003"]


def test_a_lost_node_is_replaced_while_the_others_stay(world: World) -> None:
    world.when(5, lambda: world.lose("n003"))
    done = world.controller().run()
    assert done.reason == "finished"
    assert done.preemptions == 1
    assert world.ever() == ["n001", "n002", "n003", "n004"]


def test_a_lost_head_starts_over_from_the_last_checkpoint(world: World) -> None:
    world.when(8, lambda: world.lose("n001"))
    done = world.controller().run()
    assert done.reason == "finished"
    assert world.attempt == 2
    assert world.ever() == ["n001", "n002", "n003", "n004"]


def test_the_users_error_ends_the_run(world: World) -> None:
    world.when(5.5, lambda: world.end("failed", "ValueError: no"))
    controller = world.controller()
    done = controller.run()
    assert (done.reason, done.detail) == ("failed", "ValueError: no")
    assert controller.error_type == "TrainingError"


def test_a_stop_is_saved_and_resume_goes_on_from_there(world: World) -> None:
    first = world.controller()
    world.when(5.5, lambda: first.ask_stop("you"))
    done = first.run()
    assert done.reason == "stopped"
    assert done.saved_step == done.step == world.saved > 0
    saved = world.saved
    again = world.controller().run()
    assert again.reason == "finished"
    assert world.attempt == 2
    assert again.step == 10
    assert saved < 10


def test_a_launch_that_fails_for_now_is_tried_again(world: World) -> None:
    world.cloud.faults = Faults(throttled=0.3)
    done = world.controller().run()
    assert done.reason == "finished"


def test_a_second_controller_stops_the_first_at_its_next_word(world: World) -> None:
    first = world.controller()
    second: list[Done] = []

    def take_over() -> None:
        second.append(world.controller().run())

    world.when(6.5, take_over)
    world.when(6.75, lambda: None)
    with pytest.raises(OwnedError, match="another controller"):
        first.run()
    assert second[0].reason == "finished"


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

    def create(self, key: str, data: bytes) -> str:
        if not key.startswith("journal/"):
            return self._inner.create(key, data)
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Killed
        version = self._inner.create(key, data)
        if self._left == 0:
            raise Killed
        return version


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 14))
def test_a_controller_killed_at_any_journal_write_is_followed_by_one_that_ends_the_run(
    world: World, at: int, *, after: bool
) -> None:
    world.when(6, lambda: world.lose("n003"))
    deadly = Deadly(world.store, at, after=after)
    try:
        done = world.controller(store=deadly).run()
    except Killed:
        done = world.controller().run()
    assert done.reason == "finished"
    assert done.step == 10


def test_the_ledger_counts_each_node_from_launch_to_end(world: World) -> None:
    world.when(5, lambda: world.lose("n003"))
    world.controller().run()
    spans = read_history(Journal(world.store)).spans
    paid = legs(spans, RUN)
    assert [leg.node_id for leg in paid] == ["n002", "n003", "n004"]
    assert all(leg.prices[0].quote.usd_per_hour == Decimal("3.60") for leg in paid)
    lost = next(span for span in spans if span.node_id == "n003")
    assert lost.note == "lost"
    assert lost.ended is not None
    assert (lost.ended - lost.launched).total_seconds() == pytest.approx(5, abs=0.6)


def test_spending_stops_at_the_budget(world: World) -> None:
    limits = replace(LIMITS, budget_usd=Decimal("0.012"))
    done = world.controller(limits).run()
    assert done.reason == "budget"
    assert done.saved_step == done.step
