"""The controller against a cloud that throttles, forgets, lies and takes; killed at random too.

What must hold whatever happens: the run ends, every machine ever made is ended and has its row in
the ledger, and there is no row without a machine.
"""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import pytest
from fake_world import Deadly, Killed, World, check_books

from burst.controller.book import read_history
from burst.cost.placement import Choice, Place
from burst.cost.state import Done, Limits
from burst.errors import TransientError
from burst.ports import NodeRequest, NodeView
from burst.provision.fake import FakeProvisioner, Faults, Machine
from burst.storage.journal import Journal
from some_run import RUN

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-west-2a")
CHOICES = tuple(
    Choice(
        place=Place(
            pool="aws", region=zone[:-1], zone=zone, machine_type="m6i.large", spot=market == "spot"
        ),
        usd_per_hour=Decimal(usd),
    )
    for market, usd in (("spot", "0.04"), ("on-demand", "0.1"))
    for zone in ZONES
)
LIMITS = Limits(nodes=3, least_nodes=1, choices=CHOICES, max_idle_losses=50)
KILLS = 3


def cloudy(seed: int) -> World:
    """Return a world whose cloud has the faults of a seed."""
    chance = random.Random(seed)
    world = World(steps=60)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)
    world.cloud.chance = random.Random(seed)
    world.cloud.faults = Faults(
        throttled=chance.choice([0.0, 0.1, 0.4]),
        unheard=chance.choice([0.0, 0.2]),
        wrong=chance.choice([0.0, 0.02]),
        late_s=chance.choice([0.0, 1.5, 8.0]),
        lingers_s=chance.choice([0.0, 3.0, 40.0]),
    )
    empty = {zone: (chance.uniform(0, 90), chance.uniform(0, 120)) for zone in ZONES}

    def stock(request: NodeRequest) -> bool:
        since, lasts = empty[request.choice.place.zone]
        return not since <= world.seconds <= since + lasts

    world.cloud.stock = stock
    for _ in range(chance.randrange(6)):
        world.when(chance.uniform(5, 150), lambda: lose_any(world, chance))
    return world


def lose_any(world: World, chance: random.Random) -> None:
    nodes = world.nodes()
    if nodes:
        world.lose(chance.choice(nodes))


def drive(world: World, seed: int) -> Done:
    """Drive the run to its end with controllers that die at random journal entries."""
    chance = random.Random(f"kill {seed}")
    for _ in range(chance.randrange(KILLS + 1)):
        deadly = Deadly(world.store, chance.randrange(1, 25), after=chance.random() < 0.5)
        try:
            return world.controller(LIMITS, store=deadly).run()
        except Killed:
            for _ in range(chance.randrange(60)):  # until somebody takes over, training goes on
                world.sleep(1.0)
    return world.controller(LIMITS).run()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_cloud_does_no_machine_is_lost(seed: int) -> None:
    world = cloudy(seed)
    done = drive(world, seed)
    assert done.reason == "finished", done
    assert done.step == 60
    check_books(world)


@pytest.mark.parametrize("now", [False, True])
def test_a_run_whose_controller_is_gone_is_stopped_without_renting_anything(now: bool) -> None:
    world = World(steps=60)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)
    try:
        world.controller(LIMITS, store=Deadly(world.store, 12, after=True)).run()
    except Killed:
        world.sleep(5.0)
    before = world.ever()
    world.lose(before[-1])
    controller = world.controller(LIMITS)
    controller.ask_stop("you", now=now)
    done = controller.run()
    assert done.reason == "stopped"
    assert world.ever() == before
    check_books(world)


def test_a_pool_that_does_not_answer_is_no_reason_to_give_up_its_nodes() -> None:
    """A healthy run is never torn down because status calls fail."""
    world = World(steps=60)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)
    world.when(10, lambda: setattr(world.cloud.faults, "throttled", 1.0))
    world.when(50, lambda: setattr(world.cloud.faults, "throttled", 0.0))
    done = world.controller(LIMITS).run()
    assert (done.reason, done.preemptions, len(world.ever())) == ("finished", 0, 3)
    check_books(world)


def test_a_machine_whose_agent_was_never_started_gets_one_from_the_next_controller() -> None:
    world = World(steps=20)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)
    with pytest.raises(Killed):  # as the first launch is written down
        world.controller(LIMITS, store=Deadly(world.store, 3, after=True)).run()
    assert [machine.agent for machine in world.cloud.machines.values()] == [False]
    done = world.controller(LIMITS).run()
    assert done.reason == "finished"
    assert all(machine.agent for machine in world.cloud.machines.values())
    check_books(world)


def test_a_machine_that_shows_after_the_takeover_is_ended() -> None:
    """SkyPilot's server may still have a launch in its queue that a dead controller asked for."""
    world = World(steps=20)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)
    stray = NodeRequest(
        run_id=RUN.run_id, node_id="n900", run_uri="", index=0, choice=CHOICES[0]
    )  # fmt: skip

    def late() -> None:
        assert world.cloud.create(stray)

    world.when(8, late)
    done = world.controller(LIMITS).run()
    assert done.reason == "finished"
    assert world.cloud.alive() == {}
    ended = next(m.ended for m in world.cloud.machines.values() if m.request.node_id == "n900")
    assert ended is not None
    assert (ended - world.cloud.machines[f"{RUN.run_id}/n900"].born).total_seconds() < 5


@pytest.mark.parametrize("tells", ["nothing", "since", "both"])
def test_a_launch_that_a_dead_controller_left_in_a_queue_has_a_row(
    tells: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes a machine after the takeover. Most clouds do not say when one began or ended."""
    view = FakeProvisioner._view

    def told(pool: FakeProvisioner, name: str, there: dict[str, Machine]) -> NodeView:
        whole = view(pool, name, there)
        since, until = whole.since, whole.until
        return replace(
            whole,
            since=None if tells == "nothing" else since,
            until=until if tells == "both" else None,
        )

    monkeypatch.setattr(FakeProvisioner, "_view", told)
    world = World(steps=20)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)
    with pytest.raises(Killed):  # as the first decision is written down
        world.controller(LIMITS, store=Deadly(world.store, 2, after=True)).run()
    queued = NodeRequest(
        run_id=RUN.run_id, node_id="n001", run_uri="", index=0, choice=CHOICES[0]
    )  # fmt: skip

    def late() -> None:
        assert world.cloud.create(queued)

    world.when(8, late)
    assert world.controller(LIMITS).run().reason == "finished"
    made = {machine.request.node_id: machine for machine in world.cloud.machines.values()}
    rows = {span.node_id: span for span in read_history(Journal(world.store)).spans}
    assert "n001" in made
    assert made.keys() <= rows.keys()
    assert all(row.ended for row in rows.values())
    ended = rows["n001"].ended
    assert ended is not None
    assert made["n001"].ended is not None
    assert abs((ended - made["n001"].ended).total_seconds()) <= 1


def test_a_run_that_finished_while_nobody_drove_it_is_not_started_again() -> None:
    """C65: its nodes trained on and ended by themselves before the next controller came."""
    world = World(steps=20)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)

    def die() -> None:
        raise Killed

    world.when(12, die)
    with pytest.raises(Killed):
        world.controller(LIMITS).run()
    assert 0 < world.step < 20
    for _ in range(40):
        world.sleep(1.0)
    for name in world.nodes():
        world.lose(name)
    before = world.ever()
    done = world.controller(LIMITS).run()
    assert (done.reason, done.step, world.attempt, world.ever()) == ("finished", 20, 1, before)
    check_books(world)


def test_a_launch_of_a_dead_controller_that_nobody_saw_a_machine_of_is_told() -> None:
    """Its machine ended before the takeover, at a cloud that forgets what has ended."""
    world = World(steps=20)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)
    with pytest.raises(Killed):  # as the first launch is written down
        world.controller(LIMITS, store=Deadly(world.store, 3, after=False)).run()
    assert world.ever() == ["n001"]
    world.cloud.machines.clear()
    assert world.controller(LIMITS).run().reason == "finished"
    rows = {span.node_id: span for span in read_history(Journal(world.store)).spans}
    assert rows["n001"].refused
    assert rows["n001"].note == "its controller died as it asked, and no machine of it was seen"
    assert read_history(Journal(world.store)).intents == ()
    check_books(world)


class Away:
    """A store that cannot be reached for some time."""

    def __init__(self, world: World, since: float, until: float) -> None:
        self._world = world
        self._inner = world.store
        self._since, self._until = since, until

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*given: object, **named: object) -> object:
            if self._since <= self._world.seconds <= self._until:
                raise TransientError("no route to the bucket")
            return found(*given, **named)

        return call


@pytest.mark.parametrize("since", range(1, 75, 3))
def test_a_store_out_of_reach_ends_nothing(since: int) -> None:
    """Whatever the controller was doing, it goes on once the store is back."""
    world = World(steps=60)
    world.outlives = True
    world.run = replace(RUN, nodes=3, choices=CHOICES, head_apart=False)
    world.when(30, lambda: lose_any(world, random.Random(since)))
    done = world.controller(LIMITS, store=Away(world, since, since + 200)).run()
    assert (done.reason, done.step) == ("finished", 60)
    check_books(world)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 300))
def test_whatever_the_cloud_does_no_machine_is_lost_in_300_seeds(seed: int) -> None:
    world = cloudy(seed)
    assert drive(world, seed).reason == "finished"
    check_books(world)
