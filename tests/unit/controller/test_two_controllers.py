"""C68: a controller dies or freezes at any point, and two others start at the same moment.

Held for every kind of pool: one of them drives the run to its end, the other is told who does; no
index has two machines at once, none is lost, and success is told once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest
from fake_world import Deadly, Killed, World, check_books

from burst.controller.loop import Controller
from burst.cost.placement import Choice, Place
from burst.cost.state import Limits
from burst.errors import OwnedError
from burst.provision.fake import FakeProvisioner
from burst.storage.lease import Owner
from burst.storage.memory import MemoryStore
from some_run import RUN

PLACES = (
    Place(pool="alibaba", region="cn-beijing", zone="cn-beijing-h", machine_type="gn6i", spot=True),
    Place(pool="aws", region="us-east-1", zone="us-east-1a", machine_type="g5", spot=True),
    Place(pool="lambda", region="us-east-1", machine_type="gpu_1x_a10"),
    Place(pool="k8s/lab", machine_type="4CPU--16GB", owned=True),
    Place(pool="slurm/lab", zone="gpu", machine_type="4CPU--16GB", owned=True),
    Place(pool="ssh/lab", machine_type="8-cpu", owned=True),
)
DEAD, ANN, BEN = (Owner(host="here", pid=n, started_at="0", name=f"name-{n}") for n in (1, 2, 3))
POINTS = (  # of the first controller's life: the call in whose n-th use it dies, and on which side
    ("journal", 2, False),
    ("journal", 3, True),
    ("launch", 1, False),
    ("launch", 1, True),
    ("launch", 2, False),
    ("launch", 2, True),
    ("observe", 6, True),  # workers train, and save
    ("launch", 3, False),  # a lost node's successor
    ("launch", 3, True),
    ("journal", 9, True),
    ("end", 1, False),
    ("end", 1, True),
)


def alive(owner: Owner) -> bool:
    return owner != DEAD


def at_nth(quick: Callable[..., Any], n: int, act: Callable[[], None], *, after: bool) -> Any:
    """Do something before or after the n-th use of a call."""
    used = 0

    def call(*given: Any, **named: Any) -> Any:
        nonlocal used
        used += 1
        if used == n and not after:
            act()
        said = quick(*given, **named)
        if used == n and after:
            act()
        return said

    return call


def die() -> None:
    raise Killed


def world_of(place: Place) -> tuple[World, Limits]:
    other = replace(place, machine_type="other")  # a place that took a node back cools down
    choices = tuple(Choice(place=one, usd_per_hour=Decimal("0.5")) for one in (place, other))
    world = World(steps=40)
    world.outlives = True
    world.run = replace(RUN, steps=40, choices=choices, head_apart=False)
    world.when(20, lambda: world.lose("n002"))
    return world, Limits(nodes=2, least_nodes=1, choices=choices, max_idle_losses=50)


def live_and_die(world: World, limits: Limits, point: tuple[str, int, bool]) -> None:
    call, n, after = point
    store = Deadly(world.store, n, after=after) if call == "journal" else world.store
    with pytest.MonkeyPatch.context() as patch:
        if call != "journal":
            quick = getattr(FakeProvisioner, call)
            patch.setattr(FakeProvisioner, call, at_nth(quick, n, die, after=after))
        with pytest.raises(Killed):
            world.controller(limits, store=store, owner=DEAD, alive=alive).run()


def start_two(world: World, limits: Limits) -> tuple[list[Controller], list[OwnedError]]:
    """Start two controllers at the same moment."""
    ready = threading.Barrier(2)

    def start(owner: Owner) -> Controller | OwnedError:
        ready.wait(10)
        try:
            return world.controller(limits, owner=owner, alive=alive)
        except OwnedError as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(start, (ANN, BEN)))
    taken = [one for one in found if isinstance(one, OwnedError)]
    return [one for one in found if isinstance(one, Controller)], taken


def check_machines(world: World) -> None:
    """No index had two machines at once."""
    made = list(world.cloud.machines.values())
    for one, other in combinations(made, 2):
        if one.request.index == other.request.index:
            first, second = sorted((one, other), key=lambda machine: machine.born)
            assert first.ended is not None
            assert first.ended <= second.born, (first.request.node_id, second.request.node_id)


@pytest.mark.parametrize(
    ("point", "place"),
    [(point, PLACES[(n + k) % len(PLACES)]) for n, point in enumerate(POINTS) for k in (0, 2, 3)],
    ids=lambda given: given.pool if isinstance(given, Place) else "-".join(map(str, given)),
)
def test_c68_one_of_two_that_start_after_a_kill_drives_the_run_to_its_end(
    point: tuple[str, int, bool], place: Place
) -> None:
    world, limits = world_of(place)
    live_and_die(world, limits, point)
    (driver,), (told,) = start_two(world, limits)
    assert told.exit_code == 3
    assert any(str(owner) in told.message for owner in (ANN, BEN))
    done = driver.run()
    assert (done.reason, done.step) == ("finished", 40)
    check_books(world)
    check_machines(world)


class Frozen:
    """A store whose writer freezes at its n-th journal entry."""

    def __init__(self, inner: MemoryStore, n: int, act: Callable[[], None]) -> None:
        self._inner = inner
        self._left = n
        self._act = act

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create(self, key: str, data: bytes) -> None:
        if key.startswith("journal/"):
            self._left -= 1
            if self._left == 0:
                self._act()
        self._inner.create(key, data)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.pool)
@pytest.mark.parametrize("point", [("journal", 2), ("journal", 4), ("observe", 2), ("observe", 9)])
def test_c68_one_that_was_frozen_meanwhile_does_nothing_when_it_goes_on(
    place: Place, point: tuple[str, int]
) -> None:
    """It stood still for a minute; its lease went to another, which ended the run."""
    world, limits = world_of(place)
    left: list[tuple[set[str], list[str], int]] = []

    def freeze() -> None:
        world.sleep(40)
        second = world.controller(limits, owner=ANN, alive=lambda _: None, wait_s=20)
        assert second.run().reason == "finished"
        left.append((set(world.cloud.machines), sorted(world.store.keys()), world.cloud.calls))

    call, n = point
    store: Any = Frozen(world.store, n, freeze) if call == "journal" else world.store
    with pytest.MonkeyPatch.context() as patch:
        if call == "observe":
            patch.setattr(
                FakeProvisioner, call, at_nth(FakeProvisioner.observe, n, freeze, after=True)
            )
        frozen = world.controller(limits, store=store, owner=DEAD, alive=lambda _: None)
        with pytest.raises(OwnedError) as told:
            frozen.run()
    assert told.value.exit_code == 3
    ((machines, keys, calls),) = left
    assert set(world.cloud.machines) == machines
    assert sorted(world.store.keys()) == keys
    assert world.cloud.calls == calls
    check_books(world)
    check_machines(world)
