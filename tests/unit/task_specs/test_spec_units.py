"""Readers of numbers, durations and sizes: C08, C10, C14."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.task_specs import units
from burst.task_specs.model import Amount, Range

READERS = [
    units.number, units.whole, units.usd, units.duration_s, units.size_gb, units.cpus,
    units.memory_gb, units.count_range, units.ports,
]  # fmt: skip


@given(text=st.text(max_size=12) | st.from_regex(r"[-+]?[0-9._]{0,6}[a-zA-Z+%.]{0,3}[0-9]{0,3}"))
def test_readers_raise_nothing_but_value_errors(text: str) -> None:
    for reader in READERS:
        with contextlib.suppress(ValueError):
            reader(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("10m", 600), ("10h", 36_000), ("1d", 86_400), ("1w", 604_800),
        ("1h30m", 5400), ("1.5h", 5400), ("10 m", 600), ("1h 30m", 5400), ("1H30M", 5400),
        ("0s", 0), ("1w2d3h4m5s", 788_645),
    ],
)  # fmt: skip
def test_c08_durations(text: str, seconds: float) -> None:
    assert units.duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "soon", "10", "-1", "-5m", "10x", "1h30", "30m1h", "1m1m", "010m", "1e3s", "1,5h", "h",
     "10min", "1:30", "٣m", "99999w", "inf", "1_0m"],
)  # fmt: skip
def test_c08_what_is_no_duration_is_refused_with_the_units(text: str) -> None:
    with pytest.raises(ValueError, match="units are s, m, h, d, w"):
        units.duration_s(text)


def test_c08_a_number_without_a_unit_needs_a_field_that_names_one() -> None:
    assert units.duration_s("90", default="m", shortest="m") == 5400
    assert units.duration_s("90", default="s") == 90
    with pytest.raises(ValueError, match="needs a unit"):
        units.duration_s("90")


@pytest.mark.parametrize("text", ["10s", "1m30s", "1.25m"])
def test_c08_parts_of_a_minute_are_refused_where_minutes_are_the_shortest(text: str) -> None:
    with pytest.raises(ValueError, match="units are m, h, d, w"):
        units.duration_s(text, default="m", shortest="m")


@pytest.mark.parametrize(
    ("text", "size"),
    [("256", 256), ("256GB", 256), ("256gb", 256), ("256Gi", 256), ("256GiB", 256),
     ("256 GB", 256), ("1TB", 1024), ("1T", 1024), ("2048MB", 2), ("2097152KB", 2)],
)  # fmt: skip
def test_c10_disk_sizes(text: str, size: int) -> None:
    assert units.size_gb(text) == size


@pytest.mark.parametrize(
    "text", ["0", "-1", "2.5", "abc", "", "1500MB", "256+", "1e3", "0256", "1_000", "10B", "5 5"]
)
def test_c10_disk_sizes_refused(text: str) -> None:
    with pytest.raises(ValueError, match="GB"):
        units.size_gb(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("32+", Amount(value=32, at_least=True)), ("64GB", Amount(value=64)),
        ("64GB+", Amount(value=64, at_least=True)), ("1000+", Amount(value=1000, at_least=True)),
        ("0.5", Amount(value=0.5)), ("512MB", Amount(value=0.5)), ("1TB", Amount(value=1024)),
        ("32x", Amount(value=32, per_cpu=True)),
    ],
)  # fmt: skip
def test_c10_memory(text: str, amount: Amount) -> None:
    assert units.memory_gb(text) == amount


@pytest.mark.parametrize("text", ["1e3", "1e+06+", "3x+", "-4", "", "0", "x", "+", "32GBx", "a"])
def test_c10_memory_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"GB|more than 0"):
        units.memory_gb(text)


@pytest.mark.parametrize("text", ["8-16", "4x", "eight", "0", "", "-1", "1e3", "08", "500m"])
def test_c10_cpus_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number of CPUs|more than 0"):
        units.cpus(text)


def test_c10_cpus() -> None:
    assert units.cpus("8+") == Amount(value=8, at_least=True)
    assert units.cpus("0.5") == Amount(value=0.5)


@given(
    value=st.floats(min_value=1e-6, max_value=1e15),
    suffix=st.sampled_from([{}, {"at_least": True}, {"per_cpu": True}]),
)
def test_c10_an_amount_is_written_in_digits_and_reads_back(
    value: Any, suffix: dict[str, bool]
) -> None:
    amount = Amount(value=value, **suffix)
    text = units.amount_text(amount)
    assert "e" not in text
    assert units.memory_gb(text) == amount


@pytest.mark.parametrize(
    ("text", "value"),
    [("2e-5", 2e-05), ("1E-4", 1e-4), ("1e+5", 1e5), ("5.e-5", 5e-5), ("1e-4 ", 1e-4),
     ("0.", 0.0), (".03", 0.03), ("1e9", 1e9), ("3.0", 3.0), ("3", 3), ("-2", -2), ("0e5", 0)],
)  # fmt: skip
def test_c14_numbers(text: str, value: Any) -> None:
    found = units.number(text)
    assert (found, type(found)) == (value, type(value)) or found == value == 0


@pytest.mark.parametrize(
    "text",
    ["0,0001", "1e-400", "1e400", ".inf", ".nan", "nan", "inf", "1_000", "0x10", "010", "1.2.3",
     "", "e5", "1e", "٣", "9" * 40],
)  # fmt: skip
def test_c14_numbers_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|small|large|digits"):
        units.number(text)


def test_c14_a_whole_number_may_have_an_exponent() -> None:
    assert units.whole("1e3") == 1000
    for text in ("1e-1", "2.5", "1e300"):
        with pytest.raises(ValueError, match=r"whole|digits"):
            units.whole(text)


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_c14_what_python_writes_reads_back(value: Any) -> None:
    assert math.isclose(units.number(repr(value)), value, rel_tol=0, abs_tol=0)


def test_ranges() -> None:
    assert units.count_range("2..8") == Range(low=2, high=8)
    assert units.count_range(" 2 ") == Range(low=2, high=2)
    for text in ("8..2", "0..2", "2..", "..8", "2-8", "2...8", "1.5", "two", "", "-1"):
        with pytest.raises(ValueError, match=r"range|at least 1|smaller number first"):
            units.count_range(text)


def test_dollars() -> None:
    assert [units.usd(text) for text in ("120", "120.50", "$120")] == [120, 120.5, 120]
    for text in ("0", "-5", "120 EUR", "1,000", "", "$", "inf"):
        with pytest.raises(ValueError, match="dollars"):
            units.usd(text)


def test_ports() -> None:
    assert [units.ports(text) for text in ("8080", "10022-10040")] == ["8080", "10022-10040"]
    for text in ("0", "65536", "22:22", "9-8", "080", "http", "1-2-3"):
        with pytest.raises(ValueError, match="port"):
            units.ports(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("0", 0),
        ("90:30", 5430),
        ("04:00:00", 14_400),
        ("1-0", 86_400),
        ("2-12:30", 217_800),
        ("1-00:00:30", 86_430),
        ("4h", 14_400),
        (" 1h30m ", 5400),
    ],
)
def test_time_limits_in_every_form_of_sbatch(text: str, seconds: float) -> None:
    assert units.slurm_time_s(text) == seconds


@pytest.mark.parametrize("text", ["", "-5", "1-", "1:2:3:4", "1-2:3:4:5", "4x", "1.5", "UNLIMITED"])
def test_what_is_no_time_limit_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"as sbatch has it: 90 \(minutes\), 4:00:00, 1-12"):
        units.slurm_time_s(text)
