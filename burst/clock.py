"""The machine's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime

ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the latter sleeps on Linux only


class SystemClock:
    """See burst.ports.Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def elapsed(self) -> float:
        return time.clock_gettime(ELAPSED)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251 - the one real clock
