"""What trains in the labs: a toy with pauses, the README's example; their undisturbed weights."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.lab.rig import REPO

TOY = REPO / "tests" / "e2e" / "rented"
EXAMPLE = REPO / "examples" / "tiny-lm"
BUCKET = "s3://burst-lab/runs"


def toy(folder: Path, resources: str, *more: str) -> str:
    """Write a task that trains the toy elsewhere; return the file."""
    text = (TOY / "task.yaml").read_text()
    text = text.replace("resources: {infra: aws, cpus: 2}", f"resources: {{{resources}}}")
    return _write(folder, TOY, text, more)


def example(folder: Path, resources: str, *more: str, steps: int, run_uri: str = BUCKET) -> str:
    """Write the example's task, to train elsewhere for as many steps; return the file.

    `more` are lines of the task's burst: block. Threads do not spin: machines of a lab share CPUs.
    """
    text = (EXAMPLE / "task.yaml").read_text().replace("steps: 400", f"steps: {steps}")
    text = text.replace(
        "\nburst:", f"\nresources: {{{resources}}}\nenvs: {{OMP_WAIT_POLICY: PASSIVE}}\nburst:"
    )
    return _write(folder, EXAMPLE, text, (f"run_uri: {run_uri}", "budget_usd: 5", *more))


def _write(folder: Path, workdir: Path, text: str, more: tuple[str, ...]) -> str:
    assert f"{workdir}" not in text
    text = text.replace("workdir: .", f"workdir: {workdir}").rstrip()
    (folder / "task.yaml").write_text("\n  ".join((text, *more)) + "\n")
    return str(folder / "task.yaml")


@cache
def undisturbed_example(steps: int, cpus: int = 2) -> str:
    """Return the hash of the example's weights when nothing is lost, on nodes of so many CPUs."""
    return undisturbed(EXAMPLE, f"{{'schedule_steps': {steps}}}", cpus)


@cache
def undisturbed(workdir: Path = TOY, argument: str = "", threads: int = 1) -> str:
    """Return the hash of the weights under plain `python train.py`: one process, nothing lost."""
    sets = f"import torch; torch.set_num_threads({threads})"  # OMP_NUM_THREADS is but a wish
    done = subprocess.run(
        [sys.executable, "-c", f"{sets}; import train; train.main({argument})"],
        cwd=workdir,
        env={
            "PAUSE_S": "0",
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{REPO}:{REPO / 'tests/support'}",
        },
        check=True,
        capture_output=True,
        text=True,
        timeout=1500,  # on a machine that does other things too
    )
    return weights(done.stdout + done.stderr)


def weights(text: str) -> str:
    """Return the hash of the weights that a script printed at its end."""
    found = re.findall(r"\bweights ([0-9a-f]{16,64})\b", text)
    assert len(found) == 1, text
    return str(found[0])
