"""When a checkpoint is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.checkpointing.save_policy import AnyOf, EverySeconds, EverySteps, LastSave, Never

START = LastSave(step=0, at_s=100.0)


@pytest.mark.parametrize(("now_s", "due"), [(129.9, False), (130.0, True), (500.0, True)])
def test_every_seconds(now_s: float, due: bool) -> None:
    assert EverySeconds(30).should_save(1, now_s, START) is due


def test_no_second_save_of_one_step() -> None:
    last = LastSave(step=8, at_s=0.0)
    assert not EverySeconds(30).should_save(8, 1e6, last)
    assert not EverySteps(4).should_save(8, 1e6, last)


@given(st.integers(1, 50), st.integers(0, 100), st.integers(1, 200))
def test_multiples_do_not_depend_on_where_an_attempt_starts(
    every: int, resumed_at: int, step: int
) -> None:
    due = EverySteps(every).should_save(step, 0.0, LastSave(step=resumed_at, at_s=0.0))
    assert due == (step > resumed_at and step % every == 0)


def test_any_of_takes_whichever_is_first() -> None:
    policy = AnyOf((EverySeconds(30), EverySteps(4)))
    assert policy.should_save(4, 101.0, START)
    assert policy.should_save(3, 130.0, START)
    assert not policy.should_save(3, 129.0, START)
    assert not AnyOf((Never(),)).should_save(3, 1e9, START)
