"""Pools with the levers that their common tests pull: a new pool is one more entry of `BENCHES`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from burst.clock import SystemClock
from burst.cost.placement import Place
from burst.ports import NodeRequest, Provisioner
from burst.processes import Mark, find, kill_all
from burst.provision import local
from burst.provision.fake import FakeCloud, FakeProvisioner
from burst.provision.local import LocalProvisioner
from burst.provision.pools import Pools, kind_of
from burst.provision.ssh import Ssh
from burst.records import RUN as RUN_KEY
from burst.storage.memory import MemoryStore
from burst.storage.open import open_store
from cli_scene import StillClock
from cloud_benches import AlibabaBench, LambdaBench
from ecs_scene import at_alibaba
from kube_bench import KubernetesBench
from kube_scene import at_kubernetes
from lambda_emulator import LambdaEmulator
from own_benches import HostsBench, SlurmBench
from pool_bench import NODES, OTHER_RUN, RUN, Bench, Calls, as_told
from rented_bench import RentedBench
from restless_clock import RestlessClock
from slurm_stand_in import usual
from some_run import RUN as RECORD
from tests.lab import slurm
from tests.lab.slurm import SlurmLab


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

    can = ()
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
        raise NotImplementedError("this machine refuses no node")

    def silent(self) -> AbstractContextManager[None]:
        raise NotImplementedError("this machine always answers")

    def close(self) -> None:
        for run_id in (RUN, OTHER_RUN):
            self.open().sweep(run_id)
        for child in self._started:
            child.wait()


class PoolsBench(Bench):
    """Several kinds at once: the first node and every second one after it on hosts of one's own."""

    can = ("refuse", "fall silent", "fall silent in part")

    def __init__(self, own: HostsBench, cloud: RentedBench, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._kinds: dict[str, Bench] = {"ssh": own, "cloud": cloud}
        self._own, self._cloud = own, cloud
        self.calls = own.calls = cloud.calls  # a call of either counts
        patch.setattr(Ssh, "run", partialmethod(as_told, self))

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
    with at_kubernetes(home) as scene:
        yield KubernetesBench(home, patch, scene)


@contextmanager
def _lambda(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with LambdaEmulator(RestlessClock()) as emulator:
        yield LambdaBench(home, patch, emulator)


@contextmanager
def _slurm(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    names, config = ("lab", "lab2"), home / "slurm-config"
    config.write_text("".join(f"Host {name}\n" for name in names))
    bench = SlurmBench(home, patch, config, names)
    with ExitStack() as running:
        for name in names:
            running.enter_context(usual(name, home / "logins", bench.clock))
        patch.setenv("PATH", f"{home / 'logins'}:{os.environ['PATH']}")
        yield bench


@contextmanager
def _slurm_daemons(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A real Slurm, at its own pace; a new one each time, as it remembers ended jobs."""
    slurm.install()
    with SlurmLab(nodes=4) as lab:
        bench = SlurmBench(home, patch, lab.home / ".slurm/config", ["lab"])
        bench.clock = SystemClock()
        yield bench


@contextmanager
def _pools(home: Path, patch: pytest.MonkeyPatch) -> Iterator[Bench]:
    cloud = RentedBench(home, patch)
    yield PoolsBench(HostsBench(home, patch), cloud, patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a bench is made, of a folder and what is undone afterwards."""

    make: Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Bench]]
    marks: tuple[pytest.MarkDecorator, ...] = ()
    rents: bool = True  # by clusters: it is a RentedBench


SERVES = (pytest.mark.integration,)
REAL = (
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces and installing Slurm need root"),
)
BENCHES = {
    "fake": Kind(make=_fake, rents=False),
    "local": Kind(make=_local, rents=False, marks=SERVES),
    "rented": Kind(make=_rented),
    "hosts": Kind(make=_hosts),
    "alibaba": Kind(make=_alibaba, marks=SERVES),
    "kubernetes": Kind(make=_kubernetes, marks=SERVES),
    "lambda": Kind(make=_lambda),
    "slurm": Kind(make=_slurm),
    "slurm-daemons": Kind(make=_slurm_daemons, marks=REAL),
    "pools": Kind(make=_pools, rents=False),
}
