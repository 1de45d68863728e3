"""Splitting a run's own time by what it was good for.

The rules:

* restart: from an attempt's start to its first step; and, when it is known when the attempt
  before it was lost, from that loss on.
* useful or repeated: a step. It is repeated when its number is not above the highest reached.
* checkpoint: a save that training waits for.
* idle: all else. Nothing here says so: it is what the spans leave free in a node's life, so the
  ledger finds it, node by node.

A gap of at most `JOIN` before a step or a save belongs to it (reading data, mostly), so that
spans of one kind touch and merge, and a million steps take a few lines of memory.

Clocks. Starts, steps and saves carry the wall time of the attempt's rank 0, whose clock may be
wrong or jump; the bounds given to `spans` carry the controller's; an end may carry either. Only
the order of attempts and steps is trusted. Within an attempt, time that overlaps counts once, and
a piece that lies wholly in the past (the clock went back) follows directly, with its own length.
Attempts are moved as a whole, never stretched, so that they lie one after another within the
bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Self, assert_never

from burst.cost.moments import utc

JOIN = timedelta(seconds=1)

Kind = Literal["useful", "repeated", "restart", "checkpoint", "idle"]


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The worker group of an attempt began."""

    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class StepDone:
    """An optimizer step is complete; `samples` and `tokens` are those of this step alone."""

    attempt: int
    step: int
    start: datetime
    end: datetime
    samples: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Saved:
    """Training stood still from start to end while the state of `step` was saved."""

    attempt: int
    step: int
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The worker group of an attempt is over: lost, stopped, failed or finished."""

    attempt: int
    at: datetime


Fact = AttemptStarted | StepDone | Saved | AttemptEnded


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the run's time; `start` is before `end`."""

    kind: Kind
    start: datetime
    end: datetime


@dataclass(slots=True)
class _Track:
    """One attempt in the time of its own clock, with the jumps of that clock taken out."""

    started: datetime | None = None
    first: datetime | None = None  # the start of its first piece
    ended: datetime | None = None
    spans: list[Span] = field(default_factory=list)
    jump: timedelta = timedelta()  # added to what the clock says
    last_step: int = -1
    last_save: int = -1

    @property
    def begin(self) -> datetime:
        """When it began; an attempt whose start nobody saw began with its first piece."""
        seen = [moment for moment in (self.started, self.first) if moment is not None]
        begin = min(seen, default=self.ended)
        assert begin is not None, "an attempt begins with its first fact"
        return begin

    @property
    def last(self) -> datetime:
        """When the last thing known to have happened in it was over."""
        return self.spans[-1].end if self.spans else self.begin

    def add(self, kind: Kind, start: datetime, end: datetime) -> None:
        """Put a piece after the last one; see the rules on clocks."""
        self.first = self.first or start
        edge = self.last
        length = max(timedelta(), end - start)
        if end + self.jump <= edge:
            self.jump = edge - start
        begin = max(edge, start + self.jump)
        finish = max(begin, start + self.jump + length)
        if self.spans and begin - edge <= JOIN:
            begin = edge
        _append(self.spans, Span(kind, begin, finish))


class Timeline:
    """A run's time and progress, fact by fact.

    A step or save told twice counts once. Facts of one attempt come in the order of its steps.
    If a step arrives only after a later attempt has reached it, the late one counts as repeated;
    `Timeline.of` puts facts in order first, so that its answer does not depend on theirs.
    """

    def __init__(self) -> None:
        self._tracks: dict[int, _Track] = {}
        self.highest_step = 0
        self.steps_useful = 0
        self.steps_repeated = 0
        self.tokens_useful = 0
        self.samples_useful = 0

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> Self:
        """Build it from facts in any order."""
        timeline = cls()
        for fact in sorted(facts, key=_place):
            timeline.add(fact)
        return timeline

    def add(self, fact: Fact) -> None:
        """Take one more fact."""
        track = self._tracks.setdefault(fact.attempt, _Track())
        match fact:
            case AttemptStarted(at=at):
                track.started = track.started or utc(at)
            case AttemptEnded(at=at):
                track.ended = track.ended or utc(at)
            case StepDone(step=step):
                if step > track.last_step:
                    track.last_step = step
                    track.add(self._count(fact), utc(fact.start), utc(fact.end))
            case Saved(step=step):
                if step > track.last_save:
                    track.last_save = step
                    track.add("checkpoint", utc(fact.start), utc(fact.end))
            case _:
                assert_never(fact)

    def _count(self, done: StepDone) -> Kind:
        if done.step <= self.highest_step:
            self.steps_repeated += 1
            return "repeated"
        self.highest_step = done.step
        self.steps_useful += 1
        self.tokens_useful += done.tokens
        self.samples_useful += done.samples
        return "useful"

    def spans(self, until: datetime, since: datetime | None = None) -> tuple[Span, ...]:
        """Return what is known up to a moment: in order, apart, none of them empty.

        `since` is when the run asked for its first machine: nothing can have happened before.
        """
        until, since = utc(until), since and utc(since)
        tracks = [self._tracks[attempt] for attempt in sorted(self._tracks)]
        shifts = _shifts(tracks, since, until)
        begins = [track.begin + shift for track, shift in zip(tracks, shifts, strict=True)]
        limits = (*begins, until)[1:]
        spans: list[Span] = []
        loss: datetime | None = None
        for track, shift, limit in zip(tracks, shifts, limits, strict=True):
            moved = [Span(s.kind, s.start + shift, s.end + shift) for s in track.spans]
            first = moved[0].start if moved else min(limit, track.ended or limit)
            begin = track.begin + shift
            restart = Span("restart", min(begin, loss or begin), first)
            for span in (restart, *moved):
                _put(spans, span, since, until)
            loss = track.ended
        return tuple(spans)


def _place(fact: Fact) -> tuple[object, ...]:
    """Return a fact's place among others: by attempt and step, never by time alone."""
    match fact:
        case AttemptStarted(attempt, at):
            return (attempt, 0, 0, 0, at, at)
        case StepDone(attempt, step, start, end):
            return (attempt, 1, step, 0, start, end)
        case Saved(attempt, step, start, end):
            return (attempt, 1, step, 1, start, end)
        case AttemptEnded(attempt, at):
            return (attempt, 2, 0, 0, at, at)
        case _:
            assert_never(fact)


def _shifts(tracks: list[_Track], since: datetime | None, until: datetime) -> list[timedelta]:
    """Return how far each attempt is moved so that they lie one after another in the bounds.

    Backwards first, each attempt to before its end and the next one's beginning, then forwards,
    each to after the one before it: no attempt moves that need not.
    """
    shifts = [timedelta()] * len(tracks)
    ceiling = until
    for number in reversed(range(len(tracks))):
        track = tracks[number]
        ceiling = min(ceiling, track.ended or ceiling)
        shifts[number] = min(timedelta(), ceiling - track.last)
        ceiling = track.begin + shifts[number]
    floor = since
    for number, track in enumerate(tracks):
        if floor is not None:
            shifts[number] += max(timedelta(), floor - (track.begin + shifts[number]))
        floor = track.last + shifts[number]
    return shifts


def _put(spans: list[Span], span: Span, since: datetime | None, until: datetime) -> None:
    """Append what of a span lies within the bounds and after the last one."""
    floor = spans[-1].end if spans else since
    start = span.start if floor is None else max(span.start, floor)
    end = min(span.end, until)
    _append(spans, Span(span.kind, start, end))


def _append(spans: list[Span], span: Span) -> None:
    """Append a span, merged into the last one if it goes on with the same; not if it is empty."""
    if span.start >= span.end:
        return
    if spans and spans[-1].kind == span.kind and spans[-1].end == span.start:
        spans[-1] = Span(span.kind, spans[-1].start, span.end)
    else:
        spans.append(span)
