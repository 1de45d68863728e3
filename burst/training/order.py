"""Which samples make up which step: a function of seed, position and batch, never of the workers.

An epoch is a permutation of the samples, `torch.randperm` seeded with seed + epoch (as torch's own
DistributedSampler does). A step takes the next `global_batch` of them; the last step of an epoch
takes what is left, so each sample is used exactly once per epoch. A step is cut into slots of
`micro_batch` samples, numbered from 0. Workers take contiguous runs of slots, so the same slots
exist, with the same samples in them, whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far training is: all of the data order's state."""

    step: int = 0  # optimizer steps done
    epoch: int = 0
    used: int = 0  # samples of this epoch used by those steps
    samples: int = 0  # samples used since the beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The samples of one forward pass: `number`-th of `of` slots of the step."""

    step: int
    epoch: int
    number: int
    of: int
    indices: tuple[int, ...]
    batch: int  # samples in the whole step


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The data order of one dataset."""

    samples: int  # in the dataset
    seed: int
    global_batch: int
    micro_batch: int

    def permutation(self, epoch: int) -> torch.Tensor:
        """Return the order of an epoch: int64, shape (samples,)."""
        generator = torch.Generator().manual_seed(self.seed + epoch)
        return torch.randperm(self.samples, generator=generator)

    def after(self, position: Position) -> Position:
        """Return the position one step on."""
        size = min(self.global_batch, self.samples - position.used)
        used = position.used + size
        rolled = used == self.samples
        return Position(
            step=position.step + 1,
            epoch=position.epoch + rolled,
            used=0 if rolled else used,
            samples=position.samples + size,
        )

    def steps(self, start: Position) -> Iterator[tuple[Slot, ...]]:
        """Yield the slots of each step from `start` on, without end."""
        position, epoch = start, -1
        order = torch.empty(0, dtype=torch.int64)
        while True:
            if position.epoch != epoch:
                epoch = position.epoch
                order = self.permutation(epoch)
            size = min(self.global_batch, self.samples - position.used)
            yield self._slots(position, order[position.used : position.used + size].tolist())
            position = self.after(position)

    def _slots(self, position: Position, indices: list[int]) -> tuple[Slot, ...]:
        parts = [
            tuple(indices[i : i + self.micro_batch])
            for i in range(0, len(indices), self.micro_batch)
        ]
        return tuple(
            Slot(
                step=position.step,
                epoch=position.epoch,
                number=number,
                of=len(parts),
                indices=part,
                batch=len(indices),
            )
            for number, part in enumerate(parts)
        )


def share(slots: int, rank: int, world: int) -> range:
    """Return the slot numbers of one of `world` workers: contiguous, sizes differ by at most one.

    >>> [list(share(8, rank, 3)) for rank in range(3)]
    [[0, 1, 2], [3, 4, 5], [6, 7]]
    """
    each, more = divmod(slots, world)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))
