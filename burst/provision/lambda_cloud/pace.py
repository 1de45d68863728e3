"""Lambda's rate limits, kept by all processes of this machine together.

Lambda answers one call a second and one launch in twelve (Lambda Cloud API, "Rate limiting"), and
SkyPilot's API server calls from several processes. They share a file with the times from which
on the next call and the next launch may go out.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from burst.ports import Clock

CALL_EVERY_S = 1.1  # a second, and what the way there may squeeze
LAUNCH_EVERY_S = 12.5
BELIEVABLE_S = 300.0  # a time further off was written before the machine was started anew


@dataclass(frozen=True, slots=True)
class _Next:
    """From when on something may go out, by the machine's monotonic clock."""

    call_s: float = 0.0
    launch_s: float = 0.0


class Pace:
    """Gives out the moments at which calls may go out."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def call(self) -> None:
        """Return when the next call may go out; who asked first goes first."""
        with self._next() as state:
            at_s = max(self._clock.monotonic(), state.call_s)
            self._write(replace(state, call_s=at_s + CALL_EVERY_S))
        self._wait_until(at_s)

    @contextlib.contextmanager
    def launching(self) -> Iterator[None]:
        """Enter when the next launch may go out; no other one does until this has its answer."""
        with self._locked("launches"):
            with self._next() as state:
                at_s = state.launch_s
            self._wait_until(at_s)
            try:
                yield
            finally:
                with self._next() as state:
                    again_s = self._clock.monotonic() + LAUNCH_EVERY_S
                    self._write(replace(state, launch_s=again_s))

    def hold(self, seconds: float) -> None:
        """Let nobody call for some seconds: Lambda has said that it is too much."""
        with self._next() as state:
            until_s = self._clock.monotonic() + min(seconds, BELIEVABLE_S)
            self._write(replace(state, call_s=max(state.call_s, until_s)))

    def _wait_until(self, at_s: float) -> None:
        left_s = at_s - self._clock.monotonic()
        if left_s > 0:
            self._clock.sleep(left_s)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _next(self) -> Iterator[_Next]:
        with self._locked("pace"):
            yield self._read()

    def _read(self) -> _Next:
        """Return what was written; a file that is missing or torn says nothing."""
        try:
            known = _Next(**json.loads((self._folder / "pace.json").read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return _Next()
        latest_s = self._clock.monotonic() + BELIEVABLE_S
        return _Next(
            call_s=known.call_s if known.call_s <= latest_s else 0.0,
            launch_s=known.launch_s if known.launch_s <= latest_s else 0.0,
        )

    def _write(self, state: _Next) -> None:
        (self._folder / "pace.json").write_text(json.dumps(asdict(state)))
