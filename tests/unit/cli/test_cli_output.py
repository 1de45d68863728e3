from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from burst.cli.output import plain, print_json, table


@dataclass(frozen=True, slots=True)
class Inner:
    when: datetime
    hidden: str = field(default="tok-SECRET-123", repr=False)


@dataclass(frozen=True, slots=True)
class Outer:
    inner: tuple[Inner, ...]
    usd: Decimal


WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_field_that_is_not_shown_is_not_printed_either() -> None:
    assert plain(Outer((Inner(WHEN),), Decimal("1E-7"))) == {
        "inner": [{"when": "2026-01-02T03:04:05.000000Z"}],
        "usd": "0.0000001",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        ("text", "text"),
        (Decimal("10.00"), "10.00"),
        (timedelta(minutes=1.5), 90.0),
        ({1: Decimal(2)}, {"1": "2"}),
        (("a", ["b"]), ["a", ["b"]]),
        (frozenset({"a"}), ["a"]),
        (float("nan"), "nan"),
        ({"loss": float("-inf")}, {"loss": "-inf"}),
    ],
)
def test_values_become_what_json_knows(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_names_of_a_set_come_in_the_same_order_each_time() -> None:
    names = [f"NAME_{n}" for n in range(20)]
    assert plain(frozenset(names)) == sorted(names)


def test_json_keeps_letters_of_every_language(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "训练"})
    out = capsys.readouterr().out
    assert out == '{\n  "name": "训练"\n}\n'
    assert json.loads(out) == {"name": "训练"}


def test_a_table_is_as_wide_as_its_widest_cells() -> None:
    rows = [["n001", "0.10"], ["n002-long", "12.00"]]
    assert table(["node", "usd"], rows, right="lr").split("\n") == [
        "node         usd",
        "n001        0.10",
        "n002-long  12.00",
    ]


def test_columns_are_to_the_left_unless_told_and_lines_end_with_a_letter() -> None:
    assert table(["a", "b"], [["xx", ""], ["y", "z"]]).split("\n") == ["a   b", "xx", "y   z"]


def test_a_table_without_rows_is_its_header() -> None:
    assert table(["run", "cost"], [], right="lr") == "run  cost"
