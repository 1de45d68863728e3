"""A pools.yaml with faults: every command that looks at pools tells them all, and does no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from burst import plan_wiring, wiring
from burst.provision import skypilot
from burst.provision.ssh import Ssh
from cli_scene import Call

OFFERS, THIS_MACHINE = plan_wiring.offers, wiring.this_machine  # before a fixture puts others there
WRONG = """local: {usd_per_hour: free}
ssh:
  lab: {hosts: [box], port: 0}
slurm: {nolab: {spott: x}}
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, home: Path) -> list[str]:
    """Write a wrong file; return what is asked of pools in spite of it."""
    monkeypatch.setattr(plan_wiring, "offers", OFFERS)
    monkeypatch.setattr(wiring, "this_machine", THIS_MACHINE)
    monkeypatch.setattr(wiring, "slurm_config", lambda: Path("/none/config"))
    found: list[str] = []
    monkeypatch.setattr(Ssh, "run", lambda *_, **__: found.append("a host"))
    monkeypatch.setattr(skypilot, "prepare", lambda _: found.append("SkyPilot"))
    home.mkdir(parents=True)
    (home / "pools.yaml").write_text(WRONG)
    return found


@pytest.mark.parametrize("place", ["local", "k8s", "ssh/lab", "aws"])
@pytest.mark.parametrize(
    "words",
    ["pools", "pools local", "doctor", "doctor --json", "doctor --pool ssh/lab", "doctor FILE",
     "check FILE", "plan FILE", "run FILE", "run --dry-run FILE"],
)  # fmt: skip
def test_all_faults_are_told_once(
    burst: Call, home: Path, tmp_path: Path, asked: list[str], words: str, place: str
) -> None:
    task = tmp_path / "task.yaml"
    task.write_text(f"resources: {{infra: {place}}}\nrun: x\n")
    said = burst(*words.replace("FILE", str(task)).split())
    assert (said.code, bool(said.out)) == (2, "--json" in words)
    assert said.err.splitlines() == [
        f"error: {home / 'pools.yaml'} has 4 problems",
        (
            "  line 1: local.usd_per_hour: needs dollars per hour as a plain number from 0 to "
            "100000, as in 0.40 (written: free)"
        ),
        "  line 3: ssh.lab.port: needs a port from 1 to 65535 (written: 0)",
        "  line 4: slurm.nolab.spott: is not known; did you mean spot?",
        "  line 4: slurm.nolab: /none/config has no `Host nolab`; write its login there",
    ]
    assert asked == []
    assert [*home.iterdir()] == [home / "pools.yaml"]
