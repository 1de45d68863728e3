from __future__ import annotations

import io
import os
import sys
from decimal import Decimal
from typing import Any

import pytest

from burst.cli.watch import BarWatcher, LineWatcher, Unbreakable, watcher
from burst.cost.events import StopAsked, Tick
from burst.cost.state import Active
from burst.records import stamp
from cli_scene import BEGIN, StillClock, at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    made = StillClock()
    made.seconds = 1000.0
    monkeypatch.setattr("burst.cli.watch.time", made)
    return made


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def step(number: int) -> dict[str, Any]:
    moments = {"time": stamp(at(number)), "start": stamp(at(number - 1)), "end": stamp(at(number))}
    counts = {"attempt": 1, "step": number, "epoch": 0, "samples": 1, "tokens": 0, "total": 9}
    return {"kind": "step", "loss": 2.0, "lr": 0.1, **moments, **counts}


def started(seconds: float = 0) -> dict[str, Any]:
    return {"kind": "started", "time": stamp(at(seconds)), "world": 2, "step": 0}


def test_changes_and_facts_are_lines(out: io.StringIO) -> None:
    view = LineWatcher(out, budget_usd=None)
    view.fact(started())
    view.decided(Active(), StopAsked(who="ann", now=False, at_s=1), at(5))
    view.decided(Active(), Tick(at_s=1, spent_usd=Decimal(0)), at(6))
    assert out.getvalue() == (
        "00:00:00  running   2 workers, from the beginning\n"
        "00:00:05  stopping  asked by ann; saving first, once more stops at once\n"
    )


def test_progress_is_a_line_at_most_every_ten_seconds_and_only_when_it_moved(
    out: io.StringIO, clock: StillClock
) -> None:
    view = LineWatcher(out, budget_usd=Decimal(2))
    state = Active()
    view.tick(state, Decimal(0))
    assert out.getvalue() == "", "nothing is trained yet"
    view.fact(step(1))
    view.tick(state, Decimal("0.5"))
    first = "          training  step 1 of 9  loss 2.000  $0.50 of $2.00\n"
    assert out.getvalue() == first
    view.fact(step(2))
    clock.sleep(9.9)
    view.tick(state, Decimal("0.5"))
    assert out.getvalue() == first, "too soon"
    clock.sleep(0.1)
    view.tick(state, Decimal("0.5"))
    second = "          training  step 2 of 9  loss 2.000  1.00 s/step  $0.50 of $2.00  7 s left\n"
    assert out.getvalue() == first + second
    clock.sleep(60)
    view.tick(state, Decimal("0.5"))
    assert out.getvalue() == first + second, "the same step again"


def test_facts_of_before_a_resume_are_counted_and_not_shown(out: io.StringIO) -> None:
    view = LineWatcher(out, budget_usd=None, past=True)
    view.fact(started())
    view.fact(step(3))
    assert out.getvalue() == ""
    assert view.progress.step == 3
    view.decided(Active(), StopAsked(who="ann", now=False, at_s=1), BEGIN)
    view.fact(started(8))
    assert out.getvalue().splitlines()[-1] == "00:00:08  running   2 workers, from the beginning"


def test_with_json_only_the_result_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    view = watcher(json_only=True, budget_usd=None)
    view.say("hello")
    view.close()
    assert type(view) is LineWatcher
    assert capsys.readouterr() == ("", "hello\n")


def test_without_a_terminal_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    watcher(json_only=False, budget_usd=None).say("hello")
    assert capsys.readouterr() == ("hello\n", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_lines_stay_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    view = watcher(json_only=False, budget_usd=None)
    assert type(view) is BarWatcher
    try:
        view.tick(Active(), Decimal(0))
        view.fact(step(3))
        view.tick(Active(), Decimal(1))
        view.say("[red]as it is[/red]")
    finally:
        view.close()
    assert "[red]as it is[/red]" in out.getvalue()


def test_a_reader_that_went_away_ends_nothing() -> None:
    """`burst run | head`, or a closed terminal: training goes on in silence."""
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        watcher = LineWatcher(Unbreakable(stream), budget_usd=None)
        os.close(read)
        for _ in range(3):
            watcher.say("nobody reads this")
