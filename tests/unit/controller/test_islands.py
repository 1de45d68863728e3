"""Runs with nodes of two networks: measured before they train together, or kept apart."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fake_world import Deadly, Killed, World, check_books, own_and_rented

from burst.controller.book import read_history, read_state
from burst.cost.network import Bridge, Link, island
from burst.cost.state import Active
from burst.ports import NodeRequest
from burst.provision.fake import FAST, Faults
from burst.records import attempt_key
from burst.storage.journal import Journal
from some_run import OWN, OWN_FIRST, SPOT

NO_WAY = Link(error="do not reach each other: n001 at 10.0.0.4 on port 4711: no answer within 3 s")
SLOW = Link(round_trip_s=0.012, bytes_per_s=1e7)


def world_of(link: Link, *, owned: int = 1, rented: int = 9, steps: int = 100) -> World:
    world = own_and_rented(steps)
    most = {"ssh/lab": owned, "aws/r": rented}

    def stock(request: NodeRequest) -> bool:
        there = [island(m.request.choice.place) for m in world.cloud.alive().values()]
        mine = island(request.choice.place)
        return there.count(mine) < most[mine]

    world.cloud.stock = stock
    world.cloud.network = lambda *_: link
    return world


def pools_of_attempts(world: World) -> list[list[str]]:
    """Return in which pools the workers of each attempt were."""
    pools = {n.request.node_id: n.request.choice.place.pool for n in world.cloud.machines.values()}
    attempts = [json.loads(world.store.get(attempt_key(n))) for n in range(1, world.attempt + 1)]
    return [sorted(pools[w["node_id"]] for w in attempt["workers"]) for attempt in attempts]


def entries(world: World, event: str) -> list[dict[str, Any]]:
    found = (entry for _, entry in Journal(world.store).read() if entry["kind"] == "decision")
    return [dict(entry) for entry in found if entry["event"]["type"] == event]


def test_nodes_of_two_networks_train_together_once_that_was_measured() -> None:
    world = world_of(FAST)
    assert world.controller(OWN_FIRST).run().reason == "finished"
    assert pools_of_attempts(world)[-1] == ["aws", "ssh/lab"]
    (measured,) = entries(world, "Measured")
    assert measured["event"]["link"]["bytes_per_s"] == FAST.bytes_per_s
    check_books(world)


def test_nodes_of_one_network_are_not_measured() -> None:
    world = world_of(NO_WAY, owned=2)
    assert world.controller(OWN_FIRST).run().reason == "finished"
    assert pools_of_attempts(world) == [["ssh/lab", "ssh/lab"]]
    assert entries(world, "Measured") == []


def test_a_run_goes_on_in_the_one_network_when_the_other_does_not_reach_it() -> None:
    world = world_of(NO_WAY, steps=300)
    done = world.controller(OWN_FIRST).run()
    assert (done.reason, done.step, done.preemptions) == ("finished", 300, 0)
    assert all(pools == ["ssh/lab"] for pools in pools_of_attempts(world))
    machines = [m.request.choice.place.pool for m in world.cloud.machines.values()]
    assert machines == ["ssh/lab", "aws"], "rented once, released, and never again"
    rented = next(s for s in read_history(Journal(world.store)).spans if s.choice == SPOT)
    assert rented.ended is not None
    assert (rented.ended - rented.launched).total_seconds() < 30
    (measured,) = entries(world, "Measured")
    (bridge,) = measured["state"]["bridges"]
    assert bridge["apart"] == NO_WAY.error
    check_books(world)


def test_a_network_that_lets_connections_pass_one_way_only_is_none() -> None:
    world = world_of(FAST)
    world.cloud.network = lambda one, _: NO_WAY if one == OWN.place else FAST
    assert world.controller(OWN_FIRST).run().reason == "finished"
    assert pools_of_attempts(world) == [["ssh/lab"]]
    check_books(world)


def test_a_run_that_needs_more_nodes_than_its_own_network_has_is_where_it_gets_them() -> None:
    world = world_of(NO_WAY)
    done = world.controller(replace(OWN_FIRST, least_nodes=2)).run()
    assert done.reason == "finished"
    assert pools_of_attempts(world) == [["aws", "aws"]]
    assert len(world.cloud.machines) == 3
    check_books(world)


def test_a_late_run_moves_as_a_whole_to_where_it_gets_all_its_nodes() -> None:
    world = world_of(NO_WAY, steps=600)
    limits = replace(OWN_FIRST, deadline_s=630.0, reserve_s=0.0)
    world.controller(limits).run()
    assert pools_of_attempts(world)[0] == ["ssh/lab"]
    assert pools_of_attempts(world)[-1] == ["aws", "aws"]
    assert all(len(set(pools)) == 1 for pools in pools_of_attempts(world))
    check_books(world)


def test_launches_are_bounded_when_neither_network_gives_enough() -> None:
    world = world_of(NO_WAY, owned=1, rented=1)
    limits = replace(OWN_FIRST, least_nodes=2, deadline_s=2400.0)
    assert world.controller(limits).run().reason == "deadline"
    assert pools_of_attempts(world) == []
    assert len(world.cloud.machines) <= 8
    check_books(world)


def test_a_network_that_proves_too_slow_is_left_after_a_save() -> None:
    world = world_of(SLOW, steps=100)
    world.gradient_bytes = 8_000_000  # 0.81 s of steps that take 1 s
    done = world.controller(OWN_FIRST).run()
    assert (done.reason, done.step) == ("finished", 100)
    assert pools_of_attempts(world) == [["aws", "ssh/lab"]]
    (saved,) = [e for e in entries(world, "Saved") if e["actions"]]
    (bridge,) = saved["state"]["bridges"]
    assert bridge["apart"] == "12 ms, 80 Mbit/s: a step would take 1 s instead of 0.376 s"
    assert saved["event"]["step"] == saved["state"]["saved_step"] == 8
    assert {node["place"]["pool"] for node in saved["state"]["nodes"]} == {"ssh/lab"}
    assert len(world.cloud.machines) == 2
    check_books(world)


def test_a_node_that_nobody_answers_for_is_not_waited_for_for_ever() -> None:
    world = world_of(FAST, steps=200)
    world.cloud.network = lambda *_: None
    assert world.controller(OWN_FIRST).run().reason == "finished"
    (measured,) = entries(world, "Measured")
    assert measured["event"]["link"]["error"].endswith(" and n001: not measured within 60 s")
    assert len(world.cloud.machines) == 2
    check_books(world)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("least", [1, 2])
def test_a_controller_killed_between_measuring_and_leaving_is_followed_by_another(
    seed: int, least: int
) -> None:
    chance = random.Random(seed)
    world = world_of(NO_WAY, steps=60)
    limits = replace(OWN_FIRST, least_nodes=least)
    done = None
    while done is None:
        after = chance.random() < 0.5
        deadly = Deadly(world.store, chance.randrange(1, 16), after=after)
        try:
            done = world.controller(limits, store=deadly).run()
        except Killed:
            world.sleep(1.0)
    assert (done.reason, done.step) == ("finished", 60)
    assert all(len(set(pools)) == 1 for pools in pools_of_attempts(world))
    assert len(world.cloud.machines) <= 6
    check_books(world)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_no_machine_is_lost_and_no_group_is_torn(seed: int) -> None:
    chance = random.Random(seed)
    world = world_of(chance.choice([NO_WAY, NO_WAY, FAST]), owned=chance.randrange(3), steps=200)
    world.cloud.chance = random.Random(seed)
    world.cloud.faults = Faults(
        throttled=chance.choice([0.0, 0.2]),
        unheard=chance.choice([0.0, 0.2]),
        lingers_s=chance.choice([0.0, 20.0]),
    )
    for _ in range(chance.randrange(4)):
        world.when(chance.uniform(10, 300), partial(lose_one, world))
    limits = replace(OWN_FIRST, least_nodes=chance.choice([1, 2]), deadline_s=3000.0)
    done = None
    while done is None:
        deadly = Deadly(world.store, chance.randrange(1, 40), after=chance.random() < 0.5)
        try:
            done = world.controller(limits, store=deadly).run()
        except Killed:
            world.sleep(1.0)
    assert (done.reason, done.step) == ("finished", 200), done
    if world.cloud.network(OWN.place, SPOT.place) == NO_WAY:
        assert all(len(set(pools)) == 1 for pools in pools_of_attempts(world))
    assert len(world.cloud.machines) <= 20
    check_books(world)


def lose_one(world: World) -> None:
    for name in world.nodes()[:1]:
        world.lose(name)


def test_a_state_with_islands_comes_back_from_the_journal() -> None:
    world = world_of(SLOW)
    world.controller(OWN_FIRST).run()
    (measured,) = entries(world, "Measured")
    state = read_state(measured["state"])
    assert isinstance(state, Active)
    assert state.bridges == (Bridge(islands=("aws/r", "ssh/lab"), link=SLOW),)
    assert [node.met for node in state.nodes] == [(), ("ssh/lab",)]
