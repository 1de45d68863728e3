"""How fast training goes, and how long it still takes at that pace."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from statistics import median

WINDOW = 20  # steps that the pace is taken over
STEADY = 5  # so many, and the first ones, which are slow, do not rule it


@dataclass(slots=True)
class Pace:
    """Over the last steps of one attempt: another may have another number of workers."""

    _recent: list[tuple[datetime, int]] = field(default_factory=list)  # end of a step, its tokens

    def restart(self) -> None:
        """Forget the steps of an earlier attempt."""
        self._recent = []

    def add(self, end: datetime, tokens: int) -> None:
        """Take a step."""
        self._recent = [*self._recent, (end, tokens)][-WINDOW:]

    @property
    def seconds_per_step(self) -> float | None:
        """The median, which a jump of the worker's clock leaves alone; None before the second."""
        ends = [end for end, _ in self._recent]
        took = [(after - before).total_seconds() for before, after in pairwise(ends)]
        return max(median(took), 0.0) if took else None

    @property
    def steady_s(self) -> float | None:
        """Seconds per step, once there were enough of them to decide upon; never 0."""
        return (self.seconds_per_step or None) if len(self._recent) > STEADY else None

    @property
    def tokens_per_second(self) -> float | None:
        """None when the script counts no tokens."""
        pace = self.seconds_per_step
        tokens = sum(tokens for _, tokens in self._recent[1:])
        if not pace or not tokens:
            return None
        return tokens / (pace * (len(self._recent) - 1))

    def seconds_left(self, step: int, total: int | None) -> float | None:
        """Until the last step, at the present pace; None if that cannot be said."""
        pace = self.seconds_per_step
        return None if pace is None or total is None else pace * (total - step)
