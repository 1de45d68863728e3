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
from burst.provision.slurm_site import LOOK, LOOK_S, Cluster, Node, Partition, Site, read_site

MOST_SKEW_S = 30.0  # a job's end is told by Slurm's clock
LEAST_DISK_BYTES = 2 * GIB
ASK = f"{LOOK}; echo ==\nsqueue -h -r -t PENDING -o %P"


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
        """Return one row for each partition."""
        site, waiting = self._look()
        return tuple(self._row(one, site, waiting) for one in site.partitions.values())

    def _look(self) -> tuple[Site, Counter[str]]:
        """Return what the cluster has, and how many jobs wait in each partition."""
        text = self.cluster.ssh(self.home).run(ASK, limit_s=LOOK_S)
        *look, queue = text.split("==\n")
        jobs = (name for line in queue.splitlines() for name in line.split(","))
        return read_site("==\n".join(look), self.cluster), Counter(jobs)

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
            detail="" if nodes else "no node of it can be used",
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
        need = max(wanted.disk_bytes, LEAST_DISK_BYTES)
        return (
            Finding(pool=self.name, what="answers", works=True, detail="sinfo and squeue answer"),
            disk_finding(self.name, "disk of its home", site.disk_free_bytes, need),
            self._clock(site),
            *self._partitions(site),
        )

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
            yield Finding(
                pool=self.name,
                what=f"partition {partition.name}",
                works=True if partition.up and nodes else None,
                detail=words,
                fix=f"see why it is not up: sinfo -p {partition.name} -R",
            )


def _nodes(site: Site, partition: Partition) -> list[Node]:
    return [n for n in site.nodes if n.partition == partition.name and n.usable]
