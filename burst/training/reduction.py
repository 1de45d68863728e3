"""Summing gradients over workers.

`exact` adds the slots' gradients in the order of one fixed binary tree over slot numbers, whoever
computed them. Floating-point addition is not associative, so this is what makes the result the
same to the last bit for every number of workers. It sends whole partial sums around: at most
2 log2(slots) gradients per worker and step. `fast` adds up locally and then calls all_reduce: less
traffic, and sums that depend on the number of workers in the last bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from burst.training.order import share

Vector = torch.Tensor
Node = tuple[int, int]  # level, index: covers slots [index * 2**level, (index + 1) * 2**level)


class Reduction(Protocol):
    """Takes the gradient of each slot, gives back their sum over all workers."""

    def add(self, slot: int, gradient: Vector) -> None:
        """Take the gradient of one slot of this worker; slots come in ascending order."""
        ...

    def total(self, slots: int, size: int, like: Vector) -> Vector:
        """Return the sum over all `slots` on every worker, and start anew. Collective.

        `size` is the length of a gradient and `like` has its dtype and device, for workers that
        had no slot.
        """
        ...


class TreeSum:
    """A partial sum per maximal subtree of the slots seen so far."""

    def __init__(self) -> None:
        self.parts: list[tuple[Node, Vector]] = []

    def add(self, slot: int, vector: Vector) -> None:
        """Add a leaf and merge the pairs it completes."""
        self.parts.append(((0, slot), vector))
        while len(self.parts) > 1 and _pair(self.parts[-2][0], self.parts[-1][0]):
            (level, index), left = self.parts[-2]
            right = self.parts[-1][1]
            self.parts[-2:] = [((level + 1, index // 2), left + right)]


def _pair(left: Node, right: Node) -> bool:
    return left[0] == right[0] and left[1] % 2 == 0 and right[1] == left[1] + 1


def nodes_of(slots: Iterable[int]) -> list[Node]:
    """Return which subtrees a worker ends up with after these slots, in order.

    >>> nodes_of(range(3, 6))
    [(0, 3), (1, 2)]
    """
    nodes: list[Node] = []
    for slot in slots:
        nodes.append((0, slot))
        while len(nodes) > 1 and _pair(nodes[-2], nodes[-1]):
            level, index = nodes[-2]
            nodes[-2:] = [(level + 1, index // 2)]
    return nodes


def combine(parts: dict[Node, Vector], slots: int) -> Vector:
    """Add partial sums up the tree over `slots` leaves; a missing right child adds nothing."""

    def value(level: int, index: int) -> Vector | None:
        if (level, index) in parts:
            return parts[level, index]
        if index << level >= slots:
            return None
        assert level > 0, f"no gradient for slot {index}"
        left, right = value(level - 1, 2 * index), value(level - 1, 2 * index + 1)
        assert left is not None
        return left if right is None else left + right

    root = value((slots - 1).bit_length(), 0)
    assert root is not None
    return root


class Exact:
    """See Reduction; the same to the last bit for every number of workers."""

    def __init__(self, rank: int, world: int, group: dist.ProcessGroup | None) -> None:
        self._rank = rank
        self._world = world
        self._group = group
        self._tree = TreeSum()

    def add(self, slot: int, gradient: Vector) -> None:
        self._tree.add(slot, gradient)

    def total(self, slots: int, size: int, like: Vector) -> Vector:
        mine, self._tree = self._tree.parts, TreeSum()
        parts = dict(mine) if self._world == 1 else self._exchange(mine, slots, size, like)
        return combine(parts, slots)

    def _exchange(
        self, mine: Sequence[tuple[Node, Vector]], slots: int, size: int, like: Vector
    ) -> dict[Node, Vector]:
        owned = [nodes_of(share(slots, rank, self._world)) for rank in range(self._world)]
        assert [node for node, _ in mine] == owned[self._rank]
        most = max(map(len, owned))
        packed = like.new_zeros((most, size))
        for row, (_, vector) in enumerate(mine):
            packed[row] = vector
        gathered = list(like.new_empty((self._world, most, size)).unbind())
        dist.all_gather(gathered, packed, group=self._group)
        return {
            node: gathered[rank][row]
            for rank, nodes in enumerate(owned)
            for row, node in enumerate(nodes)
        }


class Fast:
    """See Reduction; one all_reduce, equal for equal numbers of workers."""

    def __init__(self, world: int, group: dist.ProcessGroup | None) -> None:
        self._world = world
        self._group = group
        self._sum: Vector | None = None

    def add(self, slot: int, gradient: Vector) -> None:
        del slot
        self._sum = gradient if self._sum is None else self._sum + gradient

    def total(self, slots: int, size: int, like: Vector) -> Vector:
        del slots
        total = like.new_zeros(size) if self._sum is None else self._sum
        self._sum = None
        if self._world > 1:
            dist.all_reduce(total, group=self._group)
        return total
