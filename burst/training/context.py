"""What a training process knows of the run it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from burst.checkpointing.torch_state import Ranks
from burst.records import RunRecord
from burst.storage.port import ObjectStore
from burst.training.facts import FactSender


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """A worker's place in a run; set by the worker's entry before the user's code starts."""

    store: ObjectStore
    run: RunRecord
    attempt: int
    ranks: Ranks
    staging: str  # a local folder of this node for files on their way
    group: dist.ProcessGroup | None = None  # for small collectives on CPU tensors
    facts: FactSender | None = None  # rank 0's


@dataclass(slots=True)
class _Current:
    context: RunContext | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    at_return: Callable[[], None] | None = None


_CURRENT = _Current()


class Stopped(BaseException):
    """Training ends here because the controller said so; everything is saved.

    Not an Exception, so that a loop's own `except Exception` does not swallow it.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step = step


class PeerLostError(BaseException):
    """Another worker went away in the middle of a collective; this one did nothing wrong.

    Not an Exception, so that a loop's own `except Exception` does not swallow it.
    """


def enter(context: RunContext) -> None:
    """Make the context this process's own."""
    _CURRENT.context = context
    _CURRENT.params = context.run.params


def current() -> RunContext | None:
    """Return the context, or None under plain `python train.py`."""
    return _CURRENT.context


def at_return(work: Callable[[], None]) -> None:
    """Have something done when the user's function has returned; the last one asked for counts."""
    _CURRENT.at_return = work


def returned() -> None:
    """Do what was asked for when the user's function has returned."""
    if _CURRENT.at_return is not None:
        _CURRENT.at_return()


def params() -> Mapping[str, Any]:
    """Return the task's `burst.params`; empty under plain `python train.py`."""
    return _CURRENT.params
