"""What pools.yaml says of rented machines, what these are told, and what a run's nodes are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from burst import plan_wiring, pool_wiring, wiring
from burst.controller.runs import Run, record_of
from burst.cost.offers import Offer, is_owned, plan
from burst.cost.placement import Place
from burst.cost.quotes import UNROUNDED, Quote
from burst.errors import TransientError
from burst.provision import ends
from burst.provision.k8s.client import Pod
from burst.provision.pools import kind_of
from burst.provision.rented import SilentError
from burst.records import read_run
from burst.task_specs.infra import CLOUDS, SEES_FILES
from burst.task_specs.model import Accelerators
from burst.task_specs.parse import parse


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURST_HOME", str(tmp_path))
    return tmp_path / "pools.yaml"


def test_how_long_a_machine_lives_alone(pools: Path) -> None:
    assert wiring.dead_man_s() == 600
    pools.write_text("rented: {dead_man: 30s}\n")
    assert wiring.dead_man_s() == 30


def test_a_node_asks_patiently_for_its_roles_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers all ask at once, and one that gets none fails."""
    for name, value in wiring.store_env("s3://bucket/runs/r1").items():
        monkeypatch.setenv(name, value)
    boto = pytest.importorskip("botocore.session").Session()
    assert boto.get_config_variable("metadata_service_num_attempts") == 5
    assert boto.get_config_variable("metadata_service_timeout") == 5


def test_every_kind_of_pool_stands_in_every_table() -> None:
    """Who adds one learns here what there is to say of it."""
    kinds = {kind_of(name) for name in CLOUDS}
    assert set(wiring.CLUSTERS) == kinds - {"local"}
    assert set(plan_wiring.OWN) == kinds - {"local", "cloud"}
    own = {name for name in CLOUDS if is_owned(name)}
    assert own >= kinds - {"cloud"}
    assert own <= set(pool_wiring.KINDS)
    assert set(pool_wiring.NAMED_IN) == own - {"local"}
    for table in (wiring.ASKED, plan_wiring.NEEDS, ends.ENDS, SEES_FILES):
        assert set(table) <= set(CLOUDS) & set(pool_wiring.KINDS)


def gpus(pool: str, usd: str, kind: str, count: int) -> Offer:
    quote = Quote(
        usd_per_hour=Decimal(usd),
        source="test",
        observed_at=datetime(2026, 1, 1, tzinfo=UTC),
        billing=UNROUNDED,
    )
    return Offer(
        pool=pool,
        region="r",
        zone="ra",
        machine_type=f"{count}x{kind}",
        cpus=8.0,
        memory_gb=32.0,
        accelerators=Accelerators(kind=kind, count=count),
        spot=True,
        quote=quote,
    )


def test_nodes_of_a_run_have_as_many_gpus_as_its_best_offer_is_to_have() -> None:
    """The first of `any_of` decided for all: four workers' GPUs were sought for eight."""
    text = """
name: toy
num_nodes: 2
resources: {any_of: [{accelerators: "A100:8"}, {accelerators: "A10G:4"}, {accelerators: "L4:4"}]}
burst: {train: train.py:main, run_uri: "s3://bucket/runs"}
"""
    task = parse(text, source="/somewhere/task.yaml")
    offers = [
        gpus("aws", "20", "A100", 8),
        gpus("aws", "4", "A10G", 4),
        gpus("gcp", "5", "L4", 8),  # more than was asked for fits
    ]
    machine = plan_wiring.machine(task, plan(task, offers))
    assert [choice.place.machine_type for choice in machine.choices] == ["4xA10G", "8xL4"]
    record = record_of(task, machine, name6="abcdef", now=datetime(2026, 1, 1, tzinfo=UTC))
    assert (record.gpus_per_node, record.slots_per_node, record.workers_high) == (4, 4, 8)


def test_what_each_candidate_says_of_its_machines_goes_with_its_places() -> None:
    text = b"""
name: toy
workdir: .
num_nodes: 2
run: x
resources:
  any_of:
    - {infra: gcp, image_id: projects/p/global/images/i, disk_size: 300}
    - {infra: aws, image_id: {eu-1: ami-1}, disk_tier: high, network_tier: best, labels: {a: b},
       ports: 8080}
file_mounts: {/data: "s3://b/d"}
burst: {run_uri: "s3://bucket/runs"}
"""
    task = parse(text, source="/somewhere/task.yaml")
    offers = [replace(gpus(pool, "5", "T4", 1), region="eu-1") for pool in ("gcp", "aws")]
    machine = plan_wiring.machine(task, plan(task, offers))
    record = record_of(task, machine, name6="abcdef", now=datetime(2026, 1, 1, tzinfo=UTC))
    record = read_run(record.encode())
    assert record.wish == {"file_mounts": {"/data": "s3://b/d"}}
    assert [(c.place.pool, record.wishes[c.candidate]) for c in record.choices] == [
        ("gcp", {"disk_size": 300, "image_id": "projects/p/global/images/i"}),
        (
            "aws",
            {
                "disk_tier": "high",
                "network_tier": "best",
                "ports": ["8080"],
                "labels": {"a": "b"},
                "image_id": {"eu-1": "ami-1"},
            },
        ),
    ]


class Cluster:
    """A Kubernetes cluster with a pod of a run, or one that does not answer."""

    def __init__(self, context: str) -> None:
        self.context = context

    def pods(self, labels: str) -> list[Pod]:
        assert labels == "burst-run=toy-abcdef,burst-node"
        if self.context == "away":
            raise TransientError("away: connection refused")
        began, tags = datetime(2026, 1, 1, tzinfo=UTC), {"burst-run": "r", "burst-node": "n001"}
        return [Pod(uid="1", name="p", labels=tags, since=began, over=False, ended=None)]


def test_a_context_that_is_silent_hides_no_pod_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "k8s_client", Cluster)
    places = [Place(pool=f"k8s/{name}", owned=True) for name in ("away", "lab")]
    choices = [SimpleNamespace(place=place) for place in places]
    cloud = wiring.cloud_of(cast("Run", SimpleNamespace(record=SimpleNamespace(choices=choices))))
    assert cloud is not None
    with pytest.raises(SilentError, match="what k8s/away has is not known: away: ") as told:
        cloud.machines("toy-abcdef")
    assert [*told.value.machines] == ["n001"]


def test_a_missing_package_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "find_spec", lambda name: None if name == "s3fs" else name)
    how = "in the folder of burst's sources: pip install -e '.[aws]'"
    assert wiring.missing_packages() == {"s3fs": how}
