"""What a Slurm cluster says of itself: what is asked on its login node, and what that prints.

As the manual pages of sinfo, scontrol and squeue have it, of Slurm 22.05. A line that is not
understood is left out, and told: a site has its own, and one hides no others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from burst.provision.slurm_states import When, when
from burst.task_specs.model import Accelerators

T = TypeVar("T")
LOOK_S = 30.0
SHOWN = 200  # characters of what is not understood
UNTYPED = "gpu"  # the name of GPUs whose nodes do not name them
COLUMNS = {  # of sinfo, with how wide each is
    "NodeList": 128,
    "Partition": 128,
    "StateCompact": 24,
    "CPUsState": 48,
    "Memory": 24,
    "AllocMem": 24,
    "Gres": 256,
    "GresUsed": 256,
}
LOOK = {
    "clock": "date +%s",
    "disk": """df -Pk "$HOME" | awk 'NR == 2 {print $4}'""",
    "config": "scontrol show config | grep -E '^PreemptType '",
    "partitions": "scontrol show partition -o",
    "nodes": "sinfo -h -N -O " + ",".join(f"{name}:{wide}" for name, wide in COLUMNS.items()),
}
JOBS = 'SLURM_TIME_FORMAT=%s squeue -h -t all -u "$(id -un)" -o "%i|%j|%T|%r|%N|%S|%e"'
_GPU = re.compile(r"gpu(?::(?!no_consume:)(\(null\)|[^:]+))?(?::no_consume)?:(\d+)")
_SHAPE = re.compile(r"(\d+)CPU--(\d+)GB(?:--([^:]+):(\d+))?")


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
    state: str  # as sinfo prints it
    cpus: int
    cpus_free: int  # that a job can have now
    memory_mb: int  # 1 where the site does not say
    memory_free_mb: int
    gpus: Mapping[str, int]
    gpus_free: Mapping[str, int]

    @property
    def usable(self) -> bool:
        """Whether it can take a job, now or later."""
        return when(self.state) > When.NEVER

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
        return self.cpus_free >= shape.cpus and memory and gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a cluster said of itself."""

    clock_s: float  # of the login node, since 1970
    disk_free_bytes: int | None  # where its home is; None: it does not say
    partitions: Mapping[str, Partition]
    nodes: tuple[Node, ...]
    odd: tuple[str, ...] = ()  # lines that are not understood

    @property
    def left_out(self) -> str:
        """What of it is not known, in words; "" if there is nothing."""
        lines = "a line" if len(self.odd) == 1 else f"{len(self.odd)} lines"
        words = f"{lines} of Slurm's left out, as burst does not understand: "
        return words + self.odd[0][:SHOWN] if self.odd else ""


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


def script(commands: Mapping[str, str]) -> str:
    r"""Return what has a shell run several commands, and head what each prints with its name.

    >>> script({"clock": "date +%s"})
    "printf '\\n== clock\\n'; date +%s"
    """
    return "\n".join(f"printf '\\n== {name}\\n'; {one}" for name, one in commands.items())


def answers(text: str, names: Iterable[str]) -> Iterator[str]:
    """Yield what commands of a `script` printed; what a shell greets with is left out.

    ValueError if one is not there.
    """
    _, *parts = re.split(r"^== (\w+)\n", text, flags=re.MULTILINE)
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    for name in names:
        if name not in found:
            raise ValueError(f"its login shell does not say its {name}, but {text[:80]!r}")
        yield found[name]


def read_site(text: str, spot: Collection[str] = ()) -> Site:
    """Read what `LOOK` printed; ValueError if nothing of it can be understood.

    `spot` are partitions whose jobs are taken though Slurm does not say so.
    """
    clock, disk_kb, config, partitions, nodes = map(str.strip, answers(text, LOOK))
    if not clock.isdecimal():
        raise ValueError(f"it does not tell the time, but says {clock[:80]!r}")
    odd: list[str] = []
    known = _partitions(partitions, config, spot, odd)
    if not known:
        raise ValueError(f"it has no partition, but says {partitions[:80]!r}")
    return Site(
        clock_s=float(clock),
        disk_free_bytes=int(disk_kb) * 1024 if disk_kb.isdecimal() else None,
        partitions=known,
        nodes=tuple(_understood(nodes, _node, odd)),
        odd=tuple(odd),
    )


def _understood(text: str, read: Callable[[str], T], odd: list[str]) -> Iterator[T]:
    """Yield what is read of each line; `odd` gets those for which that is a ValueError."""
    for line in filter(str.strip, text.splitlines()):
        try:
            yield read(line)
        except ValueError:
            odd.append(" ".join(line.split()))


def _partitions(
    text: str, config: str, spot: Collection[str], odd: list[str]
) -> Mapping[str, Partition]:
    said = list(_understood(text, _words, odd))
    taken = "preempt/partition_prio" in config
    highest = max((_tier(one) for one in said), default=1)
    return {
        one["PartitionName"]: Partition(
            name=one["PartitionName"],
            up=one.get("State") == "UP",
            preemptible=one["PartitionName"] in spot or (taken and _makes_way(one, highest)),
            tier=_tier(one),
        )
        for one in said
    }


def _words(line: str) -> Mapping[str, str]:
    """Read a partition's line; ValueError if it lacks a name, or its tier is no number."""
    found = dict(re.findall(r"(\w+)=(\S*)", line))
    if not found.get("PartitionName"):
        raise ValueError(line)
    _tier(found)
    return found


def _makes_way(partition: Mapping[str, str], highest: int) -> bool:
    """Whether a higher partition may take what jobs of this one have.

    slurm.conf(5), PreemptType=preempt/partition_prio: jobs of partitions with a higher
    PriorityTier preempt those of lower ones, unless these say PreemptMode=OFF.
    """
    return partition.get("PreemptMode", "OFF") != "OFF" and _tier(partition) < highest


def _tier(partition: Mapping[str, str]) -> int:
    return int(partition.get("PriorityTier", 1))


def _node(line: str) -> Node:
    name, partition, state, cpus, memory, used_memory, gres, used_gres = _cells(line)
    _, idle, _, total = (int(number) for number in cpus.split("/"))
    if not name or not partition or total < 1:
        raise ValueError(line)
    gpus, used, now = _gpus(gres), _gpus(used_gres), when(state) is When.NOW
    return Node(
        name=name,
        partition=partition.rstrip("*"),
        state=state,
        cpus=total,
        cpus_free=idle * now,
        memory_mb=int(memory),
        memory_free_mb=(int(memory) - int(used_memory)) * now,
        gpus=gpus,
        gpus_free={kind: (count - used.get(kind, 0)) * now for kind, count in gpus.items()},
    )


def _cells(line: str) -> Iterator[str]:
    """Yield what stands in each column; ValueError if it does not end there."""
    for wide in COLUMNS.values():
        cell, line = line[:wide], line[wide:]
        if len(cell) == wide and not cell[-1].isspace():
            raise ValueError(cell)
        yield cell.strip()


def _gpus(gres: str) -> Mapping[str, int]:
    """Return GPUs by type, of `gpu:A100:8(S:0-1),mps:200`; ValueError for some in another form."""
    found: dict[str, int] = {}
    for item in re.sub(r"\((?!null\)).*?\)", "", gres).split(","):
        if item.partition(":")[0] != "gpu":
            continue
        match = _GPU.fullmatch(item)
        if match is None:
            raise ValueError(item)
        kind = UNTYPED if match[1] in {None, "(null)"} else match[1]
        found[kind] = found.get(kind, 0) + int(match[2])
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
