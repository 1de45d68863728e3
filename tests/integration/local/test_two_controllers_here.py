"""C68 with processes: who drives a run after a kill or a freeze, told by its lease alone."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

pytestmark = pytest.mark.integration

CONTROLLER = """
import sys
from pathlib import Path
from burst import wiring
from burst.errors import OwnedError
from burst.storage.backends.local import LocalStore
from burst.storage.lease import Lease

alive = wiring.owner_alive if sys.argv[2] == "here" else lambda _: None
print("ready", flush=True)
sys.stdin.readline()
try:
    lease = Lease.acquire(
        LocalStore(Path(sys.argv[1])), wiring.this_owner(), ttl_s=1.0, clock=wiring.clock(),
        alive=alive, wait_s=float(sys.argv[3]),
    )
    print("holds", lease.token, flush=True)
    while sys.stdin.readline():
        lease.renew()
        print("renewed", flush=True)
except OwnedError as error:
    print(error.message, flush=True)
    sys.exit(error.exit_code)
"""
Process: TypeAlias = subprocess.Popen[str]
Start: TypeAlias = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a controller that waits for a word, and ends with the test."""
    with contextlib.ExitStack() as stack:

        def started(where: str = "here", wait_s: int = 0) -> Process:
            argv = [sys.executable, "-c", CONTROLLER, str(tmp_path), where, str(wait_s)]
            pipe = subprocess.PIPE
            process = stack.enter_context(
                subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
            )
            stack.callback(process.kill)
            assert said(process) == "ready"
            return process

        yield started


def said(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


@pytest.mark.parametrize("turn", range(3))
def test_c68_of_two_that_start_at_once_after_a_kill_one_holds_the_run(
    start: Start, turn: int
) -> None:
    first, *two = (start() for _ in range(3))
    tell(first)
    assert said(first) == "holds 1"
    first.send_signal(signal.SIGKILL)
    first.wait()
    for process in two[:: -1 if turn else 1]:
        tell(process)
    words = {process: said(process) for process in two}
    (holder,) = (process for process, word in words.items() if word == "holds 2")
    (other,) = (process for process in two if process is not holder)
    assert f"process {holder.pid} on " in words[other]
    assert other.wait(30) == 3
    tell(holder)
    assert said(holder) == "renewed"


def test_c68_one_that_was_frozen_learns_that_another_took_over(start: Start) -> None:
    first, second = start("elsewhere"), start("elsewhere", wait_s=20)
    tell(first)
    assert said(first) == "holds 1"
    first.send_signal(signal.SIGSTOP)
    tell(second)
    assert said(second) == "holds 2"
    tell(first)  # it has an action in hand
    first.send_signal(signal.SIGCONT)
    assert f"process {second.pid} on " in said(first)
    assert first.wait(30) == 3
