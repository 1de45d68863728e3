"""Every deliberate error: one readable message on stderr, and its own exit code."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from burst import errors
from burst.cli import tasks
from burst.cli.control import EXIT_BY_REASON, exit_code_of
from burst.errors import BurstError, Problem, SpecError, StorageError
from cli_scene import Call, Said

README = Path(__file__).parents[3] / "README.md"
CODES = {
    "BurstError": 1,
    "UsageError": 2,
    "SpecError": 2,
    "OwnedError": 3,
    "NoOfferError": 4,
    "BudgetError": 5,
    "CheckpointError": 6,
    "CheckpointMismatchError": 6,
    "StorageError": 7,
    "TransientError": 7,
    "ConflictError": 7,
    "CredentialsError": 9,
    "TrainingError": 8,
    "SetupError": 9,
    "LeftoverError": 10,
}


Failing: TypeAlias = Callable[..., Said]


@pytest.fixture
def failing(burst: Call, monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Run a command within which an error is raised."""

    def call(error: BaseException, *more: str) -> Said:
        def fail(*given: object, **options: object) -> None:
            raise error

        monkeypatch.setattr(tasks, "plan_file", fail)
        return burst("plan", "task.yaml", *more)

    return call


def kinds() -> dict[str, type[BurstError]]:
    found = vars(errors).values()
    return {k.__name__: k for k in found if inspect.isclass(k) and issubclass(k, BurstError)}


def make(kind: type[BurstError]) -> BurstError:
    if issubclass(kind, SpecError):
        return kind("t.yaml", (Problem(field="run", message="is missing"),), hint="do this")
    return kind("it broke", hint="do this")


def test_every_error_has_its_exit_code_here() -> None:
    assert set(kinds()) == set(CODES)


@pytest.mark.parametrize("name", CODES)
def test_an_error_ends_the_program_with_its_code(failing: Failing, name: str) -> None:
    code, out, err = failing(make(kinds()[name]))
    what = "t.yaml has 1 problem\n  run: is missing" if name == "SpecError" else "it broke"
    assert (code, out, err) == (CODES[name], "", f"error: {what}\nhint: do this\n")


@pytest.mark.parametrize("name", CODES)
def test_with_json_an_error_is_one_object_besides_its_words(failing: Failing, name: str) -> None:
    error = make(kinds()[name])
    said = failing(error, "--json")
    told = {"exit_code": CODES[name], "message": error.message, "hint": "do this"}
    if name == "SpecError":
        problem = {"field": "run", "message": "is missing", "line": None, "written": None}
        told |= {"file": "t.yaml", "problems": [problem]}
    assert json.loads(said.out) == {"error": told}
    assert (said.code, said.err) == (CODES[name], failing(error).err)


def test_with_json_what_was_found_before_an_error_stands_beside_it(failing: Failing) -> None:
    error = StorageError("disk full")
    error.result = {"nodes": 2}
    told = {"exit_code": 7, "message": "disk full", "hint": None}
    assert json.loads(failing(error, "--json").out) == {"nodes": 2, "error": told}


def test_with_json_an_unexpected_error_is_one_object_too(failing: Failing) -> None:
    said = failing(ZeroDivisionError("of all things"), "--json")
    message = "ZeroDivisionError: of all things"
    told = {"exit_code": 1, "message": message, "hint": None}
    assert json.loads(said.out) == {"error": told}
    assert said.err.startswith("Traceback")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ls", "--jsn"], "No such option: --jsn"),
        (["plan"], "Missing argument 'FILE'"),
        (["launch", "task.yaml"], "No such command 'launch'; it is: burst run FILE"),
        (["plan", "task.yaml", "--num-nodes", "two"], "Invalid value for '--num-nodes'"),
    ],
)
def test_with_json_a_wrong_command_line_is_one_object_too(
    burst: Call, words: list[str], message: str
) -> None:
    said = burst(*words, "--json")
    error = json.loads(said.out)["error"]
    assert (said.code, error["exit_code"], error["hint"]) == (2, 2, None)
    assert error["message"].startswith(message)
    assert said.err.startswith("Usage: ")
    assert f"Error: {message}" in said.err
    assert (said.code, "", said.err) == burst(*words)._replace(err=said.err)


@pytest.mark.parametrize("name", CODES)
def test_an_error_of_the_users_code_is_found_by_its_name(name: str) -> None:
    assert exit_code_of(name) == CODES[name]


@pytest.mark.parametrize("name", ["", "OfALaterVersion"])
def test_an_error_that_nobody_knows_ends_with_1(name: str) -> None:
    assert exit_code_of(name) == 1


def test_all_codes_are_in_the_readme() -> None:
    (text,) = re.findall(r"Exit codes: (.*?)\n\n", README.read_text(), re.DOTALL)
    told = {int(number) for number in re.findall(r"\b(\d+) ", text)}
    assert told == {0, 130, *CODES.values()} - {1}
    assert set(EXIT_BY_REASON.values()) <= told


def test_all_problems_of_a_file_are_told_in_one_go(failing: Failing) -> None:
    problems = (
        Problem(field="name", message="is empty", line=1),
        Problem(field="burst.steps", message="needs a whole number", line=9, written="many"),
        Problem(field="", message="needs `run:` or `burst.train`"),
    )
    assert failing(SpecError("t.yaml", problems, hint="see examples/")) == (
        2,
        "",
        (
            "error: t.yaml has 3 problems\n"
            "  line 1: name: is empty\n"
            "  line 9: burst.steps: needs a whole number (written: many)\n"
            "  needs `run:` or `burst.train`\n"
            "hint: see examples/\n"
        ),
    )


def test_an_error_without_a_hint_has_no_hint(failing: Failing) -> None:
    assert failing(StorageError("disk full")) == (7, "", "error: disk full\n")


def test_a_traceback_of_a_deliberate_error_only_when_asked_for(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURST_TRACEBACK", "1")
    code, out, err = failing(StorageError("disk full"))
    assert (code, out) == (7, "")
    assert err.startswith("Traceback")
    assert err.endswith("error: disk full\n")


def test_an_unexpected_error_shows_all_of_it_and_asks_for_a_report(failing: Failing) -> None:
    code, out, err = failing(ZeroDivisionError("of all things"))
    assert (code, out) == (1, "")
    assert err.startswith("Traceback")
    assert "ZeroDivisionError: of all things" in err
    assert err.endswith("this is a defect in burst; please report it with the lines above\n")


def test_an_interrupt_ends_with_130(failing: Failing) -> None:
    assert failing(KeyboardInterrupt())[0] == 130


@pytest.mark.parametrize("command", ["adopt", "resume", "status"])
def test_a_run_in_a_bucket_without_credentials(
    burst: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert burst(command, "s3://some-bucket/run") == (
        9,
        "",
        (
            "error: s3://some-bucket/run/run.json cannot be opened: there are no credentials for "
            "AWS\nhint: run `aws configure`, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or "
            "AWS_PROFILE, or give the machine a role\n"
        ),
    )
