"""A clock for tests that wait for threads."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta

from burst.clock import SystemClock


class RestlessClock(SystemClock):
    """The machine's own clock, but it leaps over sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._leapt_s = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._leapt_s)

    def monotonic(self) -> float:
        return super().monotonic() + self._leapt_s

    def elapsed(self) -> float:
        return super().elapsed() + self._leapt_s

    def sleep(self, seconds: float) -> None:
        until_s = self.monotonic() + seconds
        with self._lock:  # others sleep at the same time
            self._leapt_s += max(0.0, until_s - self.monotonic())
        time.sleep(min(seconds, 0.001))  # noqa: TID251 - others get on with their work
