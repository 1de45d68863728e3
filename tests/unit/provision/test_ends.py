"""By what machines of each kind of pool end themselves."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from burst.clock import SystemClock
from burst.cost.placement import Choice, Place
from burst.ports import NodeRequest
from burst.provision import skypilot
from burst.provision.hosts import Hosts
from burst.provision.k8s import pod
from burst.provision.slurm import Slurm

OFF = "sudo -n shutdown -h now"
PLACE = Place(pool="aws", region="eu-west-1")
REQUEST = NodeRequest(
    run_id="toy-abcdef",
    node_id="n001",
    run_uri="s3://b/r",
    index=0,
    choice=Choice(place=PLACE, usd_per_hour=Decimal(1)),
)


@pytest.mark.parametrize(
    ("pool", "command"),
    [
        (
            "aws",
            f'"$BURST_PYTHON" -m burst.provision.ec2 toy-abcdef n001 eu-west-1 || {OFF}',
        ),
        ("k8s/arn:aws:eks:eu-west-1:1:cluster/a", pod.END),
        ("lambda", ""),
        ("alibaba", OFF),
        ("gcp", OFF),
    ],
)
def test_a_rented_machine(pool: str, command: str) -> None:
    choice = replace(REQUEST.choice, place=replace(PLACE, pool=pool))
    assert skypilot.end_command(replace(REQUEST, choice=choice)) == command
    assert not skypilot.held


def test_a_machine_of_ones_own(tmp_path: Path) -> None:
    hosts = Hosts((), tmp_path)
    assert "burst-toy-abcdef-n001" in hosts.end_command(REQUEST)
    assert not hosts.held
    jobs = Slurm((), tmp_path, SystemClock())
    assert jobs.end_command(REQUEST).startswith('scancel "$SLURM_JOB_ID"')
    assert jobs.held
