"""What a Slurm cluster is: how it is reached, what a task can have of its nodes, what that costs.

Clusters are the `Host` entries of `~/.slurm/config`, an OpenSSH configuration, which is where
SkyPilot looks for them too. `pools.yaml` says what Slurm does not know: prices, account, limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from burst.cost.quotes import Quote
from burst.errors import SetupError
from burst.provision.own import NO_PRICE, quote
from burst.provision.slurm_look import UNTYPED, Node, Shape
from burst.provision.ssh import Login, Ssh
from burst.task_specs.accelerators import is_kind
from burst.task_specs.model import Accelerators, Resources
from burst.task_specs.units import duration_s, slurm_time_s

T = TypeVar("T")


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
    time_s: float | None = None  # of a job; 0: no limit; None: the partition's own
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
        time_s=read("time", slurm_time_s),
        wait_s=read("wait", duration_s),
        gpu=said.get("gpu") or "",
    )


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
