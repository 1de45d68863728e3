"""How many nodes a Slurm partition could give at once: what is free, less what others wait for.

Slurm is only asked: `sinfo`, `squeue`, and `sbatch --test-only`, which submits nothing and says
when a job would start (sbatch(1), squeue(1), Slurm 22.05): it knows of limits, reservations, jobs
before it in the queue and jobs that would make way. But it speaks of one job; for how many, what
is free and what the queue lacks are counted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from burst.provision.slurm_site import LOOK, Cluster, Shape, Site, read_site

AT_ONCE_S = 60.0  # a start that is no further away: Slurm plans in minutes
WAITS = frozenset({"None", "Priority", "Resources"})  # reasons of jobs that only lack room
_STARTS = re.compile(r"to start at (\d+)")
_QUEUE = "squeue -h -r -t PENDING -o '%P|%r|%D'"


def ask(options: Iterable[str]) -> str:
    """Return the shell command that asks all of this for a job with sbatch's options."""
    test = shlex.join(["sbatch", "--test-only", *options, "--wrap=true"])
    return f"{LOOK}; echo ==\n{_QUEUE}; echo ==\nSLURM_TIME_FORMAT=%s {test} 2>&1 || true"


def read_room(text: str, cluster: Cluster, name: str, shape: Shape) -> int:
    """Return how many jobs of a shape could start in a partition, of what `ask` printed.

    None unless Slurm would start one now. Then as many nodes as have room for one and no pending
    job's claim: one that lacks nothing but room, in a partition of nodes of ours whose priority is
    not lower. Where jobs would have to make way for ours, one: Slurm does not say of how many.
    ValueError if something else was printed.
    """
    *look, queue, test = text.split("==\n")
    site = read_site("==\n".join(look), cluster)
    starts = _STARTS.search(test)
    if starts is None or name not in site.partitions:
        return 0
    if float(starts[1]) > site.clock_s + AT_ONCE_S:
        return 0
    free = sum(n.has_free(shape) for n in site.nodes if n.partition == name)
    rivals = set(_rivals(site, name))
    claimed = sum(nodes for names, nodes in _claims(queue) if rivals & names)
    return max(0, max(free, 1) - claimed)


def _rivals(site: Site, name: str) -> Iterator[str]:
    """Yield the partitions whose pending jobs come before one of this partition."""
    ours = {node.name for node in site.nodes if node.partition == name}
    for node in site.nodes:
        other = site.partitions.get(node.partition)
        if node.name in ours and other and other.tier >= site.partitions[name].tier:
            yield other.name


def _claims(queue: str) -> Iterator[tuple[set[str], int]]:
    """Yield the partitions and the number of nodes of each pending job that only lacks room."""
    for line in queue.splitlines():
        names, reason, nodes = line.split("|")
        if reason in WAITS:
            yield set(names.split(",")), int(nodes.partition("-")[0])
