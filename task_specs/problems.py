"""What is wrong with a file, collected while it is read, and the nearest name to a wrong one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from burst.errors import Problem

SHOWN_CHARACTERS = 60
SHORT = 4
_USER_INFO = re.compile(r"://[^/\s]*@")


class Report:
    """Problems and warnings found so far. Reading goes on after each, so that all are found."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._warnings: list[str] = []

    def problem(
        self, field: str, message: str, *, line: int | None = None, written: str | None = None
    ) -> None:
        """Note one thing that must change. `written` must not be a value of envs or secrets."""
        shown = None if written is None else shorten(written)
        found = Problem(field=field, message=message, line=line, written=shown)
        if line is None or not any(_alike(found, known) for known in self._problems):
            self._problems.append(found)

    def warn(self, message: str) -> None:
        """Note one thing the person should know; the task is still good."""
        if message not in self._warnings:
            self._warnings.append(message)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems in the order of their lines; those without a line come first."""
        return tuple(sorted(self._problems, key=lambda problem: problem.line or 0))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings in the order they were found."""
        return tuple(self._warnings)


def _alike(one: Problem, other: Problem) -> bool:
    """Whether two problems are one that was merged into two places."""
    last, key = (problem.field.rpartition(".")[2] for problem in (one, other))
    return last == key and replace(one, field=other.field) == other


def shorten(text: str) -> str:
    """Return the text on one line, at most 60 characters of it, no URI's password in it."""
    line = _USER_INFO.sub("://***@", " ".join(text.split()))
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 3] + "..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is most likely meant to be, None if none is near."""
    plain = {_plain(word): word for word in known}
    if _plain(name) in plain:
        return plain[_plain(name)]
    cutoff = 0.7 if len(name) > SHORT else 0.5  # one wrong letter of a short name is much of it
    matches = get_close_matches(_plain(name), plain, n=1, cutoff=cutoff)
    return plain[matches[0]] if matches else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")
