"""Time is split by its rules, whatever clocks say and in whatever order facts come."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from burst.cost.timeline import (
    AttemptEnded,
    AttemptStarted,
    Fact,
    Saved,
    Span,
    StepDone,
    Timeline,
)

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def step(attempt: int, number: int, start: float, end: float) -> StepDone:
    return StepDone(attempt, number, at(start), at(end), 8, 64)


def told(spans: tuple[Span, ...]) -> list[tuple[str, float, float]]:
    return [
        (span.kind, (span.start - T0).total_seconds(), (span.end - T0).total_seconds())
        for span in spans
    ]


def test_one_attempt() -> None:
    timeline = Timeline.of(
        [
            AttemptStarted(1, at(5)),
            step(1, 1, 10, 12),
            step(1, 2, 12, 14),
            Saved(1, 2, at(14), at(15)),
            step(1, 3, 15.5, 17),
            AttemptEnded(1, at(20)),
        ]
    )
    assert told(timeline.spans(at(30))) == [
        ("restart", 5, 10),
        ("useful", 10, 14),
        ("checkpoint", 14, 15),
        ("useful", 15, 17),
    ]
    assert (timeline.steps_useful, timeline.steps_repeated) == (3, 0)
    assert (timeline.samples_useful, timeline.tokens_useful) == (24, 192)


def test_a_loss_is_restart_until_the_next_step_and_then_steps_repeat() -> None:
    timeline = Timeline.of(
        [
            AttemptStarted(1, at(0)),
            step(1, 1, 1, 2),
            step(1, 2, 2, 3),
            AttemptEnded(1, at(4)),
            AttemptStarted(2, at(8)),
            step(2, 2, 10, 11),
            step(2, 3, 11, 12),
        ]
    )
    assert told(timeline.spans(at(12))) == [
        ("restart", 0, 1),
        ("useful", 1, 3),
        ("restart", 4, 10),
        ("repeated", 10, 11),
        ("useful", 11, 12),
    ]
    assert (timeline.steps_useful, timeline.steps_repeated) == (3, 1)


def test_an_unseen_loss_leaves_the_time_before_the_next_start_free() -> None:
    timeline = Timeline.of(
        [AttemptStarted(1, at(0)), step(1, 1, 1, 2), AttemptStarted(2, at(8)), step(2, 1, 9, 10)]
    )
    assert told(timeline.spans(at(10)))[1:] == [
        ("useful", 1, 2),
        ("restart", 8, 9),
        ("repeated", 9, 10),
    ]


def test_an_attempt_that_never_stepped_is_all_restart() -> None:
    facts: list[Fact] = [
        AttemptStarted(1, at(0)),
        AttemptEnded(1, at(3)),
        AttemptStarted(2, at(5)),
    ]
    assert told(Timeline.of(facts).spans(at(7))) == [("restart", 0, 7)]
    facts += [step(2, 1, 9, 10), AttemptEnded(2, at(11))]
    assert told(Timeline.of(facts).spans(at(20))) == [("restart", 0, 9), ("useful", 9, 10)]


def test_a_start_seen_before_the_loss_does_not_make_time_twice() -> None:
    timeline = Timeline.of(
        [
            AttemptStarted(1, at(0)),
            step(1, 1, 1, 2),
            AttemptEnded(1, at(6)),
            AttemptStarted(2, at(4)),
            step(2, 2, 5, 7),
        ]
    )
    assert told(timeline.spans(at(9)))[1:] == [
        ("useful", 1, 2),
        ("restart", 4, 5),
        ("useful", 5, 7),
    ]


def test_long_waits_between_steps_are_nobodys() -> None:
    timeline = Timeline.of([AttemptStarted(1, at(0)), step(1, 1, 0, 1), step(1, 2, 2.5, 3)])
    assert told(timeline.spans(at(3))) == [("useful", 0, 1), ("useful", 2.5, 3)]


def test_time_that_overlaps_counts_once() -> None:
    timeline = Timeline.of(
        [AttemptStarted(1, at(0)), step(1, 1, 0, 10), Saved(1, 1, at(8), at(12))]
    )
    assert told(timeline.spans(at(20))) == [("useful", 0, 10), ("checkpoint", 10, 12)]


def test_facts_told_twice_count_once() -> None:
    timeline = Timeline()
    for _ in range(2):
        for fact in (AttemptStarted(1, at(0)), step(1, 1, 0, 1), Saved(1, 1, at(1), at(2))):
            timeline.add(fact)
    assert timeline.steps_useful == 1
    assert timeline.steps_repeated == 0
    assert told(timeline.spans(at(5))) == [("useful", 0, 1), ("checkpoint", 1, 2)]


def test_a_million_steps_stay_small() -> None:
    timeline = Timeline()
    timeline.add(AttemptStarted(1, at(0)))
    for number in range(1, 5001):
        timeline.add(step(1, number, number, number + 0.9))
    assert told(timeline.spans(at(9999))) == [("restart", 0, 1), ("useful", 1, 5000.9)]


def test_a_node_whose_clock_is_ahead() -> None:
    """C43: node A is 600 s ahead; B, which replaces it, is right."""
    ahead = 600
    timeline = Timeline.of(
        [
            AttemptStarted(1, at(ahead)),
            step(1, 1, ahead + 10, ahead + 100),
            AttemptEnded(1, at(105)),
            AttemptStarted(2, at(110)),
            step(2, 2, 120, 150),
        ]
    )
    assert told(timeline.spans(at(160), since=at(0))) == [
        ("restart", 5, 15),
        ("useful", 15, 105),
        ("restart", 105, 120),
        ("useful", 120, 150),
    ]


def test_a_node_whose_clock_is_behind() -> None:
    """C43: the second node's clock is 600 s behind."""
    behind = -600
    timeline = Timeline.of(
        [
            AttemptStarted(1, at(0)),
            step(1, 1, 10, 100),
            AttemptStarted(2, at(behind + 110)),
            step(2, 2, behind + 120, behind + 150),
        ]
    )
    assert told(timeline.spans(at(160), since=at(0))) == [
        ("restart", 0, 10),
        ("useful", 10, 100),
        ("restart", 100, 110),
        ("useful", 110, 140),
    ]


def test_a_clock_that_goes_back_an_hour_keeps_lengths() -> None:
    """C43: in the middle of an attempt; once between steps, once inside a step."""
    timeline = Timeline.of(
        [
            AttemptStarted(1, at(4000)),
            step(1, 1, 4010, 4020),
            step(1, 2, 420, 430),
            step(1, 3, 430, 440),
            step(1, 4, 440, -3150),
            step(1, 5, -3150, -3140),
        ]
    )
    assert told(timeline.spans(at(5000))) == [("restart", 4000, 4010), ("useful", 4010, 4050)]
    assert timeline.steps_useful == 5


def disordered_facts() -> st.SearchStrategy[list[Fact]]:
    moments = st.integers(-5000, 5000).map(lambda n: at(n / 10))
    attempts, steps = st.integers(1, 4), st.integers(1, 8)
    return st.lists(
        st.builds(AttemptStarted, attempts, moments)
        | st.builds(AttemptEnded, attempts, moments)
        | st.builds(Saved, attempts, steps, moments, moments)
        | st.builds(StepDone, attempts, steps, moments, moments, st.just(1), st.just(1)),
        max_size=25,
    )


def assert_apart(spans: tuple[Span, ...]) -> None:
    assert all(span.start < span.end for span in spans)
    assert all(a.end <= b.start for a, b in pairwise(spans))


@given(facts=disordered_facts(), since=st.none() | st.just(at(-100)), until=st.integers(-99, 600))
def test_spans_never_overlap_nor_leave_the_bounds(
    facts: list[Fact], since: datetime | None, until: int
) -> None:
    """C43: whatever the clocks say."""
    timeline = Timeline()
    for fact in facts:
        timeline.add(fact)
    spans = timeline.spans(at(until), since)
    assert_apart(spans)
    assert all(span.end <= at(until) for span in spans)
    assert since is None or all(span.start >= since for span in spans)


@given(facts=disordered_facts(), seed=st.integers())
def test_the_order_of_facts_does_not_matter(facts: list[Fact], seed: int) -> None:
    shuffled = random.Random(seed).sample(facts, len(facts))
    one, other = Timeline.of(facts), Timeline.of(shuffled)
    assert one.spans(at(600)) == other.spans(at(600))
    assert one.steps_useful == other.steps_useful
    steps = {fact.step for fact in facts if isinstance(fact, StepDone)}
    assert one.highest_step == max(steps, default=0)


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=20), skew=st.integers(-9999, 9999))
def test_a_wrong_clock_changes_no_length(lengths: list[int], skew: int) -> None:
    """C43: the useful time is the same whatever the offset of the clock, if the run had room."""
    timeline, now = Timeline(), skew
    timeline.add(AttemptStarted(1, at(now)))
    for number, length in enumerate(lengths, start=1):
        timeline.add(step(1, number, now, now + length))
        now += length
    (span,) = timeline.spans(until=at(sum(lengths)), since=at(0))
    assert (span.kind, span.start, span.end) == ("useful", at(0), at(sum(lengths)))
