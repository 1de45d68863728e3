"""Making runs and finding them by what people type (burst.controller.runs)."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path

import pytest

from burst.controller.runs import Run, Runs
from burst.errors import SetupError, StorageError, UsageError
from burst.storage.memory import MemoryStore
from burst.storage.port import ObjectStore
from cli_scene import ROOT, Scene


@pytest.fixture
def scene(home: Path) -> Scene:
    return Scene(home)


def forget(scene: Scene, run: Run) -> None:
    """Let a run's folder vanish, as `rm -r` would."""
    store = scene.open(run.store.uri)
    store.delete(list(store.keys()))


def test_a_new_run_is_written_down_whole(scene: Scene) -> None:
    run = scene.make()
    assert re.fullmatch(r"toy-[a-z0-9]{6}", run.record.run_id)
    assert run.store.uri == f"{ROOT}/{run.record.run_id}"
    assert sorted(run.store.keys()) == ["control/ray.token", "run.json", "task.yaml"]
    assert scene.runs.find(run.record.run_id).record == run.record


def test_two_runs_never_share_an_id(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = iter("aaaaaaaaaaaabbbbbb")  # the second run draws the first one's, once
    monkeypatch.setattr(secrets, "choice", lambda _: next(letters))
    assert [scene.make().record.run_id for _ in range(2)] == ["toy-aaaaaa", "toy-bbbbbb"]


def test_a_run_is_found_by_id_beginning_and_uri(scene: Scene) -> None:
    run, _ = scene.make("one"), scene.make("two")
    name = run.record.run_id
    for said in (name, name[:-1], "one", "o", run.store.uri):
        assert scene.runs.find(said).record.run_id == name


def test_a_tasks_name_means_its_newest_run(scene: Scene) -> None:
    made = []
    for _ in range(3):
        scene.clock.sleep(1)
        made.append(scene.make().record)
    assert scene.runs.find("toy").record == made[-1]


def test_a_tasks_name_may_be_written_as_ids_spell_it(scene: Scene) -> None:
    scene.make("My task!")
    scene.clock.sleep(1)
    newest = scene.make("My task!").record
    assert [scene.runs.find(name).record for name in ("My task!", "my-task")] == [newest, newest]


def test_a_tasks_name_beats_the_beginning_of_anothers(scene: Scene) -> None:
    scene.make("tiny-lm")
    run = scene.make("tiny")
    assert scene.runs.find("tiny").record == run.record


def test_a_beginning_of_several_runs_is_refused_with_their_names(scene: Scene) -> None:
    names = sorted(scene.make(name).record.run_id for name in ("toy-a", "toy-b"))
    with pytest.raises(UsageError) as caught:
        scene.runs.find("toy")
    assert caught.value.message == f"toy means 2 runs: {names[0]}, {names[1]}"


def test_no_run_of_that_name(scene: Scene) -> None:
    scene.make()
    with pytest.raises(UsageError) as caught:
        scene.runs.find("other")
    assert caught.value.message == "there is no run other"
    assert caught.value.hint == "see the runs there are: burst ls --all"


def test_all_runs_newest_first(scene: Scene) -> None:
    made = []
    for name in ("b", "a", "c"):
        scene.clock.sleep(1)
        made.append(scene.make(name).record)
    assert [run.record for run in scene.runs.all()] == made[::-1]
    assert list(Scene(scene.home / "elsewhere").runs.all()) == []


def test_near_runs_are_those_on_a_disk_here(scene: Scene) -> None:
    far = scene.make()  # in the scene's memory, which is no disk
    opened: list[str] = []

    def open_store(uri: str) -> ObjectStore:
        opened.append(uri)
        return scene.open(far.store.uri)

    runs = Runs(scene.home, open_store)
    runs.remember("toy-near00", "file:///runs/toy-near00")
    runs.remember("toy-far000", "s3://bucket/toy-far000")
    assert len(list(runs.all(near=True))) == 1
    assert opened == ["file:///runs/toy-near00"]  # no bucket was asked
    assert len(list(runs.all())) == 3


def test_a_run_whose_folder_vanished_is_left_out_and_named_when_asked_for(scene: Scene) -> None:
    gone, there = scene.make("gone"), scene.make("there")
    forget(scene, gone)
    assert [run.record for run in scene.runs.all()] == [there.record]
    with pytest.raises(UsageError) as caught:
        scene.runs.find(gone.record.run_id)
    assert caught.value.message == f"there is no run at {gone.store.uri}: it has no run.json"


def test_a_run_is_known_from_the_moment_its_entry_is_there_whole(scene: Scene) -> None:
    run = scene.make()
    index = scene.home / "index"
    assert [path.name for path in index.iterdir()] == [f"{run.record.run_id}.json"]
    entry = index / f"{run.record.run_id}.json"
    assert json.loads(entry.read_text()) == {"uri": run.store.uri}
    before = entry.stat().st_ino
    scene.runs.remember(run.record.run_id, run.store.uri)
    assert entry.stat().st_ino != before, "replaced whole, never written over in place"


def test_a_store_out_of_reach_hides_no_other_run(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    away, here = scene.make("away"), scene.make("here")

    def open_store(uri: str) -> ObjectStore:
        if uri == away.store.uri:
            raise StorageError("no credentials")
        return scene.open(uri)

    runs = Runs(scene.home, open_store)
    assert [run.record for run in runs.all()] == [here.record]
    assert [entry.message for entry in caplog.records] == [
        f"{away.record.run_id} is left out: no credentials"
    ]
    with pytest.raises(StorageError):
        runs.find(away.record.run_id)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"uri"'])
def test_a_damaged_entry_is_named_with_what_to_do(scene: Scene, text: str) -> None:
    name = scene.make().record.run_id
    entry = scene.home / "index" / f"{name}.json"
    entry.write_text(text)
    with pytest.raises(SetupError) as caught:
        scene.runs.find(name)
    assert caught.value.message.startswith(f"{entry} is damaged: ")
    assert caught.value.hint is not None


def test_a_bucket_that_two_controllers_could_own_at_once_gets_no_run(scene: Scene) -> None:
    """Found out before anything is rented, and nothing stays in the bucket."""

    class Careless(MemoryStore):
        def create(self, key: str, data: bytes) -> None:
            self.put(key, data)

    scene.root = Careless()
    with pytest.raises(StorageError, match="cannot claim: a second conditional write") as caught:
        scene.make()
    assert "use another bucket" in (caught.value.hint or "")
    assert list(scene.root.keys()) == []
    assert not (scene.home / "index").exists()
