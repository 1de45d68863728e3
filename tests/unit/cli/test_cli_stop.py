"""Stopping and resuming runs whose controller is gone, on this machine or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from burst import wiring
from burst.controller.loop import Controller
from burst.controller.runs import Run
from burst.errors import OwnedError
from burst.records import STOP_REQUEST, encode
from burst.storage.lease import Lease
from cli_scene import Call, Scene


@pytest.fixture
def lease(scene: Scene) -> Lease:
    """Return the lease of a run that was on, whose controller does nothing any more."""
    run = scene.make()
    scene.train(run)
    return scene.hold(run)


@pytest.fixture
def run(scene: Scene, lease: Lease) -> Run:
    del lease
    return scene.runs.find("toy")


def test_a_local_run_whose_controller_was_killed_is_stopped(
    burst: Call, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "owner_alive", lambda _: False)
    said = burst("stop", "toy")
    assert said.code == 0, said.err
    assert said.out == f"{run.record.run_id}: stopped; step 4 is saved\n"
    assert '"state": "ended"' in burst("status", "toy", "--json").out


@pytest.mark.parametrize("reason", ["finished", "failed"])
def test_a_stop_changes_nothing_of_how_a_run_ended(
    burst: Call, run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Its controller died before its nodes were gone."""
    monkeypatch.setattr(wiring, "owner_alive", lambda _: False)
    scene.decide(run, 60, {"type": "Done", "reason": reason, "step": 4, "saved_step": 4})
    assert burst("stop", "toy").out == f"{run.record.run_id}: {reason}; step 4 is saved\n"


def test_a_dead_controller_elsewhere_is_known_by_its_lease_that_stands_still(
    burst: Call, run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "owner_alive", lambda _: None)
    said = burst("stop", "toy")
    assert "waiting for a sign of life of ann, process 7 on box" in said.err
    assert said.out == f"{run.record.run_id}: stopped; step 4 is saved\n"
    assert scene.clock.seconds < 60 + wiring.WATCH_S + 1


def test_a_living_controller_elsewhere_keeps_its_run(
    run: Run, scene: Scene, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "owner_alive", lambda _: None)
    sleep = scene.clock.sleep

    def live(seconds: float) -> None:
        sleep(seconds)
        if scene.clock.seconds % 5 == 0:
            lease.renew()

    monkeypatch.setattr(scene.clock, "sleep", live)
    assert not wiring.forsaken(run)
    monkeypatch.setattr(scene.clock, "sleep", sleep)
    assert wiring.forsaken(run)


def test_a_resume_takes_a_stop_back_only_once_the_run_is_its_own(
    burst: Call, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "owner_alive", lambda _: False)
    run.store.put(STOP_REQUEST, encode({"who": "ann", "now": False}))

    def owned(*_: object, **__: object) -> Controller:
        raise OwnedError("another was faster")

    monkeypatch.setattr(wiring, "controller", owned)
    assert burst("resume", "toy").code == 3
    assert run.store.get(STOP_REQUEST)
    told: list[list[str]] = []

    def background(argv: list[str], env: Mapping[str, str], log: object) -> int:
        del env, log
        told.append(argv)
        return 7

    monkeypatch.setattr(wiring, "detach", background)
    assert burst("resume", "toy", "--detach").code == 0
    assert run.store.get(STOP_REQUEST)
    assert told == [["control", run.store.uri, "--resumed"]]


@pytest.mark.parametrize("command", [("resume",), ("control", "--resumed")])
def test_a_run_that_is_resumed_heeds_no_earlier_stop(
    burst: Call, run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(wiring, "owner_alive", lambda _: False)
    run.store.put(STOP_REQUEST, encode({"who": "ann", "now": False}))

    def drive(controller: Controller) -> None:
        raise OwnedError(f"driven: {controller._tools.lease.token}")

    monkeypatch.setattr(Controller, "run", drive)
    said = burst(command[0], run.record.run_id, *command[1:])
    assert (said.code, "driven: 2" in said.err) == (3, True)
    with pytest.raises(FileNotFoundError):
        run.store.get(STOP_REQUEST)
