"""A run that was killed and resized ends with the weights of one that was not, to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burst.checkpointing.commit import list_checkpoints
from burst.storage.backends.local import LocalStore
from some_run import RUN as SOME_RUN

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
WORKER = Path(__file__).with_name("gloo_worker.py")
RUN = replace(
    SOME_RUN,
    reduction="exact",
    global_batch=8,
    epochs=3,
    steps=None,
    seed=5,
    clip_norm=1.0,
    workers_high=4,
    every_s=3600.0,
    every_steps=4,
)


class Training:
    """A run's folder and the attempts made at it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder / "run"
        self.store = LocalStore(self.folder)
        self.store.put("run.json", RUN.encode())
        self.options = {"samples": 37, "settings": {}, **options}
        self.attempts = 0

    def attempt(self, world: int, **options: Any) -> list[int]:
        """Run one attempt to its end; return the ranks' exit codes."""
        self.attempts += 1
        meeting = self.folder.parent / f"meeting-{self.attempts}"
        given = json.dumps({**self.options, **options})
        processes = []
        for rank in range(world):
            place = [str(self.folder), str(rank), str(world), str(self.attempts), str(meeting)]
            with (self.folder.parent / f"err-{self.attempts}-{rank}").open("w") as errors:
                argv = [sys.executable, str(WORKER), *place, given]
                processes.append(subprocess.Popen(argv, stderr=errors))
        return [process.wait(120) for process in processes]

    def weights(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder.parent / "weights.json").read_text())
        return found

    def lines(self) -> list[dict[str, Any]]:
        """Return what each rank used, with the attempt it was used in."""
        found = []
        for path in sorted(self.folder.parent.glob("used-*.jsonl")):
            attempt = int(path.stem.split("-")[1])
            found += [{"attempt": attempt, **json.loads(x)} for x in path.read_text().splitlines()]
        return found

    def final_ids(self) -> list[int]:
        """Return the samples of the steps that count: each step's last execution."""
        last: dict[int, int] = {}
        for line in self.lines():
            last[line["step"]] = max(last.get(line["step"], 0), line["attempt"])
        return [i for x in self.lines() if x["attempt"] == last[x["step"]] for i in x["ids"]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The weights of one worker that nothing disturbed."""
    training = Training(tmp_path_factory.mktemp("undisturbed"))
    assert training.attempt(1) == [0]
    assert Counter(training.final_ids()) == Counter(dict.fromkeys(range(37), 3))
    return training.weights()


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_workers_gives_the_same_bits(
    tmp_path: Path, undisturbed: dict[str, Any], world: int
) -> None:
    training = Training(tmp_path)
    assert training.attempt(world) == [0] * world
    assert training.weights() == undisturbed


def test_killed_and_resized_it_gives_the_same_bits_and_uses_each_sample_once_per_epoch(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """Also C101: all ranks go back to the same step, and no aborted gradient is applied."""
    training = Training(tmp_path)
    assert -9 in training.attempt(2, kill_at=6, victim=1)
    assert -9 in training.attempt(3, kill_at=11, victim=0)
    assert training.attempt(1) == [0]
    assert training.weights() == undisturbed
    assert Counter(training.final_ids()) == Counter(dict.fromkeys(range(37), 3))
    resumed = {x["attempt"]: x["step"] for x in reversed(training.lines())}
    assert resumed == {1: 0, 2: 4, 3: 8}


def test_leaving_the_loop_early_saves_the_step_that_was_done_last(tmp_path: Path) -> None:
    training = Training(tmp_path)
    assert training.attempt(2, leave_at=6) == [0, 0]
    assert max(found.ref.step for found in list_checkpoints(training.store)) == 6
    assert max(line["step"] for line in training.lines()) == 5


def test_loader_processes_change_nothing(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """C98 (d), C101: prefetched samples do not count as used."""
    training = Training(tmp_path)
    assert training.attempt(1, kill_at=6, loader_workers=1) == [-9]
    assert training.attempt(1, loader_workers=2) == [0]
    assert training.weights() == undisturbed


def test_the_learning_rate_depends_on_the_step_alone(tmp_path: Path) -> None:
    """C38: no warm-up twice, no step off, whatever the accumulation and the workers."""
    training = Training(tmp_path, settings={"epochs": None, "steps": 12})
    training.attempt(2, kill_at=9, victim=1)
    assert training.attempt(1) == [0]
    for line in training.lines():
        wanted = 0.01 * min((line["step"] + 1) / 10, 1.0) * (1 - line["step"] / 100)
        assert line["lr"] == pytest.approx(wanted, abs=1e-12)
