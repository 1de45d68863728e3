"""One rank that saves and loads as it is told: started by the tests as a process of its own.

argv: JSON of {store, scratch, rank, world, meeting, nodes, steps: [...]}; prints one JSON a line.
Each step: {"do": "save" | "load", "step", "deadline_s"}, and the trouble that `ranks` have with it:
"fail", "hang", "damage", "harm" or "disk_bytes", the most a file may hold.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from burst.checkpointing.torch_ranks import Ranks
from burst.checkpointing.torch_state import TrainState, load, save
from burst.errors import BurstError, TransientError
from burst.storage.backends.local import LocalStore


class Troubled(LocalStore):
    """Refuses, hangs at, or garbles what this rank transfers."""

    trouble: dict[str, Any] = {}  # noqa: RUF012 - set for each step

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        if self.trouble.get("fail"):
            raise TransientError("503 slow down")
        if self.trouble.get("hang"):
            threading.Event().wait()
        super().upload(key, source, size_bytes)

    def download(self, key: str, target: BinaryIO) -> int:
        if (damaged := self.trouble.get("damage")) and damaged in key:
            return target.write(b"garbled on the way")
        return super().download(key, target)


def main() -> None:
    given = json.loads(sys.argv[1])
    rank, world = int(given["rank"]), int(given["world"])
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if world > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{given['meeting']}",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=20),
        )
    local_rank = 0 if given["nodes"] > 1 else rank
    ranks = Ranks(rank=rank, world=world, local_rank=local_rank, group=None)
    node = rank if given["nodes"] > 1 else 0
    states = training(world)
    for order in given["steps"]:
        store = Troubled(Path(given["store"]))
        limit = order.get("disk_bytes", resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        store.trouble = order if rank in order.get("ranks", range(world)) else {}
        said = follow(order, states, store, Path(given["scratch"]) / f"node-{node}", ranks)
        sys.stdout.write(json.dumps({"rank": rank, **said}) + "\n")
    sys.stdout.flush()


def training(world: int) -> TrainState:
    """Return the same model on every rank, wrapped in DDP when there are several."""
    torch.manual_seed(7)
    bare = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    model = DistributedDataParallel(bare) if world > 1 else bare
    return TrainState(
        model=model, optimizers={"optimizer": torch.optim.Adam(model.parameters(), lr=0.05)}
    )


def learn(states: TrainState, step: int) -> None:
    """Take one step that every rank takes alike."""
    optimizer = states.optimizers["optimizer"]
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(step))
    states.model(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def follow(
    order: dict[str, Any], states: TrainState, store: Troubled, scratch: Path, ranks: Ranks
) -> dict[str, Any]:
    try:
        if order["do"] == "load":
            with harmed(store):
                manifest = load(states, store, staging=scratch / "in", ranks=ranks)
            return {"step": None if manifest is None else manifest.step, **digest(states)}
        learn(states, order["step"])
        save(
            states,
            store,
            step=order["step"],
            attempt=1,
            staging=scratch / "out",
            position={"samples": order["step"] * 4},
            ranks=ranks,
            deadline_s=order.get("deadline_s", 10.0),
        )
    except BurstError as error:
        return {"error": error.message, "kind": type(error).__name__}
    return {"saved": order["step"], **digest(states)}


@contextlib.contextmanager
def harmed(store: Troubled) -> Iterator[None]:
    """Break a file of step 20 in the store meanwhile, as ordered."""
    harm = store.trouble.get("harm")
    key = f"checkpoints/step-00000020-a0001/{'.metadata' if harm == 'no index' else '__1_0.distcp'}"
    good = store.get(key) if harm else b""
    match harm:
        case "no index":
            store.delete([key])
        case "half":
            store.put(key, good[: len(good) // 2])
        case "empty":
            store.put(key, b"")
        case _:
            pass
    yield
    if harm:
        store.put(key, good)


def digest(states: TrainState) -> dict[str, Any]:
    """Return numbers that change with any weight or moment, and with a step more."""
    bare = getattr(states.model, "module", states.model)
    optimizer = states.optimizers["optimizer"].state_dict()["state"]
    moments = sum(float(v["exp_avg_sq"].double().sum()) for v in optimizer.values())
    weights = sum(float(p.detach().double().sum()) for p in bare.parameters())
    return {"weights": weights, "moments": moments, "names": list(bare.state_dict())}


if __name__ == "__main__":
    main()
