"""What pools.yaml says of rented machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from burst import wiring
from burst.errors import UsageError


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURST_HOME", str(tmp_path))
    return tmp_path / "pools.yaml"


def test_how_long_a_machine_lives_alone(pools: Path) -> None:
    assert wiring.dead_man_s() == 600
    pools.write_text("rented: {dead_man: 30s}\n")
    assert wiring.dead_man_s() == 30


@pytest.mark.parametrize("text", ["0", "29s", "-5m", "soon", "[1]"])
def test_a_machine_that_would_end_at_once_is_refused(pools: Path, text: str) -> None:
    pools.write_text(f"rented: {{dead_man: {text}}}\n")
    with pytest.raises(UsageError, match="dead_man"):
        wiring.dead_man_s()
