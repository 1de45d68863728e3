"""Clouds under test: what makes and tells of their machines, over stand-ins that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from burst.cost.placement import Place
from burst.ports import Clock
from burst.provision.alibaba import machines as ecs
from burst.provision.alibaba.client import Api
from burst.provision.alibaba.cloud import Alibaba
from burst.provision.alibaba.errors import EcsError
from burst.provision.lambda_cloud.api import LambdaApi, LambdaError, Launch, LostAnswerError
from burst.provision.lambda_cloud.cloud import LambdaCloud
from burst.provision.lambda_cloud.cluster import Wanted, bring_up
from burst.provision.lambda_cloud.pace import Pace
from burst.provision.refusals import RefusedError
from burst.provision.rented import NODE_TAG, RUN_TAG, cluster_name
from ecs_scene import REGION, T4, ZONE, Scene
from lambda_emulator import KEY, Fault, LambdaEmulator
from pool_bench import RUN, Calls
from rented_bench import RentedBench

LAMBDA_KEY = "sky-key-me"  # for SSH, by its name at Lambda


class EcsMachines:
    """Machines of Alibaba Cloud, asked for as burst's plugin of SkyPilot does."""

    def __init__(self, scene: Scene, calls: Calls) -> None:
        self._scene = scene
        self._calls = calls
        self.cloud = Alibaba([REGION], scene.api)

    def make(self, place: Place, labels: Mapping[str, str]) -> None:
        order = self._scene.order(tags=dict(labels), spot=place.spot)
        api: Api = self._scene.api()
        try:
            token = f"{labels[RUN_TAG]}-{labels[NODE_TAG]}"
            self._calls.make(lambda: ecs.launch(api, order, token))
        except EcsError as error:
            raise RefusedError("no", error.message) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cloud, name)


class AlibabaBench(RentedBench):
    """The same over Alibaba Cloud's own SDK and a stand-in that it calls."""

    place = Place(pool="alibaba", region=REGION, zone=ZONE, machine_type=T4, spot=True)

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, scene: Scene) -> None:
        super().__init__(home, patch)
        self._scene = scene
        self.cloud = EcsMachines(scene, self.calls)
        scene.order()  # the account is furnished

    def lose(self, node_id: str) -> None:
        there = self._scene.cloud.machines.values()
        (mine,) = (one for one in there if one.tags[NODE_TAG] == node_id)
        self._scene.cloud.lose(mine.id)

    def there(self, run_id: str = RUN) -> set[str]:
        there = self._scene.cloud.machines.values()
        return {one.tags[NODE_TAG] for one in there if one.tags[RUN_TAG] == run_id}

    def fill(self) -> None:
        self._scene.cloud.stock[ZONE, T4] = 0

    @contextmanager
    def silent(self) -> Iterator[None]:
        faults = self._scene.cloud.faults
        self._scene.cloud.fail("DescribeInstances", "Forbidden.RAM", 403, times=1_000_000)
        yield
        faults.clear()


class LambdaMachines:
    """Machines of Lambda Cloud, asked for and ended as burst's plugin of SkyPilot does."""

    def __init__(self, api: LambdaApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self.cloud = LambdaCloud(api, clock)

    def make(self, place: Place, labels: Mapping[str, str]) -> None:
        like = Launch(
            name="",
            region=place.region,
            machine_type=place.machine_type,
            ssh_key=LAMBDA_KEY,
            tags=labels,
        )
        name = f"{cluster_name(labels[RUN_TAG], labels[NODE_TAG])}-0a0b"
        try:
            bring_up(self._api, self._clock, Wanted(cluster=name, count=1, like=like))
        except LambdaError as error:
            raise RefusedError("no", error.message) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cloud, name)


class LambdaBench(RentedBench):
    """The same over Lambda Cloud's API, whose every call of a launch can go wrong."""

    trouble = LostAnswerError
    place = Place(pool="lambda", region="us-east-1", machine_type="gpu_1x_a10")

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, emulator: LambdaEmulator) -> None:
        super().__init__(home, patch)
        self._emulator = emulator
        emulator.add_key(LAMBDA_KEY)
        emulator.limits = False  # the clock leaps, and two threads then call at one moment
        self.clock = emulator.clock
        api = LambdaApi(KEY, Pace(home / "pace", self.clock), self.clock, emulator.url)
        patch.setattr(api, "_once", self.calls.of_launches(api._once))
        self.cloud = LambdaMachines(api, self.clock)

    def _there(self, run_id: str) -> Mapping[str, str]:
        """Return the ids of the machines that cost money, by node."""
        there: dict[str, str] = {}
        for instance_id in self._emulator.running():
            told = self._emulator.vms[instance_id].body["tags"]
            tags = {tag["key"]: tag["value"] for tag in told}
            if tags[RUN_TAG] == run_id:
                there[tags[NODE_TAG]] = instance_id
        return there

    def there(self, run_id: str = RUN) -> set[str]:
        with self._emulator.lock:
            return {*self._there(run_id)}

    def lose(self, node_id: str) -> None:
        with self._emulator.lock:
            self._emulator.lose(self._there(RUN)[node_id])

    def fill(self) -> None:
        self._emulator.stock[self.place.machine_type, self.place.region] = 0

    @contextmanager
    def silent(self) -> Iterator[None]:
        self._emulator.faults.append(Fault("/instances", 503, times=1_000_000))
        yield
        self._emulator.faults.clear()
