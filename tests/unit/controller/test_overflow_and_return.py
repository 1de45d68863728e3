"""A run whose own machines are full for a while: it rents, and goes back; with faults, too."""

from __future__ import annotations

import random
from functools import partial

import pytest
from fake_world import Deadly, Killed, World, check_books, own_and_rented

from burst.controller.book import read_history
from burst.cost.state import Done
from burst.ports import NodeRequest
from burst.provision.fake import Faults
from burst.storage.journal import Journal
from some_run import OWN, OWN_FIRST, SPOT


def world_of(owned: int, steps: int) -> World:
    """Return a world with so many own machines free; `World.cloud` says what is vacant."""
    world = own_and_rented(steps)
    own(world, owned)
    return world


def own(world: World, count: int) -> None:
    """Let so many machines be our own, those that we have included."""

    def taken() -> int:
        return sum(m.request.choice == OWN for m in world.cloud.alive().values())

    def stock(request: NodeRequest) -> bool:
        return request.choice != OWN or taken() < count

    world.cloud.stock = stock
    world.cloud.vacant = {OWN.place: max(0, count - taken())}


def pools_at_end(world: World) -> list[str]:
    spans = read_history(Journal(world.store)).spans
    newest = max(span.ended for span in spans if span.ended)
    last = [s for s in spans if s.ended and not s.refused and (newest - s.ended).seconds < 5]
    return sorted(span.choice.place.pool for span in last)


def test_a_run_rents_when_its_own_machines_are_full_and_goes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of(1, steps=900)
    world.when(200, lambda: own(world, 2))
    done = world.controller(OWN_FIRST).run()
    assert (done.reason, done.step, done.preemptions) == ("finished", 900, 0)
    spans = [s for s in read_history(Journal(world.store)).spans if not s.refused]
    assert sorted(s.choice.place.pool for s in spans) == ["aws", "ssh/lab", "ssh/lab"]
    (rented,) = [s for s in spans if s.choice == SPOT]
    assert rented.ended is not None
    stay = (rented.ended - rented.launched).total_seconds()
    assert 150 < stay < 300, "until it was vacant for a minute, and saved"
    assert "nobody wants it" not in caplog.text
    assert pools_at_end(world) == ["ssh/lab", "ssh/lab"]
    check_books(world)


def test_a_run_that_is_soon_done_stays() -> None:
    world = world_of(1, steps=100)
    world.when(40, lambda: own(world, 2))
    assert world.controller(OWN_FIRST).run().reason == "finished"
    assert pools_at_end(world) == ["aws", "ssh/lab"]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_on_the_way_no_machine_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    world = world_of(chance.randrange(3), steps=300)
    world.cloud.chance = random.Random(seed)
    world.cloud.faults = Faults(
        throttled=chance.choice([0.0, 0.2]),
        unheard=chance.choice([0.0, 0.2]),
        late_s=chance.choice([0.0, 8.0]),
        lingers_s=chance.choice([0.0, 20.0]),
    )
    for _ in range(6):
        world.when(chance.uniform(10, 500), partial(own, world, chance.randrange(3)))
    for _ in range(chance.randrange(4)):
        world.when(chance.uniform(10, 400), partial(lose_one, world))
    done = drive(world, chance)
    assert (done.reason, done.step) == ("finished", 300), done
    check_books(world)


def lose_one(world: World) -> None:
    for name in world.nodes()[:1]:
        world.lose(name)


def drive(world: World, chance: random.Random) -> Done:
    for _ in range(chance.randrange(4)):
        deadly = Deadly(world.store, chance.randrange(1, 25), after=chance.random() < 0.5)
        try:
            return world.controller(OWN_FIRST, store=deadly).run()
        except Killed:
            world.sleep(1.0)
    return world.controller(OWN_FIRST).run()
