"""A stand-in for a Slurm cluster: its controller, and the commands of its login node.

What it is true to was seen of Slurm 22.05 (tests.lab.slurm has a real one): what the commands
print; a job gets the first node that has room, and takes all memory if it asks for none; an ended
job is COMPLETING for a while, and keeps its node meanwhile. There is one partition, without
preemption. The scripts of jobs are not run.

A login node is reached as always, by `ssh`: there is one in `folder` that runs the command in a
shell of this machine, where Slurm's commands are scripts that ask the controller. Time is the
test's clock.
"""

from __future__ import annotations

import re
import socketserver
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from burst.ports import Clock

ME, PARTITION = "me", "gpu"
TAKES = {"scancel": "u", "sinfo": "O", "squeue": "tuo"}  # options whose value is the next word
COMMANDS = ("date", "df", "getent", "id", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
ENDED = frozenset({"CANCELLED", "PREEMPTED", "TIMEOUT", "COMPLETED", "FAILED"})
HOLDS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING"})  # jobs of these states have their node
SSH = """#!/bin/bash
there={folder}/${{@: -2:1}}
if [ ! -d "$there" ] || [ -e "$there/down" ]; then
  echo "ssh: connect to host ${{@: -2:1}} port 22: Connection refused" >&2; exit 255
fi
exec env -i HOME="$there" PATH="$there/bin:/usr/bin:/bin" sh -c "${{@: -1}}"
"""
ASK = """#!/bin/bash
me=${{0##*/}}
[[ $me = sbatch && $* != *--wrap=* ]] && cat >/dev/null  # the script
words=("$me" "$SLURM_TIME_FORMAT" "$@")
exec 3<>/dev/tcp/127.0.0.1/{port}
printf '%s\\0' ${{#words[@]}} "${{words[@]}}" >&3
IFS= read -r -d '' code <&3 && IFS= read -r -d '' out <&3 && IFS= read -r -d '' err <&3
printf %s "$out"; printf %s "$err" >&2
exit "$code"
"""


@dataclass
class Node:
    """A machine."""

    name: str
    cpus: int = 8
    memory_mb: int = 16_000
    gpus: int = 4


@dataclass
class Job:
    """A job, also one that ended."""

    number: int
    name: str
    cpus: int
    memory_mb: int  # 0: all that its node has
    gpus: int
    state: str = "PENDING"
    reason: str = "None"
    node: str = ""
    starts: float | None = None  # or started, since 1970
    ends: float | None = None


class RefusedError(Exception):
    """A command prints this to its standard error, and fails."""


class SlurmStandIn:
    """Use as a context manager; then `ssh NAME` of `folder` leads to its login node."""

    time_s = 86_400.0  # that a job may run
    completing_s = 1.0  # how long one takes to end

    def __init__(self, name: str, folder: Path, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._there = folder / name
        self._path = folder
        self.nodes = [Node(f"n{number}") for number in (1, 2, 3, 4)]
        self.jobs: dict[int, Job] = {}
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        port = self._server.server_address[1]
        (self._there / "bin").mkdir(parents=True)
        for name in COMMANDS:
            _write(self._there / "bin" / name, ASK.format(port=port))
        _write(self._path / "ssh", SSH.format(folder=self._path))
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

    # The controller -------------------------------------------------------------------------------

    def answer(self, words: Sequence[str], time_format: str) -> str:
        """Return what a command prints; RefusedError if it fails."""
        with self._lock:
            self._schedule()
            flags, rest = _parse(words)
            if words[0] == "sbatch":
                return self._sbatch(flags)
            if words[0] == "squeue":
                return self._squeue(flags, seconds=time_format == "%s")
            does: dict[str, Callable[[Mapping[str, str], Sequence[str]], str]] = {
                "date": lambda *_: f"{self._now():.0f}\n",
                "df": lambda *_: "Filesystem 1024-blocks Used Available\nfs 1 1 81234567\n",
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
        """End what has completed, and start what has room, first come first served."""
        for job in self.jobs.values():
            if job.state == "COMPLETING" and self._now() >= (job.ends or 0.0) + self.completing_s:
                job.state = "CANCELLED"
        for job in self.jobs.values():
            if job.state != "PENDING":
                continue
            node = self._room(job)
            if node is None:
                job.reason = "Resources"
            else:
                job.state, job.reason, job.node = "RUNNING", "None", node.name
                job.starts, job.ends = self._now(), self._now() + self.time_s

    def _room(self, job: Job) -> Node | None:
        """Return a node that a job can have now."""
        return next((node for node in self.nodes if self._fits(job, node)), None)

    def _fits(self, job: Job, node: Node) -> bool:
        cpus, memory_mb, gpus = self._used(node)
        return (
            job.cpus <= node.cpus - cpus
            and (job.memory_mb or node.memory_mb) <= node.memory_mb - memory_mb
            and job.gpus <= node.gpus - gpus
        )

    def _used(self, node: Node) -> tuple[int, int, int]:
        """Return the CPUs, memory in MiB and GPUs of a node that jobs have."""
        jobs = [one for one in self.jobs.values() if one.node == node.name and one.state in HOLDS]
        memory_mb = sum(job.memory_mb or node.memory_mb for job in jobs)
        return sum(job.cpus for job in jobs), memory_mb, sum(job.gpus for job in jobs)

    # Its commands ---------------------------------------------------------------------------------

    def _sbatch(self, flags: Mapping[str, str]) -> str:
        if flags["partition"] != PARTITION:
            said = "Batch job submission failed: Invalid partition name specified"
            raise RefusedError(f"sbatch: error: {said}\n")
        job = Job(
            number=max(self.jobs, default=6) + 1,
            name=flags.get("job-name", "wrap"),
            cpus=int(flags.get("cpus-per-task", 1)),
            memory_mb=int(flags.get("mem", "0").removesuffix("G")) * 1024,
            gpus=int(flags.get("gres", "gpu:0").rpartition(":")[2]),
        )
        if "test-only" in flags:
            raise RefusedError(self._plan(job))  # sbatch speaks to the standard error here
        self.jobs[job.number] = job
        return f"{job.number}\n" if "parsable" in flags else f"Submitted batch job {job.number}\n"

    def _plan(self, job: Job) -> str:
        """Return what sbatch --test-only says of a job."""
        node = self._room(job)
        starts = self._now() + (0.0 if node else self.time_s)
        return (
            f"sbatch: Job {job.number} to start at {starts:.0f} using {job.cpus} processors on "
            f"nodes {(node or self.nodes[0]).name} in partition {PARTITION}\n"
        )

    def _squeue(self, flags: Mapping[str, str], *, seconds: bool) -> str:
        states = flags.get("t", "PENDING,RUNNING,COMPLETING").split(",")
        lines = [
            "".join(_of_job(job, part, seconds=seconds) for part in re.findall("%.|.", flags["o"]))
            for job in self.jobs.values()
            if (states == ["all"] or job.state in states) and flags.get("u") in {None, ME}
        ]
        return "".join(f"{line}\n" for line in lines)

    def _scancel(self, flags: Mapping[str, str], rest: Sequence[str]) -> str:
        for job in self.jobs.values():
            named = flags.get("name") == job.name if "name" in flags else str(job.number) in rest
            if named and flags.get("u") in {None, ME} and job.state not in ENDED:
                job.state = "COMPLETING" if job.state in HOLDS else "CANCELLED"
                job.ends = self._now()
        return ""

    def _scontrol(self, flags: Mapping[str, str], rest: Sequence[str]) -> str:
        del flags
        match rest:
            case ["show", "config"]:
                return "Configuration data\nPreemptMode = OFF\nPreemptType = preempt/none\n"
            case ["show", "partition"]:
                return (
                    f"PartitionName={PARTITION} AllowGroups=ALL Default=YES GraceTime=0 "
                    f"PriorityTier=1 PreemptMode=OFF State=UP TotalNodes={len(self.nodes)}\n"
                )
            case ["show", "node", name]:
                number = [node.name for node in self.nodes].index(name) + 5
                return f"NodeName={name} Arch=x86_64 Gres=x NodeAddr=10.0.0.{number} Port=6818 \n"
            case _:
                raise RefusedError(f"invalid keyword: {rest}\n")

    def _sinfo(self, flags: Mapping[str, str], rest: Sequence[str]) -> str:
        del rest
        columns = [part.split(":") for part in flags["O"].split(",")]
        return "".join(
            "".join(f"{told[name]:<{width}}"[: int(width)] for name, width in columns) + "\n"
            for told in map(self._told, self.nodes)
        )

    def _told(self, node: Node) -> Mapping[str, str]:
        """Return what sinfo prints of a node, by column."""
        cpus, memory_mb, gpus = self._used(node)
        return {
            "NodeList": node.name,
            "Partition": f"{PARTITION}*",
            "StateCompact": "idle" if not cpus else "mix" if cpus < node.cpus else "alloc",
            "CPUsState": f"{cpus}/{node.cpus - cpus}/0/{node.cpus}",
            "Memory": str(node.memory_mb),
            "AllocMem": str(memory_mb),
            "Gres": f"gpu:A100:{node.gpus}(S:0-1)",
            "GresUsed": f"gpu:A100:{gpus}(IDX:0)",
        }


def _of_job(job: Job, part: str, *, seconds: bool) -> str:
    """Return what squeue prints of a job for a part of its format: `%i`, or one character."""
    assert seconds or part not in {"%S", "%e"}, "times are wanted as SLURM_TIME_FORMAT=%s"
    starts, ends = ("N/A" if t is None else f"{t:.0f}" for t in (job.starts, job.ends))
    told = {"%i": job.number, "%j": job.name, "%T": job.state, "%r": job.reason, "%N": job.node}
    told |= {"%S": starts, "%e": ends, "%P": PARTITION, "%D": 1}
    return str(told.get(part, part))


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
                code, out, err = 0, cluster.answer([words[0], *words[2:]], words[1]), ""
            except RefusedError as refused:
                code, out, err = 1, "", str(refused)
            self.wfile.write("".join(f"{part}\0" for part in (code, out, err)).encode())

        def _word(self) -> str:
            word = bytearray()
            while (byte := self.rfile.read(1)) not in {b"\0", b""}:
                word += byte
            return word.decode()

    return Handler
