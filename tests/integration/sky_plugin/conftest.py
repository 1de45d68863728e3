"""Alibaba Cloud in a SkyPilot of its own: each test is a process with an empty home.

SkyPilot keeps what it knows in modules and below the home folder, both for a process's life.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ecs_scene import Scene, at_alibaba

REPO = Path(__file__).parents[3]
Ask = Callable[[str], str]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with at_alibaba(monkeypatch) as made:
        made.cloud.clock = lambda: datetime.now(UTC)  # that of the processes
        yield made


@pytest.fixture
def ask(scene: Scene, tmp_path: Path) -> Ask:
    """Return what runs Python with SkyPilot in it, and returns what that prints."""

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=sky_env(tmp_path),
            cwd=REPO,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def sky_env(home: Path) -> dict[str, str]:
    """Return the environment of somebody whose home is empty but for SkyPilot's list of GPUs."""
    common = home / ".sky/catalogs/v8/common"
    common.mkdir(parents=True, exist_ok=True)
    gpus = "\n".join(f"{name},['Alibaba']" for name in ("T4", "A10", "A100-80GB", "H20"))
    (common / "accelerators.csv").write_text(f"AcceleratorName,Clouds\n{gpus}\n")
    return {
        **{n: v for n, v in os.environ.items() if n.startswith(("ALIBABA", "BURST", "PATH"))},
        "HOME": str(home),
        "BURST_HOME": str(home / ".burst"),
        "PYTHONPATH": str(REPO),
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    }
