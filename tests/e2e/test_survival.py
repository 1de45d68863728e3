"""A run whose worker, node and controller are killed ends by itself with the same weights."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Person

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]
TASK = str(Path(__file__).with_name("toy") / "task.yaml")
STEPS = 64
ONCE_PER_EPOCH = Counter(dict.fromkeys(range(61), 8))


def survive(person: Person, seed: int) -> None:
    """Kill a worker, a node and the controller, in random order, at random steps."""
    chance = random.Random(seed)
    kinds = ["worker", "node", "controller"]
    chance.shuffle(kinds)
    at = sorted(chance.sample(range(3, 55), 3))
    person.start("run", TASK, "--env", "TOY_OUT")
    for kind, step in zip(kinds, at, strict=True):
        person.until_step(step)
        told = json.loads(person.burst("chaos", "toy", "--kill", kind, "--json"))
        assert told["killed"] == kind
        if kind == "controller":
            assert person.started[-1].wait(20) == -9
            assert person.until(lambda now: not now["live"])["state"] == "orphaned"
            person.start("resume", "toy", "--env", "TOY_OUT")
        else:
            restarted = person.status()["restarts"]
            person.until_restarted(restarted)
    assert person.started[-1].wait(180) == 0, person.said()


def check(person: Person, undisturbed: dict[str, Any]) -> None:
    """The same bits, each sample once per epoch, and a ledger whose parts add up."""
    assert person.weights() == undisturbed
    assert person.used() == ONCE_PER_EPOCH
    status = person.status()
    assert (status["state"], status["step"], status["saved_step"]) == ("finished", STEPS, STEPS)
    (cost,) = json.loads(person.burst("cost", "toy", "--json"))
    assert cost["steps_useful"] == STEPS


@pytest.mark.parametrize("seed", [0])
def test_killed_thrice_it_ends_with_the_same_bits(
    person: Person, undisturbed: dict[str, Any], seed: int
) -> None:
    survive(person, seed)
    check(person, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_killed_thrice_it_ends_with_the_same_bits_at_20_seeds(
    person: Person, undisturbed: dict[str, Any], seed: int
) -> None:
    survive(person, seed)
    check(person, undisturbed)


def machinery(person: Person) -> dict[str, list[int]]:
    """Return the pids of a run's own processes, by what they are."""
    agents = [
        json.loads(path.read_text()).get("pid") for path in person.home.glob("nodes/*/*.json")
    ]
    family = [psutil.Process(pid) for pid in agents if pid and psutil.pid_exists(pid)]
    for agent in tuple(family):
        with contextlib.suppress(psutil.Error):  # it is ending
            family += agent.children(recursive=True)
    found: dict[str, list[int]] = {}
    for process in family:
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:  # it is ending
            continue
        for kind in ("burst.agent --", "raylet/raylet", "gcs_server", "burst.training.ray_train"):
            if kind in words:
                found.setdefault(kind, []).append(process.pid)
    return found


@pytest.mark.slow
def test_whatever_of_a_run_is_killed_it_goes_on_and_leaves_nothing(
    person: Person, undisturbed: dict[str, Any]
) -> None:
    """Law 8 and C80: an agent, a raylet, Ray's head and the driver die by SIGKILL."""
    person.start("run", TASK, "--env", "TOY_OUT")
    kinds = ("burst.agent --", "raylet/raylet", "gcs_server", "burst.training.ray_train")
    for step, kind in zip((4, 12, 20, 28), kinds, strict=True):
        before = person.until_step(step)["restarts"]
        while kind not in (found := machinery(person)):
            time.sleep(0.2)  # noqa: TID251 - it is being started again
        os.kill(found[kind][-1], signal.SIGKILL)
        person.until_restarted(before)
    assert person.started[-1].wait(180) == 0, person.said()
    check(person, undisturbed)
    assert person.left() == ()
