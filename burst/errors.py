"""Every error burst raises on purpose, and the exit code each ends the program with.

* BurstError                 something went wrong that a person can act on   exit 1
  * UsageError               the command line is wrong                       exit 2
    * SpecError              the task file is wrong                          exit 2
  * OwnedError               another controller or run owns this             exit 3
  * NoOfferError             no pool can serve the request                   exit 4
  * BudgetError              carrying on would exceed budget or deadline     exit 5
  * CheckpointError          a checkpoint is missing, damaged or unfit       exit 6
    * CheckpointMismatchError  the saved state does not fit the model        exit 6
  * StorageError             the object store refuses or fails               exit 7
    * TransientError         the same call may work later; retried inside
    * ConflictError          a conditional write lost to another writer
    * CredentialsError       nobody gave the store's keys here                exit 9
  * TrainingError            the user's code failed                          exit 8
  * SetupError               rights, configuration or a missing package      exit 9
  * LeftoverError            something of ours is still alive at the end     exit 10

0 is success, 130 an interrupt by the person (Ctrl-C) after which the run can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar


def installing(*extras: str) -> str:
    """Return how to get packages that are missing; burst is in no package index."""
    return f"in the folder of burst's sources: pip install -e '.[{','.join(extras)}]'"


class BurstError(Exception):
    """Base of the tree above: what went wrong, and what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.result: Mapping[str, object] = {}  # what was found before it; `--json` shows both


class UsageError(BurstError):
    """The command line asks for something that cannot be."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a file: where it is, what was written, what to write instead."""

    field: str  # path into the file, `resources.accelerators`; "" for the whole file
    message: str  # what is wrong and what to write instead
    line: int | None = None  # counted from 1
    written: str | None = None  # the text as typed; never a secret

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        field = f"{self.field}: " if self.field else ""
        written = f" (written: {self.written})" if self.written is not None else ""
        return f"{where}{field}{self.message}{written}"


class SpecError(UsageError):
    """The task file does not describe a task. Holds every problem found in it."""

    exit_code = 2

    def __init__(
        self, source: str, problems: tuple[Problem, ...], *, hint: str | None = None
    ) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{source} has {count}", hint=hint)
        self.source = source
        self.problems = problems

    def __reduce__(self) -> tuple[object, ...]:
        return (_spec_error, (self.source, self.problems, self.hint))


def _spec_error(source: str, problems: tuple[Problem, ...], hint: str | None) -> SpecError:
    return SpecError(source, problems, hint=hint)


class OwnedError(BurstError):
    """Another controller, or another run, owns what was asked for."""

    exit_code = 3


class NoOfferError(BurstError):
    """No pool offers what the task asks for."""

    exit_code = 4


class BudgetError(BurstError):
    """Carrying on would spend more money or time than the task allows."""

    exit_code = 5


class CheckpointError(BurstError):
    """A checkpoint is missing, incomplete or damaged."""

    exit_code = 6


class CheckpointMismatchError(CheckpointError):
    """A sound checkpoint holds a state that does not fit the model or optimizer it is put in."""


class StorageError(BurstError):
    """The object store refuses or fails, and trying again will not help."""

    exit_code = 7


class TransientError(StorageError):
    """The same call may work later. Backends raise it; retry policies catch it."""


class ConflictError(StorageError):
    """A conditional write found another version, or the key taken. Never retried blindly."""


class CredentialsError(StorageError):
    """The keys that the object store wants are not here, or only in part."""

    exit_code = 9


class TrainingError(BurstError):
    """The user's own code failed; restarting it would fail again."""

    exit_code = 8


class SetupError(BurstError):
    """A machine or account lacks something: a package, a right, a program, a setting."""

    exit_code = 9


class LeftoverError(BurstError):
    """The run is over and something of it is still alive."""

    exit_code = 10


def together(errors: Iterable[BurstError]) -> BurstError:
    """Return one error that says all that some do, each thing once; one alone as it is."""
    errors = tuple({error.message: error for error in errors}.values())
    if len(errors) == 1:
        return errors[0]
    hints = dict.fromkeys(error.hint for error in errors if error.hint)
    words = "; ".join(error.message for error in errors)
    return SetupError(words, hint="; ".join(hints) or None)
