"""The command lines that reach nodes, seen by an ssh that prints its arguments."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from burst.provision.ssh import Login, Ssh, for_any_shell

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
    fake.write_text('#!/bin/sh\nfor last; do :; done; printf "%s\\n" "$last"; cat\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    login = Login(host="lab", ip="", inside=STEP)
    given = json.dumps({"secret": "hunter2"}).encode()
    remote, read = Ssh(login, tmp_path / "known").run("echo \"$HOME\" 'a b'", given).splitlines()
    assert shlex.split(remote) == [*STEP, *for_any_shell("echo \"$HOME\" 'a b'")]
    assert read.encode() == given


RUNS = '#!/bin/sh\nfor last; do :; done; {before}exec sh -c "$last"\n'
ODD = """x='é !"\\$HOME\\0101%s'
printf '%s|' "$x" \"it's\"
cat"""


@pytest.mark.parametrize("before", ["", "echo Welcome; echo ==; "])
def test_any_shell_takes_a_command_whole_and_may_greet_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    fake = tmp_path / "ssh"
    fake.write_text(RUNS.format(before=before))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ssh = Ssh(Login(host="a", ip="a"), tmp_path / "known")
    assert ssh.run(ODD, b"input") == "é !\"\\$HOME\\0101%s|it's|input"
    assert re.fullmatch(r"[\w ./:=,@%+\\-]*", for_any_shell(ODD)[-1], re.ASCII)


@pytest.mark.parametrize(
    ("folder", "read"), [("a b", "a b"), ("100%", "100%"), ("fe80::1%eth0", "fe80::1%eth0")]
)
def test_keys_of_hosts_are_kept_in_a_folder_of_any_name(folder: str, read: str) -> None:
    argv = Ssh(Login(host="a", ip="a"), Path("/nonexistent") / folder / "known").argv()
    told = subprocess.run(
        [argv[0], "-F", "/dev/null", "-G", *argv[1:]], capture_output=True, text=True, check=True
    )
    assert f"userknownhostsfile /nonexistent/{read}/known\n" in told.stdout
