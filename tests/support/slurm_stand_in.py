"""A stand-in for a Slurm cluster: its controller, and the commands of its login node.

What it is true to was seen of Slurm 22.05 (tests.lab.slurm has a real one): what the commands
print; a job gets the first node of its partition that has room, takes all memory if it asks for
none, and takes the place of jobs of a lower partition that may be preempted; an ended job is
COMPLETING for a while, and keeps its node meanwhile. The scripts of jobs are kept, not run.

A login node is reached as always, by `ssh`: there is one in `path` that runs the command in a
shell of this machine, where Slurm's commands are scripts that ask the controller. Time is the
test's clock.
"""

from __future__ import annotations

import re
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from burst.ports import Clock

ME, OTHER = "me", "other"
TAKES = {"scancel": "u", "sinfo": "O", "squeue": "tuo"}  # options whose value is the next word
SLURMS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")
COMMANDS = (*SLURMS, "date", "df", "getent", "id")
ENDED = frozenset({"CANCELLED", "PREEMPTED", "TIMEOUT", "COMPLETED", "FAILED"})
HOLDS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING"})  # jobs of these states have their node
WAITS = frozenset({"None", "Priority", "Resources"})
SSH = """#!/bin/bash
there={folder}/${{@: -2:1}}
if [ ! -d "$there" ] || [ -e "$there/down" ]; then
  echo "ssh: connect to host ${{@: -2:1}} port 22: Connection refused" >&2; exit 255
fi
exec env -i HOME="$there" PATH="$there/bin:/usr/bin:/bin" sh -c "${{@: -1}}"
"""
ASK = """#!/bin/bash
me=${{0##*/}}
[[ $me = sbatch && $* != *--wrap=* ]] && IFS= read -r -d '' script
words=("$me" "$SLURM_TIME_FORMAT" "$script" "$@")
exec 3<>/dev/tcp/127.0.0.1/{port}
printf '%s\\0' ${{#words[@]}} "${{words[@]}}" >&3
IFS= read -r -d '' code <&3 && IFS= read -r -d '' out <&3 && IFS= read -r -d '' err <&3
printf %s "$out"; printf %s "$err" >&2
exit "$code"
"""


@dataclass
class Node:
    """A machine. `state` is what its operator made of it; "": in use."""

    name: str
    partitions: tuple[str, ...]
    cpus: int
    memory_mb: int = 1
    gpus: Mapping[str, int] = field(default_factory=dict)  # by type; "": not named
    state: str = ""


@dataclass
class Partition:
    """A queue; the first one of a cluster is the default."""

    name: str
    tier: int = 1
    preempt: str = "OFF"
    state: str = "UP"


@dataclass
class Job:
    """A job, also one that ended."""

    number: int
    name: str
    partition: str
    cpus: int = 1
    memory_mb: int = 0  # 0: all that its node has
    gpus: tuple[str, int] = ("", 0)
    nodes: str = "1"
    user: str = ME
    state: str = "PENDING"
    reason: str = "None"
    node: str = ""
    starts: float | None = None  # or started, since 1970
    ends: float | None = None
    options: Sequence[str] = ()
    script: str = ""


class RefusedError(Exception):
    """A command prints this to its standard error, and fails."""


class SlurmStandIn:
    """Use as a context manager; then `ssh NAME` of `path` leads to its login node."""

    time_s = 86_400.0  # that a job may run
    completing_s = 1.0  # how long one takes to end

    def __init__(self, name: str, folder: Path, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._there = folder / name
        self.path = folder
        self.preempt = "preempt/partition_prio"
        self.partitions: list[Partition] = []
        self.nodes: list[Node] = []
        self.jobs: dict[int, Job] = {}
        self.disk_kb = 81_234_567
        self.pending = ""  # the reason for which new jobs stay pending; "": they do not
        self.planned_s: float | None = None  # in how many seconds such a job, or a test, starts
        self.refusal = ""  # what sbatch says to every job
        self.at_once = ""  # the state that a submitted job has at once; "": it is queued
        self.away = False  # whether the controller does not answer its commands
        self.asked: list[list[str]] = []  # every command with its words
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        port = self._server.server_address[1]
        (self._there / "bin").mkdir(parents=True)
        for name in COMMANDS:
            _write(self._there / "bin" / name, ASK.format(port=port))
        _write(self.path / "ssh", SSH.format(folder=self.path))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # What a test says and sees --------------------------------------------------------------------

    @property
    def down(self) -> bool:
        """Whether nobody answers at the login node's address."""
        return (self._there / "down").exists()

    @down.setter
    def down(self, is_so: bool) -> None:
        if is_so:
            (self._there / "down").touch()
        else:
            (self._there / "down").unlink(missing_ok=True)

    def prints(self, command: str, text: str) -> None:
        """Have a command of the login node print something else from now on."""
        _write(self._there / "bin" / command, f"#!/bin/sh\nprintf %s '{text}'\n")

    def submitted(self) -> list[list[str]]:
        """Return the words of the calls of sbatch that submit, or would."""
        return [words[1:] for words in self.asked if words[0] == "sbatch"]

    def add(self, partition: str, name: str = "theirs", **more: Any) -> Job:
        """Queue a job, somebody else's if nothing is said, and start it if there is room."""
        number = max(self.jobs, default=6) + 1
        given = {"user": OTHER, **more}
        self.jobs[number] = Job(number=number, name=name, partition=partition, **given)
        self._schedule()
        return self.jobs[number]

    # The controller -------------------------------------------------------------------------------

    def answer(self, words: Sequence[str], time_format: str, script: str) -> str:
        """Return what a command prints; RefusedError if it fails."""
        with self._lock:
            self.asked.append(list(words))
            if self.away and words[0] in SLURMS:
                raise RefusedError(f"{words[0]}: error: Unable to contact slurm controller\n")
            self._schedule()
            flags, rest = _parse(words)
            if words[0] == "sbatch":
                return self._sbatch(flags, rest, script)
            if words[0] == "squeue":
                return self._squeue(flags, seconds=time_format == "%s")
            does: dict[str, Callable[[Mapping[str, str], Sequence[str]], str]] = {
                "date": lambda *_: f"{self._now():.0f}\n",
                "df": lambda *_: f"Filesystem 1024-blocks Used Available\nfs 1 1 {self.disk_kb}\n",
                "getent": lambda _, rest: f"{rest[-1]} STREAM\n{rest[-1]} DGRAM\n",
                "id": lambda *_: f"{ME}\n",
                "scancel": self._scancel,
                "scontrol": self._scontrol,
                "sinfo": self._sinfo,
            }
            return does[words[0]](flags, rest)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _schedule(self) -> None:
        """End what has completed, and start what has room, the higher partitions' jobs first."""
        for job in self.jobs.values():
            if job.state == "COMPLETING" and self._now() >= (job.ends or 0.0) + self.completing_s:
                job.state = "CANCELLED"
        tiers = {one.name: one.tier for one in self.partitions}
        waiting = [job for job in self.jobs.values() if job.state == "PENDING"]
        for job in sorted(waiting, key=lambda one: -tiers.get(one.partition.split(",")[0], 0)):
            if job.reason not in WAITS:
                continue  # it is held, or waits for something else than room
            node, victims = self._room(job) if not self.pending else (None, [])
            if node is None:
                self._plan_later(job)
                continue
            for victim in victims:
                victim.state, victim.ends = "PREEMPTED", self._now()
            job.state, job.reason, job.node = "RUNNING", "None", node.name
            job.starts, job.ends = self._now(), self._now() + self.time_s

    def _plan_later(self, job: Job) -> None:
        """Say why a job does not start yet, and if that is known, when it would."""
        job.reason = self.pending or ("Resources" if job.reason == "None" else job.reason)
        if self.planned_s is not None and job.starts is None:
            job.starts = self._now() + self.planned_s

    def _room(self, job: Job) -> tuple[Node | None, list[Job]]:
        """Return a node that a job can have now, and the jobs that make way for it."""
        for yields in (False, True):
            for node in self.nodes:
                if job.partition not in node.partitions:
                    continue
                victims = [one for one in self._on(node) if yields and self._makes_way(one, job)]
                if self._fits(job, node, victims):
                    return node, victims
        return None, []

    def _on(self, node: Node) -> list[Job]:
        return [one for one in self.jobs.values() if one.node == node.name and one.state in HOLDS]

    def _makes_way(self, job: Job, other: Job) -> bool:
        """slurm.conf(5), PreemptType=preempt/partition_prio."""
        by_name = {one.name: one for one in self.partitions}
        mine, theirs = by_name[job.partition], by_name[other.partition]
        may = self.preempt == "preempt/partition_prio" and mine.preempt != "OFF"
        return may and mine.tier < theirs.tier

    def _fits(self, job: Job, node: Node, without: Sequence[Job] = ()) -> bool:
        cpus, memory_mb, gpus = self._used(node, without)
        kind, count = job.gpus
        return (
            not node.state.startswith(("down", "drain"))
            and job.cpus <= node.cpus - cpus
            and (job.memory_mb or node.memory_mb) <= node.memory_mb - memory_mb
            and count <= node.gpus.get(kind, 0) - gpus.get(kind, 0)
        )

    def _used(self, node: Node, but: Sequence[Job] = ()) -> tuple[int, int, dict[str, int]]:
        """Return the CPUs, memory in MiB and GPUs of a node that jobs have."""
        jobs = [one for one in self._on(node) if one not in but]
        gpus = {kind: sum(j.gpus[1] for j in jobs if j.gpus[0] == kind) for kind in node.gpus}
        memory_mb = sum(job.memory_mb or node.memory_mb for job in jobs)
        return sum(job.cpus for job in jobs), memory_mb, gpus

    # Its commands ---------------------------------------------------------------------------------

    def _sbatch(self, flags: Mapping[str, str], rest: Sequence[str], script: str) -> str:
        del rest
        if self.refusal:
            raise RefusedError(f"{self.refusal}\n")
        job = Job(
            number=max(self.jobs, default=6) + 1,
            name=flags.get("job-name", "wrap"),
            partition=flags.get("partition", self.partitions[0].name),
            cpus=int(flags.get("cpus-per-task", 1)),
            memory_mb=int(flags.get("mem", "0").removesuffix("G")) * 1024,
            gpus=_gres(flags.get("gres", "")),
            options=[f"--{key}={value}" if value else f"--{key}" for key, value in flags.items()],
            script=script,
        )
        if job.partition not in [one.name for one in self.partitions]:
            said = "Batch job submission failed: Invalid partition name specified"
            raise RefusedError(f"sbatch: error: {said}\n")
        if "test-only" in flags:
            raise RefusedError(self._plan(job))  # sbatch speaks to the standard error here
        job.state = self.at_once or job.state
        self.jobs[job.number] = job
        return f"{job.number}\n" if "parsable" in flags else f"Submitted batch job {job.number}\n"

    def _plan(self, job: Job) -> str:
        """Return what sbatch --test-only says of a job."""
        able = [node for node in self.nodes if job.partition in node.partitions]
        if not any(self._fits(job, node, self._on(node)) for node in able):
            return "allocation failure: Requested node configuration is not available\n"
        node, victims = self._room(job)
        wait_s = (0.0 if node else self.time_s) if self.planned_s is None else self.planned_s
        preempts = f"sbatch:   Preempts: {','.join(str(one.number) for one in victims)}\n"
        return (
            f"sbatch: Job {job.number} to start at {self._now() + wait_s:.0f} using {job.cpus} "
            f"processors on nodes {(node or able[0]).name} in partition {job.partition}\n"
        ) + (preempts if victims else "")

    def _squeue(self, flags: Mapping[str, str], *, seconds: bool) -> str:
        states = flags.get("t", "PENDING,RUNNING,COMPLETING").split(",")
        lines = [
            "".join(_of_job(job, part, seconds=seconds) for part in re.findall("%.|.", flags["o"]))
            for job in self.jobs.values()
            if (states == ["all"] or job.state in states) and flags.get("u") in {None, job.user}
        ]
        return "".join(f"{line}\n" for line in lines)

    def _scancel(self, flags: Mapping[str, str], rest: Sequence[str]) -> str:
        for job in self.jobs.values():
            named = flags.get("name") == job.name if "name" in flags else str(job.number) in rest
            if named and flags.get("u") in {None, job.user} and job.state not in ENDED:
                job.state = "COMPLETING" if job.state in HOLDS else "CANCELLED"
                job.ends = self._now()
        return ""

    def _scontrol(self, flags: Mapping[str, str], rest: Sequence[str]) -> str:
        del flags
        match rest:
            case ["show", "config"]:
                return f"Configuration data\nPreemptMode = REQUEUE\nPreemptType = {self.preempt}\n"
            case ["show", "partition"]:
                return "".join(self._told(one) for one in self.partitions)
            case ["show", "node", name]:
                number = [node.name for node in self.nodes].index(name) + 5
                return f"NodeName={name} Arch=x86_64 Gres=x NodeAddr=10.0.0.{number} Port=6818 \n"
            case _:
                raise RefusedError(f"invalid keyword: {rest}\n")

    def _told(self, one: Partition) -> str:
        usual = "YES" if one is self.partitions[0] else "NO"
        return (
            f"PartitionName={one.name} AllowGroups=ALL Default={usual} GraceTime=0 "
            f"PriorityTier={one.tier} PreemptMode={one.preempt} State={one.state} TotalNodes=9\n"
        )

    def _sinfo(self, flags: Mapping[str, str], rest: Sequence[str]) -> str:
        del rest
        columns = [part.split(":") for part in flags["O"].split(",")]
        return "".join(
            "".join(f"{told[name]:<{width}}"[: int(width)] for name, width in columns) + "\n"
            for node in self.nodes
            for told in self._columns(node)
        )

    def _columns(self, node: Node) -> Iterator[dict[str, str]]:
        cpus, memory_mb, gpus = self._used(node)
        state = node.state or ("idle" if not cpus else "mix" if cpus < node.cpus else "alloc")
        off = node.state.startswith(("down", "drain"))
        idle, other = (0, node.cpus - cpus) if off else (node.cpus - cpus, 0)
        for partition in node.partitions:
            yield {
                "NodeList": node.name,
                "Partition": f"{partition}{'*' * (partition == self.partitions[0].name)}",
                "StateCompact": state,
                "CPUsState": f"{cpus}/{idle}/{other}/{node.cpus}",
                "Memory": str(node.memory_mb),
                "AllocMem": str(memory_mb),
                "Gres": _list(node.gpus, "(S:0-1)"),
                "GresUsed": _list(gpus, "(IDX:0)"),
            }


def usual(name: str, folder: Path, clock: Clock) -> SlurmStandIn:
    """Return a cluster of four idle nodes with four GPUs each, which two partitions share."""
    made = SlurmStandIn(name, folder, clock)
    made.partitions = [Partition("gpu", tier=10), Partition("spot", preempt="REQUEUE")]
    made.nodes = [
        Node(f"n{number}", ("gpu", "spot"), cpus=2, memory_mb=16_000, gpus={"A100": 4})
        for number in (1, 2, 3, 4)
    ]
    return made


def varied(name: str, folder: Path, clock: Clock) -> SlurmStandIn:
    """Return a cluster with every kind of node that matters: shared, down, untyped, asleep."""
    made = SlurmStandIn(name, folder, clock)
    made.partitions = [
        Partition("gpu", tier=10),
        Partition("scav", preempt="REQUEUE"),
        Partition("old", state="DOWN"),
    ]
    made.nodes = [
        Node("n1", ("gpu", "scav"), cpus=64, memory_mb=524_288, gpus={"A100": 8}),
        Node("n2", ("gpu",), cpus=64, memory_mb=524_288, gpus={"A100": 8}, state="down*"),
        Node("n3", ("scav",), cpus=32, memory_mb=262_144, gpus={"nvidia_h100_80gb": 4}),
        Node("n4", ("old",), cpus=32),
        Node("n5", ("gpu",), cpus=32, gpus={"": 2}, state="idle~"),
    ]
    made.add("gpu", cpus=48, memory_mb=300_000, gpus=("A100", 6))
    return made


def _of_job(job: Job, part: str, *, seconds: bool) -> str:
    """Return what squeue prints of a job for a part of its format: `%i`, or one character."""
    assert seconds or part not in {"%S", "%e"}, "times are wanted as SLURM_TIME_FORMAT=%s"
    starts, ends = ("N/A" if t is None else f"{t:.0f}" for t in (job.starts, job.ends))
    told = {"%i": job.number, "%j": job.name, "%T": job.state, "%r": job.reason, "%N": job.node}
    told |= {"%S": starts, "%e": ends, "%P": job.partition, "%D": job.nodes}
    return str(told.get(part, part))


def _gres(text: str) -> tuple[str, int]:
    _, *kind, count = text.split(":") if text else ("gpu", "0")
    return "".join(kind), int(count)


def _list(gpus: Mapping[str, int], where: str) -> str:
    """Return GPUs as sinfo prints them; of those without a type it does not say where they are."""
    typed = (f"gpu:{kind}:{n}{where}" if kind else f"gpu:{n}" for kind, n in gpus.items())
    return ",".join(typed) or "(null)"


def _parse(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return a command's options, and its other words."""
    flags: dict[str, str] = {}
    rest: list[str] = []
    command, *left = words
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            key, _, value = word[2:].partition("=")
            flags[key] = value
        elif word.startswith("-") and word[1:] in TAKES.get(command, ""):
            flags[word[1:]] = left.pop(0)
        elif not word.startswith("-"):
            rest.append(word)
    return flags, rest


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o700)


def _handler(cluster: SlurmStandIn) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            """Read the number of words and the words; answer with code, output and errors."""
            words = [self._word() for _ in range(int(self._word()))]
            try:
                code, out, err = 0, cluster.answer([words[0], *words[3:]], words[1], words[2]), ""
            except RefusedError as refused:
                code, out, err = 1, "", str(refused)
            self.wfile.write("".join(f"{part}\0" for part in (code, out, err)).encode())

        def _word(self) -> str:
            word = bytearray()
            while (byte := self.rfile.read(1)) not in {b"\0", b""}:
                word += byte
            return word.decode()

    return Handler
