"""How a model is spread over workers: the seam between the session and its strategies."""

from __future__ import annotations

from typing import Protocol

import torch.distributed as dist
from torch import nn

from burst.errors import SetupError
from burst.training.ddp import DataParallel, reduction_for


class Strategy(Protocol):
    """Holds the model, turns slots' gradients into the gradient of the whole step."""

    model: nn.Module  # what the training loop calls
    gradient_bytes: int  # that each worker gives to the sum, and gets back

    def after_backward(self, slot: int) -> None:
        """Take the gradients that the backward pass of this slot left; clear them."""
        ...

    def reduce(self, slots: int) -> None:
        """Leave in every parameter the gradient summed over all slots. Collective."""
        ...


def strategy_for(
    name: str,
    model: nn.Module,
    *,
    reduction: str,
    rank: int,
    world: int,
    group: dist.ProcessGroup | None,
) -> Strategy:
    """Spread the model as the task says; SetupError when it cannot be."""
    if not any(p.requires_grad for p in model.parameters()):
        raise SetupError("the model has no parameter that wants a gradient")
    if name != "ddp":
        raise SetupError(
            f"strategy {name} is not available yet; this version trains with ddp",
            hint="write `strategy: ddp` in the burst: block",
        )
    devices = sorted({p.device.type for p in model.parameters()})
    chosen = reduction_for(reduction, rank=rank, world=world, group=group, devices=devices)
    return DataParallel(model, chosen)
