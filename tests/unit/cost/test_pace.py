"""How long training still takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from burst.cost.pace import Pace

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def paced(*seconds: float) -> Pace:
    pace = Pace()
    for second in seconds:
        pace.add(NOON + timedelta(seconds=second), tokens=10)
    return pace


def test_the_pace_is_that_of_the_last_steps() -> None:
    pace = paced(*range(0, 40, 2))
    assert pace.seconds_per_step == 2.0
    assert pace.tokens_per_second == 5.0
    assert pace.seconds_left(20, 100) == 160.0


def test_before_the_second_step_nothing_is_known() -> None:
    assert paced(1.0).seconds_left(1, 100) is None
    assert paced(1.0, 2.0).seconds_left(2, None) is None


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_changes_little(jump_s: float) -> None:
    pace = paced(*range(10), *(jump_s + n for n in range(10, 15)))
    assert pace.seconds_left(15, 985) == pytest.approx(970.0)


def test_an_attempt_starts_afresh() -> None:
    pace = paced(0.0, 1.0)
    pace.restart()
    assert pace.seconds_per_step is None
