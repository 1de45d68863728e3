"""Rented machines under test: over SkyPilot's clusters, faked, and a cloud."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from burst.cost.placement import Place
from burst.errors import TransientError
from burst.ports import Clock, NodeRequest, Provisioner
from burst.provision import rented
from burst.provision.refusals import RefusedError
from burst.provision.rented import NODE_TAG, RUN_TAG, Cloud, Clusters, Machine, RentedProvisioner
from burst.provision.ssh import Login, Ssh
from pool_bench import RUN, Bench, Calls, as_told
from restless_clock import RestlessClock


class CloudInMemory:
    """See burst.provision.rented.Cloud: the machines that `ClustersOf` asks it for."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], Machine] = {}
        self.full = False
        self.silent = False

    def make(self, place: Place, labels: Mapping[str, str]) -> None:
        self._answer()
        if self.full:
            raise RefusedError("no", "InsufficientInstanceCapacity: none left")
        key = (labels[RUN_TAG], labels[NODE_TAG])
        now = datetime.now(UTC)
        self.all[key] = Machine(name=f"i-{len(self.all)}", since=now, until=None, costs=True)

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        self._answer()
        return {node: machine for (run, node), machine in self.all.items() if run == run_id}

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        self._answer()
        for node_id in node_ids:
            self.take(run_id, node_id)

    def take(self, run_id: str, node_id: str) -> None:
        machine = self.all.get((run_id, node_id))
        if machine is not None and machine.costs:
            self.all[run_id, node_id] = replace(machine, until=datetime.now(UTC), costs=False)

    def keep(self, run_id: str) -> None:
        del run_id

    def _answer(self) -> None:
        if self.silent:
            raise TransientError("RequestLimitExceeded")


class ClustersOf:
    """See burst.provision.rented.Clusters: SkyPilot's database over a cloud, without SkyPilot.

    Like SkyPilot's, it forgets a cluster that is ended, and does not know when a machine was taken.
    """

    def __init__(self, cloud: Any, known: dict[str, tuple[str, str]], calls: Calls) -> None:
        self._cloud = cloud
        self._known = known  # cluster: run and node
        self.launch = calls.counted(self._launch)
        self.login = calls.counted(self._login)

    def _launch(self, request: rented.MachineRequest) -> None:
        if request.name not in self._known:
            self._cloud.make(request.place, request.labels)
            self._known[request.name] = (request.labels[RUN_TAG], request.labels[NODE_TAG])

    def states(self, prefix: str, *, refresh: bool) -> Mapping[str, str]:
        del refresh
        return {name: "up" for name in self._known if name.startswith(prefix)}

    def _login(self, name: str, keys: Path) -> Login:
        del keys
        if name not in self._known:
            raise TransientError(f"SkyPilot knows no machine of {name}")
        return Login(host="10.0.0.1", ip="10.0.0.1", user="ubuntu")

    def down(self, name: str) -> None:
        run_id, node_id = self._known.get(name, ("", ""))
        self._cloud.end(run_id, [node_id])
        self._known.pop(name, None)

    held = False

    def end_command(self, request: NodeRequest) -> str:
        del request
        return "true"

    def machine_env(self, name: str) -> Mapping[str, str]:
        del name
        return {}

    def vacant(self, place: Place) -> int:
        del place
        return 0


class RentedBench(Bench):
    """RentedProvisioner over SkyPilot's clusters, faked, and a cloud."""

    place = Place(pool="aws", region="r", zone="ra", machine_type="m", spot=True)

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._home = home
        self.log = home / "launch.log"
        self._known: dict[str, tuple[str, str]] = {}
        self.cloud: Any = CloudInMemory()
        self.clock: Clock = RestlessClock()
        patch.setattr(rented, "LOOK_S", 0.0)
        patch.setattr(rented, "DOUBT_LOOK_S", 0.0)
        patch.setattr(Ssh, "run", partialmethod(as_told, self))

    def _run(self, ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        """Be a machine on which everything works, unless a call is to fail."""
        del ssh, command, data, limit_s
        return self.calls.make(lambda: "no\n")

    def clusters(self) -> Clusters:
        return ClustersOf(self.cloud, self._known, self.calls)

    def wait(self) -> None:
        super().wait()
        self.clock.sleep(0.5)

    def asked(self) -> Cloud | None:
        cloud: Cloud = self.cloud
        return cloud

    def open(self) -> Provisioner:
        settings = rented.Settings(home=self._home, wanted={}, lease_ttl_s=600.0)
        return RentedProvisioner(self.clusters(), self.asked(), settings, self.clock)

    def there(self, run_id: str = RUN) -> set[str]:
        return {node for node, machine in self.cloud.machines(run_id).items() if machine.costs}

    def lose(self, node_id: str) -> None:
        self.cloud.take(RUN, node_id)

    def fill(self) -> None:
        self.cloud.full = True

    @contextmanager
    def silent(self) -> Iterator[None]:
        self.cloud.silent = True
        yield
        self.cloud.silent = False
