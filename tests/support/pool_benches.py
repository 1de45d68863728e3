"""Pools with the levers that their common tests pull: a new pool is one more entry of `BENCHES`."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partialmethod
from pathlib import Path
from typing import Any, TypeVar

import pytest

from burst.cost.placement import Choice, Place
from burst.errors import SetupError, TransientError
from burst.ports import NodeRequest, Provisioner
from burst.processes import Mark, find, kill_all
from burst.provision import hosts, local, rented
from burst.provision.alibaba import machines as ecs
from burst.provision.alibaba.client import Api
from burst.provision.alibaba.cloud import Alibaba
from burst.provision.alibaba.errors import EcsError
from burst.provision.fake import FakeCloud, FakeProvisioner
from burst.provision.hosts import Hosts, read_hosts
from burst.provision.local import LocalProvisioner
from burst.provision.pools import Pools, kind_of
from burst.provision.refusals import RefusedError
from burst.provision.rented import NODE_TAG, RUN_TAG, Cloud, Clusters, Machine, RentedProvisioner
from burst.provision.ssh import Login, Ssh
from burst.records import RUN as RUN_KEY
from burst.storage.memory import MemoryStore
from burst.storage.open import open_store
from cli_scene import StillClock
from ecs_scene import REGION, T4, ZONE, Scene, at_alibaba
from restless_clock import RestlessClock
from some_run import RUN as RECORD

RUN, OTHER_RUN = "toy-abcdef", "toy-abcdef-n001-zyxwvu"  # names that begin alike
NODES = ("n001", "n002", "n003")
T = TypeVar("T")


class Calls:
    """The calls by which a node is set up; one of them can be made to go wrong."""

    def __init__(self) -> None:
        self.made = 0
        self._fault: tuple[int, BaseException, bool] | None = None
        self._lock = threading.Lock()

    def fail(self, number: int, error: BaseException, *, after: bool) -> None:
        """Have a call, counted from now, fail: before anything happens, or when it has."""
        with self._lock:
            self.made, self._fault = 0, (number, error, after)

    def make(self, call: Callable[[], T]) -> T:
        with self._lock:
            self.made += 1
            fault = self._fault if self._fault and self._fault[0] == self.made else None
        if fault and not fault[2]:
            raise fault[1]
        result = call()
        if fault:
            raise fault[1]
        return result

    def counted(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return the function with its calls counted."""
        return lambda *given, **named: self.make(lambda: function(*given, **named))


class Killed(BaseException):
    """The controller's process is gone in the middle of a call."""


class Bench(ABC):
    """A pool under test."""

    trouble: Callable[[str], Exception] = TransientError  # what a call that goes wrong raises
    place: Place

    def __init__(self) -> None:
        self.calls = Calls()

    @abstractmethod
    def open(self) -> Provisioner:
        """Return what a controller that starts now has, over the pool there is."""

    @abstractmethod
    def there(self, run_id: str = RUN) -> set[str]:
        """Return the nodes whose machine is there: the truth, whoever asks."""

    @abstractmethod
    def lose(self, node_id: str) -> None:
        """Take a node's machine away."""

    @abstractmethod
    def fill(self) -> None:
        """Have the pool give no further machine."""

    def silent(self) -> AbstractContextManager[None]:
        """Have the pool not answer."""
        pytest.skip("this pool always answers")

    def silent_about(self, node_id: str) -> AbstractContextManager[None]:
        """Have the part of the pool that has a node not answer."""
        del node_id
        return self.silent()

    def wait(self) -> None:
        """Let a little time pass."""
        time.sleep(0.01)  # noqa: TID251 - threads and processes are at work

    def place_of(self, node_id: str) -> Place:
        del node_id
        return self.place

    def request(self, node_id: str, run_id: str = RUN) -> NodeRequest:
        choice = Choice(place=self.place_of(node_id), usd_per_hour=Decimal(1))
        uri = f"s3://b/runs/{run_id}"
        return NodeRequest(run_id=run_id, node_id=node_id, run_uri=uri, index=0, choice=choice)


def _as_told(ssh: Ssh, bench: Any, *given: Any, **named: Any) -> str:
    """Run a command on a machine of a bench."""
    said: str = bench._run(ssh, *given, **named)
    return said


# This machine, and a cloud in memory --------------------------------------------------------------


class CountedCloud(FakeCloud):
    """A cloud in memory whose calls for machines are counted."""

    count: Calls

    def create(self, request: NodeRequest) -> bool:
        return self.count.make(lambda: FakeCloud.create(self, request))


class FakeBench(Bench):
    """burst.provision.fake."""

    place = Place(pool="aws", region="r", zone="ra", machine_type="m", spot=True)

    def __init__(self) -> None:
        super().__init__()
        self._clock = StillClock()
        self._cloud = CountedCloud(self._clock)
        self._cloud.count = self.calls

    def open(self) -> Provisioner:
        return FakeProvisioner(self._cloud, MemoryStore(), outlives=True)

    def there(self, run_id: str = RUN) -> set[str]:
        return {machine.request.node_id for machine in self._cloud.alive(run_id).values()}

    def lose(self, node_id: str) -> None:
        self._cloud.lose(f"{RUN}/{node_id}")

    def fill(self) -> None:
        self._cloud.stock = lambda _: False

    @contextmanager
    def silent(self) -> Iterator[None]:
        self._cloud.faults.throttled = 1.0
        yield
        self._cloud.faults.throttled = 0.0

    def wait(self) -> None:
        self._clock.sleep(1.0)


class LocalBench(Bench):
    """burst.provision.local, with real agents."""

    trouble = OSError
    place = Place(pool="local", machine_type="box", owned=True)

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._home = home
        self._started: list[subprocess.Popen[bytes]] = []
        self._start = subprocess.Popen
        patch.setattr(local, "_write", self.calls.counted(local._write))
        patch.setattr(subprocess, "Popen", self.calls.counted(self._note))

    def _note(self, *given: Any, **named: Any) -> subprocess.Popen[bytes]:
        self._started.append(self._start(*given, **named))
        return self._started[-1]

    def open(self) -> Provisioner:
        return LocalProvisioner(self._home)

    def request(self, node_id: str, run_id: str = RUN) -> NodeRequest:
        uri = f"file://{self._home}/runs/{run_id}"
        open_store(uri).put(RUN_KEY, replace(RECORD, run_id=run_id).encode())
        return replace(super().request(node_id, run_id), run_uri=uri)

    def there(self, run_id: str = RUN) -> set[str]:
        return {name for name in NODES if find(self._mark(run_id, name))}

    def _mark(self, run_id: str, node_id: str) -> Mark:
        return Mark(variables={"BURST_RUN_ID": run_id, "BURST_NODE_ID": node_id})

    def lose(self, node_id: str) -> None:
        kill_all(self._mark(RUN, node_id))

    def fill(self) -> None:
        pytest.skip("this machine refuses no node")

    def close(self) -> None:
        for run_id in (RUN, OTHER_RUN):
            self.open().sweep(run_id)
        for child in self._started:
            child.wait()


# Rented machines ----------------------------------------------------------------------------------


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

    def vacant(self, place: Place) -> int:
        del place
        return 0


class RentedBench(Bench):
    """RentedProvisioner over SkyPilot's clusters, faked, and a cloud."""

    place = Place(pool="aws", region="r", zone="ra", machine_type="m", spot=True)

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._home = home
        self._known: dict[str, tuple[str, str]] = {}
        self.cloud: Any = CloudInMemory()
        patch.setattr(rented, "LOOK_S", 0.0)
        patch.setattr(rented, "DOUBT_LOOK_S", 0.0)
        patch.setattr(Ssh, "run", partialmethod(_as_told, self))

    def _run(self, ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        """Be a machine on which everything works, unless a call is to fail."""
        del ssh, command, data, limit_s
        return self.calls.make(lambda: "no\n")

    def clusters(self) -> Clusters:
        return ClustersOf(self.cloud, self._known, self.calls)

    def asked(self) -> Cloud | None:
        cloud: Cloud = self.cloud
        return cloud

    def open(self) -> Provisioner:
        settings = rented.Settings(home=self._home, wanted={}, lease_ttl_s=600.0)
        return RentedProvisioner(self.clusters(), self.asked(), settings, RestlessClock())

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


class HostsBench(RentedBench):
    """RentedProvisioner over SSH hosts whose `ssh` is a shell of this machine, a home for each."""

    ADDRESSES = ("a", "b", "c", "d")

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self._down: set[str] = set()
        super().__init__(home, patch)
        found = Hosts(self._hosts(), home).look()[0]
        self.place = Place(pool="ssh/lab", machine_type=found.shape, owned=True)

    def _hosts(self) -> tuple[hosts.Host, ...]:
        return read_hosts({"ssh": {"lab": {"user": "me", "hosts": list(self.ADDRESSES)}}}, "x")

    def _run(self, ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        del data
        if ssh.login.host in self._down:
            raise TransientError(f"{ssh.login.host} cannot be reached by ssh")
        of_a_node = "claim" not in command  # bringing code there and starting it takes no shell
        if of_a_node:
            return self.calls.make(lambda: "no\n")
        sets_up = "ln -sn" in command
        shell = self.calls.counted(self._shell) if sets_up else self._shell
        return shell(self._home / ssh.login.host, command, limit_s)

    def _shell(self, home: Path, command: str, limit_s: float) -> str:
        home.mkdir(exist_ok=True)
        env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["sh", "-c", command], env=env, capture_output=True, timeout=limit_s, check=False
        )
        if done.returncode:
            raise SetupError(done.stderr.decode())
        return done.stdout.decode()

    def clusters(self) -> Clusters:
        nodes = {rented.cluster_name(RUN, node_id): "ssh/lab" for node_id in NODES}
        return Hosts(self._hosts(), self._home, nodes)

    def asked(self) -> None:
        return None

    def _claims(self) -> dict[str, Path]:
        """Return the claims there are by the name of their node."""
        claim = f".burst/claim-{os.uname().nodename}"
        there = [self._home / address / claim for address in self.ADDRESSES]
        return {str(path.readlink()): path for path in there if path.is_symlink()}

    def there(self, run_id: str = RUN) -> set[str]:
        prefix = rented.cluster_name(run_id, "")
        names = (name.removeprefix(prefix) for name in self._claims() if name.startswith(prefix))
        return {name for name in names if rented.NODE_ID.fullmatch(name)}

    def lose(self, node_id: str) -> None:
        """Do what its supervisor does once its dead-man switch has fallen."""
        self._claims()[rented.cluster_name(RUN, node_id)].unlink()

    def fill(self) -> None:
        clusters = self.clusters()
        for number in range(len(self.ADDRESSES) - len(self._claims())):
            name = f"burst-else-abcdef-n{number}"
            clusters.launch(
                rented.MachineRequest(name=name, place=self.place, wanted={}, labels={}, log=Path())
            )

    @contextmanager
    def silent(self) -> Iterator[None]:
        self._down = set(self.ADDRESSES)
        yield
        self._down = set()

    @contextmanager
    def silent_about(self, node_id: str) -> Iterator[None]:
        claim = self._claims()[rented.cluster_name(RUN, node_id)]
        self._down = {claim.relative_to(self._home).parts[0]}
        yield
        self._down = set()


class PoolsBench(Bench):
    """Several kinds at once: the first node and every second one after it on hosts of one's own."""

    def __init__(self, own: HostsBench, cloud: RentedBench, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._kinds: dict[str, Bench] = {"ssh": own, "cloud": cloud}
        self._own, self._cloud = own, cloud
        self.calls = own.calls = cloud.calls  # a call of either counts
        patch.setattr(Ssh, "run", partialmethod(_as_told, self))

    def _run(self, ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        mine = ssh.login.host in HostsBench.ADDRESSES
        return (self._own if mine else self._cloud)._run(ssh, command, data, limit_s=limit_s)

    def _of(self, node_id: str) -> Bench:
        return self._own if int(node_id[1:]) % 2 else self._cloud

    def place_of(self, node_id: str) -> Place:
        return self._of(node_id).place

    def open(self) -> Provisioner:
        kinds = {name: kind_of(self.place_of(name).pool) for name in NODES}
        return Pools(pools={k: b.open() for k, b in self._kinds.items()}, kinds=kinds)

    def there(self, run_id: str = RUN) -> set[str]:
        return self._own.there(run_id) | self._cloud.there(run_id)

    def lose(self, node_id: str) -> None:
        self._of(node_id).lose(node_id)

    def fill(self) -> None:
        for bench in self._kinds.values():
            bench.fill()

    @contextmanager
    def silent(self) -> Iterator[None]:
        with self._own.silent(), self._cloud.silent():
            yield

    def silent_about(self, node_id: str) -> AbstractContextManager[None]:
        return self._of(node_id).silent_about(node_id)


# All of them --------------------------------------------------------------------------------------


@contextmanager
def _fake(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    del home, patch
    yield FakeBench()


@contextmanager
def _local(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = LocalBench(home, patch)
    yield bench
    bench.close()


@contextmanager
def _rented(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    yield RentedBench(home, patch)


@contextmanager
def _hosts(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    yield HostsBench(home, patch)


@contextmanager
def _alibaba(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with at_alibaba(patch) as scene:
        yield AlibabaBench(home, patch, scene)


@contextmanager
def _kubernetes(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    from kube_bench import KubernetesBench  # which is made of a bench above
    from kube_scene import at_kubernetes

    with at_kubernetes(home) as scene:
        yield KubernetesBench(home, patch, scene)


@contextmanager
def _pools(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    cloud = RentedBench(home, patch)
    yield PoolsBench(HostsBench(home, patch), cloud, patch)


BENCHES = {
    "fake": (_fake, False),
    "local": (_local, True),
    "rented": (_rented, False),
    "hosts": (_hosts, False),
    "alibaba": (_alibaba, True),
    "kubernetes": (_kubernetes, True),
    "pools": (_pools, False),
}  # by name; True: it starts processes or servers
