"""What can be typed, and that asking for it loads nothing heavy."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from burst import __version__
from burst.cli import ELSEWHERE, app
from cli_scene import Call

GOLDEN = Path(__file__).parents[2] / "data" / "cli_help.txt"
HEAVY = ["sky", "ray", "torch", "deepspeed", "boto3", "fsspec", "s3fs", "yaml", "rich"]
PROBE = f"""
import sys
sys.argv = ["burst", "--help"]
from burst.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
found = [name for name in {HEAVY} if name in sys.modules]
sys.exit(f"--help imported {{found}}" if found else 0)
"""


def commands() -> dict[str, Any]:
    root: Any = typer.main.get_command(app)
    return dict(root.commands)


def tree() -> Iterator[str]:
    """Write every command with its arguments and options, free of any terminal's width."""
    for name, command in commands().items():
        yield f"burst {name}" + (" (hidden)" if command.hidden else "")
        for param in command.params:
            if param.param_type_name == "argument":
                label = param.metavar or param.name
            else:
                label = ", ".join([*param.opts, *param.secondary_opts])
                label += "" if param.is_flag else f" {param.metavar or 'VALUE'}"
            needed = " (required)" if param.required else ""
            yield f"  {label}{needed}" + (f": {param.help}" if param.help else "")


def test_each_command_and_option_is_a_reviewed_decision() -> None:
    found = "\n".join(tree()) + "\n"
    assert found == GOLDEN.read_text(), f"if this is meant, it belongs into {GOLDEN.name}:\n{found}"


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: burst" in done.stdout


@pytest.mark.parametrize("name", commands())
def test_each_command_explains_itself(burst: Call, name: str) -> None:
    said = burst(name, "--help")
    assert (said.code, said.err) == (0, "")
    assert re.match(rf"Usage: .+ {name}\b", said.out)  # before it: how the tests were started
    assert commands()[name].help.splitlines()[0][:60] in said.out
    assert burst(name, "-h") == said


def test_version(burst: Call) -> None:
    assert burst("--version") == (0, f"{__version__}\n", "")
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["launch", "-y", "-d", "a.yaml"], "No such command 'launch'; it is: burst run FILE"),
        (["down", "-a"], "No such command 'down'; it is: burst stop RUN"),
        (["check"], "Missing argument 'FILE'"),
        (["run"], "Missing argument 'FILE'"),
        (["chaos", "toy"], "Missing option '--kill'"),
        (["ls", "--frob"], "No such option: --frob"),
        (["check", "a.yaml", "b.yaml"], "unexpected extra argument"),
        (["plan", "a.yaml", "--num-nodes", "0"], "greater than or equal to 1"),
        (["plan", "a.yaml", "--num-nodes", "two"], "--num-nodes"),
        (["run", "a.yaml", "--infra", "aws"], "write in the task file: resources: {infra: aws}"),
        (["plan", "a.yaml", "--gpus=A100:8"], "task file: resources: {accelerators: A100:8}"),
        (["check", "a.yaml", "--cloud", "aws"], "No such option: --cloud; write in the task file"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_why(
    burst: Call, argv: list[str], message: str
) -> None:
    said = burst(*argv)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert "Traceback" not in said.err


def test_what_stands_for_another_tools_command_is_one_of_ours() -> None:
    assert not ELSEWHERE.keys() & commands().keys()
    ours = {words.split()[0] for words in ELSEWHERE.values()}
    assert ours <= {*commands(), "--version", "--help"}


def test_burst_alone_shows_the_commands(burst: Call) -> None:
    said = burst()
    assert said.code == 2
    assert "Commands:" in said.out + said.err
