"""A run whose worker, node and controller are killed ends by itself with the same weights."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
