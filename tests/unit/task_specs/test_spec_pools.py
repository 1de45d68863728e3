"""pools.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from burst.errors import SpecError
from burst.task_specs.pools import read_pools


def test_no_file_is_no_pools(tmp_path: Path) -> None:
    assert read_pools(tmp_path / "pools.yaml") == {}


def test_values_are_text_as_typed(tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text("local: {usd_per_hour: 0.10, tags: [a, 010], note: }\n")
    assert read_pools(path) == {
        "local": {"usd_per_hour": "0.10", "tags": ["a", "010"], "note": None}
    }


@pytest.mark.parametrize(
    "text", ["local: 0.12\n", "[a]\n", "local: {a: 1}\nlocal: {b: 2}\n", "a: [\n"]
)
def test_a_file_that_is_no_pools_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_pools(path)
    assert caught.value.problems


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="1 problem"):
        read_pools(tmp_path)
