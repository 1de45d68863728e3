"""Every pool that there is, as `bench`; what a pool cannot do to us, it is not asked to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool_bench import Bench
from pool_benches import BENCHES
from tests.lab import slurm
from tests.lab.slurm import SlurmLab


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[SlurmLab]:
    if os.geteuid() != 0:
        pytest.skip("mount namespaces and installing Slurm need root")
    slurm.install()
    with SlurmLab(nodes=4) as made:
        yield made


@pytest.fixture(params=[pytest.param(name, marks=kind.marks) for name, kind in BENCHES.items()])
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    kind = BENCHES[request.param]
    needed = [request.getfixturevalue(name) for name in kind.needs]
    with kind.make(tmp_path, monkeypatch, *needed) as made:
        for needs in request.node.iter_markers("needs"):
            if missing := {*needs.args} - {*made.can}:
                pytest.skip(f"this pool does not {' or '.join(sorted(missing))}")
        yield made
