"""A small training that writes down what each rank used, and its weights at the end."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
from torch import nn

import burst

OUT = Path(os.environ["TOY_OUT"])
PAUSE_S = float(os.environ.get("TOY_PAUSE_S", "0.15"))


class Numbers(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Each sample is noise from the generators, and its own index."""

    def __len__(self) -> int:
        return 61

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(16), index


def main() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    session = burst.session(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        epochs=8,
        global_batch=8,
        micro_batch=2,
        seed=3,
    )
    with (OUT / f"used-{os.getpid()}-{time.time_ns()}.jsonl").open("a") as used:
        for values, ids in session.batches(Numbers()):
            loss = (session.model(values) - values.sum(1, keepdim=True)).square().mean()
            line = {"attempt": session.attempt, "step": session.step_count, "ids": ids.tolist()}
            used.write(json.dumps(line) + "\n")
            used.flush()
            time.sleep(PAUSE_S)  # noqa: TID251 - so that there is time to kill something
            session.step(loss, tokens=values.numel())
    if session.is_main:
        state = {name: value.tolist() for name, value in model.state_dict().items()}
        (OUT / "weights.json").write_text(json.dumps(state))


if __name__ == "__main__":
    main()
