"""A worker's entry: finds its place, puts the user's code in its environment and runs it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from burst.checkpointing.torch_state import Ranks
from burst.errors import BurstError, ConflictError, SetupError, TrainingError, TransientError
from burst.records import (
    RUN,
    AttemptRecord,
    Outcome,
    OutcomeKind,
    RunRecord,
    WorkerRecord,
    attempt_key,
    outcome_key,
    read_run,
    stamp,
)
from burst.storage.open import open_store
from burst.storage.port import ObjectStore
from burst.training.context import PeerLostError, RunContext, Stopped, enter, returned
from burst.training.facts import FactSender

log = logging.getLogger(__name__)
USER_ENV = "BURST_USER_ENV"  # JSON: what the task's envs and secrets put into the environment


def train_worker(config: Mapping[str, Any]) -> None:
    """Run the task's training function as one rank; Ray Train calls this in each worker."""
    import ray.train

    place = ray.train.get_context()
    rank, world = place.get_world_rank(), place.get_world_size()
    store = open_store(config["run_uri"])
    run = read_run(store.get(RUN))
    torch.set_num_threads(run.threads)
    group = _small_group(world)
    attempt = claim_attempt(store, driver=config["driver"], rank=rank, world=world, group=group)
    context = RunContext(
        store=store,
        run=run,
        attempt=attempt,
        ranks=Ranks(rank=rank, world=world, local_rank=place.get_local_rank(), group=group),
        staging=os.environ["BURST_NODE_DIR"],
        group=group,
        facts=FactSender(store, attempt) if rank == 0 else None,
    )

    def train() -> None:
        enter(context)
        enter_environment(run)
        _call(_find(run), run.params)
        returned()

    conclude(context, train)


def conclude(context: RunContext, work: Callable[[], None]) -> None:
    """Do the work and say how it ended; re-raise what Ray has to know."""
    if context.facts:
        context.facts.start()
    try:
        work()
    except Stopped as stop:
        finish(context, "stopped", stop.step)
    except (PeerLostError, TransientError):
        raise
    except BaseException as error:
        if _is_collateral(error, context.ranks.world):
            raise PeerLostError(str(error)) from error
        finish(context, "failed", 0, error)
        raise
    else:
        finish(context, "finished", _step_of(context))


def claim_attempt(
    store: ObjectStore, *, driver: int, rank: int, world: int, group: dist.ProcessGroup | None
) -> int:
    """Write down that the group started and return its number, the same on all ranks."""
    me = _me(rank)
    workers: list[WorkerRecord | None] = [me]
    if world > 1:
        workers = [None] * world
        dist.all_gather_object(workers, me, group=group)
    claimed = [0]
    if rank == 0:
        named = tuple(worker for worker in workers if worker is not None)
        claimed = [write_attempt(store, driver, named)]
    if world > 1:
        dist.broadcast_object_list(claimed, src=0, group=group)
    return claimed[0]


def write_attempt(store: ObjectStore, driver: int, workers: tuple[WorkerRecord, ...]) -> int:
    """Claim the next free attempt number for these workers."""
    attempt = 1 + sum(1 for key in store.keys("attempts/") if not key.endswith(".outcome.json"))
    while True:
        record = AttemptRecord(
            attempt=attempt,
            world_size=len(workers),
            started=stamp(datetime.now(UTC)),
            driver=driver,
            workers=workers,
        )
        try:
            store.create(attempt_key(attempt), record.encode())
        except ConflictError:  # taken; by this very write, if its answer was lost
            if store.get(attempt_key(attempt)) != record.encode():
                attempt += 1
                continue
        return attempt


def finish(
    context: RunContext, kind: OutcomeKind, step: int, error: BaseException | None = None
) -> None:
    """Send the last facts, then say how the attempt ended; the first to say so counts."""
    if kind != "failed" and context.ranks.rank != 0:
        return
    if context.facts:
        context.facts.close()
    outcome = Outcome(
        attempt=context.attempt,
        kind=kind,
        step=step,
        time=stamp(datetime.now(UTC)),
        error=_explain(error),
        error_type=type(error).__name__ if isinstance(error, BurstError) else "TrainingError",
    )
    try:
        context.store.create(outcome_key(context.attempt), outcome.encode())
    except ConflictError:
        log.info("attempt %s: another rank said first how it ended", context.attempt)


def _step_of(context: RunContext) -> int:
    return context.facts.last_step if context.facts else 0


def _explain(error: BaseException | None) -> str:
    if error is None:
        return ""
    if isinstance(error, BurstError):
        return error.message + (f" (hint: {error.hint})" if error.hint else "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/burst/training/" not in f.filename] or frames
    text = "".join(traceback.format_list(own))
    return text + "".join(traceback.format_exception_only(error)).strip()


def _is_collateral(error: BaseException, world: int) -> bool:
    """Whether this is what a survivor sees when a peer is gone: raised inside torch.distributed.

    Ray may have taken the group down meanwhile, in another thread; then it is no RuntimeError.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or "torch/distributed" not in frames[-1].filename:
        return False
    torn_down = world > 1 and not dist.is_initialized()
    return isinstance(error, RuntimeError) or torn_down


def _small_group(world: int) -> dist.ProcessGroup | None:
    """Return a group for small CPU tensors; None means the default one, or none at all."""
    if world == 1 or dist.get_backend() == "gloo":
        return None
    made: dist.ProcessGroup = dist.new_group(backend="gloo")
    return made


def _me(rank: int) -> WorkerRecord:
    return WorkerRecord(
        rank=rank,
        node_id=os.environ["BURST_NODE_ID"],
        host=socket.gethostname(),
        pid=os.getpid(),
        start_time=process_start_time(),
    )


def process_start_time() -> float:
    """Return this process's start in clock ticks since boot (field 22 of /proc/self/stat)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return float(fields[19])


def enter_environment(run: RunRecord) -> None:
    """Give this process the task's variables, working folder and import path."""
    os.environ.update(json.loads(os.environ.get(USER_ENV, "{}")))
    folder = workdir(run)
    os.chdir(folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)


def workdir(run: RunRecord) -> str:
    """Return where the user's code lies on this node: where its agent put it, or as written."""
    return os.environ.get("BURST_WORKDIR", run.workdir)


def _find(run: RunRecord) -> Callable[..., Any]:
    """Import the function that `burst.train` names: `file.py:function` or `module:function`."""
    assert run.train is not None
    where, _, name = run.train.rpartition(":")
    module = _load_file(run, where) if where.endswith(".py") else importlib.import_module(where)
    found = getattr(module, name, None)
    if not callable(found):
        raise SetupError(f"burst.train: {where} has no function {name}")
    return found  # type: ignore[no-any-return]  # callable() narrows to an untyped one


def _load_file(run: RunRecord, where: str) -> ModuleType:
    path = Path(workdir(run), where)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SetupError(f"burst.train: there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # so that loader processes can unpickle what it defines
    spec.loader.exec_module(module)
    return module


def _call(function: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Call the function with the task's params if it takes an argument."""
    wants = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
    ]
    if len(wants) > 1:
        raise TrainingError(
            f"burst.train: {function.__name__} wants {len(wants)} arguments; "
            "it is called with none, or with the mapping of burst.params"
        )
    function(params) if wants else function()
