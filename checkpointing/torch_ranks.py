"""Several ranks doing one thing: either all succeed, or all learn who failed and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch.distributed as dist

from burst.errors import BurstError, CheckpointError, StorageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """A process among its peers. `group` carries small CPU objects (gloo); None if alone."""

    rank: int
    world: int
    local_rank: int
    group: dist.ProcessGroup | None


ALONE = Ranks(rank=0, world=1, local_rank=0, group=None)


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    values: tuple[T, ...] = ()
    error: BurstError | None = None


def on_every_rank(ranks: Ranks, what: str, work: Callable[[], T]) -> tuple[T, ...]:
    """Do `work`, which holds no collective, on every rank; return all results by rank.

    If it fails on any rank, every rank raises the error of the first that failed, with its rank
    and `what` was being done: nobody waits for a rank that gave up. What a collective raises when
    a peer is gone (RuntimeError) passes through.
    """
    outcomes = _exchange(ranks, _attempt(work))
    for rank, outcome in enumerate(outcomes):
        if outcome.error is not None:
            raise told(outcome.error, f"{what} failed on rank {rank}")
    return tuple(outcome.values[0] for outcome in outcomes)


def on_rank_0(ranks: Ranks, what: str, work: Callable[[], T]) -> T:
    """Do `work` on rank 0 only; return its result, or raise its error, on every rank."""
    outcomes = on_every_rank(ranks, what, lambda: work() if ranks.rank == 0 else None)
    result: T = outcomes[0]  # type: ignore[assignment]  # rank 0 never gives the other ranks' None
    return result


def told(error: BurstError, where: str) -> BurstError:
    """Return the same error with the place it happened in front."""
    return type(error)(f"{where}: {error.message}", hint=error.hint)


def _attempt(work: Callable[[], T]) -> _Outcome[T]:
    try:
        return _Outcome((work(),))
    except BurstError as error:
        return _Outcome(error=type(error)(error.message, hint=error.hint))  # sure to pickle
    except OSError as error:
        return _Outcome(error=StorageError(str(error)))
    except Exception as error:  # noqa: BLE001 - raised on every rank; here it would strand the others
        return _Outcome(error=CheckpointError(f"{type(error).__name__}: {error}"))


def _exchange(ranks: Ranks, outcome: _Outcome[T]) -> list[_Outcome[T]]:
    if ranks.world == 1:
        return [outcome]
    outcomes: list[_Outcome[T]] = [_Outcome()] * ranks.world
    dist.all_gather_object(outcomes, outcome, group=ranks.group)
    return outcomes
