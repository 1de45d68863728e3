"""Real SkyPilot 0.14.1 rents from moto; its machines are namespaces with an SSH server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.lab import image
from tests.lab.rig import REPO, Lab

pytestmark = [pytest.mark.e2e, pytest.mark.lab, pytest.mark.timeout(900)]
TOY = Path(__file__).with_name("rented")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    image.build()
    with Lab() as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The hash of the toy's weights under plain `python train.py`."""
    done = subprocess.run(
        [sys.executable, str(TOY / "train.py")],
        env={"PAUSE_S": "0", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return weights(done.stdout)


def weights(text: str) -> str:
    """Return the hash that the toy printed at its end."""
    found = re.findall(r"WEIGHTS ([0-9a-f]{64})", text)
    assert len(found) == 1, text
    return str(found[0])


class Person:
    """Somebody who runs burst in the lab."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.log = folder / "burst.log"
        self.runs: list[subprocess.Popen[bytes]] = []

    def burst(self, *argv: str, check: bool = True) -> str:
        return self.lab.run([sys.executable, "-m", "burst.cli", *argv], check=check).stdout

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        self.runs.append(self.lab.start([sys.executable, "-m", "burst.cli", *argv], self.log))
        return self.runs[-1]

    def status(self) -> dict[str, Any]:
        runs = json.loads(self.burst("ls", "--all", "--json"))
        return runs[0] if runs else {"step": 0, "state": "none"}

    def until(self, what: Callable[[], bool], seconds: float = 400) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, self.log.read_text()
            assert all(run.poll() is None for run in self.runs), self.log.read_text()
            time.sleep(2.0)  # noqa: TID251

    def lose(self, *, head: bool) -> str:
        """Have the cloud take the head, or the other node; return its zone."""
        known = json.loads(self.burst("status", "rented", "--json"))["nodes"]
        up = {node["node_id"]: node["head"] for node in known if node["state"] == "up"}
        victim = self.nodes()[next(name for name, leads in up.items() if leads is head)]
        self.lab.reclaim(victim["id"])
        return str(victim["zone"])

    def nodes(self, state: str = "running") -> dict[str, dict[str, Any]]:
        """Return the instances of runs, by node, in one state."""
        found = [i for i in self.lab.state()["instances"] if i["state"] == state]
        return {i["tags"]["burst-node"]: i for i in found if "burst-node" in i["tags"]}


@pytest.fixture
def person(lab: Lab, tmp_path: Path) -> Person:
    return Person(lab, tmp_path)


def test_reclaimed_nodes_are_replaced_in_other_zones_and_the_weights_are_right(
    person: Person, undisturbed: str
) -> None:
    """First a node beside the head is taken, then the head itself; both are spot."""
    run = person.start("run", str(TOY / "task.yaml"), "--yes")
    person.until(lambda: person.status()["step"] >= 9)
    assert {i["spot"] for i in person.nodes().values()} == {True}
    zone = person.lose(head=False)
    person.until(lambda: len(person.nodes()) == 2)
    assert person.nodes()["n003"]["zone"] != zone  # SkyPilot itself would go back there
    person.until(lambda: person.status()["step"] >= 30)
    person.lose(head=True)
    assert run.wait(400) == 0, person.log.read_text()
    assert weights(person.burst("logs", "rented")) == undisturbed
    assert person.nodes() == {}
    (cost,) = json.loads(person.burst("cost", "rented", "--json"))
    check_ledger(person, cost)


def check_ledger(person: Person, cost: dict[str, Any]) -> None:
    """The ledger has each machine for as long as the cloud itself had it, to the second."""
    rows: dict[str, float] = {}
    for row in cost["rows"]:
        rows[row["node_id"]] = rows.get(row["node_id"], 0.0) + row["duration"]
    times = person.lab.state()["times"]
    machines = person.nodes("terminated")
    mine = {n: i for n, i in machines.items() if i["tags"]["burst-run"] == cost["run_id"]}
    assert rows.keys() == mine.keys()
    for name, instance in mine.items():
        seen = {k: datetime.fromisoformat(v) for k, v in times[instance["id"]].items()}
        there = seen["until"] - seen["since"]
        assert rows[name] == pytest.approx(there.total_seconds(), abs=2.5)


def test_the_documented_rights_are_those_that_were_used(person: Person) -> None:
    """Runs last: what has been called by now is what SkyPilot and burst need."""
    text = (REPO / "docs" / "renting.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    granted = {action for one in json.loads(block)["Statement"] for action in one["Action"]}
    seeded = person.lab.seeded
    used = {name for name, count in person.lab.state()["calls"].items() if count > seeded[name]}
    used = {name for name in used if not name.startswith(("s3:", "unsigned:"))}
    assert used <= granted | {"sts:GetCallerIdentity"}, used - granted
    assert granted - used <= {"iam:PassRole"}, granted - used
