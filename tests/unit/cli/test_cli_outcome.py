"""Where results are printed may be closed, full, or read by nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

BURST = [sys.executable, "-m", "burst.cli"]
UNKNOWN = "error: there is no run none\nhint: see the runs there are: burst ls --all\n"


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def env(request: pytest.FixtureRequest) -> Mapping[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": request.param}


@pytest.fixture
def unread() -> int:
    """Return the writing end of a pipe whose reader is gone, as of `| head`."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("words", ["ls", "schema", "--help", "ls --help"])
def test_where_nobody_reads_a_command_ends_as_others_do(
    env: Mapping[str, str], unread: int, words: str
) -> None:
    done = subprocess.run(
        [*BURST, *words.split()], stdout=unread, stderr=subprocess.PIPE, check=False, env=env
    )
    assert (done.returncode, done.stderr) == (141, b"")


def test_words_of_an_error_are_told_though_nobody_reads_its_json(
    env: Mapping[str, str], unread: int
) -> None:
    done = subprocess.run(
        [*BURST, "status", "none", "--json"],
        stdout=unread,
        stderr=subprocess.PIPE,
        check=False,
        env=env,
    )
    assert (done.returncode, done.stderr.decode()) == (141, UNKNOWN)


@pytest.mark.parametrize(("words", "code"), [("ls", 0), ("status none", 2)])
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_changes_no_exit_code(words: str, code: int, closed: str) -> None:
    shell = f'exec "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *BURST, *words.split()], capture_output=True, check=False
    )
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_told_and_no_defect(env: Mapping[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*BURST, "ls"], stdout=full, stderr=subprocess.PIPE, check=False, env=env
        )
    words = "error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr.decode()) == (1, words)
