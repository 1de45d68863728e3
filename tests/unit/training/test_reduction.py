"""Exact sums are the same to the last bit for every number of workers."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from burst.training.order import share
from burst.training.reduction import Exact, Fast, TreeSum, combine, nodes_of

SLOTS = st.integers(1, 24)
WORLD = st.integers(1, 9)


def gradients(slots: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(slots)
    return [torch.randn(37, generator=generator) * 10 ** (i % 7 - 3) for i in range(slots)]


def summed(slots: int, world: int) -> torch.Tensor:
    """Add as `world` workers would, with the exchange done by hand."""
    parts = {}
    for rank in range(world):
        tree = TreeSum()
        for slot in share(slots, rank, world):
            tree.add(slot, gradients(slots)[slot])
        parts.update(dict(tree.parts))
    return combine(parts, slots)


@given(SLOTS, WORLD)
def test_the_sum_does_not_depend_on_the_workers(slots: int, world: int) -> None:
    assert torch.equal(summed(slots, world), summed(slots, 1))


@given(SLOTS)
def test_it_is_the_sum(slots: int) -> None:
    exact = torch.stack([g.double() for g in gradients(slots)]).sum(0)
    assert torch.allclose(summed(slots, 1).double(), exact, rtol=1e-4, atol=1e-3)


@given(SLOTS, WORLD)
def test_a_worker_sends_at_most_two_sums_per_level(slots: int, world: int) -> None:
    for rank in range(world):
        assert len(nodes_of(share(slots, rank, world))) <= 2 * max(1, slots.bit_length())


def test_plain_addition_would_differ() -> None:
    """The reason for the tree: left-to-right sums of parts are not the same for 1 and 2 workers."""
    found = [
        slots
        for slots in range(3, 25)
        if not torch.equal(
            sum(gradients(slots), torch.zeros(37)),
            sum(gradients(slots)[: slots // 2], torch.zeros(37))
            + sum(gradients(slots)[slots // 2 :], torch.zeros(37)),
        )
    ]
    assert found


def test_one_worker_needs_no_group_and_starts_anew_each_step() -> None:
    like = torch.empty(0)
    for reduction in (Exact(0, 1, None), Fast(1, None)):
        for _ in range(2):
            for slot, gradient in enumerate(gradients(5)):
                reduction.add(slot, gradient.clone())
            total = reduction.total(5, 37, like)
            assert torch.allclose(total, sum(gradients(5), torch.zeros(37)), rtol=1e-4)
