"""Runs on a real Slurm of four nodes on this machine; see tests.lab.slurm."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import slurm
from tests.lab.slurm import REPO, ROOT, SlurmLab
from tests.lab.training import example, undisturbed_example, weights

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces and installing Slurm need root"),
]
STEPS = 500  # minutes, so that a time limit may come and go meanwhile
RESOURCES = "infra: slurm/lab/gpu, cpus: 2, memory: 4"  # all CPUs of a node


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    slurm.install()
    with SlurmLab(nodes=4, grace_s=40) as made:
        yield made


class Person:
    """Somebody who runs burst on the login node."""

    def __init__(self, lab: SlurmLab, folder: Path) -> None:
        self.lab = lab
        self.log = folder / "burst.log"
        self.folder = folder
        self.run: subprocess.Popen[bytes] | None = None

    def burst(self, *argv: str, check: bool = True) -> str:
        return self.lab.run([sys.executable, "-m", "burst.cli", *argv], check=check)

    def task(self, resources: str = RESOURCES) -> str:
        """Write the example's task for this cluster; return where."""
        return example(self.folder, resources, steps=STEPS, run_uri=f"file://{ROOT}/runs")

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            words = [sys.executable, "-m", "burst.cli", *argv]
            self.run = subprocess.Popen(words, env=self.lab.env, cwd=REPO, stdout=out, stderr=out)
        return self.run

    def said(self) -> str:
        return self.log.read_text()

    def status(self) -> dict[str, Any]:
        """Return the state of this person's run."""
        name = re.search(r"^(tiny-lm-\w{6})  everything of", self.said(), re.MULTILINE)
        runs = json.loads(self.burst("ls", "--all", "--json")) if name else []
        mine = [run for run in runs if name and run["run"] == name[1]]
        return mine[0] if mine else {"run": "none", "step": 0, "state": "none"}

    def until(self, what: Callable[[], bool], seconds: float = 200) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, self.said()
            assert self.run is None or self.run.poll() is None, self.said()
            time.sleep(1.0)  # noqa: TID251

    def up(self) -> dict[str, bool]:
        """Return the nodes that are up, and whether each is the head."""
        known = json.loads(self.burst("status", self.status()["run"], "--json"))["nodes"]
        return {n["node_id"]: n["head"] for n in known if n["state"] == "up"}

    def job_of(self, *, head: bool = False) -> str:
        """Return the job of the head, or of another node that is up."""
        node = next(name for name, leads in self.up().items() if leads is head)
        return self.lab.job(f"burst-{self.status()['run']}-{node}")

    def check_end(self) -> None:
        """The right weights, no job left, nothing of the run on any node, and a row for each."""
        newest = self.status()["run"]
        assert self.lab.jobs() == {}
        assert weights(self.burst("logs", newest)) == undisturbed_example(STEPS)
        (cost,) = json.loads(self.burst("cost", newest, "--json"))
        assert len({row["node_id"] for row in cost["rows"]}) == 3
        self.until(lambda: self.lab.left(newest) == [], 20)


@pytest.fixture
def person(lab: SlurmLab, tmp_path: Path) -> Iterator[Person]:
    made = Person(lab, tmp_path)
    yield made
    if made.run is not None and made.run.poll() is None:
        made.run.kill()
        made.run.wait()
    lab.clear()
    (lab.home / ".burst/pools.yaml").unlink(missing_ok=True)


def test_a_cancelled_job_is_replaced(person: Person) -> None:
    run = person.start("run", person.task(), "--yes")
    person.until(lambda: person.status()["step"] >= 9)
    assert len(set(person.lab.nodes().values())) == 2
    there = person.burst("ssh", person.status()["run"], check=False)  # not a terminal: it ends
    assert "error" not in there
    person.lab.run(["scancel", person.job_of()])
    assert run.wait(300) == 0, person.said()
    person.check_end()
    assert "takes its place" in person.said()


def test_a_time_limit_is_a_notice_and_its_successor_is_there_before(person: Person) -> None:
    run = person.start("run", person.task(), "--yes")
    person.until(lambda: person.status()["step"] >= 5)
    job = person.job_of()
    person.lab.run(["scontrol", "update", f"JobId={job}", "TimeLimit=2"])
    person.until(lambda: len(person.lab.jobs()) == 3)
    assert job in person.lab.nodes()
    assert re.search(r"notice +n00\d leaves in \d+ s", person.said())
    assert run.wait(400) == 0, person.said()
    person.check_end()
    assert person.lab.how_ended(job) == "TIMEOUT"


def test_a_preempted_job_is_heard_of_at_once(person: Person) -> None:
    places = ", ".join(
        f"{{infra: slurm/lab/{name}, cpus: 2, memory: 4}}" for name in ("spot", "gpu")
    )
    run = person.start("run", person.task(f"ordered: [{places}]"), "--yes")
    person.until(lambda: person.status()["step"] >= 5)
    victim = person.job_of()
    node = person.lab.nodes()[victim]
    person.lab.run(
        ["sbatch", "-p", "gpu", "-w", node, "-c", "2", "-o", "/dev/null", "--wrap", "sleep 600"]
    )
    person.until(lambda: "notice" in person.said(), 30)
    assert run.wait(400) == 0, person.said()
    person.lab.clear()
    person.check_end()
    assert person.lab.how_ended(victim) == "PREEMPTED"


def test_a_partition_that_stays_full_refuses_for_lack_of_capacity(person: Person) -> None:
    for _ in person.lab.names:
        fill = ["sbatch", "-p", "gpu", "-c", "2", "-o", "/dev/null", "--wrap", "sleep 600"]
        person.lab.run(fill)
    (person.lab.home / ".burst/pools.yaml").write_text("slurm: {lab: {wait: 4s}}\n")
    run = person.start("run", person.task(), "--yes")
    person.until(lambda: "refused" in person.said())
    assert re.search(r"refused +n00\d by slurm/lab/gpu .*: capacity", person.said())
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130, person.said()
    assert not [name for name in person.lab.jobs() if name.startswith("burst-")]


def test_jobs_end_themselves_when_nobody_takes_over(person: Person) -> None:
    (person.lab.home / ".burst/pools.yaml").write_text("rented: {dead_man: 80s}\n")
    run = person.start("run", person.task(), "--yes")
    person.until(lambda: person.status()["step"] >= 3)
    run.kill()
    run.wait()
    person.run = None
    named = [f"burst-{person.status()['run']}-n00{n} on slurm" for n in (1, 2)]
    person.until(lambda: person.burst("doctor", "--reap", check=False).split("\n")[:2] == named, 60)
    person.until(lambda: person.lab.jobs() == {}, 160)
    person.until(lambda: person.lab.left(person.status()["run"]) == [], 20)
    assert person.burst("doctor", "--reap") == "no machine of a run that nobody drives\n"
