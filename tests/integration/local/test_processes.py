"""Processes that belong together are found and ended, whatever they did to get away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from burst.processes import Mark, alive, find, kill_all, start_time

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]
SLEEP = "import time; time.sleep(300)"
RUNAWAY = (
    f"import os, subprocess, sys; os.setsid(); subprocess.run([sys.executable, '-c', {SLEEP!r}])"
)


def until(what: Callable[[], bool], seconds: float = 15) -> None:
    """Wait for something that must happen."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)  # noqa: TID251


@pytest.fixture
def mark() -> Iterator[Mark]:
    made = Mark(variables={"BURST_NODE_ID": f"test-{os.getpid()}-{time.monotonic_ns()}"})
    yield made
    kill_all(made)


def start(code: str, mark: Mark) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **mark.variables})


def test_children_that_left_their_session_are_ended_too(mark: Mark) -> None:
    child = start(RUNAWAY, mark)
    until(lambda: len(find(mark)) == 2)
    assert kill_all(mark) == ()
    assert child.wait(5) == -signal.SIGKILL
    assert find(mark) == ()


def test_stopped_processes_are_ended_too(mark: Mark) -> None:
    child = start(SLEEP, mark)
    until(lambda: len(find(mark)) == 1)
    os.kill(child.pid, signal.SIGSTOP)
    assert kill_all(mark) == ()
    assert child.wait(5) == -signal.SIGKILL


def test_a_process_that_overwrote_its_environment_is_found_by_its_session() -> None:
    """Ray's processes set their own title, which overwrites what /proc shows of the environment."""
    child = subprocess.Popen(
        [sys.executable, "-c", SLEEP], env={"PATH": os.environ["PATH"]}, start_new_session=True
    )
    mark = Mark(variables={"BURST_NODE_ID": "nobody"}, session=child.pid)
    assert [found.pid for found in find(mark)] == [child.pid]
    assert kill_all(mark) == ()
    assert child.wait(5) == -signal.SIGKILL


def test_what_left_session_and_environment_is_found_by_its_ancestor(mark: Mark) -> None:
    """`env -i setsid COMMAND &`: an adopted orphan stays a descendant of the agent."""
    inner = (
        "import subprocess, sys, time; from burst.processes import adopt_orphans; adopt_orphans();"
        "subprocess.run(['sh', '-c', 'env -i setsid sleep 4242 &']); time.sleep(300)"
    )
    agent = start(inner, mark)
    whole = Mark(variables=mark.variables, ancestor=agent.pid)
    until(lambda: any(found.command == "sleep 4242" for found in find(whole)))
    assert "sleep 4242" not in [found.command for found in find(mark)]
    assert kill_all(whole) == ()
    agent.wait(5)


def test_others_are_left_alone(mark: Mark) -> None:
    child = start(SLEEP, Mark(variables={"BURST_NODE_ID": "another"}))
    assert kill_all(mark) == ()
    assert child.poll() is None
    child.kill()
    child.wait()


def test_a_reused_pid_is_not_the_same_process() -> None:
    mine = start_time(os.getpid())
    assert mine is not None
    assert alive(os.getpid(), mine)
    assert not alive(os.getpid(), mine - 1)
    assert not alive(2**22 + 1, mine)


def test_the_launcher_ends_its_command_with_its_parent(mark: Mark) -> None:
    """Killed by SIGKILL, a parent takes the launched command with it."""
    inner = (
        "import os, subprocess, sys;"
        "subprocess.run([sys.executable, '-m', 'burst.agent.launcher', str(os.getpid()),"
        f" sys.executable, '-c', {SLEEP!r}])"
    )
    parent = start(inner, mark)
    until(
        lambda: any(
            SLEEP in found.command and "launcher" not in found.command for found in find(mark)
        )
    )
    parent.kill()
    parent.wait()
    until(lambda: find(mark) == ())
