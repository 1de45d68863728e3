"""The function of `burst.train` is looked for in its file, which nobody runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from burst.task_specs.functions import defined_in

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-lm" / "train.py"
TASK = "name: t\nburst: {train: train.py:mian}\n"
MAIN = b"import math\n\ndef main(params):\n    mian = 1\n\ndef evaluate(): pass\n"


def files(**found: bytes) -> Mapping[str, Any]:
    """Have files in the folder of the task, and no others."""
    there = {f"/somewhere/{name}.py": data for name, data in found.items()}
    return {"exists": lambda path: path in there, "content": there.get}


def test_a_function_that_the_file_does_not_have(refusals: Callable[..., list[str]]) -> None:
    told = "line 2: burst.train: train.py has no function mian; did you mean main?"
    assert refusals(TASK, **files(train=MAIN)) == [f"{told} (written: train.py:mian)"]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (b"def fit(): pass\ndef evaluate(): pass\n", "; it has evaluate, fit"),
        (b"def a(): pass\n" * 2, "; it has a"),
        (b"class Trainer:\n    def mian(self): pass\n", ""),
        (b"def fit():\n    def mian(): pass\n", "; it has fit"),
        (b"def fit():\n    import mian\n    lambda mian: mian\n", "; it has fit"),
        (b"vars(args); model.eval(); model.modules(); self.__dict__; locals\n", ""),
        (b"x = 1" + b" + 1" * 1500, ""),
    ],
)
def test_what_there_is_instead_is_named(
    refusals: Callable[..., list[str]], source: bytes, told: str
) -> None:
    (found,) = refusals(TASK, **files(train=source))
    whole = f"line 2: burst.train: train.py has no function mian{told}"
    assert found == f"{whole} (written: train.py:mian)"


@pytest.mark.parametrize(
    "source",
    [
        "def mian(): pass",
        "async def mian(): pass",
        "class mian: pass",
        "mian = other",
        "mian: object = other",
        "first, (mian, *last) = other",
        "for mian in others: pass",
        "with other() as mian: pass",
        "if other:\n    def mian(): pass",
        "try:\n    from a import mian\nexcept ImportError:\n    pass",
        "from a import b as mian",
        "import mian.b",
        "print(mian := other)",
        "match other:\n    case {'a': [*mian]}: pass",
        "match other:\n    case {**mian}: pass",
        "match other:\n    case A() as mian: pass",
        "def f():\n    global mian\n    mian = 1",
    ],
)
def test_all_ways_to_have_a_name(read: Callable[..., object], source: str) -> None:
    assert read(TASK, **files(train=source.encode()))


@pytest.mark.parametrize(
    "source",
    [
        "",
        "from a import *",
        "globals()['mian'] = 1",
        "vars()['mian'] = 1",
        "def __getattr__(name): pass",
        "exec('mian = 1')",
        "import sys\nsetattr(sys.modules[__name__], 'mian', 1)",
        "from sys import modules\nsetattr(modules[__name__], 'mian', 1)",
        "def broken(:",
        "\0",
        "# coding: nonsense",
        "x = " + "-" * 5000 + "1",
    ],
)
def test_where_only_running_it_would_tell_nothing_is_said(
    read: Callable[..., object], source: str
) -> None:
    assert defined_in(source.encode()) is None
    assert read(TASK, **files(train=source.encode()))


@pytest.mark.parametrize(
    ("more", "train"),
    [
        ("setup: cp other.py train.py", "train.py"),
        ("file_mounts: {~/sky_workdir/train.py: s3://bucket/train.py}", "train.py"),
        ("file_mounts: {~/sky_workdir/src: s3://bucket/src}", "src/train.py"),
        ("file_mounts: {~/sky_workdir: s3://bucket/all}", "train.py"),
        ("workdir: {url: https://example.com/a.git}", "train.py"),
        ("setup: make", "later.py"),
        ("", "../train.py"),
        ("", "train"),
    ],
)
def test_a_file_that_nodes_may_have_another_of_is_not_judged(
    read: Callable[..., object], more: str, train: str
) -> None:
    text = f"{more}\nburst: {{train: '{train}:mian'}}\n"
    found = {f"/somewhere/{name}": MAIN for name in ("train.py", "src/train.py")}
    assert read(text, exists=lambda path: True, content={**found, "/train.py": MAIN}.get)


@pytest.mark.parametrize("more", ["setup: pip install x", "file_mounts: {/data: s3://bucket/a}"])
def test_a_file_that_is_here_is_judged_whatever_else_comes(
    refusals: Callable[..., list[str]], more: str
) -> None:
    assert refusals(f"{more}\n{TASK}", **files(train=MAIN))


def test_strange_strings_of_a_file_are_no_warning_of_ours() -> None:
    assert defined_in(b"def main(): return '\\d'\n") is not None


def test_scripts_as_people_write_them_are_judged() -> None:
    there = defined_in(EXAMPLE.read_bytes())
    assert there is not None
    assert "main" in there.functions
