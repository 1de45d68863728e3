"""Showing a run while it goes on: a line per change, and a bar where there is a terminal."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TextIO, cast

from burst.cli import words
from burst.cli.output import discard
from burst.controller.account import Progress
from burst.controller.observe import Fact
from burst.cost.events import Event
from burst.cost.state import State

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

QUIET_S = 10.0  # without a terminal, a line of progress at most this often


class Unbreakable(io.TextIOBase):
    """A stream whose reader may go away (a closed terminal, `| head`) without ending the run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError:  # nobody reads any more
            discard(self._stream)


class LineWatcher:
    """See burst.controller.loop.Watcher. Prints lines; works in files and pipes too."""

    def __init__(
        self, out: TextIO | Unbreakable, *, budget_usd: Decimal | None, past: bool = False
    ) -> None:
        self.progress = Progress()
        self._out = out
        self._budget = budget_usd
        self._past = past  # facts of before a resume are counted, not shown
        self._shown_at = 0.0
        self._shown_step = -1

    def decided(self, state: State, event: Event, at: datetime) -> None:
        self._past = False
        said = words.change(state, event)
        if said is not None:
            self.say(words.line(at, *said))

    def fact(self, fact: Fact) -> None:
        self.progress.add(fact)
        said = None if self._past else words.told(fact)
        if said is not None:
            self.say(words.line(*said))

    def tick(self, state: State, spent_usd: Decimal) -> None:
        del state
        if self.progress.step == self._shown_step or self.progress.loss is None:
            return
        if time.monotonic() - self._shown_at >= QUIET_S:
            self._shown_at, self._shown_step = time.monotonic(), self.progress.step
            self.say(
                "          training  " + words.progress(self.progress, spent_usd, self._budget)
            )

    def say(self, text: str) -> None:
        """Print a line."""
        self._out.write(text + "\n")
        self._out.flush()

    def close(self) -> None:
        """Leave the terminal as it was."""


class BarWatcher(LineWatcher):
    """Lines above, a live bar below."""

    def __init__(
        self, out: TextIO | Unbreakable, *, budget_usd: Decimal | None, past: bool = False
    ) -> None:
        super().__init__(out, budget_usd=budget_usd, past=past)
        self._bar, self._task = _bar(out)
        self._bar.start()

    def tick(self, state: State, spent_usd: Decimal) -> None:
        del state
        now = self.progress
        text = words.progress(now, spent_usd, self._budget) if now.loss is not None else "starting"
        self._bar.update(self._task, completed=now.step, total=now.total or None, text=text)

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._bar.stop()


def _bar(out: TextIO | Unbreakable) -> tuple[Bar, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    bar = RichProgress(
        BarColumn(bar_width=24),
        TextColumn("{task.fields[text]}"),
        console=Console(file=cast("TextIO", out), soft_wrap=True),
        transient=True,
        refresh_per_second=4,
    )
    return bar, bar.add_task("", total=None, text="starting")


def watcher(*, json_only: bool, budget_usd: Decimal | None, past: bool = False) -> LineWatcher:
    """Return what fits where output goes; with `--json` stdout is kept for the result."""
    out = Unbreakable(sys.stderr if json_only else sys.stdout)
    kind = BarWatcher if out.isatty() else LineWatcher
    return kind(out, budget_usd=budget_usd, past=past)
