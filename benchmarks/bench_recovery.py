"""`sudo python benchmarks/bench_recovery.py`: a reclaimed spot node, burst against SkyPilot.

Both run two spot nodes in the lab (tests/lab), one loses the node that is not its head. What is
measured, from the loss: until it is noticed, until training goes on, until it has two nodes
again. SkyPilot's is a managed job with its defaults. Needs root; about ten minutes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.lab import image
from tests.lab.rig import REPO, Lab

TASK = REPO / "tests/e2e/rented/task.yaml"
JOB = """name: rival
resources: {infra: aws, cpus: 2, use_spot: true}
num_nodes: 2
run: |
  while true; do sleep 1; done
"""
QUEUE = """
import json, sky
from sky import jobs
found = sky.get(jobs.queue_v2(refresh=False))
job = (found[0] if isinstance(found, tuple) else found)[0]
get = job.get if isinstance(job, dict) else lambda name: getattr(job, name, None)
print(json.dumps([str(get("status")).rpartition(".")[2], int(get("recovery_count") or 0)]))
"""
Times = dict[str, float]


def until(what: Callable[[], Any], seconds: float = 600) -> float:
    """Wait until something is so; return when."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.5)  # noqa: TID251
    return time.monotonic()


def machines(lab: Lab) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in lab.running()}


def skypilot(folder: Path) -> tuple[Times, str]:
    """Return the times of a managed job, and what became of its machines."""
    task = folder / "job.yaml"
    task.write_text(JOB)

    def state() -> tuple[str, int]:
        done = lab.run([sys.executable, "-c", QUEUE], check=False)
        lines = done.stdout.splitlines()
        status, recovered = json.loads(lines[-1]) if done.returncode == 0 else ("NONE", 0)
        return status, recovered

    with Lab(managed_jobs=True) as lab:
        lab.run(["sky", "jobs", "launch", "-y", "-d", str(task)], timeout=600)
        until(lambda: state()[0] == "RUNNING")
        time.sleep(20)  # noqa: TID251 - it is under way
        before = machines(lab)
        lost = next(i for i, one in before.items() if "worker" in one["tags"].get("Name", ""))
        lab.reclaim(lost)
        began = time.monotonic()
        noticed = until(lambda: state() != ("RUNNING", 0)) - began
        again = until(lambda: state() == ("RUNNING", 1)) - began
        return {"noticed": noticed, "on": again, "full": again}, fate(before, lost, machines(lab))


def burst(folder: Path) -> tuple[Times, str]:
    """Return the times of a run of burst, and what became of its machines."""
    log = folder / "burst.log"
    argv = [sys.executable, "-m", "burst.cli"]

    def said(words: str) -> bool:
        return re.search(words, log.read_text()) is not None

    with Lab() as lab:
        run = lab.start([*argv, "run", str(TASK), "--yes", "--env", "PAUSE_S=1"], log)
        until(lambda: said(r"training  step (9|1\d) of"))
        before = machines(lab)
        known = json.loads(lab.run([*argv, "ls", "--json"]).stdout)[0]["run"]
        nodes = json.loads(lab.run([*argv, "status", known, "--json"]).stdout)["nodes"]
        name = next(n["node_id"] for n in nodes if n["state"] == "up" and not n["head"])
        lost = next(i for i, one in before.items() if one["tags"]["burst-node"] == name)
        lab.reclaim(lost)
        began = time.monotonic()
        noticed = until(lambda: said(r"lost      n")) - began
        again = until(lambda: said(r"resumed   1 worker")) - began
        full = until(lambda: said(r"resumed   2 workers")) - began
        told = fate(before, lost, machines(lab))
        run.terminate()
        run.wait(60)
        return {"noticed": noticed, "on": again, "full": full}, told


def fate(before: dict[str, Any], lost: str, after: dict[str, Any]) -> str:
    """Say whether the survivor stayed, and where the replacement is."""
    stayed = "the other node stayed" if before.keys() - {lost} <= after.keys() else (
        "the healthy node was ended too"
    )  # fmt: skip
    there = sorted(one["zone"] for i, one in after.items() if i not in before)
    return f"{stayed}; {before[lost]['zone']} was lost, new in {', '.join(there)}"


def main() -> None:
    if os.geteuid() != 0:
        sys.stdout.write("not run: the lab needs root\n")
        return
    image.build()
    with TemporaryDirectory() as made:
        rival, theirs = skypilot(Path(made))
        ours, mine = burst(Path(made))
    for what, text in (("noticed", "noticed"), ("on", "training on"), ("full", "two nodes again")):
        ratio = rival[what] / ours[what]
        sys.stdout.write(
            f"{text:<16} SkyPilot {rival[what]:6.1f} s  burst {ours[what]:6.1f} s  {ratio:5.2f}x\n"
        )
    sys.stdout.write(f"SkyPilot: {theirs}\nburst: {mine}\n")


if __name__ == "__main__":
    main()
