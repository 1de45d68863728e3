"""The command lines that reach nodes, seen by an ssh that prints its arguments."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from burst.provision.ssh import Login, Ssh

STEP = ("srun", "--overlap", "--jobid=7")


def words(login: Login, *, interactive: bool = False) -> list[str]:
    argv = Ssh(login, Path("/known")).argv(interactive=interactive)
    return [w for n, w in enumerate(argv) if w != "-o" and argv[n - 1] != "-o"]


def test_what_is_not_said_is_left_to_the_configuration() -> None:
    whole = Login(host="h", ip="10.0.0.1", user="me", key=Path("/k"), port=2222)
    assert words(whole) == ["ssh", "-p", "2222", "-i", "/k", "-l", "me", "h"]
    assert words(Login(host="lab", ip="", config=Path("/c"))) == ["ssh", "-F", "/c", "lab"]


def test_a_shell_on_a_node_behind_its_host_has_a_terminal() -> None:
    login = Login(host="lab", ip="", config=Path("/c"), inside=STEP)
    shell = "srun --overlap --jobid=7 --pty bash -i"
    assert words(login, interactive=True) == ["ssh", "-F", "/c", "-t", "lab", shell]


def test_a_command_for_a_node_behind_its_host_arrives_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "ssh"
    fake.write_text('#!/bin/sh\nfor last; do :; done; echo "$last"; cat\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    login = Login(host="lab", ip="", inside=STEP)
    given = json.dumps({"secret": "hunter2"}).encode()
    remote, read = Ssh(login, tmp_path / "known").run("echo \"$HOME\" 'a b'", given).splitlines()
    assert shlex.split(remote) == [*STEP, "sh", "-c", "echo \"$HOME\" 'a b'"]
    assert read.encode() == given
