"""What the tests of the command line share: what a command said, and a run written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from burst.controller.runs import Machine, Run, Runs
from burst.cost.placement import Choice, Place
from burst.records import (
    AttemptRecord,
    WorkerRecord,
    attempt_key,
    choice_json,
    chunk_key,
    encode,
    stamp,
)
from burst.storage.journal import Journal
from burst.storage.lease import Lease, Owner
from burst.storage.memory import MemoryStore
from burst.storage.port import ObjectStore
from burst.task_specs.dump import dump
from burst.task_specs.parse import parse

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = Owner(host="box", pid=7, started_at="0", name="ann")
ROOT = "memory://here"


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Call: TypeAlias = Callable[..., Said]


def at(seconds: float) -> datetime:
    """Return the moment so many seconds after the beginning."""
    return BEGIN + timedelta(seconds=seconds)


class StillClock:
    """See burst.ports.Clock. Moves only when told to, or by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return at(self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def elapsed(self) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Scene:
    """Runs in memory, whose journals and facts a test writes itself."""

    def __init__(self, home: Path) -> None:
        self.clock = StillClock()
        self.home = home
        self.root = MemoryStore()
        self.runs = Runs(home, self.open)

    def open(self, uri: str) -> ObjectStore:
        below = uri.removeprefix(ROOT).strip("/")
        return self.root.at(below) if below else self.root

    def machine(self, usd_per_hour: str = "3.60") -> Machine:
        return Machine(
            cpus=2,
            gpus=0,
            choices=(self.choice(usd_per_hour),),
            shared=True,
        )

    def choice(self, usd_per_hour: str) -> Choice:
        place = Place(pool="local", machine_type="box", owned=True)
        price = Decimal(usd_per_hour)
        return Choice(place=place, usd_per_hour=price, price_source="test")

    def make(self, name: str = "toy", usd_per_hour: str = "3.60") -> Run:
        text = f"name: {name}\nburst: {{train: train.py:main, workers: 1, steps: 8}}\n"
        task = parse(text, source="/somewhere/task.yaml")
        return self.runs.create(
            task, self.machine(usd_per_hour), text=dump(task), now=self.clock.now(), root=ROOT
        )

    def hold(self, run: Run) -> Lease:
        """Let OWNER drive the run."""
        return Lease.acquire(run.store, OWNER, ttl_s=15, clock=self.clock)

    def write(self, run: Run, kind: str, seconds: float, **entry: Any) -> None:
        """Append an entry to the journal."""
        Journal(run.store).append({"kind": kind, "time": stamp(at(seconds)), **entry})

    def decide(self, run: Run, seconds: float, state: Mapping[str, Any]) -> None:
        self.write(run, "decision", seconds, event={}, actions=[], state=state)

    def tell(self, run: Run, chunk: int, *facts: Mapping[str, Any], attempt: int = 1) -> None:
        """Leave a piece of the workers' facts."""
        lines = [encode({"attempt": attempt, **fact}) for fact in facts]
        run.store.put(chunk_key(attempt, chunk), b"\n".join(lines) + b"\n")

    def train(self, run: Run, *, loss: float | str = 0.5) -> None:
        """Write a minute: 10 s of starting, 4 steps of 10 s, 5 s of saving, 5 s of nothing."""
        place = choice_json(self.choice("3.60"))["place"]
        head = {"node_id": "n001", "index": 0, "state": "up", "since_s": 5.0, "place": place}
        node = {"node_id": "n002", "index": 1, "state": "up", "since_s": 6.0, "place": place}
        self.write(run, "controller", 0, token=1, owner={})
        for index, name in enumerate(("n001", "n002")):
            choice = choice_json(self.choice("3.60" if index else "0"))
            self.write(run, "launched", 0, node_id=name, index=index, choice=choice)
        nodes = [head, node]
        self.decide(run, 8, {"type": "Active", "driving": True, "head": "n001", "nodes": nodes})
        worker = WorkerRecord(rank=0, node_id="n002", host="box", pid=99, start_time=1.0)
        record = AttemptRecord(
            attempt=1, world_size=1, started=stamp(at(10)), driver=1, workers=(worker,)
        )
        run.store.put(attempt_key(1), record.encode())
        self.tell(run, 1, {"kind": "started", "time": stamp(at(10)), "world": 1, "step": 0})
        steps = [_step(n, 8.0 - n if n < 4 else loss) for n in range(1, 5)]
        span = {"start": stamp(at(50)), "end": stamp(at(55)), "time": stamp(at(55))}
        self.tell(run, 2, *steps, {"kind": "saved", "step": 4, "size_bytes": 2048, **span})
        self.clock.seconds = 60.0

    def finish(self, run: Run) -> None:
        """End what `train` began, at its 60th second."""
        state = {"type": "Done", "reason": "finished", "step": 4, "saved_step": 4}
        self.decide(run, 60, state)
        for name in ("n002", "n001"):
            self.write(run, "ended", 60, node_id=name, ended=stamp(at(60)), note="released")


def _step(number: int, loss: float | str) -> dict[str, Any]:
    return {
        "kind": "step",
        "time": stamp(at(10 * number + 10)),
        "start": stamp(at(10 * number)),
        "end": stamp(at(10 * number + 10)),
        "step": number,
        "epoch": 0,
        "samples": 4,
        "tokens": 100,
        "loss": loss,
        "lr": 0.1,
        "total": 8,
    }
