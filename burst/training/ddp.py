"""Data parallel training: every worker holds the whole model, gradients are summed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
import torch.distributed as dist
from torch import nn

from burst.training.reduction import Exact, Fast, Reduction


class DataParallel:
    """See burst.training.strategy.Strategy."""

    def __init__(self, model: nn.Module, reduction: Reduction) -> None:
        self.model = model
        self._reduction = reduction
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._dtype = reduce(torch.promote_types, (p.dtype for p in self._parameters))
        self._like = torch.empty(0, dtype=self._dtype, device=self._parameters[0].device)
        self._size = sum(p.numel() for p in self._parameters) + len(self._parameters)
        self.gradient_bytes = self._size * self._dtype.itemsize

    def after_backward(self, slot: int) -> None:
        self._reduction.add(slot, self._take())

    def reduce(self, slots: int) -> None:
        self._put(self._reduction.total(slots, self._size, self._like))

    def _take(self) -> torch.Tensor:
        """Move all gradients into one vector, followed by a mark for each that exists."""
        pieces: list[torch.Tensor] = []
        marks: list[float] = []
        for p in self._parameters:
            gone = p.grad is None
            pieces.append(self._like.new_zeros(p.numel()) if p.grad is None else p.grad.flatten())
            marks.append(0.0 if gone else 1.0)
            p.grad = None
        vector = torch.cat([piece.to(self._dtype) for piece in pieces])
        return torch.cat([vector, self._like.new_tensor(marks)])

    def _put(self, total: torch.Tensor) -> None:
        """Give the parameters the sum; one that had no gradient anywhere gets none."""
        marks = total[-len(self._parameters) :].tolist()
        at = 0
        for p, mark in zip(self._parameters, marks, strict=True):
            part = total[at : at + p.numel()]
            at += p.numel()
            p.grad = part.view_as(p).to(p.dtype) if mark else None


def reduction_for(
    kind: str, *, rank: int, world: int, group: dist.ProcessGroup | None, devices: Sequence[str]
) -> Reduction:
    """Return the reduction a task asks for; `auto` is exact on CPUs and fast on accelerators.

    Accelerator kernels are not deterministic in general, so exact sums would buy little there.
    """
    exact = kind == "exact" or (kind == "auto" and set(devices) <= {"cpu"})
    return Exact(rank, world, group) if exact else Fast(world, group)
