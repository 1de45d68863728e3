"""When to save. Pure: the time comes in as an argument.

Rank 0 asks and tells the others; two ranks that each asked with their own clock would disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSave:
    """The last save tried, or the start of this attempt when there was none yet."""

    step: int
    at_s: float  # on the same monotonic clock as `now_s`


class SavePolicy(Protocol):
    """Says when a checkpoint is due. Composable; see AnyOf."""

    def should_save(self, step: int, now_s: float, last: LastSave) -> bool:
        """Whether to save now that `step` optimizer steps are done."""
        ...


@dataclass(frozen=True, slots=True)
class Never:
    """Saves only when somebody asks otherwise."""

    def should_save(self, step: int, now_s: float, last: LastSave) -> bool:
        del step, now_s, last
        return False


@dataclass(frozen=True, slots=True)
class EverySteps:
    """Saves at multiples of `steps`, wherever an attempt starts."""

    steps: int

    def __post_init__(self) -> None:
        assert self.steps > 0

    def should_save(self, step: int, now_s: float, last: LastSave) -> bool:
        del now_s
        return step > last.step and step % self.steps == 0


@dataclass(frozen=True, slots=True)
class EverySeconds:
    """Saves once `seconds` have passed since the last try, if a step was done meanwhile."""

    seconds: float

    def __post_init__(self) -> None:
        assert self.seconds > 0

    def should_save(self, step: int, now_s: float, last: LastSave) -> bool:
        return step > last.step and now_s - last.at_s >= self.seconds


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Saves when one of its policies would."""

    policies: tuple[SavePolicy, ...]

    def should_save(self, step: int, now_s: float, last: LastSave) -> bool:
        return any(policy.should_save(step, now_s, last) for policy in self.policies)
