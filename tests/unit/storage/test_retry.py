"""Trying again: when, how long, and until when."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.errors import StorageError, TransientError
from burst.storage.retry import Retries, RetryPolicy


class FakeClock:
    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def test_limits_double_up_to_the_longest() -> None:
    policy = RetryPolicy(first_delay_s=1, longest_delay_s=5, give_up_after_s=100)
    assert [policy.delay_s(n, 0, 1.0) for n in (1, 2, 3, 4, 5000)] == [1, 2, 4, 5, 5]
    assert policy.delay_s(3, 0, 0.25) == 1


@given(st.integers(1, 10_000), st.floats(0, 1e6), st.floats(0, 1))
def test_no_wait_goes_past_the_end(failures: int, elapsed_s: float, chance: float) -> None:
    policy = RetryPolicy()
    delay_s = policy.delay_s(failures, elapsed_s, chance)
    if delay_s is None:
        assert elapsed_s + policy.longest_delay_s > policy.give_up_after_s
    else:
        assert 0 <= delay_s <= policy.longest_delay_s
        assert elapsed_s + delay_s <= policy.give_up_after_s


def test_call_that_works_later_is_answered() -> None:
    clock = FakeClock()
    failures = [TransientError("1"), TransientError("2")]

    def call() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert Retries(RetryPolicy(), clock, random.Random(0)).run(call) == "done"
    assert len(clock.slept) == 2


def test_call_that_never_works_ends_within_the_time() -> None:
    clock = FakeClock()
    tries: list[float] = []

    def call() -> None:
        tries.append(clock.time)
        raise TransientError("still down")

    with pytest.raises(TransientError, match="still down"):
        Retries(RetryPolicy(give_up_after_s=60), clock, random.Random(0)).run(call)
    assert clock.time - 100 <= 60
    assert 5 < len(tries) < 40


def test_other_errors_are_not_tried_again() -> None:
    clock = FakeClock()

    def call() -> None:
        raise StorageError("no")

    with pytest.raises(StorageError):
        Retries(RetryPolicy(), clock, random.Random(0)).run(call)
    assert clock.slept == []


def test_same_seed_waits_the_same() -> None:
    def waits() -> list[float]:
        clock = FakeClock()

        def call() -> None:
            raise TransientError("no")

        with pytest.raises(TransientError):
            Retries(RetryPolicy(), clock, random.Random(7)).run(call)
        return clock.slept

    assert waits() == waits()
