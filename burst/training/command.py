"""Running a task's `run:` command on each node, for tasks that do not use the burst API.

Each node runs the command once, with torchrun's environment variables and SkyPilot's. The folder
named in `burst.checkpoint.dir` is committed as a checkpoint when its content has changed, and is
put back before the command starts again. Nodes agree once a second on who has ended and what to
do, so that one failed command ends all of them.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from burst.checkpointing.folder import Snapshot, put_back, series, snapshot
from burst.checkpointing.sweep import apply_keep
from burst.checkpointing.torch_state import Ranks
from burst.errors import CheckpointError, StorageError, TrainingError
from burst.records import RUN, read_run, stamp
from burst.storage.open import open_store
from burst.training.context import PeerLostError, RunContext, Stopped
from burst.training.facts import FactSender
from burst.training.worker import claim_attempt, conclude, enter_environment, workdir

log = logging.getLogger(__name__)
TICK_S = 1.0
GRACE_S = 30.0  # between SIGTERM and SIGKILL
LAST_LINES = 20
KEPT_BYTES = 65536


def run_command(config: Mapping[str, Any]) -> None:
    """Run the command as one node; Ray Train calls this once on each."""
    import ray.train

    place = ray.train.get_context()
    rank, world = place.get_world_rank(), place.get_world_size()
    store = open_store(config["run_uri"])
    run = read_run(store.get(RUN))
    attempt = claim_attempt(store, driver=config["driver"], rank=rank, world=world, group=None)
    context = RunContext(
        store=store,
        run=run,
        attempt=attempt,
        ranks=Ranks(rank=rank, world=world, local_rank=0, group=None),
        staging=os.environ["BURST_NODE_DIR"],
        facts=FactSender(store, attempt) if rank == 0 else None,
    )
    conclude(context, lambda: Command(context).run())


@dataclass(frozen=True, slots=True)
class _Agreed:
    """What the nodes know of each other after one exchange."""

    running: int  # commands still on
    failed: int
    save: bool
    stop: bool


class Command:
    """One node's command, from put-back to its end."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._run = context.run
        self._rank = context.ranks.rank
        self._world = context.ranks.world
        self._order_done = 0
        self._keeper = False
        self._saved_at = time.monotonic()
        self._counted = datetime.now(UTC)  # up to here the command's time is accounted for
        self._log = Path(context.staging, f"command-a{context.attempt:04d}.log")
        self._folder = self._checkpoint_folder()
        self._last: Snapshot | None = None

    def run(self) -> None:
        """Put the folder back, run the command, commit the folder; raise if it fails."""
        enter_environment(self._run)
        self._keeper = self._keeps_folder()
        if self._folder is not None and self._keeper:
            self._last = put_back(self._context.store, self._folder, node=self._rank, log=log)
        kind = "resumed" if self._last else "started"
        self._tell(kind, step=self._generation, world=self._world)
        self._counted = datetime.now(UTC)
        child = self._start()
        try:
            self._follow(child)
        finally:
            _end(child)
        if not self._save():
            self._count(self._generation + 1)  # what ran since the last save, and needs none

    @property
    def _generation(self) -> int:
        """How often the folder has been committed; stands for the step."""
        return self._last.manifest.step if self._last else 0

    def _checkpoint_folder(self) -> Path | None:
        if self._run.checkpoint_dir is None:
            return None
        folder = Path(workdir(self._run), self._run.checkpoint_dir).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _keeps_folder(self) -> bool:
        """Whether this node commits the folder: the first one on each machine, which share it."""
        hosts: list[str | None] = [socket.gethostname()]
        if self._world > 1:
            hosts = [None] * self._world
            dist.all_gather_object(hosts, socket.gethostname())
        return hosts.index(socket.gethostname()) == self._rank

    def _start(self) -> subprocess.Popen[bytes]:
        assert self._run.run is not None
        address, port, ips = self._meeting_point()
        variables = {**os.environ, **command_env(self._context, address, port, ips)}
        # `exec` through a launcher that asks the kernel to end it with this worker
        launcher = [sys.executable, "-m", "burst.agent.launcher", str(os.getpid())]
        argv = [*launcher, "bash", "-c", self._run.run]
        with self._log.open("wb") as out:
            return subprocess.Popen(
                argv,
                cwd=workdir(self._run),
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _meeting_point(self) -> tuple[str, int, list[str]]:
        """Return address and a free port of rank 0's node, and all nodes' addresses."""
        import ray.util

        ip: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        mine = (ip, _free_port())
        places: list[Any] = [mine]
        if self._world > 1:
            places = [None] * self._world
            dist.all_gather_object(places, mine)
        return places[0][0], places[0][1], [ip for ip, _ in places]

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        """Pass its output on, agree each second, save and stop when told."""
        shown = 0
        while True:
            code = _wait(child, TICK_S)
            shown = self._show(shown)
            agreed = self._agree(code)
            if code:
                self._save()
                raise TrainingError(
                    f"the command ended with exit code {code} on node {self._rank}; "
                    f"its last lines:\n{self._tail()}"
                )
            if agreed.failed:
                raise PeerLostError("the command failed on another node")
            if agreed.stop:
                _end(child)
                self._save()
                raise Stopped(self._generation)
            if agreed.save:
                self._save()
            if agreed.running == 0:
                return

    def _agree(self, code: int | None) -> _Agreed:
        save, stop = self._wishes()
        mine = [float(code is None), float(bool(code)), float(save), float(stop)]
        numbers = torch.tensor(mine)
        if self._world > 1:
            try:
                dist.all_reduce(numbers)
            except RuntimeError as error:
                raise PeerLostError(str(error)) from error
        running, failed, saves, stops = numbers.tolist()
        return _Agreed(int(running), int(failed), saves > 0, stops > 0)

    def _wishes(self) -> tuple[bool, bool]:
        facts = self._context.facts
        if facts is None:
            return False, False
        save = time.monotonic() - self._saved_at >= self._run.every_s
        order = facts.order()
        if order is None or order.number <= self._order_done:
            return save, False
        self._order_done = order.number
        fresh = order.attempt in {None, self._context.attempt}
        return save or fresh, fresh and order.kind == "stop"

    def _save(self) -> bool:
        """Commit the folder if it changed; a failure is told and tried again later."""
        self._saved_at = time.monotonic()
        if self._folder is None or not self._keeper:
            return False
        started, before = datetime.now(UTC), self._last
        try:
            self._last = self._snapshot(self._folder)
        except (CheckpointError, StorageError) as error:
            self._tell("save_failed", step=self._generation, error=str(error))
            return False
        if self._last is None or self._last is before:
            return False
        self._count(self._generation, until=started)
        size = sum(file.size_bytes for file in self._last.manifest.files)
        times = {"start": stamp(started), "end": stamp(datetime.now(UTC))}
        self._tell("saved", step=self._generation, size_bytes=size, **times)
        attempt = self._context.attempt
        mine = series(self._context.store, self._rank)
        apply_keep(mine, keep=self._run.keep, live_attempt=attempt, log=log)
        self._counted = datetime.now(UTC)
        return True

    def _count(self, step: int, until: datetime | None = None) -> None:
        """Tell the ledger what the command's time was good for; a step is what a save commits."""
        end = until or datetime.now(UTC)
        times = {"start": stamp(self._counted), "end": stamp(end)}
        self._tell("step", step=step, epoch=0, samples=0, tokens=0, **times)
        self._counted = end

    def _snapshot(self, folder: Path) -> Snapshot | None:
        return snapshot(
            self._context.store,
            folder,
            last=self._last,
            attempt=self._context.attempt,
            node=self._rank,
            nodes=self._world,
            log=log,
        )

    def _show(self, shown: int) -> int:
        """Copy new output to this worker's own, from where the node's agent ships it."""
        with self._log.open("rb") as source:
            source.seek(shown)
            shutil.copyfileobj(source, sys.stdout.buffer)
            sys.stdout.flush()
            return source.tell()

    def _tail(self) -> str:
        with self._log.open("rb") as source:
            source.seek(max(0, self._log.stat().st_size - KEPT_BYTES))
            lines = source.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])

    def _tell(self, kind: str, **fact: Any) -> None:  # noqa: ANN401 - JSON
        if self._context.facts is not None:
            now = stamp(datetime.now(UTC))
            line = {"kind": kind, "time": now, "attempt": self._context.attempt, **fact}
            self._context.facts.tell(line)


def command_env(context: RunContext, address: str, port: int, ips: list[str]) -> dict[str, str]:
    """Return the variables a command finds: torchrun's, SkyPilot's and ours."""
    rank, world, run = context.ranks.rank, context.ranks.world, context.run
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "GROUP_WORLD_SIZE": str(world),
        "NODE_RANK": str(rank),
        "SKYPILOT_NODE_IPS": "\n".join(ips),
        "SKYPILOT_NODE_RANK": str(rank),
        "SKYPILOT_NUM_NODES": str(world),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(run.gpus_per_node),
        "SKYPILOT_TASK_ID": run.run_id,
        "BURST_ATTEMPT": str(context.attempt),
        "BURST_CHECKPOINT_DIR": run.checkpoint_dir or "",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the command and its process group: SIGTERM, then SIGKILL after the grace."""
    for number, seconds in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        if child.poll() is not None:
            break
        os.killpg(child.pid, number)
        _wait(child, seconds)
