"""What the README and the examples say is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from burst.cli import app
from burst.task_specs.overrides import Overrides
from burst.task_specs.parse import load, parse

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md")
    for path in ROOT.glob(pattern)
)  # fmt: skip
_LINK = re.compile(r"\]\((?!\w+://|#|mailto:)([^)#\s]+)")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_local_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    missing = [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_the_readme_has_links_to_check() -> None:
    assert len(_LINK.findall(README)) >= 3


def test_the_tasks_in_the_readme_are_valid() -> None:
    tasks = [text for text in blocks("yaml") if text.startswith("name:")]
    assert tasks, "no task in the README"
    for text in tasks:
        task = parse(text, source="/somewhere/task.yaml", overrides=Overrides(envs=("TOKEN=x",)))
        assert task.warnings == ()


@pytest.mark.parametrize(
    "file", sorted(ROOT.glob("examples/*/task.yaml")), ids=lambda file: file.parent.name
)
def test_an_examples_task_is_valid_and_its_script_is_there(file: Path) -> None:
    task = load(file)
    assert task.warnings == ()
    assert task.workdir is not None
    if task.burst.train is not None:
        assert (Path(task.workdir) / task.burst.train.partition(":")[0]).is_file()


def test_there_are_examples() -> None:
    assert list(ROOT.glob("examples/*/task.yaml"))


def test_the_commands_of_the_readme_are_those_there_are() -> None:
    root: Any = typer.main.get_command(app)
    shown = {name for name, command in root.commands.items() if not command.hidden}
    used = set(re.findall(r"\bburst ([a-z]+)\b", "\n".join(blocks("sh"))))
    (commands,) = re.findall(r"\| command \|.*?\n\n", README, re.DOTALL)
    named = set(re.findall(r"`(?:burst )?([a-z]+)(?: [^`]*)?`", commands))
    assert used <= shown
    assert named == shown - {"schema"}
    assert "`burst schema`" in README


def test_every_option_in_the_readmes_commands_exists() -> None:
    root: Any = typer.main.get_command(app)
    told = re.findall(r"`(?:burst )?([a-z]+) ([^`]*)`", README)
    for name, rest in told:
        if name in root.commands:
            known = {opt for param in root.commands[name].params for opt in param.opts}
            assert set(re.findall(r"(?<!\w)--?[a-z]+", rest)) <= known, name
