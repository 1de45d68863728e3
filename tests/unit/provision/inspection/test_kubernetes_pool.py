"""What `burst pools` and `burst doctor` say of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast

import pytest

from burst.cost.offers import Offer
from burst.errors import SetupError, TransientError, UsageError
from burst.provision.inspection.cuda import Torch
from burst.provision.inspection.kubernetes import KubernetesPool
from burst.provision.inspection.port import Finding, Wanted
from burst.provision.k8s import needs
from burst.provision.k8s.client import Client, Server
from burst.provision.k8s.rates import Rates
from burst.provision.k8s.room import PodNode, PodSize
from burst.provision.own import quote
from burst.task_specs.model import Accelerators

NOW = datetime(2026, 12, 2, tzinfo=UTC)
RATES = Rates(gpu=Decimal(2), cpu=Decimal("0.25"))
SMALL = PodSize(cpus=8, memory_gb=32)
BIG = PodSize(cpus=64, memory_gb=512, gpu="H100", gpus=4)
MACHINES = (
    PodNode(usable=True, whole=SMALL, free=replace(SMALL, cpus=6)),
    PodNode(usable=False, whole=SMALL, free=SMALL),
    PodNode(usable=True, whole=BIG, free=replace(BIG, gpus=3, cpus=60)),
)


@dataclass
class Asked:
    """A client's answers."""

    forbidden: Collection[str] = ()
    labels: frozenset[str] = frozenset()
    ahead_s: float = 0.0
    namespace: str = "default"

    def server(self) -> Server:
        return Server(version="v1.32.0", time=NOW + timedelta(seconds=self.ahead_s))

    def may(self, verb: str, what: str, *, everywhere: bool = False) -> bool:
        return f"{verb} {what}{' everywhere' if everywhere else ''}" not in self.forbidden

    def drivers(self) -> frozenset[str]:
        return self.labels


@pytest.fixture(autouse=True)
def furnished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "check", lambda _: None)


def pool(
    client: Asked | Exception | None = None,
    machines: tuple[PodNode, ...] = MACHINES,
    rates: Rates | None = RATES,
) -> KubernetesPool:
    def connect() -> Client:
        if isinstance(client, Exception):
            raise client
        return cast("Client", client or Asked())

    return KubernetesPool(
        context="lab", connect=connect, nodes=lambda: machines, rates=rates, now=lambda: NOW
    )


def found(pool: KubernetesPool, wanted: Wanted | None = None) -> dict[str, Finding]:
    return {one.what: one for one in pool.findings(wanted or Wanted())}


def offer(count: int, pool: str = "k8s/lab") -> Offer:
    return Offer(
        pool=pool, region="", zone="", machine_type=f"4CPU--16GB--H100:{count}", cpus=4.0,
        memory_gb=16.0, accelerators=Accelerators(kind="H100", count=count), spot=False,
        quote=quote(Decimal(0), "x", NOW),
    )  # fmt: skip


def test_each_kind_of_machine_is_a_row() -> None:
    small, big = pool().rows()
    assert (small.pool, small.machine, small.gpus, small.healthy) == ("k8s/lab", "8-cpu", 0, True)
    assert small.detail == "6 of 8 CPUs free"
    assert (big.machine, big.gpus_free, big.gpus) == ("4xH100", 3, 4)
    assert small.price is not None
    assert big.price is not None
    assert (small.price.usd_per_hour, small.price.usd_per_gpu_hour) == (Decimal(2), None)
    assert (big.price.usd_per_hour, big.price.source) == (Decimal(24), "pools.yaml")
    (free, _) = pool(rates=None).rows()
    assert free.price is not None
    assert (free.price.usd_per_hour, free.price.stale) == (Decimal(0), False)


def test_machines_that_take_no_pods_are_not_healthy() -> None:
    (off,) = pool(machines=MACHINES[1:2]).rows()
    assert (off.healthy, off.detail) == (False, "no machine of it takes pods now")
    (none,) = pool(machines=()).rows()
    assert (none.healthy, none.detail) == (False, "v1.32.0 answers; no machines")


def test_without_the_right_to_see_all_pods_there_is_no_capacity_to_tell() -> None:
    (row,) = pool(Asked(forbidden=["list pods everywhere"])).rows()
    assert (row.gpus, row.healthy) == (None, True)
    assert "all namespaces' pods" in row.detail
    told = found(pool(Asked(forbidden=["list nodes everywhere"])))
    assert (told["capacity"].works, told["rights"].works) == (None, True)


def test_a_cluster_that_will_do() -> None:
    wanted = Wanted(machines=(offer(1), offer(2, "aws")), nodes=3, gpus=True)
    told = found(pool(Asked(labels=frozenset({"580.95.05"}))), wanted)
    assert {name: one.works for name, one in told.items()} == {
        "answers": True,
        "clock": True,
        "rights": True,
        "capacity": True,
        "room": True,
        "driver": None,  # which torch is wanted was not said
    }
    words = "2 of 3 machines take pods; 66 CPUs and 3 of 4 GPUs are free"
    assert told["capacity"].detail == words
    assert told["room"].detail == "for 3 pods of 4CPU--16GB--H100:1; the task wants 3"


def test_what_is_missing_is_named() -> None:
    client = Asked(forbidden=["create pods", "list services"], ahead_s=1000.0)
    told = found(pool(client), Wanted(machines=(offer(2),), nodes=2, gpus=True))
    assert (told["rights"].works, told["clock"].works, told["room"].works) == (False, False, None)
    assert told["rights"].detail == "missing in namespace default: create pods, list services"


def test_missing_rights_are_told_though_the_count_of_machines_fails() -> None:
    def silent() -> tuple[PodNode, ...]:
        raise TransientError("Kubernetes lab: 503")

    asked = replace(pool(Asked(forbidden=["create pods"])), nodes=silent)
    told = found(asked)
    assert (told["rights"].works, told["capacity"].works) == (False, None)
    assert told["capacity"].detail == "Kubernetes lab: 503"


def test_a_driver_is_told_by_labels_or_by_a_pod_alone() -> None:
    wanted = Wanted(torch=Torch(cuda="13.0", source="torch here"))
    assert found(pool(Asked(labels=frozenset({"535.104.05"}))), wanted)["driver"].works is False
    assert found(pool(Asked(labels=frozenset({"580.95.05"}))), wanted)["driver"].works is True
    told = found(pool(), wanted)["driver"]
    assert told.works is None
    assert told.detail.startswith("only a pod could tell")
    assert "580 or later" in told.detail
    assert "driver" not in found(pool(machines=MACHINES[:2]), wanted)


def test_gpus_without_a_label_are_out_of_reach() -> None:
    bare = replace(BIG, gpu="")
    machines = (PodNode(usable=True, whole=bare, free=bare),)
    assert found(pool(machines=machines), Wanted(gpus=True))["GPU labels"].works is False
    assert found(pool(machines=machines))["GPU labels"].works is None


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (TransientError("Kubernetes lab: 401 Unauthorized"), "kubectl --context lab version"),
        (SetupError("kubeconfig: no", hint="see: kubectl config"), "see: kubectl config"),
        (UsageError("infra k8s needs the command nc", hint="apt install nc"), "apt install nc"),
    ],
)
def test_a_cluster_that_cannot_be_asked_says_why(error: Exception, fix: str) -> None:
    (one,) = pool(error).findings(Wanted())
    assert one.works is False
    assert fix in one.fix
    assert one.detail == str(error)
