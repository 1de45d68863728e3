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

from burst.provision.slurm_look import LOOK, Shape, Site, answers, read_site, script

AT_ONCE_S = 60.0  # a start that is no further away: Slurm plans in minutes
WAITS = frozenset({"None", "Priority", "Resources"})  # reasons of jobs that only lack room
QUEUE = "squeue -h -r -t PENDING -o '%P|%r|%D'"
_STARTS = re.compile(r"to start at (\d+)")
_WAITING = re.compile(r"(.+)\|(.*)\|(\d+)(?:-\d+)?")  # for one to so many nodes


def ask(options: Iterable[str]) -> str:
    """Return the shell command that asks all of this for a job with sbatch's options."""
    test = shlex.join(["sbatch", "--test-only", *options, "--wrap=true"])
    return script({**LOOK, "queue": QUEUE, "test": f"SLURM_TIME_FORMAT=%s {test} 2>&1 || true"})


def read_room(text: str, name: str, shape: Shape) -> int:
    """Return how many jobs of a shape could start in a partition, of what `ask` printed.

    None unless Slurm would start one now. Then as many nodes as have room for one and no pending
    job's claim: one that lacks nothing but room, in a partition of nodes of ours whose priority is
    not lower. Where jobs would have to make way for ours, one: Slurm does not say of how many.
    ValueError if something else was printed.
    """
    site = read_site(text)
    queue, test = answers(text, ["queue", "test"])
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
    """Yield the partitions and the number of nodes of each pending job that only lacks room.

    A line that is not understood is no claim: what is vacant is a guess, and sbatch has the word.
    """
    for line in filter(None, map(_WAITING.fullmatch, queue.splitlines())):
        if line[2] in WAITS:
            yield set(line[1].split(",")), int(line[3])
