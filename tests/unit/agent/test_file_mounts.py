"""file_mounts on rented nodes: packed with the run, unpacked once, where the task says."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burst.agent.set_up import SetUp
from burst.controller.runs import Machine, Run
from burst.errors import SetupError
from burst.records import RUN as RUN_KEY
from burst.task_specs.dump import dump
from burst.task_specs.parse import parse
from cli_scene import ROOT, Scene


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BURST_WORKDIR", "")
    (tmp_path / "here/tree/sub").mkdir(parents=True)
    (tmp_path / "here/tree/sub/a.txt").write_text("a")
    (tmp_path / "here/tree/run.sh").write_text("exit 0")
    (tmp_path / "here/tree/run.sh").chmod(0o755)
    (tmp_path / "here/token").write_text("t")
    (tmp_path / "here/link").symlink_to("token")
    return Scene(tmp_path / "burst")


def make(scene: Scene, folder: Path, mounts: str, *, own: bool = False) -> Run:
    text = f"name: toy\nfile_mounts: {mounts}\nburst: {{train: train.py:main, steps: 8}}\n"
    task = parse(text, source=str(folder / "here" / "task.yaml"))
    machine = Machine(cpus=2, gpus=0, choices=(scene.choice("1"),), shared=False, own=own)
    return scene.runs.create(task, machine, text=dump(task), now=scene.clock.now(), root=ROOT)


def arrive(run: Run, scratch: Path) -> SetUp:
    scratch.mkdir(exist_ok=True)
    set_up = SetUp(run.store, scratch, index=1)
    set_up.step()
    return set_up


def test_files_and_folders_arrive_where_the_task_says(scene: Scene, tmp_path: Path) -> None:
    opt = tmp_path / "opt"
    run = make(scene, tmp_path, f"{{~/.cfg/tok: link, ~/all: tree, {opt}/x: token}}")
    home = tmp_path / "home"
    (home / "all").mkdir(parents=True)
    (home / "all/mine.txt").write_text("was there")
    assert arrive(run, tmp_path / "node").done
    assert (home / ".cfg/tok").read_text() == "t"
    assert not (home / ".cfg/tok").is_symlink()
    assert (opt / "x").read_text() == "t"
    assert sorted(p.name for p in (home / "all").rglob("*")) == [
        "a.txt", "mine.txt", "run.sh", "sub",
    ]  # fmt: skip
    assert (home / "all/run.sh").stat().st_mode & 0o111


def test_a_file_arrives_in_a_folder_that_only_root_may_write(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/token`, say: it failed every node's set-up."""
    closed, extract = tmp_path / "closed", tarfile.TarFile.extractall
    closed.mkdir(mode=0o750)

    def refuse(archive: tarfile.TarFile, path: Path | str, *, filter: Any) -> None:  # noqa: A002
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        extract(archive, path, filter=filter)

    monkeypatch.setattr(tarfile.TarFile, "extractall", refuse)
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    run = make(scene, tmp_path, f"{{{closed}/tok: token}}")
    assert arrive(run, tmp_path / "node").done
    assert (closed / "tok").read_text() == "t"
    assert closed.stat().st_mode & 0o777 == 0o750


def test_a_file_at_the_root_goes_there_by_its_name(scene: Scene, tmp_path: Path) -> None:
    run = make(scene, tmp_path, "{/tok: token}")
    assert list(run.record.mounts.values()) == ["/"]
    with tarfile.open(fileobj=io.BytesIO(run.store.get("code/mounts/0.tar.gz"))) as archive:
        assert archive.getnames() == ["tok"]


def test_they_are_unpacked_once(scene: Scene, tmp_path: Path) -> None:
    run = make(scene, tmp_path, "{~/tok: token}")
    assert arrive(run, tmp_path / "node").done
    (tmp_path / "home/tok").write_text("changed")
    assert arrive(run, tmp_path / "node").done
    assert (tmp_path / "home/tok").read_text() == "changed"


def test_a_place_that_is_a_file_is_an_error_of_the_set_up(scene: Scene, tmp_path: Path) -> None:
    run = make(scene, tmp_path, "{~/all: tree}")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/all").write_text("a file")
    set_up = arrive(run, tmp_path / "node")
    assert not set_up.done
    assert set_up.error is not None
    assert set_up.error.startswith("file_mounts: ")
    assert "home/all" in set_up.error


def test_buckets_are_for_skypilot(scene: Scene, tmp_path: Path) -> None:
    run = make(scene, tmp_path, "{~/a: 's3://b/x', ~/b: {name: c, store: s3}, ~/c: token}")
    assert list(run.record.mounts.values()) == ["~"]
    assert list(run.store.keys("code/mounts")) == ["code/mounts/0.tar.gz"]


def test_own_machines_keep_their_files(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="would overwrite your machines' own paths"):
        make(scene, tmp_path, "{~/tok: token}", own=True)
    assert list(scene.root.keys()) == []


def test_what_cannot_run_is_refused_before_anything_is_packed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[Path] = []
    monkeypatch.setattr("burst.controller.runs.pack", packed.append)
    with pytest.raises(SetupError, match="would overwrite"):
        make(scene, tmp_path, "{~/tok: token}", own=True)
    assert packed == []


def test_a_path_with_a_private_variable_is_refused(scene: Scene, tmp_path: Path) -> None:
    text = (
        "name: toy\nsecrets: {WHERE: here}\nfile_mounts: {~/tok: $WHERE/token}\n"
        "burst: {train: train.py:main, steps: 8}\n"
    )
    task = parse(text, source=str(tmp_path / "here/task.yaml"))
    machine = Machine(cpus=2, gpus=0, choices=(scene.choice("1"),), shared=False)
    with pytest.raises(SetupError, match="the private WHERE is not put into a source"):
        scene.runs.create(task, machine, text="", now=scene.clock.now(), root=ROOT)


def test_a_run_of_an_older_burst_has_none(scene: Scene, tmp_path: Path) -> None:
    run = make(scene, tmp_path, "{~/tok: token}")
    run.store.put(RUN_KEY, replace(run.record, mounts={}).encode())
    assert arrive(run, tmp_path / "node").done
    assert not (tmp_path / "home/tok").exists()


def test_a_private_value_in_a_source_is_refused_before_anything_is_rented(
    scene: Scene, tmp_path: Path
) -> None:
    """SkyPilot would look for a bucket of the name `b-${TOK}`, on a machine that is paid for."""
    mounts = '{/data: "s3://b-${TOK}/x"}\nsecrets: {TOK: hunter2}'
    with pytest.raises(SetupError, match="TOK") as refused:
        make(scene, tmp_path, mounts)
    assert "hunter2" not in str(refused.value)
