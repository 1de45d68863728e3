"""The cheapest GPU of a cloud, by SkyPilot's own catalog in a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]
pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
COLUMNS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,"
    "Region,AvailabilityZone,Arch"
)
ROWS = """
p4d.24xlarge,A100,8,96,1152,seen,32.00,8.00,us-east-1,use1-az1,x86_64
g5.xlarge,A10G,1,4,16,seen,1.10,,us-east-1,use1-az1,x86_64
g5.xlarge,A10G,1,4,16,seen,1.20,,us-west-2,usw2-az1,x86_64
m6i.large,,,2,8,,0.10,0.03,us-east-1,use1-az1,x86_64
"""
ASK = """
import json
from burst.cli.output import plain
from burst.provision.skypilot import cheapest_gpu
print(json.dumps(plain(cheapest_gpu("aws"))))
"""


WARN = """
import logging
from burst.provision.skypilot import cheapest_gpu
cheapest_gpu("aws")
logging.getLogger("sky.catalog").warning("stale")
"""


def cheapest(home: Path, rows: str) -> dict[str, object] | None:
    """Ask in a process of its own: SkyPilot keeps catalogs for a process's life."""
    catalog = home / ".sky/catalogs/v8"
    (catalog / "common").mkdir(parents=True)
    (catalog / "aws").mkdir()
    (catalog / "aws/vms.csv").write_text(COLUMNS + rows)
    (catalog / "common/accelerators.csv").write_text("AcceleratorName,Clouds\nA100,['AWS']\n")
    (catalog / "common/metadata.csv").write_text("GPU,MemoryGB,Manufacturer\nA100,40,NVIDIA\n")
    done = python(home, ASK)
    found: dict[str, object] | None = json.loads(done.stdout)  # nothing else is on it
    return found


def python(home: Path, code: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(REPO)}
    argv = [sys.executable, "-c", code]
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, check=True, timeout=100
    )  # fmt: skip


def test_it_is_the_cheapest_by_the_gpu_not_by_the_machine(tmp_path: Path) -> None:
    found = cheapest(tmp_path, ROWS)
    assert found is not None
    assert (found["pool"], found["machine_type"], found["spot"]) == ("aws", "p4d.24xlarge", True)
    assert found["accelerators"] == {"kind": "A100", "count": 8}
    quote = found["quote"]
    assert isinstance(quote, dict)
    assert quote["usd_per_hour"] == "8.0"
    assert quote["source"].startswith("SkyPilot's catalog of 20")


def test_a_cloud_without_gpus_has_no_cheapest_one(tmp_path: Path) -> None:
    assert cheapest(tmp_path, "\nm6i.large,,,2,8,,0.10,0.03,us-east-1,use1-az1,x86_64\n") is None


def test_what_skypilot_warns_of_is_no_result(tmp_path: Path) -> None:
    cheapest(tmp_path, ROWS)  # furnishes the home
    done = python(tmp_path, WARN)
    assert done.stdout == ""
    assert "stale" in done.stderr
