"""What `burst pools` and `burst doctor` say of a Slurm cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from burst.errors import TransientError
from burst.provision.inspection.port import Wanted
from burst.provision.inspection.slurm import SlurmPool
from burst.provision.slurm_site import Cluster
from burst.provision.ssh import Ssh

SAID = """1796208400
81234567
PreemptType             = preempt/partition_prio
==
PartitionName=gpu AllowGroups=ALL Default=YES GraceTime=0 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=scav AllowGroups=ALL Default=NO PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=old AllowGroups=ALL Default=NO PriorityTier=1 PreemptMode=OFF State=DOWN
==
n1 gpu*  mix   48/16/0/64 524288 500000 gpu:A100:8(S:0-1)  gpu:A100:6(IDX:0-5)
n2 gpu*  down* 0/0/64/64  524288 0      gpu:A100:8(S:0-1)  gpu:A100:0(IDX:N/A)
n3 scav  idle  0/32/0/32  262144 0      gpu:H100:4 gpu:H100:0(IDX:N/A)
n4 old   idle* 0/32/0/32  1      0      (null) (null)
==
gpu
gpu,scav
"""


def pool(
    monkeypatch: pytest.MonkeyPatch, *, said: str = SAID, clock_s: float = 1796208400, **prices: str
) -> SlurmPool:
    def run(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        del ssh, data, limit_s
        if not said:
            raise TransientError("lab cannot be reached by ssh")
        assert "squeue" in command
        return said

    monkeypatch.setattr(Ssh, "run", run)
    priced = {name: Decimal(price) for name, price in prices.items()}
    cluster = Cluster(name="lab", config=Path("/none"), **priced)  # type: ignore[arg-type]
    return SlurmPool(
        cluster=cluster, home=Path("/none"), now=lambda: datetime.fromtimestamp(clock_s, UTC)
    )


def test_each_partition_is_a_row_with_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, scav, old = pool(monkeypatch, usd_per_gpu_hour="1.5").rows()
    assert (gpu.pool, gpu.machine, gpu.free, gpu.whole) == ("slurm/lab", "gpu on-demand", 0, 1)
    assert (gpu.gpus_free, gpu.gpus, gpu.waiting, gpu.healthy) == (2, 8, 2, True)
    assert gpu.price is not None
    assert (gpu.price.usd_per_hour, gpu.price.usd_per_gpu_hour) == (Decimal(12), Decimal("1.5"))
    assert gpu.price.source == "pools.yaml"
    assert (scav.machine, scav.free, scav.gpus_free, scav.waiting) == ("scav spot", 1, 4, 1)
    assert (old.healthy, old.whole, old.waiting) == (False, 0, 0)


def test_the_price_of_a_node_is_shared_among_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, *_ = pool(monkeypatch, usd_per_hour="16").rows()
    assert gpu.price is not None
    assert (gpu.price.usd_per_hour, gpu.price.usd_per_gpu_hour) == (Decimal(16), Decimal(2))


def test_what_doctor_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one.what: one for one in pool(monkeypatch).findings(Wanted())}
    assert {name: one.works for name, one in found.items()} == {
        "answers": True,
        "disk of its home": True,
        "clock": True,
        "partition gpu": True,
        "partition scav": True,
        "partition old": None,
    }
    assert found["partition gpu"].detail == "on-demand, 1 nodes, 16 CPUs free, 2 of 8 GPUs free"
    off = pool(monkeypatch, clock_s=1796208400 - 40).findings(Wanted(disk_bytes=10**12))
    assert [one.what for one in off if one.works is False] == ["disk of its home", "clock"]


def test_a_cluster_that_does_not_answer_says_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = pool(monkeypatch, said="").findings(Wanted())
    assert found.works is False
    assert "sinfo" in found.fix
