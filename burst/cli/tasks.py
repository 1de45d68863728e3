"""Reading task files, planning them, and asking before anything is spent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path

from burst import plan_wiring, wiring
from burst.cli.outcome import keeping
from burst.cli.output import plain, print_json, table
from burst.cli.words import dollars, human_time, plural
from burst.cost.network import island
from burst.cost.offers import Offer, Plan, alike, choice_of, least_nodes
from burst.cost.offers import plan as plan_offers
from burst.errors import NoOfferError, SpecError, UsageError
from burst.task_specs.model import Task
from burst.task_specs.overrides import Overrides
from burst.task_specs.parse import load, parse
from burst.task_specs.schema import json_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line says besides the file; it wins over the file."""

    name: str | None = None
    env: list[str] | None = None
    secret: list[str] | None = None
    num_nodes: int | None = None
    workers: str | None = None
    use_spot: bool | None = None
    budget: str | None = None
    run_uri: str | None = None

    def overrides(self) -> Overrides:
        """In the parser's form, with this process's environment to take values from."""
        return Overrides(
            name=self.name,
            envs=tuple(self.env or ()),
            secrets=tuple(self.secret or ()),
            environ=os.environ,
            num_nodes=self.num_nodes,
            workers=self.workers,
            use_spot=self.use_spot,
            budget_usd=self.budget,
            run_uri=self.run_uri,
        )


def read_task(file: Path | bytes, given: Given, *, source: str | None = None) -> Task:
    """Read a task file, or the bytes of one; SpecError with every problem.

    A file may name no pool that is not set up here, and pools.yaml must be right.
    """
    if isinstance(file, Path):
        return load(file, given.overrides(), wiring.known_pools())
    return parse(file, source=source or "task", overrides=given.overrides())


def user_env(task: Task) -> Mapping[str, str]:
    """Return what the user's code finds in its environment."""
    return {**task.envs, **task.secrets}


def plan_of(task: Task) -> Plan:
    """Return where the task can run; NoOfferError with reasons when nowhere."""
    made = plan_offers(task, plan_wiring.offers(task))
    _require_candidates(task, made)
    return made


def _require_candidates(task: Task, made: Plan) -> None:
    if not made.candidates:
        reasons = "".join(f"\n  {line}" for line in _passed_over(made))
        raise NoOfferError(
            f"nothing here can run {task.name}{reasons}",
            hint="burst doctor shows what this machine and your pools have",
        )


def _passed_over(made: Plan) -> tuple[str, ...]:
    """Say of each place that is none for the task why; a place's machines may share a line."""
    lines = (f"{found.offer.where}: {found.reason}" for found in made.rejected)
    return tuple(dict.fromkeys(lines))


def check_file(file: Path, given: Given, *, as_json: bool) -> None:
    """Print what a valid file says, in short. A pools.yaml that no run could start with counts."""
    try:
        task = read_task(file, given)
    except SpecError as error:
        error.result = {"valid": False, "file": error.source, "problems": error.problems}
        raise
    if as_json:
        print_json({"valid": True, "task": task_json(task), "warnings": list(task.warnings)})
        return
    what = task.burst.train or "its run command"
    sys.stdout.write(f"{file}: ok; {task.name} runs {what} on {plural(task.num_nodes, 'node')}\n")
    _warn(task)


def plan_file(file: Path, given: Given, *, as_json: bool, for_run: bool = False) -> None:
    """Print the plan of a file; nothing is started. `for_run`: refuse what a run would."""
    task = read_task(file, given)
    made = plan_offers(task, plan_wiring.offers(task))
    told = plan_json(task, made) if as_json else {}
    if not as_json:
        show_plan(task, made)
    with keeping(told):
        _require_candidates(task, made)
        if for_run:
            wiring.runs().check(task, plan_wiring.machine(task, made))
    if as_json:
        print_json(told)


def task_json(task: Task) -> dict[str, object]:
    """Return the normalised task; the values of secrets and private variables are left out."""
    found = {f.name: plain(getattr(task, f.name)) for f in fields(task)}
    found["secrets"] = dict.fromkeys(task.secrets)
    found["envs"] = {k: None if k in task.private_envs else v for k, v in task.envs.items()}
    return found


def plan_json(task: Task, made: Plan) -> dict[str, object]:
    """Return task, candidates and the most it can cost."""
    return {
        "task": task_json(task),
        "candidates": plain(made.candidates),
        "rejected": plain(made.rejected),
        "nodes": made.nodes,
        "usd_per_hour": plain(made.usd_per_hour),
        "most_usd": plain(made.most_usd),
        "why": made.why,
        "network": network_lines(made),
        "warnings": list(task.warnings),
    }


def _market(offer: Offer) -> str:
    words = {"own": offer.owned, "spot": offer.spot}
    return " ".join(word for word, holds in words.items() if holds)


def show_plan(task: Task, made: Plan) -> None:
    """Print the candidates, the best marked, and the most that can be spent."""
    rows = [
        [
            "->" if n == 0 else "",
            found.offer.pool,
            found.offer.zone or found.offer.region or "-",
            found.offer.machine_type,
            f"{found.nodes} {_market(found.offer)}",
            f"{found.usd_per_hour:.2f}",
            found.offer.quote.source,
        ]
        for n, found in enumerate(made.candidates)
    ]
    header = ["", "pool", "place", "machine", "nodes", "$/h", "price from"]
    if rows:
        sys.stdout.write(table(header, rows, right="lllllrl") + "\n")
    others = len(made.candidates) - len(alike(made.candidates))
    if others:
        sys.stdout.write(
            f"   {plural(others, 'offer')} left out: this machine and others, or nodes with "
            "different numbers of GPUs, are not mixed in a run\n"
        )
    for line in _passed_over(made):
        sys.stdout.write(f"   {line}\n")
    if rows and made.nodes < task.num_nodes:
        there = f"{made.nodes} of {plural(task.num_nodes, 'node')}"
        sys.stdout.write(f"   there can be {there}; the task needs {least_nodes(task)}\n")
    most = "no limit is set" if made.most_usd is None else f"at most {dollars(made.most_usd)}"
    for said in network_lines(made):
        sys.stdout.write(f"   network: {said}\n")
    result = f"{most} ({made.why})" if made.candidates else made.why
    sys.stdout.write(f"{task.name}: {result}\n")
    _warn(task)


def network_lines(made: Plan) -> list[str]:
    """Say what is known of the network between the best place and others that may be mixed."""
    places = [island(choice_of(found).place) for found in made.candidates]
    first, *others = dict.fromkeys(places) or [""]
    known = {other: wiring.networks().known((first, other)) for other in others}
    now = wiring.clock().now()
    said = [
        f"{first} and {other}: {link}; measured {human_time((now - at).total_seconds())} ago, and "
        "again before nodes of both train together"
        for other, (link, at) in ((o, found) for o, found in known.items() if found is not None)
    ]
    if unknown := [other for other in others if known[other] is None]:
        more = f" and {plural(len(unknown) - 1, 'more island')}" if unknown[1:] else ""
        said.append(
            f"{first} to {unknown[0]}{more}: measured when a node of each is up; only nodes that "
            "reach each other fast enough train together"
        )
    return said


def _warn(task: Task) -> None:
    for warning in task.warnings:
        sys.stderr.write(f"warning: {warning}\n")


def confirm(made: Plan, *, yes: bool) -> None:
    """Ask before money is spent; with nothing to spend there is nothing to ask."""
    if yes or (made.usd_per_hour or Decimal(0)) == 0:
        return
    per_hour = dollars(made.usd_per_hour or Decimal(0))
    most = "with no limit" if made.most_usd is None else f"at most {dollars(made.most_usd)}"
    text = f"this can spend {per_hour} an hour, {most}"
    if not sys.stdin.isatty():
        raise UsageError(text, hint="add --yes to spend it without being asked")
    sys.stderr.write(f"{text}. Continue? [y/N] ")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("nothing was started")


def print_schema() -> None:
    """Print the JSON schema of task files."""
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
