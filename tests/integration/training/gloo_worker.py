"""One rank of a small training outside Ray: started by the tests as a process of its own.

argv: run folder, rank, world, attempt, rendezvous file, JSON of {settings, kill_at, log}
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import burst
from burst.checkpointing.torch_state import Ranks
from burst.records import read_run
from burst.storage.open import open_store
from burst.training.context import RunContext, enter, returned
from burst.training.facts import FactSender


class Numbers(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Each sample is its own index and some noise that comes from the generators."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(8), index


def main() -> None:
    folder, rank, world, attempt, meeting, options = sys.argv[1:7]
    given = json.loads(options)
    torch.set_num_threads(1)
    if int(world) > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(world)
        )
    store = open_store(f"file://{folder}")
    run = replace(read_run(store.get("run.json")), **given["settings"])
    facts = FactSender(store, int(attempt)) if rank == "0" else None
    if facts:
        facts.start()
    enter(
        RunContext(
            store=store,
            run=run,
            attempt=int(attempt),
            ranks=Ranks(rank=int(rank), world=int(world), local_rank=int(rank), group=None),
            staging=f"{folder}-scratch",
            facts=facts,
        )
    )
    train(Path(folder), int(rank), int(attempt), given)
    if facts:
        facts.close()


def train(folder: Path, rank: int, attempt: int, given: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / 10, 1.0) * (1 - n / 100)
    )
    session = burst.session(model=model, optimizer=optimizer, scheduler=scheduler, extras={})
    used = (folder.parent / f"used-{attempt}-{rank}.jsonl").open("a")
    for values, ids in session.batches(
        Numbers(given["samples"]), loader_workers=given.get("loader_workers", 0)
    ):
        loss = (session.model(values) - values.sum(1, keepdim=True)).square().mean()
        line = {"step": session.step_count, "rank": rank, "ids": ids.tolist()}
        used.write(json.dumps({**line, "lr": scheduler.get_last_lr()[0]}) + "\n")
        used.flush()
        if given.get("kill_at") == session.step_count and rank == given.get("victim", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        session.step(loss, tokens=values.numel())
        if session.step_count == given.get("leave_at"):
            break
    returned()
    if rank == 0:
        state = {name: value.tolist() for name, value in model.state_dict().items()}
        (folder.parent / "weights.json").write_text(json.dumps(state))


if __name__ == "__main__":
    main()
