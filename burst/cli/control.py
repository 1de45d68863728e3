"""Starting, resuming, stopping and disturbing runs."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from burst import plan_wiring, wiring
from burst.cli import words
from burst.cli.output import print_json
from burst.cli.summary import summary, summary_lines
from burst.cli.tasks import Given, confirm, plan_of, read_task, show_plan, user_env
from burst.cli.watch import LineWatcher, watcher
from burst.controller.loop import Controller
from burst.controller.runs import Run
from burst.controller.status import RunStatus, status_of
from burst.cost.state import Done
from burst.errors import BurstError, OwnedError, SpecError, UsageError
from burst.records import STOP_REQUEST, TASK, encode
from burst.task_specs.dump import dump
from burst.task_specs.model import Task
from burst.task_specs.units import duration_s

STOP_WAIT_S = 120.0
EXIT_BY_REASON = {"finished": 0, "stopped": 0, "budget": 5, "deadline": 5, "stuck": 4}
POLL_S = 0.3


def start(file: Path, given: Given, *, detach: bool, yes: bool, as_json: bool) -> int:
    """Plan, ask if it can cost anything, then make the run and drive it."""
    task = read_task(file, given)
    plan = plan_of(task)
    if not as_json:
        show_plan(task, plan)
    confirm(plan, yes=yes)
    env = user_env(task)
    wiring.make_home()
    run = wiring.runs().create(
        task, plan_wiring.machine(task, plan), text=dump(task), now=wiring.clock().now()
    )
    return _drive(run, env, detach=detach, as_json=as_json, resumed=False)


def go_on(name: str, given: Given, *, detach: bool, yes: bool, as_json: bool) -> int:
    """Take over a run that nobody drives and go on from its last checkpoint."""
    run = wiring.runs().find(name)
    wiring.make_home()
    wiring.runs().remember(run.record.run_id, run.store.uri)
    now = status_of(run, wiring.clock(), wiring.owner_alive)
    wait_s = 0.0 if wiring.owner_known(run) else wiring.WATCH_S
    if now.state == "finished":
        sys.stderr.write(f"{run.record.run_id} is finished; there is nothing to resume\n")
        if as_json:
            print_json(summary(run))
        return 0
    if now.live and not wait_s:
        name = run.record.run_id
        raise OwnedError(f"{name} is on, driven by {now.owner}", hint=f"burst logs -f {name}")
    if wait_s:
        sys.stderr.write(f"waiting for a sign of life of {now.owner}, {wait_s:.0f} s at most\n")
    task = _task_again(run, given)
    confirm(plan_of(task), yes=yes)
    env = user_env(task)
    return _drive(run, env, detach=detach, as_json=as_json, resumed=True, wait_s=wait_s)


def _task_again(run: Run, given: Given) -> Task:
    """Read the run's own copy of its task; private values are not in it and have to be given."""
    try:
        return read_task(run.store.get(TASK), given, source=f"{run.store.uri}/{TASK}")
    except SpecError as error:
        missing = [p.field.partition(".") for p in error.problems]
        if any(block not in {"envs", "secrets"} for block, _, _ in missing):
            raise
        options = [f"--{block.removesuffix('s')} {name}" for block, _, name in missing]
        raise UsageError(
            f"{run.record.run_id} needs {', '.join(name for _, _, name in missing)} again: "
            "their values are written down nowhere",
            hint=f"with them set in this shell: burst resume {run.record.run_id} "
            + " ".join(options),
        ) from None


def serve(name: str, *, resumed: bool) -> int:
    """Drive a run in the background; the user's variables come in by the environment."""
    run = wiring.runs().find(name)
    env = json.loads(os.environ.pop("BURST_USER_ENV", "{}"))
    wait_s = 0.0 if wiring.owner_known(run) else wiring.WATCH_S
    return _foreground(run, env, as_json=False, resumed=resumed, who="burst control", wait_s=wait_s)


def _drive(
    run: Run,
    env: Mapping[str, str],
    *,
    detach: bool,
    as_json: bool,
    resumed: bool,
    wait_s: float = 0.0,
) -> int:
    if not detach:
        return _foreground(run, env, as_json=as_json, resumed=resumed, who="you", wait_s=wait_s)
    name = run.record.run_id
    log = wiring.home() / "controllers" / f"{name}.log"
    argv = ["control", run.store.uri, *(["--resumed"] if resumed else [])]
    pid = wiring.detach(argv, {"BURST_USER_ENV": json.dumps(dict(env))}, log)
    if as_json:
        print_json({"run": name, "uri": run.store.uri, "pid": pid, "log": str(log)})
    else:
        sys.stdout.write(f"{name} goes on in the background (pid {pid})\n")
        sys.stdout.write(f"  burst logs -f {name}\n  burst status {name}\n  burst stop {name}\n")
    return 0


def _foreground(
    run: Run,
    env: Mapping[str, str],
    *,
    as_json: bool,
    resumed: bool,
    who: str,
    wait_s: float = 0.0,
) -> int:
    budget = run.record.budget_usd
    view = watcher(
        json_only=as_json, budget_usd=None if budget is None else Decimal(budget), past=resumed
    )
    try:
        controller = wiring.controller(run, view, env, wait_s=wait_s)
        if resumed:  # the run is ours: whoever resumes means it to go on
            run.store.delete([STOP_REQUEST])
        view.say(f"{run.record.run_id}  everything of this run is in {run.store.uri}")
        wiring.on_interrupt(controller, who)
        done = controller.run()
    finally:
        view.close()
    return _finish(run, controller, done, view, as_json=as_json)


def _finish(
    run: Run, controller: Controller, done: Done, view: LineWatcher, *, as_json: bool
) -> int:
    """Release the lease, say how it ended and what it cost; return the exit code."""
    controller.close()
    result = summary(run)
    if as_json:
        print_json(result)
    else:
        for text in summary_lines(run, result, view.progress.notes):
            view.say(text)
    if done.reason == "failed":
        sys.stderr.write(f"error: {done.detail}\n")
        return exit_code_of(controller.error_type)
    if done.detail.endswith("(ctrl-c)"):
        return 130
    return EXIT_BY_REASON[done.reason]


def exit_code_of(error_type: str) -> int:
    """Return the exit code of the class of burst.errors with this name."""
    import burst.errors

    kind = getattr(burst.errors, error_type, BurstError)
    return int(kind.exit_code)


def stop_run(name: str, *, now: bool, yes: bool, as_json: bool) -> int:
    """Ask the run's controller to save and stop, and wait; without one, clear away what is left."""
    run = wiring.runs().find(name)
    before = _status(run)
    if now and not yes:
        _confirm_loss(before)
    request = {"who": f"burst stop (pid {os.getpid()})", "now": now}
    if before.live or before.state == "new":
        run.store.put(STOP_REQUEST, encode(request))
    if before.live and _forsaken(run, before):
        before = _status(run)
    if before.live:
        after = _wait_until_off(run)
    elif before.state == "new":
        sys.stderr.write("no controller drives it yet; it will stop once one does\n")
        after = before
    elif before.state == "orphaned" or not all(node.ended for node in before.nodes):
        release(run, now=now)
        after = _status(run)
    else:
        for found in wiring.provisioner(run).sweep(run.record.run_id):
            sys.stderr.write(f"ended: {found}\n")
        after = _status(run)
    if as_json:
        print_json(summary(run))
    else:
        saved = f"step {after.saved_step} is saved" if after.saved_step else "nothing was saved yet"
        sys.stdout.write(f"{after.run_id}: {after.state}; {saved}\n")
    return 0


def _forsaken(run: Run, now: RunStatus) -> bool:
    """Whether the controller of a run that may live, on another machine, is gone."""
    if wiring.owner_known(run):
        return False
    sys.stderr.write(f"waiting for a sign of life of {now.owner}, {wiring.WATCH_S:.0f} s at most\n")
    return wiring.forsaken(run)


def release(run: Run, *, now: bool) -> None:
    """Be the controller of a run that nobody drives for as long as it takes to end it."""
    view = LineWatcher(sys.stderr, budget_usd=None, past=True)
    controller = wiring.controller(run, view, {})
    controller.ask_stop("you, while no controller drove it", now=now)
    controller.run()
    controller.close()


def _confirm_loss(now: RunStatus) -> None:
    lost = now.step - now.saved_step
    text = f"--now loses {words.plural(lost, 'step')} (step {now.step}, saved {now.saved_step})"
    if not sys.stdin.isatty():
        raise UsageError(text, hint="add --yes if that is meant")
    sys.stderr.write(f"{text}. Stop now? [y/N] ")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("not stopped")


def _wait_until_off(run: Run) -> RunStatus:
    clock = wiring.clock()
    began = clock.monotonic()
    while clock.monotonic() - began < STOP_WAIT_S:
        now = _status(run)
        if not now.live:
            return now
        clock.sleep(POLL_S)
    raise BurstError(
        f"{run.record.run_id} has not stopped within {STOP_WAIT_S:.0f} s; it goes on trying",
        hint=f"stop without saving: burst stop {run.record.run_id} --now",
    )


def _status(run: Run) -> RunStatus:
    return status_of(run, wiring.clock(), wiring.owner_alive)


def shell(name: str, node_id: str | None) -> None:
    """Become an ssh on a node of a run; on its head if no node is named."""
    run = wiring.runs().find(name)
    there = {node.node_id: node for node in _status(run).nodes if node.state in {"ready", "up"}}
    chosen = node_id or next((n for n, node in there.items() if node.head), None)
    if chosen not in there:
        names = ", ".join(there) or "none"
        raise UsageError(f"{run.record.run_id} has no such node that is up (up: {names})")
    argv = wiring.ssh_argv(run, chosen)
    os.execvp(argv[0], argv)  # noqa: S606 - that is what it is for


def chaos_run(name: str, *, kill: str, notice: str | None, as_json: bool) -> int:
    """Kill one part of a run by SIGKILL, after a notice if one is asked for."""
    run = wiring.runs().find(name)
    now = _status(run)
    if kill not in {"worker", "node", "controller"}:
        raise UsageError(f"--kill {kill}: write worker, node or controller")
    if not now.live:
        raise UsageError(f"{run.record.run_id} is {now.state}; there is nothing to kill")
    warned_s = None if notice is None else _notice_s(notice)
    victim = _victim(now, kill)
    if warned_s is not None:
        if kill != "node":
            raise UsageError("--notice goes with --kill node: only machines are given notice")
        wiring.give_notice(run, victim["node_id"], warned_s)
        wiring.clock().sleep(warned_s)
    wiring.kill(run, kill, victim)
    told = {"run": run.record.run_id, "killed": kill, "at_step": _status(run).step, **victim}
    if as_json:
        print_json(told)
    else:
        what = "  ".join(f"{key} {value}" for key, value in victim.items())
        sys.stdout.write(f"killed the {kill} of {run.record.run_id}: {what}\n")
        if kill == "controller":
            sys.stdout.write(f"go on with: burst resume {run.record.run_id}\n")
    return 0


def _notice_s(text: str) -> float:
    try:
        return duration_s(text, default="s")
    except ValueError as error:
        raise UsageError(f"--notice {text}: {error}") from None


def _victim(now: RunStatus, kill: str) -> dict[str, Any]:
    """Choose what dies: any worker, any node but the head, or the controller."""
    chance = random.SystemRandom()
    if kill == "controller":
        return {"pid": now.owner_pid}
    if kill == "node":
        nodes = [n for n in now.nodes if not n.head and n.index > 0 and n.state in {"ready", "up"}]
        if not nodes:
            raise UsageError("no node is up yet; try again in a few seconds")
        return {"node_id": chance.choice(nodes).node_id}
    if not now.workers:
        raise UsageError("no worker has started yet; try again in a few seconds")
    worker = chance.choice(now.workers)
    return {
        "rank": worker.rank,
        "pid": worker.pid,
        "start_time": worker.start_time,
        "node_id": worker.node_id,
    }
