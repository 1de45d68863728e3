"""Every pool that there is, as `bench`; what a pool cannot do to us, it is not asked to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pool_bench import Bench
from pool_benches import BENCHES


@pytest.fixture(params=[pytest.param(name, marks=kind.marks) for name, kind in BENCHES.items()])
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    kind = BENCHES[request.param]
    with kind.make(tmp_path, monkeypatch) as made:
        for needs in request.node.iter_markers("needs"):
            if missing := {*needs.args} - {*made.can}:
                pytest.skip(f"this pool does not {' or '.join(sorted(missing))}")
        yield made
