"""When to try a failed call again, and when to give up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from burst.errors import TransientError

_T = TypeVar("_T")


class WaitingClock(Protocol):
    """The part of burst.ports.Clock that waiting needs."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemWaitingClock:
    """See WaitingClock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251 - storage lies below burst.ports and its clock


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How patient to be."""

    first_delay_s: float = 0.2
    longest_delay_s: float = 20.0
    give_up_after_s: float = 120.0  # since the first try began

    def delay_s(self, failures: int, elapsed_s: float, chance: float) -> float | None:
        """Return how long to wait after that many failures, None to give up.

        "Full jitter" of https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter:
        uniform between 0 and a limit that doubles each time. `chance` is the draw, 0 to 1.
        """
        doublings = min(failures - 1, 30)  # far above any limit, far below a float's
        delay_s = chance * min(self.longest_delay_s, self.first_delay_s * 2**doublings)
        return None if elapsed_s + delay_s > self.give_up_after_s else delay_s


@dataclass(frozen=True, slots=True)
class Retries:
    """Carries a policy out. One instance may serve many threads."""

    policy: RetryPolicy
    clock: WaitingClock
    draws: random.Random

    def run(self, call: Callable[[], _T]) -> _T:
        """Return what `call` returns; its last TransientError when the policy gives up."""
        began_s = self.clock.monotonic()
        failures = 0
        while True:
            try:
                return call()
            except TransientError:
                failures += 1
                elapsed_s = self.clock.monotonic() - began_s
                delay_s = self.policy.delay_s(failures, elapsed_s, self.draws.random())
                if delay_s is None:
                    raise
            self.clock.sleep(delay_s)
