"""What `burst pools` and `burst doctor` say of a Slurm cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from burst.provision.inspection.port import Wanted
from burst.provision.inspection.slurm import SlurmPool
from burst.provision.slurm_site import Cluster
from cli_scene import StillClock, at
from slurm_stand_in import SlurmStandIn, varied


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmStandIn]:
    made = varied("lab", tmp_path / "logins", StillClock())
    del made.nodes[4]
    made.nodes[3].state = "idle*"
    for waiting in ("gpu", "gpu,scav"):
        made.add(waiting, cpus=1000)
    monkeypatch.setenv("PATH", f"{made.path}:{os.environ['PATH']}")
    with made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").write_text("Host lab\n")
    return tmp_path


def pool(home: Path, *, ahead_s: float = 0.0, **prices: str) -> SlurmPool:
    """Return what looks at the cluster, with a clock that is so far ahead of its."""
    priced = {name: Decimal(price) for name, price in prices.items()}
    cluster = Cluster(name="lab", config=home / "config", **priced)  # type: ignore[arg-type]
    return SlurmPool(cluster=cluster, home=home, now=lambda: at(ahead_s))


def test_each_partition_is_a_row_with_its_queue(cluster: SlurmStandIn, home: Path) -> None:
    gpu, scav, old = pool(home, usd_per_gpu_hour="1.5").rows()
    assert (gpu.pool, gpu.machine, gpu.free, gpu.whole) == ("slurm/lab", "gpu on-demand", 0, 1)
    assert (gpu.gpus_free, gpu.gpus, gpu.waiting, gpu.healthy) == (2, 8, 2, True)
    assert gpu.price is not None
    assert (gpu.price.usd_per_hour, gpu.price.usd_per_gpu_hour) == (Decimal(12), Decimal("1.5"))
    assert gpu.price.source == "pools.yaml"
    assert (scav.machine, scav.free, scav.gpus_free, scav.waiting) == ("scav spot", 1, 6, 1)
    assert (old.healthy, old.whole, old.waiting) == (False, 0, 0)


def test_the_price_of_a_node_is_shared_among_its_gpus(cluster: SlurmStandIn, home: Path) -> None:
    gpu, *_ = pool(home, usd_per_hour="16").rows()
    assert gpu.price is not None
    assert (gpu.price.usd_per_hour, gpu.price.usd_per_gpu_hour) == (Decimal(16), Decimal(2))


def test_what_doctor_finds(cluster: SlurmStandIn, home: Path) -> None:
    found = {one.what: one for one in pool(home).findings(Wanted())}
    assert {name: one.works for name, one in found.items()} == {
        "answers": True,
        "disk of its home": True,
        "clock": True,
        "partition gpu": True,
        "partition scav": True,
        "partition old": None,
    }
    assert found["partition gpu"].detail == (
        "on-demand, 1 nodes, 16 CPUs free, 2 of 8 GPUs free; 1 down*"
    )
    off = pool(home, ahead_s=-40.0).findings(Wanted(disk_bytes=10**12))
    assert [one.what for one in off if one.works is False] == ["disk of its home", "clock"]


def test_nodes_that_take_no_job_now_are_not_free_and_told(
    cluster: SlurmStandIn, home: Path
) -> None:
    cluster.nodes[2].state = "resv"
    gpu, scav, old = pool(home).rows()
    assert (scav.free, scav.whole, scav.gpus_free, scav.gpus) == (0, 2, 2, 12)
    assert [one.detail for one in (gpu, scav)] == ["1 down*", "1 resv"]
    assert old.detail == "no node of it can be used; 1 idle*"


def test_what_is_not_understood_is_told_beside_the_rest(cluster: SlurmStandIn, home: Path) -> None:
    cluster.nodes[2].cpus = 0
    cluster.prints("df", "df: no answer")
    _, scav, _, left_out = pool(home).rows()
    assert (scav.whole, scav.healthy) == (1, True)
    words = "a line of Slurm's left out, as burst does not understand: n3 scav idle 0/0/0/0 262144"
    assert left_out.detail.startswith(words)
    assert not left_out.healthy
    found = {one.what: one for one in pool(home).findings(Wanted())}
    assert (found["what it says"].works, found["what it says"].detail) == (None, left_out.detail)
    assert (found["disk of its home"].works, found["answers"].works) == (None, True)


def test_a_cluster_that_does_not_answer_says_what_to_try(cluster: SlurmStandIn, home: Path) -> None:
    cluster.down = True
    (found,) = pool(home).findings(Wanted())
    assert found.works is False
    assert "sinfo" in found.fix
