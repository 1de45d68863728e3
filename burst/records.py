"""Where everything of a run lies in its store, and the records written there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from burst.cost.placement import Choice, Place

TASK = "task.yaml"
RUN = "run.json"
LEASE = "lease.json"
POD_NOTICE = "/tmp/burst-notice"  # noqa: S108 - in a pod: when it ends, in seconds since 1970
STOP_REQUEST = "control/stop.json"  # a person asks the controller to stop the run
ORDER = "control/order.json"  # the controller tells the workers to save, or to save and stop


RAY_TOKEN = "control/ray.token"  # noqa: S105 - where it lies; the nodes' Ray asks for it


def scratch_name(run_id: str) -> str:
    """Return the folder of a run's nodes below the temporary one: short, for Ray's sockets."""
    return f"burst-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


def node_folder(run_id: str, node_id: str) -> str:
    """Return the folder of a node's files on a machine that is not this one."""
    return f"/tmp/{scratch_name(run_id)}/{node_id}"  # noqa: S108 - a machine of its own


def attempt_key(attempt: int) -> str:
    """Where the record of a start of the worker group lies."""
    return f"attempts/{attempt:04d}.json"


def chunk_key(attempt: int, chunk: int) -> str:
    """Where the n-th piece (from 1) of an attempt's facts lies."""
    return f"metrics/{attempt:04d}/{chunk:06d}.jsonl"


def desired_key(node_id: str) -> str:
    """Where the controller says what a node shall run."""
    return f"nodes/{node_id}/desired.json"


def status_key(node_id: str) -> str:
    """Where a node's agent says what it runs."""
    return f"nodes/{node_id}/status.json"


def notice_key(node_id: str) -> str:
    """Where a notice that did not come from a cloud (a test of one) is left for the agent."""
    return f"nodes/{node_id}/notice.json"


def encode(value: object) -> bytes:
    """Write JSON in one canonical way."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def stamp(when: datetime) -> str:
    """Write a moment as ISO 8601 in UTC with microseconds and a Z."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment(text: str) -> datetime:
    """Read what `stamp` wrote."""
    return datetime.fromisoformat(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The static facts of a run: everything a worker needs to know besides its rank.

    Whatever could change the arithmetic (seed, batch, threads, reduction) is fixed here once, so
    that an attempt on other machines computes the same.
    """

    run_id: str
    name: str
    created: str
    train: str | None  # file.py:function; None for a command
    setup: str | None
    run: str | None
    workdir: str
    params: Mapping[str, Any]
    strategy: str
    precision: str
    reduction: str
    global_batch: int | None
    micro_batch: int | None
    epochs: int | None
    steps: int | None
    seed: int | None
    clip_norm: float | None
    threads: int  # CPU threads of each worker
    nodes: int
    workers_low: int
    workers_high: int
    slots_per_node: int  # workers a node can hold
    gpus_per_worker: int
    gpus_per_node: int
    every_s: float
    every_steps: int | None
    keep: int
    checkpoint_dir: str | None
    max_failures: int
    budget_usd: str | None  # Decimal as text
    deadline_s: float | None
    choices: tuple[Choice, ...]  # where nodes may be, best first
    head_apart: bool = False  # Ray's head is a process of its own beside the nodes
    wish: Mapping[str, Any] = field(default_factory=dict)  # of all nodes, in SkyPilot's words
    wishes: tuple[Mapping[str, Any], ...] = ()  # of nodes by the task's candidate: disk, image
    archive: str | None = None  # key of the packed workdir; None: nodes see it where it lies
    mounts: Mapping[str, str] = field(default_factory=dict)  # key of a tar -> folder on a node
    return_after_s: float | None = None
    env_names: tuple[str, ...] = ()
    secret_names: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """As JSON."""
        raw = asdict(self)
        return encode({**raw, "choices": [choice_json(choice) for choice in self.choices]})

    @property
    def pool(self) -> str:
        """The pool of the best choice."""
        return self.choices[0].place.pool


def choice_json(choice: Choice) -> dict[str, Any]:
    """Return a choice in JSON's types."""
    most = choice.most_usd_per_hour
    prices = {"usd_per_hour": str(choice.usd_per_hour), "most_usd_per_hour": most and str(most)}
    return {**asdict(choice), **prices}


def read_choice(raw: Mapping[str, Any]) -> Choice:
    """Read what `choice_json` wrote."""
    most = raw.get("most_usd_per_hour")
    prices = {
        "usd_per_hour": Decimal(raw["usd_per_hour"]),
        "most_usd_per_hour": None if most is None else Decimal(most),
    }
    return Choice(**{**raw, **prices, "place": Place(**raw["place"])})


def read_run(data: bytes) -> RunRecord:
    """Read a run record; unknown keys of a later version are left out."""
    raw = json.loads(data)
    known = {f.name for f in fields(RunRecord)}
    values = {k: v for k, v in raw.items() if k in known}
    for name in ("env_names", "secret_names", "wishes"):
        values[name] = tuple(values.get(name, ()))
    values["choices"] = tuple(read_choice(choice) for choice in raw["choices"])
    return RunRecord(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """One rank of an attempt. `start_time` tells a reused pid from the one meant."""

    rank: int
    node_id: str
    host: str
    pid: int
    start_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One start of the worker group."""

    attempt: int
    world_size: int
    started: str
    driver: int
    workers: tuple[WorkerRecord, ...] = field(default=())

    def encode(self) -> bytes:
        """As JSON."""
        return encode(asdict(self))


def read_attempt(data: bytes) -> AttemptRecord:
    """Read an attempt record."""
    raw = json.loads(data)
    workers = tuple(WorkerRecord(**w) for w in raw.pop("workers"))
    return AttemptRecord(workers=workers, **raw)


OrderKind = Literal["save", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the controller wants of the workers. Each has a new number; the last one counts."""

    number: int
    kind: OrderKind
    reason: str
    attempt: int | None = None  # None: whichever attempt reads it

    def encode(self) -> bytes:
        """As JSON."""
        return encode(asdict(self))


def read_order(data: bytes) -> Order:
    """Read an order."""
    return Order(**json.loads(data))


OutcomeKind = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended by its own doing (a killed one leaves none)."""

    attempt: int
    kind: OutcomeKind
    step: int
    time: str
    error: str = ""  # for failed: what to tell the person
    error_type: str = ""  # the class of burst.errors it stands for

    def encode(self) -> bytes:
        """As JSON."""
        return encode(asdict(self))


def read_outcome(data: bytes) -> Outcome:
    """Read an outcome."""
    return Outcome(**json.loads(data))


def outcome_key(attempt: int) -> str:
    """Where an attempt says how it ended."""
    return f"attempts/{attempt:04d}.outcome.json"
