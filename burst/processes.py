"""Finding and ending the processes that belong together.

Process groups and parents are not enough: children may leave both (setsid, a fork server). The
environment is inherited by everything that does not replace it, and the session by everything
that does not leave it. A process is always meant with its start time, so that a reused pid is
never hit.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

LOOK_AGAIN_S = 0.05
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A process that carries a marker. `start_time` is in clock ticks since boot."""

    pid: int
    start_time: float
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def start_time(pid: int) -> float | None:
    """Return when a process started, in clock ticks since boot; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else float(rest[18])


def alive(pid: int, started: float) -> bool:
    """Whether this very process lives; a zombie does not."""
    return start_time(pid) == started


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a process carries that belongs together: variables, or the session it was born in.

    The session finds those whose environment cannot be read any more: setting one's own title, as
    all of Ray's processes do, overwrites it.
    """

    variables: Mapping[str, str]
    session: int | None = None  # of the agent that the others descend from
    ancestor: int | None = None  # that agent itself; finds what left session and environment


def find(mark: Mark, *, but: Collection[int] = ()) -> tuple[Found, ...]:
    """Return the live processes that carry a mark, except this one and some pids."""
    return tuple(_carriers(mark, {os.getpid(), *but}))


def _carriers(mark: Mark, but: Collection[int]) -> Iterator[Found]:
    wanted = {f"{name}={value}".encode() for name, value in mark.variables.items()}
    family = set() if mark.ancestor is None else descendants(mark.ancestor)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in but:
            continue
        pid = int(entry.name)
        near = pid in family or _in_session(pid, mark.session)
        if not (near or wanted <= _environ(entry)):
            continue
        started = start_time(pid)
        if started is not None:
            yield Found(pid=pid, start_time=started, command=" ".join(_argv(entry))[:120])


def descendants(pid: int) -> set[int]:
    """Return all children of a process, their children, and so on."""
    try:
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def adopt_orphans() -> None:
    """Make this process the parent of what its descendants leave behind (PR_SET_CHILD_SUBREAPER).

    So a descendant that forks, leaves its session and drops its environment stays a descendant.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap_orphans(but: Collection[int]) -> None:
    """Take the exit codes of adopted processes that ended, so that no zombie stays."""
    for child in psutil.Process().children():
        if child.pid in but:
            continue
        try:
            os.waitpid(child.pid, os.WNOHANG)
        except ChildProcessError:
            continue


def _in_session(pid: int, session: int | None) -> bool:
    try:
        return session is not None and os.getsid(pid) == session
    except OSError:  # gone by now
        return False


def _environ(entry: Path) -> set[bytes]:
    try:
        return set((entry / "environ").read_bytes().split(b"\0"))
    except OSError:  # another person's, or gone by now
        return set()


def _argv(entry: Path) -> list[str]:
    try:
        raw = (entry / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def kill_all(mark: Mark, *, but: Collection[int] = (), limit_s: float = 10.0) -> tuple[Found, ...]:
    """SIGKILL all carriers again and again until none is left; return those that survive.

    SIGKILL also ends stopped processes. What is left after `limit_s` hangs in the kernel.
    """
    end = time.monotonic() + limit_s
    while True:
        found = find(mark, but=but)
        for process in found:
            _kill(process)
        if not found or time.monotonic() > end:
            return found
        time.sleep(LOOK_AGAIN_S)  # noqa: TID251 - the kernel needs a moment to end them


def _kill(process: Found) -> None:
    if not alive(process.pid, process.start_time):
        return
    try:
        psutil.Process(process.pid).kill()
    except psutil.NoSuchProcess:
        return
