"""Reading state and cost from a run's store alone (burst.controller.status)."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from burst.controller.runs import Run
from burst.controller.status import RunStatus, cost_of, read_progress, status_of
from burst.cost.report import to_csv_rows
from burst.storage.lease import Owner
from cli_scene import OWNER, Scene, at


@pytest.fixture
def scene(home: Path) -> Scene:
    return Scene(home)


@pytest.fixture
def run(scene: Scene) -> Run:
    return scene.make()


def lives(_: Owner) -> bool | None:
    return True


def dead(_: Owner) -> bool | None:
    return False


def unknown(_: Owner) -> bool | None:
    return None  # on another machine


def status(scene: Scene, run: Run) -> RunStatus:
    return status_of(run, scene.clock, lives)


def test_a_run_that_nobody_has_touched_is_new(scene: Scene, run: Run) -> None:
    now = status(scene, run)
    assert (now.state, now.live, now.owner, now.owner_pid) == ("new", False, "nobody", None)
    assert (now.step, now.saved_step, now.spent_usd, now.nodes) == (0, 0, Decimal(0), ())


def test_a_run_is_launching_until_a_step_is_done(scene: Scene, run: Run) -> None:
    scene.hold(run)
    scene.write(run, "controller", 0, token=1, owner={})
    node = {"node_id": "n001", "index": 0, "state": "asked", "since_s": 0.0}
    placed = {**node, "place": {"pool": "local", "machine_type": "box", "owned": True}}
    scene.decide(run, 0, {"type": "Active", "nodes": [placed]})
    assert status(scene, run).state == "launching"


def test_a_run_that_is_on(scene: Scene, run: Run) -> None:
    scene.train(run)
    scene.hold(run)
    now = status(scene, run)
    assert (now.state, now.live, now.owner, now.owner_pid) == ("running", True, str(OWNER), 7)
    assert (now.step, now.saved_step) == (4, 4)
    assert now.spent_usd == Decimal("0.06"), "the head is the controller's and costs nothing"
    assert [(n.node_id, n.state, n.ended) for n in now.nodes] == [
        ("n001", "up", None),
        ("n002", "up", None),
    ]
    assert [worker.pid for worker in now.workers] == [99]


def test_an_owner_on_another_machine_is_believed(scene: Scene, run: Run) -> None:
    scene.train(run)
    scene.hold(run)
    assert status_of(run, scene.clock, unknown).state == "running"


def test_a_run_being_stopped(scene: Scene, run: Run) -> None:
    scene.train(run)
    scene.hold(run)
    stopping = {"reason": "stopped", "detail": "asked by ann", "since_s": 58.0}
    scene.decide(run, 58, {"type": "Active", "driving": True, "stopping": stopping})
    assert status(scene, run).state == "stopping"


def test_a_run_whose_controller_is_gone_costs_until_its_last_word(scene: Scene, run: Run) -> None:
    scene.train(run)  # the journal's last entry is of second 8
    scene.hold(run)
    scene.clock.seconds = 7200.0
    now = status_of(run, scene.clock, dead)
    assert (now.state, now.live, now.workers) == ("orphaned", False, ())
    assert now.spent_usd == Decimal("0.008")
    cost = cost_of(run, scene.clock, dead)
    assert (cost.until, cost.total_usd) == (at(8), Decimal("0.008"))


@pytest.mark.parametrize("reason", ["finished", "stopped", "failed", "budget", "deadline", "stuck"])
def test_a_run_that_is_over_stands_as_it_ended(scene: Scene, run: Run, reason: str) -> None:
    scene.train(run)
    state = {"type": "Done", "reason": reason, "detail": "why", "step": 4, "saved_step": 4}
    scene.decide(run, 60, {**state, "preemptions": 2, "restarts": 3})
    now = status(scene, run)
    assert (now.state, now.detail) == (reason, "why")
    assert (now.preemptions, now.restarts) == (2, 3)


def test_ended_nodes_stop_costing(scene: Scene, run: Run) -> None:
    scene.train(run)
    scene.finish(run)
    scene.clock.seconds = 7200.0
    now = status(scene, run)
    assert now.spent_usd == Decimal("0.06")
    assert {(node.state, node.ended) for node in now.nodes} == {("ended", at(60))}


def test_the_cost_is_split_by_what_the_time_was_good_for_and_adds_up(
    scene: Scene, run: Run
) -> None:
    scene.train(run)
    scene.finish(run)
    cost = cost_of(run, scene.clock, lives)
    seconds = {kind: time.total_seconds() for kind, time in cost.time_by_kind.items()}
    assert seconds == {"restart": 10, "useful": 40, "checkpoint": 5, "idle": 5}
    assert cost.total_usd == sum(cost.by_kind.values()) == Decimal("0.06")
    assert cost.usd_per_useful_step == Decimal("0.015")
    assert {row.node_id for row in cost.rows} == {"n002"}
    assert sum(Decimal(row[11]) for row in to_csv_rows(cost)[1:]) == cost.total_usd


def test_steps_done_again_after_a_loss_are_repeated(scene: Scene, run: Run) -> None:
    scene.train(run)
    scene.hold(run)
    record = run.store.get("attempts/0001.json").replace(b'"attempt":1', b'"attempt":2')
    run.store.put("attempts/0002.json", record)
    old = run.store.get("metrics/0001/000002.jsonl").splitlines()[2:4]  # steps 3 and 4
    again = [line.replace(b'"attempt":1', b'"attempt":2') for line in old]
    run.store.put("metrics/0002/000001.jsonl", b"\n".join(again) + b"\n")
    cost = cost_of(run, scene.clock, lives)
    assert (cost.steps_useful, cost.steps_repeated) == (4, 2)
    assert status(scene, run).step == 4


def test_facts_are_read_in_order_and_those_of_a_later_version_are_left_out(
    scene: Scene, run: Run
) -> None:
    scene.train(run)
    scene.tell(run, 3, {"kind": "heat", "time": "2026-01-01T00:00:59.000000Z"})
    progress, workers = read_progress(run)
    assert (progress.step, progress.total, progress.loss, progress.first_loss) == (4, 8, 0.5, 7.0)
    assert (progress.saved_step, progress.saved_bytes) == (4, 2048)
    assert progress.seconds_left == timedelta(seconds=40).total_seconds()
    assert [worker.node_id for worker in workers] == ["n002"]
