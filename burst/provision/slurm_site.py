"""What a Slurm cluster is: how it is reached, what its partitions have free, what that costs.

Clusters are the `Host` entries of `~/.slurm/config`, an OpenSSH configuration, which is where
SkyPilot looks for them too. `pools.yaml` says what Slurm does not know: prices, account, limits.
What `sinfo`, `scontrol` and `squeue` print is read here (their manual pages, Slurm 22.05).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from burst.cost.quotes import Quote
from burst.errors import SetupError
from burst.provision.own import NO_PRICE, quote
from burst.provision.ssh import Login, Ssh
from burst.task_specs.accelerators import is_kind
from burst.task_specs.model import Accelerators, Resources
from burst.task_specs.units import duration_s

T = TypeVar("T")
LOOK_S = 30.0
UNTYPED = "gpu"  # the name of GPUs whose nodes do not name them
LOOK = """date +%s; df -Pk "$HOME" | awk 'NR == 2 {print $4}'
scontrol show config | grep -E '^PreemptType '; echo ==
scontrol show partition -o; echo ==
sinfo -h -N -O NodeList:128,Partition:128,StateCompact:24,CPUsState:48,Memory:24,AllocMem:24,\
Gres:256,GresUsed:256"""
JOBS = 'SLURM_TIME_FORMAT=%s squeue -h -t all -u "$(id -un)" -o "%i|%j|%T|%r|%N|%S|%e"'
_USABLE = frozenset({"idle", "mix", "alloc", "comp", "plnd", "resv"})
_GPU = re.compile(r"(?:^|,)gpu(?::(\(null\)|[^:(,]+))?:(\d+)(?=[(,]|$)")
_SHAPE = re.compile(r"(\d+)CPU--(\d+)GB(?:--([^:]+):(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Slurm cluster and what pools.yaml says of it."""

    name: str
    config: Path  # of OpenSSH; its Host `name` is the login node
    usd_per_hour: Decimal | None = None  # of a whole node
    usd_per_gpu_hour: Decimal | None = None
    spot: tuple[str, ...] = ()  # partitions whose jobs are taken, besides those Slurm says
    account: str = ""
    qos: str = ""
    time_s: float | None = None  # of a job; None: the partition's own
    wait_s: float | None = None  # how long a job may be pending, at most
    gpu: str = ""  # what GPUs are that Slurm does not name

    @property
    def pool(self) -> str:
        """The pool's name."""
        return f"slurm/{self.name}"

    def ssh(self, home: Path) -> Ssh:
        """Return a way to run commands on the login node."""
        login = Login(host=self.name, ip="", config=self.config)
        return Ssh(login, home / "known_hosts" / f"slurm-{self.name}")

    def price(self, shape: Shape, node: Node) -> Decimal:
        """Return dollars per hour of a part of a node: by its GPUs if they are priced, else share.

        Zero when nothing is said.
        """
        if self.usd_per_gpu_hour is not None and shape.gpus:
            return self.usd_per_gpu_hour * shape.gpus.count
        share = Decimal(shape.cpus) / node.cpus
        if shape.gpus:
            share = max(share, Decimal(shape.gpus.count) / node.num_gpus)
        return ((self.usd_per_hour or Decimal(0)) * min(share, Decimal(1))).quantize(
            Decimal("0.000001")
        )

    def quote(self, shape: Shape, node: Node, now: datetime) -> Quote:
        """Return the price of a part of a node as pools.yaml says it."""
        priced = self.usd_per_hour is not None or self.usd_per_gpu_hour is not None
        return quote(self.price(shape, node), "pools.yaml" if priced else NO_PRICE, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a job asks of its node. Written as SkyPilot writes Slurm's types: 8CPU--64GB--A100:2."""

    cpus: int
    memory_gb: int  # GiB; 0: as Slurm gives
    gpus: Accelerators | None = None

    def __str__(self) -> str:
        gpus = f"--{self.gpus.kind}:{self.gpus.count}" if self.gpus else ""
        return f"{self.cpus}CPU--{self.memory_gb}GB{gpus}"

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read what `str` wrote; ValueError if it is something else."""
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text} is no machine type of Slurm, as in 8CPU--64GB--A100:2")
        gpus = Accelerators(kind=match[3], count=int(match[4])) if match[3] else None
        return cls(cpus=int(match[1]), memory_gb=int(match[2]), gpus=gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A queue of the cluster."""

    name: str
    up: bool
    preemptible: bool
    tier: int  # jobs of a higher one come first


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine as a member of one partition."""

    name: str
    partition: str
    usable: bool
    cpus: int
    cpus_free: int
    memory_mb: int  # 1 where the site does not say
    memory_free_mb: int
    gpus: Mapping[str, int]
    gpus_free: Mapping[str, int]

    @property
    def num_gpus(self) -> int:
        """How many GPUs it has, of any kind."""
        return sum(self.gpus.values())

    @property
    def whole(self) -> Shape:
        """What a job that takes all of it has; the GPUs by their number, whatever their kinds."""
        kind = next(iter(self.gpus), UNTYPED)
        gpus = Accelerators(kind=kind, count=self.num_gpus) if self.num_gpus else None
        return Shape(cpus=self.cpus, memory_gb=self.memory_mb // 1024, gpus=gpus)

    def has_free(self, shape: Shape) -> bool:
        """Whether a job of this shape could start now, as far as sizes tell."""
        gpus = shape.gpus is None or self.gpus_free.get(shape.gpus.kind, 0) >= shape.gpus.count
        memory = shape.memory_gb * 1024 <= self.memory_free_mb
        return self.usable and self.cpus_free >= shape.cpus and memory and gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a cluster said of itself."""

    clock_s: float  # of the login node, since 1970
    disk_free_bytes: int  # where its home is
    partitions: Mapping[str, Partition]
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A job, also one that ended some minutes ago."""

    number: str
    name: str
    state: str  # Slurm's long form: PENDING, RUNNING, COMPLETING, ...
    reason: str
    node: str
    starts: datetime | None  # or started; as Slurm expects while it is pending
    ends: datetime | None  # or ended; by its time limit while it runs


# pools.yaml ---------------------------------------------------------------------------------------


def read_clusters(pools: Mapping[str, Any], config: Path) -> tuple[Cluster, ...]:
    """Return the clusters in the OpenSSH configuration, with what pools.yaml's `slurm` says.

    burst.task_specs.pools has checked that.
    """
    said = pools.get("slurm") or {}
    return tuple(_cluster(name, said.get(name) or {}, config) for name in cluster_names(config))


def cluster_names(config: Path) -> list[str]:
    """Return the names after `Host` that are no patterns; SetupError if it cannot be read."""
    if not config.exists():
        return []
    try:
        text = config.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise SetupError(f"{config} cannot be read: {error.strerror}") from error
    names: dict[str, None] = {}
    for line in text.splitlines():
        word, *rest = re.split(r"[\s=]+", line.partition("#")[0].strip())
        if word.lower() == "host":
            plain = (name.strip('"') for name in rest)
            names |= dict.fromkeys(n for n in plain if re.fullmatch(r"[A-Za-z0-9][\w.-]*", n))
    return list(names)


def _cluster(name: str, said: Mapping[str, Any], config: Path) -> Cluster:
    def read(key: str, reader: Callable[[str], T]) -> T | None:
        return None if said.get(key) is None else reader(said[key])

    spot = said.get("spot") or ()
    return Cluster(
        name=name,
        config=config,
        usd_per_hour=read("usd_per_hour", Decimal),
        usd_per_gpu_hour=read("usd_per_gpu_hour", Decimal),
        spot=(spot,) if isinstance(spot, str) else tuple(spot),
        account=said.get("account") or "",
        qos=said.get("qos") or "",
        time_s=read("time", _duration),
        wait_s=read("wait", _duration),
        gpu=said.get("gpu") or "",
    )


def _duration(text: str) -> float:
    return duration_s(text, default="s")


# What Slurm prints --------------------------------------------------------------------------------


def read_site(text: str, cluster: Cluster) -> Site:
    """Read what `LOOK` printed; ValueError if it is something else."""
    head, partitions, nodes = text.split("==\n")
    clock, disk_kb, *preempt = head.splitlines()
    taken = "preempt/partition_prio" in "".join(preempt)
    raw = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in partitions.splitlines() if line]
    highest = max(map(_tier, raw), default=1)
    return Site(
        clock_s=float(clock),
        disk_free_bytes=int(disk_kb) * 1024,
        partitions={
            one["PartitionName"]: Partition(
                name=one["PartitionName"],
                up=one.get("State") == "UP",
                preemptible=one["PartitionName"] in cluster.spot
                or (taken and _makes_way(one, highest)),
                tier=_tier(one),
            )
            for one in raw
        },
        nodes=tuple(_node(line) for line in nodes.splitlines() if line.strip()),
    )


def _makes_way(partition: Mapping[str, str], highest: int) -> bool:
    """Whether a higher partition may take what jobs of this one have.

    slurm.conf(5), PreemptType=preempt/partition_prio: jobs of partitions with a higher
    PriorityTier preempt those of lower ones, unless these say PreemptMode=OFF.
    """
    return partition.get("PreemptMode", "OFF") != "OFF" and _tier(partition) < highest


def _tier(partition: Mapping[str, str]) -> int:
    return int(partition.get("PriorityTier", 1))


def _node(line: str) -> Node:
    name, partition, state, cpus, memory, used_memory, gres, used_gres = line.split()
    _, idle, _, total = (int(number) for number in cpus.split("/"))
    gpus, used = _gpus(gres), _gpus(used_gres)
    return Node(
        name=name,
        partition=partition.rstrip("*"),
        usable=not state.endswith("*") and state.rstrip("~#!%@^+$-") in _USABLE,
        cpus=total,
        cpus_free=idle,
        memory_mb=int(memory),
        memory_free_mb=int(memory) - int(used_memory),
        gpus=gpus,
        gpus_free={kind: count - used.get(kind, 0) for kind, count in gpus.items()},
    )


def _gpus(gres: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for typed, count in _GPU.findall(gres):
        kind = UNTYPED if typed in {"", "(null)"} else typed
        found[kind] = found.get(kind, 0) + int(count)
    return found


def read_jobs(text: str) -> tuple[Job, ...]:
    """Read what `JOBS` printed."""
    fields = (line.split("|") for line in text.splitlines() if line.count("|") == 6)  # noqa: PLR2004
    return tuple(
        Job(number, name, state, reason, node, _time(starts), _time(ends))
        for number, name, state, reason, node, starts, ends in fields
    )


def _time(text: str) -> datetime | None:
    return datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else None


# What of it a task can have -----------------------------------------------------------------------


def shapes(wanted: Resources, node: Node, cluster: Cluster) -> Iterator[tuple[Shape, str]]:
    """Yield what of a node a candidate of a task would ask for, with the GPUs' name for the task.

    With GPUs, that share of CPUs and memory which goes with them; without, as many CPUs as are
    asked for, all if nothing is said.
    """
    asked = wanted.accelerators
    if asked is None:
        yield _part(wanted, node, None), ""
        return
    for kind, count in node.gpus.items():
        known = cluster.gpu if kind == UNTYPED else kind
        if known and is_kind(asked.kind, known) and count >= asked.count:
            gpus = Accelerators(kind=kind, count=asked.count)
            yield _part(wanted, node, gpus), asked.kind


def _part(wanted: Resources, node: Node, gpus: Accelerators | None) -> Shape:
    share = Fraction(gpus.count, node.num_gpus) if gpus else Fraction(1)
    cpus = max(1, int(node.cpus * share))
    if wanted.cpus is not None:
        least = -(-wanted.cpus.value // 1)
        cpus = int(max(cpus, least) if gpus else least)
    if gpus is None:
        share = min(Fraction(1), Fraction(cpus, node.cpus))
    memory_gb = int(node.memory_mb * share) // 1024
    if wanted.memory_gb is not None:
        each = cpus if wanted.memory_gb.per_cpu else 1
        memory_gb = max(memory_gb if gpus else 0, int(-(-wanted.memory_gb.value * each // 1)))
    return Shape(cpus=cpus, memory_gb=memory_gb, gpus=gpus)
