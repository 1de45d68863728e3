"""Several launches at once in an empty account, their calls interleaved in many orders."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from random import Random
from typing import Any

import pytest

from burst.errors import BurstError
from burst.ports import Clock
from burst.provision.alibaba.client import Api
from burst.provision.alibaba.errors import EcsError
from burst.provision.alibaba.machines import Order, launch
from burst.provision.alibaba.network import afresh, furnish, idle, key_pair
from ecs_scene import KEY, OTHER_ZONE, ZONE, Scene, Time

pytestmark = pytest.mark.integration
MAKING = ("CreateVpc", "CreateSecurityGroup", "AuthorizeSecurityGroup", "CreateVSwitch",
          "ImportKeyPair", "RunInstances")  # fmt: skip


class Turns:
    """Lets one of some callers go on at a time, each for one call, in an order made of a seed."""

    def __init__(self, seed: int, callers: int) -> None:
        self._random = Random(seed)
        self._there = set(range(callers))
        self._waiting: set[int] = set()
        self._next: int | None = None
        self._changed = threading.Condition()

    def wait(self, me: int) -> None:
        with self._changed:
            self._waiting.add(me)
            self._choose()
            assert self._changed.wait_for(lambda: self._next == me, timeout=60)
            self._waiting.discard(me)
            self._next = None

    def leave(self, me: int) -> None:
        with self._changed:
            self._there.discard(me)
            self._choose()

    def _choose(self) -> None:
        if self._waiting and self._waiting == self._there:
            self._next = self._random.choice(sorted(self._waiting))
            self._changed.notify_all()


class Paced(Time):
    """An Api, and its clock, whose calls and sleeps wait for their turn."""

    def __init__(self, api: Api, time: Time, turns: Turns, me: int, fails: str) -> None:
        self.region = api.region
        self.clock: Clock = self
        self._api, self._time, self._turns, self._me, self._fails = api, time, turns, me, fails

    def now(self) -> datetime:
        return self._time.now()

    def monotonic(self) -> float:
        return self._time.monotonic()

    def sleep(self, seconds: float) -> None:
        self._turns.wait(self._me)
        self._time.sleep(seconds)

    def call(self, action: str, **parameters: Any) -> Any:
        self._turns.wait(self._me)
        if action == self._fails:
            raise EcsError(action, "Forbidden.RAM", "not allowed")
        return self._api.call(action, **parameters)


def at_once(
    scene: Scene, seed: int, zones: list[str], fails: str = ""
) -> list[Future[tuple[str, ...]]]:
    """Launch a machine in each zone at the same time; the first of them may be refused a call."""
    turns = Turns(seed, len(zones))

    def one(me: int, zone: str) -> tuple[str, ...]:
        api = Paced(scene.api(), scene.time, turns, me, "" if me else fails)
        try:
            return afresh(
                lambda: launch(api, order_in(scene, api, zone), f"{me}-{scene.time.now()}")
            )
        finally:
            turns.leave(me)

    with ThreadPoolExecutor(len(zones)) as pool:
        return [pool.submit(one, me, zone) for me, zone in enumerate(zones)]


def order_in(scene: Scene, api: Api, zone: str = ZONE) -> Order:
    return scene.order(api=api, zones=[zone], zone=zone)


def kinds(scene: Scene) -> list[str]:
    return sorted(one["kind"] for one in scene.cloud.things.values())


@pytest.mark.parametrize("zones", [[ZONE, ZONE], [ZONE, OTHER_ZONE]])
@pytest.mark.parametrize("seed", range(12))
def test_they_end_with_one_network(scene: Scene, seed: int, zones: list[str]) -> None:
    for done in at_once(scene, seed, zones):
        assert done.result()
    assert kinds(scene) == ["key", "sg", "vpc", *["vsw"] * len(set(zones))]
    network = furnish(scene.api(), zones)
    used = {one.asked["SecurityGroupId"] for one in scene.cloud.machines.values()}
    assert (used, len(scene.cloud.machines)) == ({network.security_group_id}, 2)


@pytest.mark.parametrize("fails", MAKING)
@pytest.mark.parametrize("seed", range(8))
def test_one_that_fails_takes_nothing_from_the_other(scene: Scene, seed: int, fails: str) -> None:
    failed, other = at_once(scene, seed, [ZONE, OTHER_ZONE], fails)
    assert other.result()
    error = failed.exception()  # none where the other one made what it must not
    assert error is None or (isinstance(error, BurstError) and "Forbidden.RAM" in str(error))
    network = furnish(scene.api(), [OTHER_ZONE])
    machine = scene.cloud.machines[other.result()[0]]
    assert machine.asked["SecurityGroupId"] == network.security_group_id
    assert machine.asked["VSwitchId"] == network.vswitches[OTHER_ZONE]
    assert kinds(scene).count("vpc") == kinds(scene).count("sg") == 1


@pytest.mark.parametrize("seed", range(40))
def test_a_launch_outlives_a_removal_at_the_same_time(scene: Scene, seed: int) -> None:
    furnish(scene.api(), [ZONE])
    key_pair(scene.api(), KEY)
    turns = Turns(seed, 2)
    launcher, remover = (Paced(scene.api(), scene.time, turns, me, "") for me in range(2))

    def launched() -> tuple[str, ...]:
        try:
            return afresh(
                lambda: launch(launcher, order_in(scene, launcher), str(scene.time.now()))
            )
        finally:
            turns.leave(0)

    def removed() -> list[bool]:
        try:
            return [one.remove() for one in idle(remover)]
        finally:
            turns.leave(1)

    with ThreadPoolExecutor(2) as pool:
        machines, removal = pool.submit(launched), pool.submit(removed)
    (name,) = machines.result()
    machine = scene.cloud.machines[name]
    assert {machine.asked["SecurityGroupId"], machine.asked["VSwitchId"]} <= {*scene.cloud.things}
    error = removal.exception()
    assert error is None or "DependencyViolation" in str(error)
    scene.cloud.lose(name)
    assert all(one.remove() for one in idle(scene.api()))
    assert scene.cloud.things == {}
