"""How a command ends: the words of an error, the same as JSON, and the exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import typer

from burst import wiring
from burst.cli.logged import logged
from burst.cli.output import Output, UnprintedError, discard, print_json
from burst.errors import BurstError, SpecError

Misuse: Any = typer.BadParameter.__base__  # of the command line; typer has no public name for it
DEFECT = "error: this is a defect in burst; please report it with the lines above\n"
SIGPIPE_ENDED = 141  # as a shell reports it of other programs


def outcome(command: Callable[[], Any], *, as_json: bool) -> int:
    """Run a command and return its exit code; every error is told, with `as_json` as JSON too.

    Where nobody reads what is printed any more (`| head`), the command ends without a word.
    """
    _open_closed()
    stdout = sys.stdout
    sys.stdout = cast("TextIO", Output(stdout))
    try:
        with logged():
            code = _run(command, as_json=as_json)
        sys.stdout.flush()
    except UnprintedError as error:
        discard(stdout)
        if isinstance(error.__cause__, BrokenPipeError):
            return SIGPIPE_ENDED
        sys.stderr.write(f"error: standard output cannot be written: {error}\n")
        return 1
    finally:
        sys.stdout = stdout
    return code


def _open_closed() -> None:
    """Have somewhere to print when whoever started this closed the place (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - for good


def _run(command: Callable[[], Any], *, as_json: bool) -> int:
    try:
        with _own_folder():
            return int(command() or 0)
    except UnprintedError:
        raise
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


@contextmanager
def _own_folder() -> Iterator[None]:
    """Have an error of burst's own folder on this machine be one of the person's settings."""
    try:
        yield
    except OSError as error:
        if (wrong := wiring.unusable_home(error)) is None:
            raise
        raise wrong from error


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
