"""Making runs and finding them again."""

from __future__ import annotations

import json
import logging
import re
import secrets
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

from burst.controller.packing import pack, pack_mount
from burst.cost.placement import Choice
from burst.errors import ConflictError, SetupError, StorageError, UsageError
from burst.records import RAY_TOKEN, RUN, TASK, RunRecord, read_run, stamp
from burst.storage.port import ObjectStore
from burst.storage.preflight import check_store
from burst.task_specs.model import Accelerators, Mount, Range, Task
from burst.task_specs.names import run_id

log = logging.getLogger(__name__)

OpenStore = Callable[[str], ObjectStore]
LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a run's nodes are: this machine, which they share, or one rented for each."""

    cpus: int
    gpus: int
    choices: tuple[Choice, ...]  # where they may be, best first
    shared: bool  # all nodes are this machine
    wanted: Accelerators | None = None  # what the task wants of each
    own: bool = False  # somebody's own machines, whose files are no business of a task
    wish: Mapping[str, Any] = field(default_factory=dict)  # of all nodes, in SkyPilot's words
    wishes: tuple[Mapping[str, Any], ...] = ()  # of nodes by the task's candidate: disk, image
    same_files: bool = False  # nodes are other machines, and see this one's files


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run and the store everything of it lies in."""

    record: RunRecord
    store: ObjectStore


def workers_of(task: Task, machine: Machine) -> Range:
    """Return how few and how many workers a task may have here."""
    if task.burst.train is None:  # a command runs once on each node
        return Range(low=task.num_nodes, high=task.num_nodes)
    if task.burst.workers is not None:
        return task.burst.workers
    accelerators = machine.wanted
    if accelerators is not None:
        most = accelerators.count * task.num_nodes
        return Range(low=most, high=most)
    alone = machine.shared and task.num_nodes == 1
    most = max(machine.cpus, 1) if alone else task.num_nodes
    return Range(low=most, high=most)


def record_of(
    task: Task,
    machine: Machine,
    *,
    name6: str,
    now: datetime,
    mounts: Mapping[str, str] = MappingProxyType({}),
) -> RunRecord:
    """Fix everything about a run that may never change while it lives."""
    burst, workers = task.burst, workers_of(task, machine)
    slots = -(-workers.high // task.num_nodes)
    accelerators = machine.wanted
    return RunRecord(
        run_id=run_id(task.name, name6),
        name=task.name,
        created=stamp(now),
        train=burst.train,
        setup=task.setup,
        run=task.run,
        workdir=str(_workdir(task)),
        params=dict(burst.params),
        strategy=burst.strategy,
        precision=burst.precision,
        reduction=burst.reduction,
        global_batch=burst.global_batch,
        micro_batch=burst.micro_batch,
        epochs=burst.epochs,
        steps=burst.steps,
        seed=burst.seed,
        clip_norm=burst.clip_norm,
        threads=max(1, machine.cpus // (workers.high if machine.shared else slots)),
        nodes=task.num_nodes,
        workers_low=workers.low,
        workers_high=workers.high,
        slots_per_node=slots,
        gpus_per_worker=1 if accelerators and burst.train else 0,
        gpus_per_node=accelerators.count if accelerators else 0,
        every_s=burst.checkpoint.every_s,
        every_steps=burst.checkpoint.every_steps,
        keep=burst.checkpoint.keep,
        checkpoint_dir=burst.checkpoint.dir,
        max_failures=burst.max_failures,
        budget_usd=None if burst.budget_usd is None else str(Decimal(str(burst.budget_usd))),
        deadline_s=burst.deadline_s,
        choices=machine.choices,
        head_apart=machine.shared,
        archive=None if machine.shared else "code/workdir.tar.gz",
        mounts=dict(mounts),
        wish=dict(machine.wish),
        wishes=machine.wishes,
        return_after_s=burst.pools.return_after_s,
        env_names=tuple(task.envs),
        secret_names=tuple(task.secrets),
    )


def packed_mounts(task: Task) -> tuple[Mount, ...]:
    """Return the mounts that are copies of files here; all others SkyPilot makes itself."""
    local = (m for m in task.mounts if not m.remote and not m.other and m.name is None)
    return tuple(m for m in local if m.mode == "COPY" and m.source is not None)


def _workdir(task: Task) -> Path:
    return Path(task.workdir) if task.workdir else Path(task.source).resolve().parent


def _check_fits(task: Task, machine: Machine) -> None:
    """Refuse what a pool or this version cannot do, before anything is touched."""
    if task.burst.train and task.burst.strategy != "ddp":
        raise SetupError(
            f"strategy {task.burst.strategy} is not available yet; this version trains with ddp",
            hint="write `strategy: ddp` in the burst: block",
        )
    if "workdir" in task.other:
        raise SetupError(
            "workdir is a git repository, which this version does not fetch",
            hint="clone it, and name its folder: workdir: ./REPOSITORY",
        )
    if task.mounts and (machine.shared or machine.own):
        whose = "this machine's" if machine.shared else "your machines'"
        raise SetupError(
            f"file_mounts ({task.mounts[0].target}, ...) would overwrite {whose} own paths",
            hint="leave file_mounts out: read files where they are, or from the workdir",
        )
    for mount in task.mounts:
        if (name := _private_in(mount.source or "", task)) is not None:
            raise SetupError(
                f"file_mounts: {mount.target}: the private {name} is not put into a source",
                hint="write the source out, or copy it in `setup:`, where private values are set",
            )
    if not machine.shared:
        return
    wanted = machine.wanted
    if wanted is not None and wanted.count * task.num_nodes > machine.gpus:
        raise SetupError(
            f"the task wants {task.num_nodes} x {wanted.count} {wanted.kind} and this machine has "
            f"{machine.gpus} GPUs",
            hint="name another place (resources.infra), or ask for fewer",
        )


def _private_in(source: str, task: Task) -> str | None:
    """Return the private variable that a text refers to, if any: nothing writes its value down."""
    named = (match[1] for match in re.finditer(r"\$\{?(\w+)", source))
    return next((name for name in named if name in {*task.secrets, *task.private_envs}), None)


def _stem(run_id: str) -> str:
    """Return a run's id without its random part: the task's name as ids spell it."""
    return run_id.rpartition("-")[0]


class Runs:
    """The runs that this person's burst knows: one small file each under `$BURST_HOME/index`."""

    def __init__(self, home: Path, open_store: OpenStore) -> None:
        self._home = home
        self._open = open_store

    def create(
        self, task: Task, machine: Machine, *, text: str, now: datetime, root: str | None = None
    ) -> Run:
        """Claim a run id and write down the task and the run's static facts.

        A bucket is tried out first. Nodes that do not see the workdir where it lies get it packed,
        through the store. The id's last part is random, and the claim is a conditional create, so
        two runs started at the same moment never share a folder.
        """
        base = self.check(task, machine, root=root)
        packed = None if machine.shared else pack(_workdir(task))
        mounts = {
            f"code/mounts/{number}.tar.gz": pack_mount(Path(str(mount.source)), mount.target)
            for number, mount in enumerate(packed_mounts(task))
        }
        folders = {key: folder for key, (folder, _) in mounts.items()}
        place = self._open(base)
        if not place.uri.startswith("file:"):
            check_store(place)  # before anything is rented that needs it
        while True:
            name6 = "".join(secrets.choice(LETTERS) for _ in range(6))
            record = record_of(task, machine, name6=name6, now=now, mounts=folders)
            store = place.at(record.run_id)
            try:
                store.create(RUN, record.encode())
            except ConflictError:
                continue
            store.put(TASK, text.encode())
            if packed is not None and record.archive is not None:
                store.put(record.archive, packed)
            for key, (_, data) in mounts.items():
                store.put(key, data)
            store.put(RAY_TOKEN, secrets.token_hex(32).encode())
            self.remember(record.run_id, store.uri)
            return Run(record=record, store=store)

    def check(self, task: Task, machine: Machine, *, root: str | None = None) -> str:
        """Return where a run would be kept; SetupError if it cannot be, or cannot run there."""
        _check_fits(task, machine)
        base = root or task.burst.run_uri or f"file://{self._home / 'runs'}"
        if not (machine.shared or machine.same_files) and base.startswith(("file:", "/")):
            raise SetupError(
                f"other machines than this one cannot reach {base}",
                hint="give a bucket: burst.run_uri: s3://BUCKET/runs or oss://BUCKET/runs, "
                "or --run-uri",
            )
        return base

    def remember(self, name: str, uri: str) -> None:
        """Let `find` know a run."""
        path = self._home / "index" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(".new")
        whole.write_text(json.dumps({"uri": uri}))
        whole.replace(path)  # `burst ls` never sees a part of it

    def find(self, name: str) -> Run:
        """Return a run by its id, the beginning of it, its task's name (the newest), or its URI."""
        if "://" in name or name.startswith("/"):
            return self._load(name)
        known = self._index()
        matches = [run for run in known if run == name] or [r for r in known if r.startswith(name)]
        if len(matches) == 1:
            return self._load(known[matches[0]])
        named = [run for run in self.all() if name in {run.record.name, _stem(run.record.run_id)}]
        if named:  # the task's own name means its newest run
            return named[0]
        if matches:
            raise UsageError(
                f"{name} means {len(matches)} runs: {', '.join(sorted(matches))}",
                hint="write one of them in full, or a task's name for its newest run",
            )
        raise UsageError(f"there is no run {name}", hint="see the runs there are: burst ls --all")

    def all(self, *, near: bool = False) -> Iterator[Run]:
        """Yield every run known here, newest first; `near`: if a disk of this machine has it.

        Those whose folder is gone are left out, and, aloud, those whose store cannot be read: a
        bucket out of reach hides no other run.
        """
        found = []
        for name, uri in self._index().items():
            if near and not uri.startswith(("file:", "/")):
                continue
            try:
                found.append(self._load(uri))
            except UsageError:
                continue
            except (StorageError, SetupError) as error:
                log.warning("%s is left out: %s", name, error)
        yield from sorted(found, key=lambda run: run.record.created, reverse=True)

    def _index(self) -> Mapping[str, str]:
        paths = sorted((self._home / "index").glob("*.json"))
        return {path.stem: _uri_in(path) for path in paths}

    def _load(self, uri: str) -> Run:
        store = self._open(uri)
        try:
            return Run(record=read_run(store.get(RUN)), store=store)
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(f"{uri}/{RUN} is damaged: {error}") from error
        except FileNotFoundError:
            raise UsageError(f"there is no run at {uri}: it has no {RUN}") from None


def _uri_in(entry: Path) -> str:
    try:
        return str(json.loads(entry.read_text())["uri"])
    except (ValueError, KeyError, TypeError) as error:
        raise SetupError(
            f"{entry} is damaged: {error}",
            hint="remove it; burst resume with the run's URI makes the run known again",
        ) from error
