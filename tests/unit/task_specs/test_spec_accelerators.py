"""Ways to say which accelerator: C02."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from burst.task_specs.model import Accelerators, Task

FORMS = [
    ("A100:8", ["A100:8"], False),
    ("A100", ["A100:1"], False),
    ("A100-80GB:8", ["A100-80GB:8"], False),
    ("{A100:1, V100:1}", ["A100:1", "V100:1"], False),
    ("{A100: 1, V100: 1}", ["A100:1", "V100:1"], False),
    ('{A100: "8"}', ["A100:8"], False),
    ("[A100:8, A100-80GB:8]", ["A100:8", "A100-80GB:8"], True),
    ("[A100:8]", ["A100:8"], False),
    ("[{T4: 1}, {L4: 2}]", ["T4:1", "L4:2"], True),
    ("[{T4: 1}, L4:2]", ["T4:1", "L4:2"], True),
    ('"A100: 8"', ["A100:8"], False),
    ("a100:8", ["A100:8"], False),
    ("a100-80gb", ["A100-80GB:1"], False),
    ("rtx6000-ada:2", ["RTX6000-Ada:2"], False),
    ("A100:8.0", ["A100:8"], False),
    ("TPU-v5litepod-8", ["tpu-v5litepod-8:1"], False),
    ("141GB:8", ["H200:8", "H200-SXM:8"], False),
    ("amd:192GB+:2", ["MI300X:2", "MI308X:2", "MI325X:2", "MI355X:2"], False),
]


@pytest.mark.parametrize(("written", "kinds", "ordered"), FORMS)
def test_c02_forms_that_are_taken(
    read: Callable[..., Task], written: str, kinds: list[str], ordered: Any
) -> None:
    task = read(f"resources:\n  accelerators: {written}\n")
    options = [one.accelerators for one in task.candidates]
    found = [option and f"{option.kind}:{option.count}" for option in options]
    assert (found, task.ordered) == (kinds, ordered)
    assert task.warnings == ()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("8xA100", "count goes after the name: A100:8"),
        ("8 x a100", "count goes after the name: A100:8"),
        ("A100 x8", "a colon goes before the count: A100:8"),
        ("A100*8", "a colon goes before the count: A100:8"),
        ("A100:0", "whole number from 1"),
        ("A100:-1", "whole number from 1"),
        ("A100:eight", "whole number from 1"),
        ('"A100:"', "whole number from 1"),
        ("A100:08", "whole number from 1"),
        ("A100:0.5", "a fraction of a GPU"),
        ("{A100: 0.5}", "a fraction of a GPU"),
        ("{A100: 0}", "whole number from 1"),
        ("{A100: yes}", "whole number from 1"),
        ("{A100: [1]}", "needs one count"),
        ("{A100:1: 2}", "needs one count"),
        ("[{T4: 1, L4: 1}]", "needs one type in each item"),
        ("[[A100]]", "needs one type in each item"),
        ('[""]', "needs a type and a count"),
        ("{}", "empty"),
        ("[]", "empty"),
        ("8", "needs a type and a count"),
        ("A100:8:2", "whole number from 1"),
        ("7GB", "no known type has 7 GB"),
        ('"A100:8, V100:4"', "several types go in a list"),
    ],
)  # fmt: skip
def test_c02_forms_that_are_refused(
    refusals: Callable[..., list[str]], written: str, words: str
) -> None:
    found = refusals(f"resources:\n  accelerators: {written}\n")
    assert words in found[0]
    assert found[0].startswith("line 2: resources.accelerators")


def test_c02_a_type_nobody_knows_is_a_warning_with_the_nearest(read: Callable[..., Task]) -> None:
    task = read("resources:\n  accelerators: H10O:8\n")
    assert task.candidates[0].accelerators == Accelerators(kind="H10O", count=8)
    assert "did you mean H100?" in task.warnings[0]
