"""Names that clouds do not allow: C22."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burst.task_specs.model import Task
from burst.task_specs.names import CLOUD_NAME, check_name, cloud_name, run_id

LETTERS = string.ascii_letters + string.digits + "-_. éß漢"


@settings(max_examples=50)
@given(names=st.sets(st.text(LETTERS, min_size=1, max_size=80), min_size=20, max_size=20))
def test_c22_cloud_names_fit_and_never_meet(names: set[str]) -> None:
    derived = {cloud_name(name) for name in names}
    assert len(derived) == len(names)
    assert all(CLOUD_NAME.fullmatch(name) for name in derived)
    assert all(CLOUD_NAME.fullmatch(run_id(name, "k3j9x2")) for name in names)


def test_c22_a_name_that_fits_stays_and_any_other_gets_a_hash() -> None:
    assert cloud_name("tiny-lm") == "tiny-lm"
    assert cloud_name("run") == "run"
    assert cloud_name("Run") != "run"
    assert cloud_name("Run").startswith("run-")


def test_c22_a_typed_name_cannot_meet_a_derived_one() -> None:
    assert cloud_name(cloud_name("Run")) != cloud_name("Run")


def test_c22_long_names_that_differ_at_the_end_stay_apart() -> None:
    assert cloud_name("a" * 60 + "1") != cloud_name("a" * 60 + "2")


@pytest.mark.parametrize(
    "name", ["123", "run-1-", "-run", "été", "漢字", "x" * 200, "My_Run v2 (f)"]
)
def test_c22_odd_names_are_kept_as_typed(read: Callable[..., Task], name: str) -> None:
    task = read(f"name: {name}\n")
    assert task.name == name
    assert CLOUD_NAME.fullmatch(cloud_name(task.name))


@pytest.mark.parametrize("name", ["a/b", "..", ".", '""', '" "', "a\\b", '"a\\nb"', "x" * 300])
def test_c22_names_that_break_paths_are_refused(
    refusals: Callable[..., list[str]], name: str
) -> None:
    (found,) = refusals(f"name: {name}\n")
    assert found.startswith("line 1: name: ")


def test_c22_a_name_with_spaces_at_the_end_is_what_yaml_reads(read: Callable[..., Task]) -> None:
    assert read("name: My_Tune.Run v2 (final) \n").name == "My_Tune.Run v2 (final)"


def test_a_task_without_a_name_has_the_files(read: Callable[..., Task]) -> None:
    assert read("run: x\n").name == "task"


def test_run_ids_carry_the_name_and_the_random_part() -> None:
    assert run_id("tiny-lm", "k3j9x2") == "tiny-lm-k3j9x2"
    assert run_id("My_Run v2 (final)", "k3j9x2") == "my-run-v2-final-k3j9x2"
    assert run_id("2024", "k3j9x2") == "run-2024-k3j9x2"
    assert check_name("ok") == "ok"
