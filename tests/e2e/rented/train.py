"""The toy, for machines that are gone afterwards: it prints a hash of its weights."""

from __future__ import annotations

import hashlib
import os
import time

import torch
from torch import nn

import burst

PAUSE_S = float(os.environ.get("PAUSE_S", "0.5"))


class Numbers(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Each sample is noise from the generators, and its own index."""

    def __len__(self) -> int:
        return 61

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(16), index


def main() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1))
    session = burst.session(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        epochs=8,
        global_batch=8,
        micro_batch=2,
        seed=3,
    )
    for values, _ in session.batches(Numbers()):
        loss = (session.model(values) - values.sum(1, keepdim=True)).square().mean()
        time.sleep(PAUSE_S)  # noqa: TID251 - so that there is time to take something away
        session.step(loss, tokens=values.numel())
    if session.is_main:
        raw = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
        print("weights", hashlib.sha256(raw).hexdigest(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
