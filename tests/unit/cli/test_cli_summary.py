from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from burst.cli.summary import cost_lines, kinds, summary, summary_lines
from burst.cost.report import RunCost
from cli_scene import Scene, at


def cost(**changes: Any) -> RunCost:
    given: dict[str, Any] = {
        "run_id": "toy-aaaaaa",
        "until": at(100),
        "since": None,
        "total_usd": Decimal("12.50"),
        "workers_usd": Decimal("12.50"),
        "by_kind": {"useful": Decimal("10.00"), "restart": Decimal("2.50")},
        "by_node": {},
        "by_pool": {},
        "by_day": {},
        "by_currency": {},
        "time_by_kind": {"useful": timedelta(hours=3), "restart": timedelta(hours=1)},
        "steps_useful": 300,
        "steps_repeated": 12,
        "usd_per_useful_step": Decimal("0.033333"),
        "usd_per_million_tokens": None,
        "on_demand_usd": None,
        "savings": None,
        "shared": (),
        "failed_launches": (),
        "notes": ("nodes still running and costing: 1",),
        "rows": (),
    }
    return RunCost(**{**given, **changes})


def test_the_cost_is_a_table_that_adds_up() -> None:
    assert cost_lines(cost()) == [
        "cost of toy-aaaaaa  node time             usd",
        "useful              3 h 0 min  75.0 %  $10.00",
        "repeated                  0 s   0.0 %   $0.00",
        "restart             1 h 0 min  25.0 %   $2.50",
        "checkpoint                0 s   0.0 %   $0.00",
        "idle                      0 s   0.0 %   $0.00",
        "total               4 h 0 min          $12.50",
        "300 useful steps, 12 repeated; $0.033333 per useful step",
        "note: nodes still running and costing: 1",
    ]


def test_a_run_that_never_ran_has_no_shares_and_no_prices() -> None:
    nothing = cost(
        total_usd=Decimal(0),
        by_kind={},
        time_by_kind={},
        steps_useful=0,
        steps_repeated=0,
        usd_per_useful_step=None,
        notes=(),
    )
    lines = cost_lines(nothing)
    assert "%" not in "".join(lines)
    assert lines[-1] == "0 useful steps, 0 repeated"


def test_the_price_of_tokens_is_told_where_there_are_some() -> None:
    line = cost_lines(cost(usd_per_million_tokens=Decimal("1.5"), notes=()))[-1]
    assert line.endswith("; $0.033333 per useful step; $1.5000 per million tokens")


def test_kinds_are_those_of_the_ledger() -> None:
    assert kinds() == ("useful", "repeated", "restart", "checkpoint", "idle")


@pytest.fixture
def run(scene: Scene) -> Any:
    made = scene.make()
    scene.train(made)
    return made


def test_the_last_words_of_a_finished_run(scene: Scene, run: Any) -> None:
    scene.finish(run)
    name = run.record.run_id
    lines = summary_lines(run, summary(run), ["it wrote: def f():"])
    assert lines[:4] == [
        "it wrote: def f():",
        "",
        f"{name}: finished at step 4, loss 7.000 -> 0.500; 0 lost nodes, 0 restarts",
        f"  checkpoints: memory://here/{name}/checkpoints, newest step 4",
    ]
    assert lines[4].startswith(f"cost of {name}")
    assert not any("go on with" in line for line in lines)


def test_the_last_words_of_a_stopped_run_say_what_is_lost_and_how_to_go_on(
    scene: Scene, run: Any
) -> None:
    state = {"type": "Done", "reason": "stopped", "detail": "asked by ann", "step": 7}
    scene.decide(run, 60, {**state, "saved_step": 4, "preemptions": 1, "restarts": 1})
    name = run.record.run_id
    lines = summary_lines(run, summary(run), [])
    assert lines[1] == f"{name}: stopped at step 7, loss 7.000 -> 0.500; 1 lost node, 1 restart"
    assert lines[2:4] == ["  lost: 3 steps since the last checkpoint", "  because: asked by ann"]
    assert lines[-1] == f"go on with: burst resume {name}"


def test_the_result_for_machines(scene: Scene, run: Any) -> None:
    scene.finish(run)
    found = summary(run)
    assert (found["run"], found["state"], found["step"]) == (run.record.run_id, "finished", 4)
    assert (found["first_loss"], found["loss"]) == (7.0, 0.5)
    assert found["cost"]["total_usd"] == "0.060000"


def test_a_run_that_saved_nothing_names_no_checkpoint(scene: Scene) -> None:
    run = scene.make()
    done = {"step": 0, "saved_step": 0, "preemptions": 0, "restarts": 0, "detail": ""}
    scene.decide(run, 60, {"type": "Done", "reason": "finished", **done})
    assert summary_lines(run, summary(run), [])[2] == "  checkpoints: none was saved"
