from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from burst.errors import SpecError
from burst.task_specs.model import Task
from burst.task_specs.parse import parse

Read: TypeAlias = Callable[..., Task]
Refusals: TypeAlias = Callable[..., list[str]]

SOURCE = "/somewhere/task.yaml"


@pytest.fixture
def read() -> Read:
    """Parse a text; `run:` is added where nothing else would run."""

    def parsed(text: str, **options: Any) -> Task:
        return parse(runnable(text), source=SOURCE, **options)

    return parsed


@pytest.fixture
def refusals() -> Refusals:
    """Return the problems of a text, each as a person sees it."""

    def found(text: str, **options: Any) -> list[str]:
        with pytest.raises(SpecError) as caught:
            parse(runnable(text), source=SOURCE, **options)
        return [str(problem) for problem in caught.value.problems]

    return found


def runnable(text: str) -> str:
    text = textwrap.dedent(text)
    whole = any(word in text for word in ("run:", "train:", "---"))
    return text if whole else text.rstrip("\n") + "\nrun: python train.py\n"
