"""Where burst keeps what it knows cannot be made, or cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from burst import wiring
from cli_scene import Call, Scene

TASK = "name: simple\nrun: echo hello\n"
HINT = "hint: make it a folder that you may write to, or name another one in BURST_HOME\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "task.yaml"
    found.write_text(TASK)
    return found


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the folder be below a file, where nobody can make one, not even root."""
    folder = tmp_path / "file" / "burst"
    folder.parent.write_text("")
    monkeypatch.setenv("BURST_HOME", str(folder))
    monkeypatch.setattr(wiring, "pools", dict)
    return folder


def test_a_run_whose_folder_cannot_be_made_is_refused_before_anything_is_written(
    burst: Call, blocked: Path, file: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    said = burst("run", file, "--detach", "--run-uri", f"file://{runs}")
    words = f"error: burst's own folder {blocked} cannot be used: Not a directory\n"
    assert (said.code, said.err) == (9, words + HINT)
    assert not runs.exists()


def test_a_run_whose_folder_cannot_be_written_is_refused_before_anything_is_written(
    burst: Call, home: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != home)
    runs = tmp_path / "runs"
    said = burst("run", file, "--detach", "--run-uri", f"file://{runs}")
    words = f"error: burst's own folder {home} cannot be used: Permission denied\n"
    assert (said.code, said.err) == (9, words + HINT)
    assert not runs.exists()


@pytest.mark.parametrize("command", ["resume", "adopt"])
def test_taking_over_a_run_needs_the_folder(
    burst: Call, scene: Scene, blocked: Path, command: str
) -> None:
    said = burst(command, scene.make().store.uri)
    words = f"error: burst's own folder {blocked} cannot be used: Not a directory\n"
    assert (said.code, said.err) == (9, words + HINT)


@pytest.mark.parametrize("words", ["ls", "status x", "nodes", "cost", "doctor", "check FILE"])
def test_every_command_says_that_the_folder_is_none(
    burst: Call, home: Path, file: Path, words: str
) -> None:
    home.write_text("")
    said = burst(*words.replace("FILE", str(file)).split())
    told = f"error: burst's own folder {home} cannot be used: Not a directory\n"
    assert (said.code, said.out, said.err) == (9, "", told + HINT)


def test_a_part_of_the_folder_that_cannot_be_read_is_named(
    burst: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, pattern: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "glob", refuse)
    said = burst("ls")
    where = f"{home} cannot be used: Permission denied at {home / 'index'}"
    assert (said.code, said.err) == (9, f"error: burst's own folder {where}\n{HINT}")


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "/elsewhere"),
        FileNotFoundError(2, "No such file", "HOME/index/gone.json"),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)
def test_other_errors_of_the_system_stay_what_they_are(home: Path, error: OSError) -> None:
    if error.filename:
        error.filename = error.filename.replace("HOME", str(home))
    assert wiring.unusable_home(error) is None
