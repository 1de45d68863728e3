"""The end of a run: what was trained, what it cost, and what the time was good for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, get_args

from burst import wiring
from burst.cli import words
from burst.cli.output import table
from burst.controller.runs import Run
from burst.controller.status import cost_of, status_of
from burst.cost.report import RunCost, to_json
from burst.cost.timeline import Kind


def kinds() -> tuple[str, ...]:
    """Return what a run's time is split into, in the order it is shown."""
    return get_args(Kind)


def summary(run: Run) -> dict[str, Any]:
    """Return how a run stands and what it cost, for --json."""
    status = status_of(run, wiring.clock(), wiring.owner_alive)
    now = status.progress
    return {
        "run": status.run_id,
        "uri": status.uri,
        "state": status.state,
        "detail": status.detail,
        "step": status.step,
        "total_steps": now.total,
        "saved_step": status.saved_step,
        "loss": now.loss,
        "first_loss": now.first_loss,
        "preemptions": status.preemptions,
        "restarts": status.restarts,
        "notes": list(now.notes),
        "cost": to_json(cost_of(run, wiring.clock(), wiring.owner_alive)),
    }


def summary_lines(run: Run, result: dict[str, Any], notes: Sequence[str]) -> list[str]:
    """Return the last words of a run, for people."""
    name = run.record.run_id
    lines = [*notes, ""]
    learned = ""
    if result["loss"] is not None and result["first_loss"] is not None:
        learned = f", loss {result['first_loss']:.3f} -> {result['loss']:.3f}"
    nodes = words.plural(result["preemptions"], "lost node")
    again = words.plural(result["restarts"], "restart")
    lines.append(f"{name}: {result['state']} at step {result['step']}{learned}; {nodes}, {again}")
    lost = result["step"] - result["saved_step"]
    if lost > 0:
        lines.append(f"  lost: {words.plural(lost, 'step')} since the last checkpoint")
    if result["detail"] and result["state"] != "finished":
        lines.append(f"  because: {words.first_line(result['detail'])}")
    saved = result["saved_step"]
    where = f"{run.store.uri}/checkpoints, newest step {saved}" if saved else "none was saved"
    lines.append(f"  checkpoints: {where}")
    lines += cost_lines(cost_of(run, wiring.clock(), wiring.owner_alive))
    if result["state"] != "finished":
        lines.append(f"go on with: burst resume {name}")
    return lines


def cost_lines(cost: RunCost) -> list[str]:
    """Return a run's cost as a table of what the time was good for."""
    seconds = cost.time_by_kind
    whole = sum(seconds.values(), timedelta())
    rows = [
        [
            kind,
            words.human_time(seconds.get(kind, timedelta()).total_seconds()),
            _share(seconds.get(kind, timedelta()), whole),
            words.dollars(cost.by_kind.get(kind, Decimal(0))),
        ]
        for kind in kinds()
    ]
    rows.append(
        ["total", words.human_time(whole.total_seconds()), "", words.dollars(cost.total_usd)]
    )
    lines = table([f"cost of {cost.run_id}", "node time", "", "usd"], rows, right="lrrr").split(
        "\n"
    )
    lines.append(f"{cost.steps_useful} useful steps, {cost.steps_repeated} repeated" + _rates(cost))
    lines += [f"note: {note}" for note in cost.notes]
    return lines


def _share(part: timedelta, whole: timedelta) -> str:
    return f"{100 * (part / whole):.1f} %" if whole else ""


def _rates(cost: RunCost) -> str:
    text = ""
    if cost.usd_per_useful_step:
        text += f"; ${cost.usd_per_useful_step:.6f} per useful step"
    if cost.usd_per_million_tokens:
        text += f"; ${cost.usd_per_million_tokens:.4f} per million tokens"
    return text
