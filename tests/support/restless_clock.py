"""A clock for tests that wait for threads."""

from __future__ import annotations

import time

from burst.clock import SystemClock


class RestlessClock(SystemClock):
    """The machine's own clock, but sleeps are short."""

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.01))  # noqa: TID251
