"""Driving `burst` as a person does: as a program, in a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from burst.processes import Mark, find

TOY = Path(__file__).with_name("toy")


class Person:
    """Somebody at a terminal, with an empty home and an empty folder for the toy's output."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        self.env = {**os.environ, "BURST_HOME": str(self.home), "TOY_OUT": str(self.out)}
        self.started: list[subprocess.Popen[str]] = []

    def burst(self, *argv: str, code: int | None = 0, timeout: float = 120) -> str:
        """Run a command to its end; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "burst.cli", *argv],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr if code else done.stdout

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        log = (self.out / f"burst-{len(self.started)}.log").open("w")
        with log:
            child = subprocess.Popen(
                [sys.executable, "-m", "burst.cli", *argv],
                env=self.env,
                stdout=log,
                stderr=log,
                text=True,
            )
        self.started.append(child)
        return child

    def said(self) -> str:
        """Return what the last started command has printed so far."""
        return (self.out / f"burst-{len(self.started) - 1}.log").read_text()

    def status(self) -> dict[str, Any]:
        """Return the newest run's state."""
        runs = json.loads(self.burst("ls", "--all", "--json"))
        none = {"run": "", "state": "none", "live": False, "step": 0, "saved_step": 0}
        return runs[0] if runs else none

    def until(self, what: Callable[[dict[str, Any]], bool], seconds: float = 120) -> dict[str, Any]:
        """Wait until the run's state is as wanted."""
        end = time.monotonic() + seconds
        while not what(status := self.status()):
            assert time.monotonic() < end, f"still {status}\n{self.said() if self.started else ''}"
            time.sleep(0.1)  # noqa: TID251
        return status

    def until_step(self, step: int) -> dict[str, Any]:
        """Wait until the run is driven and has reached a step."""
        return self.until(lambda now: now["live"] and now["step"] >= step)

    def until_restarted(self, before: int) -> dict[str, Any]:
        """Wait until the workers were started once more, or the run is over."""
        return self.until(lambda now: now["restarts"] > before or not now["live"])

    def weights(self) -> dict[str, Any]:
        """Return the weights the toy ended with."""
        found: dict[str, Any] = json.loads((self.out / "weights.json").read_text())
        return found

    def used(self) -> Counter[int]:
        """Return how often each sample was used by the steps that count: their last execution."""
        lines = [
            json.loads(line)
            for path in self.out.glob("used-*.jsonl")
            for line in path.read_text().splitlines()
        ]
        last: dict[int, int] = {}
        for line in lines:
            last[line["step"]] = max(last.get(line["step"], 0), line["attempt"])
        return Counter(i for x in lines if x["attempt"] == last[x["step"]] for i in x["ids"])

    def left(self) -> tuple[str, ...]:
        """Return the processes of this person's runs that are still there."""
        mark = Mark(variables={"BURST_HOME": str(self.home)})
        nodes = [
            Mark(variables={"BURST_HOME": "-"}, session=json.loads(path.read_text()).get("pid"))
            for path in self.home.glob("nodes/*/*.json")
        ]
        return tuple(str(found) for one in (mark, *nodes) for found in find(one))


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    made = Person(tmp_path)
    yield made
    for child in made.started:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            child.wait()
    end = time.monotonic() + 15
    while made.left() and time.monotonic() < end:
        time.sleep(0.2)  # noqa: TID251
    assert made.left() == ()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The weights of the toy under plain `python train.py`: one process, no Ray, no kill."""
    out = tmp_path_factory.mktemp("undisturbed")
    env = {**os.environ, "TOY_OUT": str(out), "TOY_PAUSE_S": "0", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(TOY / "train.py")], env=env, check=True, timeout=60)
    found: dict[str, Any] = json.loads((out / "weights.json").read_text())
    return found
