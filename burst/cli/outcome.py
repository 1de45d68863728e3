"""How a command ends: the words of an error, the same as JSON, and the exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from burst.cli.output import print_json
from burst.errors import BurstError, SpecError

Misuse: Any = typer.BadParameter.__base__  # of the command line; typer has no public name for it
DEFECT = "error: this is a defect in burst; please report it with the lines above\n"


def outcome(command: Callable[[], Any], *, as_json: bool) -> int:
    """Run a command and return its exit code; every error is told, with `as_json` as JSON too."""
    try:
        return int(command() or 0)
    except BurstError as error:
        complain(error)
        told, result = _told(error), error.result
    except Misuse as error:
        error.show()
        told, result = _error(error.exit_code, error.format_message()), {}
    except Exception as error:  # noqa: BLE001 - the last resort: show all of it, say what it is
        traceback.print_exc()
        sys.stderr.write(DEFECT)
        told, result = _error(1, f"{type(error).__name__}: {error}"), {}
    if as_json:
        print_json({**result, "error": told})
    return int(told["exit_code"])


def complain(error: BurstError) -> None:
    """Print an error: what happened, every problem, what to do next."""
    if os.environ.get("BURST_TRACEBACK"):
        traceback.print_exception(error)
    lines = [f"error: {error.message}"]
    if isinstance(error, SpecError):
        lines += [f"  {problem}" for problem in error.problems]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    sys.stderr.write("\n".join(lines) + "\n")


@contextmanager
def keeping(result: Mapping[str, object]) -> Iterator[None]:
    """Have `--json` show a result beside an error that comes after it."""
    try:
        yield
    except BurstError as error:
        error.result = result
        raise


def _told(error: BurstError) -> dict[str, Any]:
    told = _error(error.exit_code, error.message, error.hint)
    if isinstance(error, SpecError):
        told |= {"file": error.source, "problems": error.problems}
    return told


def _error(exit_code: int, message: str, hint: str | None = None) -> dict[str, Any]:
    return {"exit_code": exit_code, "message": message, "hint": hint}
