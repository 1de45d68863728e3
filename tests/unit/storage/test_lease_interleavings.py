"""The lease, whatever order its takers and owners meet in; see tests/support/lease_world.py."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from burst.storage.lease import Owner
from lease_world import Chance, Mishap, Process, Script, World

TTL_S = 3.0
OVER_TTL_S = 3.5
NUM_MEETINGS = 400
COUNTS: Any = {"num_stalls": 0, "num_mishaps": 0, "num_firsts": 0}
STALLS_S = (0.5, 1.5, 3.5, 6.5, 13.0)


def process(number: int, *, host: str = "", **more: float) -> Process:
    name = "abc"[number]
    owner = Owner(host=host or name, pid=number, started_at="0", name=name)
    return Process(number=number, owner=owner, **{"ttl_s": TTL_S, **more})  # type: ignore[arg-type]


@pytest.mark.timeout(300)
def test_three_processes_in_any_order_at_random() -> None:
    for seed in range(NUM_MEETINGS):
        meet_at_random(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_processes_in_many_more_orders() -> None:
    for seed in range(NUM_MEETINGS, 100 * NUM_MEETINGS):
        meet_at_random(seed)


def meet_at_random(seed: int) -> World:
    dice = random.Random(seed)
    chance = Chance(dice, STALLS_S, stall=dice.choice((0.03, 0.1)), trouble=dice.choice((0, 0.05)))
    world = World(chance)
    for number in range(3):
        owner = Owner(host=dice.choice("xy"), pid=number, started_at="0", name="abc"[number])
        world.add(
            Process(
                number=number,
                owner=owner,
                ttl_s=dice.choice((TTL_S, TTL_S, 2 * TTL_S)),
                starts_s=dice.choice((0.0, 0.0, 1.0, 2.0)),
                renewals=dice.randrange(1, 8),
                gives_back=dice.random() < 0.3,
                tries=dice.randrange(1, 3),
            )
        )
    world.run()
    try:
        world.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world


def test_takers_that_die_once_they_have_claimed() -> None:
    """The next one, on the same machine, knows it at once; the owner before may have come back."""
    for seed in range(NUM_MEETINGS):
        dice = random.Random(seed)
        world = World(Chance(dice, STALLS_S, stall=0.1, trouble=0.0, dying_takers=0.4))
        world.add(process(0, ttl_s=dice.choice((TTL_S, 2 * TTL_S)), renewals=12))
        world.add(process(1, host="y", starts_s=0.5))
        world.add(process(2, host="y", starts_s=dice.choice((0.5, 3.0, 6.0, 9.0))))
        world.run()
        world.check()


def test_the_random_meetings_hold_what_matters() -> None:
    """They would prove nothing if hands never changed, or nobody was ever waited for."""
    worlds = [meet_at_random(seed) for seed in range(100)]
    assert sum(len(world.claimed) - 1 for world in worlds) > 100
    assert sum(world.num_waits for world in worlds) > 10


def meet(script: Script) -> World:
    """Let one hold the lease while another wants it."""
    world = World(script)
    world.add(process(0, renewals=2))
    world.add(process(1, starts_s=0.5, renewals=1))
    world.run()
    world.check()
    return world


@pytest.mark.timeout(300)
def test_every_two_stalls_of_two_processes() -> None:
    stall_twice((OVER_TTL_S,))


def stall_twice(stalls_s: Sequence[float]) -> None:
    for once in stalled(Script(), stalls_s):
        for _ in stalled(once, stalls_s):
            pass


def stalled(script: Script, stalls_s: Sequence[float]) -> Iterator[Script]:
    """Let the two meet as a script says, and then with one more stall, at every later moment."""
    plain = replace(script, **COUNTS)
    meet(plain)
    for number in range(max(script.stalls, default=0) + 1, plain.num_stalls + 1):
        for seconds in stalls_s:
            once = replace(script, stalls={**script.stalls, number: seconds}, **COUNTS)
            meet(once)
            yield once


MISHAPS: tuple[Mishap, ...] = ("fail", "lost", "repeated", "late", "die", "die after")


@pytest.mark.parametrize("mishap", MISHAPS)
def test_every_mishap_of_two_processes(mishap: Mishap) -> None:
    plain = Script()
    meet(plain)
    for number in range(1, plain.num_mishaps + 1):
        meet(Script(mishaps={number: mishap}))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mishap", MISHAPS)
def test_every_stall_beside_every_mishap_of_two_processes(mishap: Mishap) -> None:
    plain = Script()
    meet(plain)
    for number in range(1, plain.num_mishaps + 1):
        for _ in stalled(Script(mishaps={number: mishap}), (OVER_TTL_S,)):
            pass


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_two_stalls_of_every_length() -> None:
    stall_twice(STALLS_S)
