"""The pool of this machine: a node is a process group with an agent and a Ray node in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil

from burst.cost.placement import Place
from burst.errors import LeftoverError, TransientError
from burst.ports import NodeRequest, NodeView
from burst.processes import Mark, alive, find, kill_all, start_time
from burst.provision.own import (
    ASK_GPUS,
    DEVICES,
    NO_PRICE,
    accelerators,
    chosen,
    usd_per_hour,
    visible,
)
from burst.records import scratch_name
from burst.task_specs.model import Accelerators

END_WAIT_S = 8.0
LEASE_TTL_S = 20.0  # without a renewal for so long, a node takes its controller for gone
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMachine:
    """What this machine has, and what an hour of a node on it costs."""

    cpus: int
    memory_gb: float
    accelerators: Accelerators | None
    usd_per_node_hour: Decimal
    price_source: str


def this_machine(pools: Mapping[str, Any]) -> LocalMachine:
    """Look at this machine; `pools` is what pools.yaml says."""
    text = (pools.get("local") or {}).get("usd_per_hour")
    return LocalMachine(
        cpus=len(os.sched_getaffinity(0)),
        memory_gb=round(psutil.virtual_memory().total / GIB, 1),
        accelerators=accelerators(_gpus()),
        usd_per_node_hour=usd_per_hour(text),
        price_source=NO_PRICE if text is None else "pools.yaml",
    )


def _gpus() -> Sequence[str]:
    """Return nvidia-smi's lines on the GPUs that this process may use; no answer means none."""
    if shutil.which(ASK_GPUS[0]) is None:
        return ()
    result = subprocess.run(ASK_GPUS, capture_output=True, text=True, check=False, timeout=20)
    if result.returncode:
        return ()
    return chosen(result.stdout.splitlines(), os.environ.get(DEVICES))


def _gpu_env() -> Mapping[str, str]:
    """Return what keeps nodes from GPUs of another kind; where the person chose, that stands."""
    offered = "" if DEVICES in os.environ else visible(_gpus())
    return {DEVICES: offered} if offered else {}


class LocalProvisioner:
    """See burst.ports.Provisioner. Node records lie under `<home>/nodes/<run>/`."""

    outlives = False

    def __init__(self, home: Path) -> None:
        self._home = home
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._pipes: dict[str, int] = {}  # our end; closed by the kernel when we die

    def launch(self, request: NodeRequest) -> None:
        record = self._record(request.run_id, request.node_id)
        if record.exists():
            return
        try:
            self._start(request, record)
        except OSError as error:  # a full disk, or no process more
            self.end(request.run_id, request.node_id)
            raise TransientError(f"{request.node_id} could not be started: {error}") from error

    def _start(self, request: NodeRequest, record: Path) -> None:
        """Start a node's agent; it is on record before it is there."""
        scratch = self._scratch(request.run_id) / request.node_id
        scratch.mkdir(parents=True, exist_ok=True)
        where = {"ip": address_of(request.run_id, request.node_id)}
        _write(record, where)
        child = self._children[request.node_id] = self._spawn(request, scratch)
        born = {"pid": child.pid, "start_time": start_time(child.pid), "boot": _boot()}
        _write(record, {**where, **born})

    def _spawn(self, request: NodeRequest, scratch: Path) -> subprocess.Popen[bytes]:
        ours, theirs = os.pipe()[::-1]
        argv = [sys.executable, "-m", "burst.agent", "--run-uri", request.run_uri]
        argv += ["--run-id", request.run_id, "--node-id", request.node_id]
        argv += ["--ip", address_of(request.run_id, request.node_id), "--scratch", str(scratch)]
        argv += ["--index", str(request.index)]
        argv += ["--lease-ttl", str(LEASE_TTL_S), "--watch-fd", str(theirs)]
        marks = {
            "BURST_RUN_ID": request.run_id,
            "BURST_NODE_ID": request.node_id,
            "BURST_NODE_DIR": str(scratch),
        }
        try:
            with (scratch / "agent.log").open("ab") as out:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env={**_clean(os.environ), **_gpu_env(), **request.env, **marks},
                    pass_fds=(theirs,),
                    start_new_session=True,
                )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._pipes[request.node_id] = ours
        return child

    def observe(self, run_id: str, doubted: Collection[str] = ()) -> tuple[NodeView, ...]:
        del doubted  # it is always looked at anew
        return tuple(self._view(record) for record in sorted(self._records(run_id)))

    def _view(self, record: Path) -> NodeView:
        node_id = record.stem
        child = self._children.get(node_id)
        code = child.poll() if child else None  # also reaps it
        known = _read(record)
        lives = _lives(known)
        return NodeView(
            node_id=node_id,
            state="running" if lives else "gone",
            detail="" if code is None else _ending(code),
        )

    def vacant(self, places: Collection[Place]) -> tuple[Place, ...]:
        del places
        return ()  # all nodes of a run are here anyway

    def living(self) -> int:
        """Return how many nodes of runs are here now."""
        return sum(_lives(_read(record)) for record in (self._home / "nodes").glob("*/*.json"))

    def end(self, run_id: str, node_id: str) -> bool:
        record = self._record(run_id, node_id)
        known = _read(record)
        if _lives(known):
            os.kill(known["pid"], signal.SIGTERM)  # lets it send the last of its logs
            self._wait(node_id, known)
        left = kill_all(self._mark(run_id, node_id))
        self._forget(node_id)
        if left:
            raise LeftoverError(
                f"{node_id} of {run_id} cannot be ended: {', '.join(map(str, left))}",
                hint="they hang in the kernel; burst doctor lists them",
            )
        shutil.rmtree(self._scratch(run_id) / node_id, ignore_errors=True)
        record.unlink(missing_ok=True)
        self._tidy(run_id)
        return True

    def _wait(self, node_id: str, known: Mapping[str, Any]) -> None:
        child = self._children.get(node_id)
        try:
            if child is not None:
                child.wait(END_WAIT_S)
            else:
                psutil.Process(known["pid"]).wait(END_WAIT_S)
        except (subprocess.TimeoutExpired, psutil.TimeoutExpired, psutil.NoSuchProcess):
            return  # kill_all comes next

    def _forget(self, node_id: str) -> None:
        child = self._children.pop(node_id, None)
        if child is not None:
            child.wait()
        pipe = self._pipes.pop(node_id, None)
        if pipe is not None:
            os.close(pipe)

    def sweep(self, run_id: str, but: Collection[str] = ()) -> tuple[str, ...]:
        found = []
        for node_id in {record.stem for record in self._records(run_id)}.difference(but):
            found += [f"{node_id}: {process}" for process in find(self._mark(run_id, node_id))]
            self.end(run_id, node_id)
        if not but:  # else a process that says only whose run it is may be of a node that stays
            found += self._end_strays(run_id)
        return tuple(found)

    def _end_strays(self, run_id: str) -> list[str]:
        """End what carries the run's mark and no node that is on record; say what it was."""
        strays = Mark(variables={"BURST_RUN_ID": run_id})
        found = [str(process) for process in find(strays)]
        left = kill_all(strays)
        if left:
            raise LeftoverError(f"cannot be ended: {', '.join(map(str, left))}")
        self._tidy(run_id)
        return found

    def kill_node(self, run_id: str, node_id: str) -> int:
        """SIGKILL everything of a node at once, as a lost machine goes; return how many."""
        mark = self._mark(run_id, node_id)
        found = find(mark)
        kill_all(mark)
        return len(found)

    def _mark(self, run_id: str, node_id: str) -> Mark:
        marks = {"BURST_RUN_ID": run_id, "BURST_NODE_ID": node_id}
        known = _read(self._record(run_id, node_id))
        ancestor = known["pid"] if _lives(known) else None
        return Mark(variables=marks, session=_session(known), ancestor=ancestor)

    def _tidy(self, run_id: str) -> None:
        """Remove the run's folders once no node is left in them."""
        if not list(self._records(run_id)):
            shutil.rmtree(self._scratch(run_id), ignore_errors=True)
            shutil.rmtree(self._folder(run_id), ignore_errors=True)

    def _folder(self, run_id: str) -> Path:
        return self._home / "nodes" / run_id

    def _records(self, run_id: str) -> list[Path]:
        return list(self._folder(run_id).glob("*.json"))

    def _record(self, run_id: str, node_id: str) -> Path:
        return self._folder(run_id) / f"{node_id}.json"

    def _scratch(self, run_id: str) -> Path:
        return Path(tempfile.gettempdir(), scratch_name(run_id))


def _lives(known: Mapping[str, Any]) -> bool:
    same_boot = "pid" in known and known.get("boot") == _boot()
    return same_boot and alive(known["pid"], known["start_time"])


def _session(known: Mapping[str, Any]) -> int | None:
    """Return the session that a node's agent leads or led, unless the number is another's by now.

    A session's number is not given out again while a process is in it; another boot's numbers
    mean nothing.
    """
    pid = known.get("pid")
    if pid is None or known.get("boot") != _boot():
        return None
    return pid if start_time(pid) in {None, known["start_time"]} else None


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def address_of(run_id: str, node_id: str) -> str:
    """Return a loopback address of this node alone: 127.a.b.n, a and b from the run's id.

    Not 127.0.0.1, which Ray replaces by the machine's outer address.
    """
    digest, number = _hash(run_id), int(node_id.lstrip("n"))
    return f"127.{digest[0] % 254 + 1}.{(digest[1] + number // 250) % 256}.{number % 250 + 2}"


def _hash(run_id: str) -> bytes:
    return hashlib.sha256(run_id.encode()).digest()


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would make our Ray somebody else's."""
    return {name: value for name, value in environ.items() if not name.startswith("RAY_")}


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _write(record: Path, known: Mapping[str, Any]) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    scratch = record.with_suffix(".tmp")
    scratch.write_text(json.dumps(known))
    scratch.replace(record)


def _read(record: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(record.read_text())
    except FileNotFoundError:
        return {}
    return known
