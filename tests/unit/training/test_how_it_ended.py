"""What a worker's error says: of the user's code, or of peers that are gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from burst.checkpointing.torch_state import Ranks
from burst.storage.memory import MemoryStore
from burst.training.context import PeerLostError, RunContext
from burst.training.worker import conclude
from some_run import RUN


def context(world: int) -> RunContext:
    return RunContext(
        run=RUN,
        store=MemoryStore(),
        attempt=1,
        ranks=Ranks(rank=0, world=world, local_rank=0, group=None),
        staging="/nowhere",
        group=None,
        facts=None,
    )


def in_a_group_that_was_taken_down() -> None:
    """Ray ends the group of a worker that still computes when one of the nodes is given back."""
    dist.all_reduce(torch.zeros(1))


def test_a_group_taken_down_under_a_worker_is_no_error_of_its_code() -> None:
    made = context(2)
    with pytest.raises(PeerLostError):
        conclude(made, in_a_group_that_was_taken_down)
    assert list(made.store.keys("attempts/")) == []


def user_error() -> None:
    raise ValueError("of the user's")


@pytest.mark.parametrize(("world", "work"), [(1, in_a_group_that_was_taken_down), (2, user_error)])
def test_an_error_of_the_users_code_ends_the_run(world: int, work: Callable[[], None]) -> None:
    made = context(world)
    with pytest.raises(ValueError, match=r"user's|process group"):
        conclude(made, work)
    assert len(list(made.store.keys("attempts/"))) == 1
