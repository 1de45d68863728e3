"""Slurm clusters, looked at: what each partition has free, who waits, and whether it will do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from burst.errors import BurstError
from burst.provision.inspection.port import (
    GIB,
    SET_CLOCK,
    Finding,
    Price,
    Row,
    Wanted,
    disk_finding,
    price,
)
from burst.provision.slurm_look import (
    LOOK,
    LOOK_S,
    Node,
    Partition,
    Site,
    answers,
    read_site,
    script,
)
from burst.provision.slurm_site import Cluster

MOST_SKEW_S = 30.0  # a job's end is told by Slurm's clock
LEAST_DISK_BYTES = 2 * GIB
ASK = script({**LOOK, "queue": "squeue -h -r -t PENDING -o %P"})
NO_NODE = "no node of it can be used"
USUAL = frozenset({"idle", "mix", "alloc", "comp"})  # states of nodes that are at work


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPool:
    """See burst.provision.inspection.port.Inspected; one cluster."""

    cluster: Cluster
    home: Path = field(repr=False)
    now: Callable[[], datetime]

    @property
    def name(self) -> str:
        return self.cluster.pool

    def rows(self) -> tuple[Row, ...]:
        """Return one row for each partition, and one for what is not understood."""
        site, waiting = self._look()
        found = [self._row(one, site, waiting) for one in site.partitions.values()]
        if site.left_out:
            found.append(Row(pool=self.name, healthy=False, detail=site.left_out))
        return tuple(found)

    def _look(self) -> tuple[Site, Counter[str]]:
        """Return what the cluster has, and how many jobs wait in each partition."""
        text = self.cluster.ssh(self.home).run(ASK, limit_s=LOOK_S)
        (queue,) = answers(text, ["queue"])
        jobs = (name for names in queue.split() for name in names.split(","))
        return read_site(text, self.cluster.spot), Counter(jobs)

    def _row(self, partition: Partition, site: Site, waiting: Counter[str]) -> Row:
        nodes = _nodes(site, partition)
        market = "spot" if partition.preemptible else "on-demand"
        return Row(
            pool=self.name,
            machine=f"{partition.name} {market}",
            free=sum(node.cpus_free == node.cpus for node in nodes),
            whole=len(nodes),
            gpus_free=sum(sum(node.gpus_free.values()) for node in nodes),
            gpus=sum(node.num_gpus for node in nodes),
            price=self._price(nodes),
            waiting=waiting[partition.name],
            healthy=partition.up and bool(nodes),
            detail="; ".join(filter(None, ("" if nodes else NO_NODE, _unusual(site, partition)))),
        )

    def _price(self, nodes: list[Node]) -> Price | None:
        """Return the price of a whole node, the dearest there is."""
        now = self.now()
        quotes = [(self.cluster.quote(n.whole, n, now), n.num_gpus) for n in nodes]
        if not quotes:
            return None
        dearest, gpus = max(quotes, key=lambda one: one[0].usd_per_hour)
        return price(dearest, gpus, now, ages=False)

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        try:
            site, _ = self._look()
        except (BurstError, ValueError) as error:
            login = f"ssh -F {self.cluster.config} {self.cluster.name} sinfo"
            fix = f"let this work without a password: {login}; see docs/slurm.md"
            return (
                Finding(pool=self.name, what="answers", works=False, detail=str(error), fix=fix),
            )
        return (
            Finding(pool=self.name, what="answers", works=True, detail="sinfo and squeue answer"),
            self._disk(site, max(wanted.disk_bytes, LEAST_DISK_BYTES)),
            self._clock(site),
            *self._partitions(site),
            *self._not_understood(site),
        )

    def _disk(self, site: Site, need_bytes: int) -> Finding:
        what = "disk of its home"
        if site.disk_free_bytes is None:
            fix = 'see what `df -Pk "$HOME"` says on the login node'
            told = "df does not say how much is free"
            return Finding(pool=self.name, what=what, works=None, detail=told, fix=fix)
        return disk_finding(self.name, what, site.disk_free_bytes, need_bytes)

    def _clock(self, site: Site) -> Finding:
        """Return what its clock is: a job's end is told by it, so half a minute off is too much."""
        off_s = site.clock_s - self.now().timestamp()
        works = abs(off_s) <= MOST_SKEW_S
        told = "as here" if works else f"{off_s:+.0f} s from this machine's"
        return Finding(pool=self.name, what="clock", works=works, detail=told, fix=SET_CLOCK)

    def _partitions(self, site: Site) -> Iterator[Finding]:
        for partition in site.partitions.values():
            nodes = _nodes(site, partition)
            gpus = sum(node.num_gpus for node in nodes)
            free = sum(sum(node.gpus_free.values()) for node in nodes)
            cpus = sum(node.cpus_free for node in nodes)
            market = "spot" if partition.preemptible else "on-demand"
            words = f"{market}, {len(nodes)} nodes, {cpus} CPUs free, {free} of {gpus} GPUs free"
            states = _unusual(site, partition)
            yield Finding(
                pool=self.name,
                what=f"partition {partition.name}",
                works=True if partition.up and nodes else None,
                detail=f"{words}; {states}" if states else words,
                fix=f"see why it is not up: sinfo -p {partition.name} -R",
            )

    def _not_understood(self, site: Site) -> Iterator[Finding]:
        if site.left_out:
            fix = "see them all: sinfo -N -l; scontrol show partition"
            what = "what it says"
            yield Finding(pool=self.name, what=what, works=None, detail=site.left_out, fix=fix)


def _unusual(site: Site, partition: Partition) -> str:
    """Return how many nodes are in which state, of those that are neither idle nor at work."""
    states = Counter(n.state for n in site.nodes if n.partition == partition.name)
    return ", ".join(f"{number} {state}" for state, number in states.items() if state not in USUAL)


def _nodes(site: Site, partition: Partition) -> list[Node]:
    return [n for n in site.nodes if n.partition == partition.name and n.usable]
