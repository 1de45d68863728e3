"""The data order depends on the step, never on the workers."""

from __future__ import annotations

from itertools import chain, islice

import torch
from hypothesis import given
from hypothesis import strategies as st

from burst.training.order import Order, Position, share

SIZES = st.integers(1, 60)


def ids(order: Order, start: Position, steps: int, worlds: list[int]) -> list[list[int]]:
    """Return the samples of each step as its workers (their number changes per step) read them."""
    read = []
    for slots, world in zip(islice(order.steps(start), steps), worlds, strict=True):
        mine = [slots[i] for rank in range(world) for i in share(len(slots), rank, world)]
        read.append([index for slot in mine for index in slot.indices])
    return read


def flat(steps: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(steps))


def test_the_first_epoch_of_seed_0_is_torchs_own_permutation() -> None:
    order = Order(samples=24, seed=0, global_batch=4, micro_batch=1)
    wanted = torch.randperm(24, generator=torch.Generator().manual_seed(0)).tolist()
    assert flat(ids(order, Position(), 6, [4] * 6)) == wanted


def test_fewer_workers_go_on_with_the_samples_that_are_left() -> None:
    """C98: 12 of 24 samples used by 4 workers, then 3 workers; nothing twice, nothing missing."""
    order = Order(samples=24, seed=0, global_batch=12, micro_batch=1)
    rest = ids(order, order.after(Position()), 1, [3])[0]
    assert rest == [9, 18, 11, 8, 16, 10, 0, 14, 15, 23, 21, 6]


def test_each_epoch_has_its_own_order_after_any_restart() -> None:
    """C97: stopped at each end of five epochs, the orders are those of an undisturbed run."""
    order = Order(samples=24, seed=7, global_batch=8, micro_batch=4)
    undisturbed = ids(order, Position(), 15, [2] * 15)
    position, stitched = Position(), []
    for _ in range(5):
        stitched += ids(order, position, 3, [2, 1, 2])
        for _ in range(3):
            position = order.after(position)
    assert stitched == undisturbed
    epochs = [flat(undisturbed[e * 3 : e * 3 + 3]) for e in range(5)]
    assert len({tuple(epoch) for epoch in epochs}) == 5


@given(
    SIZES, SIZES, SIZES, st.integers(0, 9), st.lists(st.integers(1, 9), min_size=40, max_size=40)
)
def test_each_sample_is_used_once_per_epoch_whatever_the_workers(
    samples: int, batch: int, micro: int, seed: int, worlds: list[int]
) -> None:
    order = Order(samples=samples, seed=seed, global_batch=batch, micro_batch=micro)
    per_epoch = -(-samples // batch)
    steps = min(2 * per_epoch, 40)
    read = ids(order, Position(), steps, worlds[:steps])
    assert read == ids(order, Position(), steps, [1] * steps)
    if steps >= per_epoch:
        assert sorted(flat(read[:per_epoch])) == list(range(samples))


@given(SIZES, SIZES, st.integers(1, 200))
def test_a_position_can_be_reached_or_jumped_to(samples: int, batch: int, steps: int) -> None:
    order = Order(samples=samples, seed=3, global_batch=batch, micro_batch=batch)
    position = Position()
    for _ in range(steps):
        position = order.after(position)
    assert position.step == steps
    assert position.samples == position.epoch * samples + position.used
    straight = next(islice(order.steps(Position()), steps, None))
    assert next(order.steps(position)) == straight


@given(st.integers(0, 50), st.integers(1, 12))
def test_shares_are_contiguous_complete_and_even(slots: int, world: int) -> None:
    shares = [share(slots, rank, world) for rank in range(world)]
    assert [i for part in shares for i in part] == list(range(slots))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_batch_that_does_not_divide_keeps_its_size() -> None:
    """C83: 64 samples per step at every number of workers."""
    order = Order(samples=640, seed=0, global_batch=64, micro_batch=4)
    for world in range(1, 9):
        assert len(ids(order, Position(), 1, [world])[0]) == 64
