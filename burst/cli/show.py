"""Showing runs: the list, one run's state, its logs, its cost."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal

from burst import wiring
from burst.cli import words
from burst.cli.output import print_json, table
from burst.cli.summary import cost_lines, kinds
from burst.controller.logs import LogReader, of_worker
from burst.controller.runs import Run
from burst.controller.status import NodeStatus, RunStatus, cost_of, status_of, worker_names
from burst.cost.report import COLUMNS, to_csv_rows, to_json
from burst.errors import UsageError
from burst.records import moment

OTHERS_SHOWN = 10
FOLLOW_S = 0.3


def list_runs(*, all_runs: bool, as_json: bool) -> None:
    """Print a line per run, newest first."""
    found = [_status(run) for run in wiring.runs().all()]
    ended = [status for status in found if not status.live]
    shown = found if all_runs else [s for s in found if s.live or s in ended[:OTHERS_SHOWN]]
    if as_json:
        print_json([_brief(status) for status in shown])
        return
    if not shown:
        sys.stdout.write("no runs yet; start one with: burst run FILE\n")
        return
    lines = [
        [
            status.run_id,
            status.state,
            f"{status.step}" + (f"/{status.progress.total}" if status.progress.total else ""),
            "-" if status.progress.loss is None else f"{status.progress.loss:.3f}",
            words.dollars(status.spent_usd),
            f"{moment(status.created):%Y-%m-%d %H:%M}Z",
        ]
        for status in shown
    ]
    header = ["run", "state", "step", "loss", "cost", "created"]
    sys.stdout.write(table(header, lines, right="llrrrl") + "\n")


def _status(run: Run) -> RunStatus:
    return status_of(run, wiring.clock(), wiring.owner_alive)


def _brief(status: RunStatus) -> dict[str, object]:
    now = status.progress
    return {
        "run": status.run_id,
        "uri": status.uri,
        "state": status.state,
        "live": status.live,
        "owner": status.owner,
        "created": status.created,
        "step": status.step,
        "total_steps": now.total,
        "saved_step": status.saved_step,
        "loss": now.loss,
        "tokens_per_second": now.tokens_per_second if status.live else None,
        "seconds_left": now.seconds_left if status.live else None,
        "preemptions": status.preemptions,
        "restarts": status.restarts,
        "spent_usd": status.spent_usd,
        "detail": status.detail,
    }


def show_status(name: str, *, as_json: bool) -> None:
    """Print where a run stands."""
    status = _status(wiring.runs().find(name))
    if as_json:
        more = {"nodes": status.nodes, "workers": status.workers, "network": status.network}
        print_json({**_brief(status), **more})
        return
    driven = f"driven by {status.owner}" if status.live else "no controller drives it"
    nodes = words.plural(status.preemptions, "node")
    restarts = words.plural(status.restarts, "restart")
    saved = f"step {status.saved_step}" if status.saved_step else "nothing yet"
    lines = [
        f"{status.run_id}  {status.state}  ({driven})",
        f"  in        {status.uri}",
        f"  training  {words.progress(status.progress, status.spent_usd, None)}",
        f"  saved     {saved}",
        f"  losses    {nodes}, {restarts} of the workers",
    ]
    lines += [f"  network   {' and '.join(b.islands)}: {words.network(b)}" for b in status.network]
    if status.detail:
        lines.append(f"  because   {words.first_line(status.detail)}")
    sys.stdout.write("\n".join(lines) + "\n")
    if status.nodes:
        sys.stdout.write(_node_table(status.nodes) + "\n")
    if status.state == "orphaned":
        sys.stdout.write(f"go on with: burst resume {status.run_id}\n")


def _node_table(nodes: Iterable[NodeStatus]) -> str:
    rows = [
        [
            node.node_id,
            "head" if node.head or (node.index == 0 and node.place.pool == "local") else "workers",
            node.state,
            str(node.place),
            f"{node.launched:%H:%M:%S}",
            f"{node.ended:%H:%M:%S}" if node.ended else "",
            f"{words.dollars(node.usd_per_hour)}/h",
        ]
        for node in nodes
    ]
    header = ["node", "for", "state", "place", "from", "to", "price"]
    return table(header, rows, right="llllllr")


def show_nodes(name: str | None, *, as_json: bool) -> None:
    """Print the nodes of a run, or those that are there of all runs that are on."""
    if name is not None:
        found = {(status := _status(wiring.runs().find(name))).run_id: status.nodes}
    else:
        on = [status for run in wiring.runs().all() if (status := _status(run)).live]
        found = {status.run_id: tuple(n for n in status.nodes if n.ended is None) for status in on}
    if as_json:
        print_json(found)
        return
    for run_id, nodes in found.items():
        sys.stdout.write(f"{run_id}\n{_node_table(nodes)}\n")
    if not found:
        sys.stdout.write("no run is on\n")


def show_logs(name: str, *, follow: bool, node: str | None, everything: bool) -> None:
    """Print what the workers wrote, or all logs of all nodes; with --follow as it comes."""
    run = wiring.runs().find(name)
    if node is not None and node not in {n.node_id for n in _status(run).nodes}:
        name = run.record.run_id
        raise UsageError(f"{name} has no node {node}", hint=f"see the nodes: burst nodes {name}")
    reader = LogReader(run.store, node if everything else None)
    clock = wiring.clock()
    while True:
        live = follow and _status(run).live
        names = {} if everything else worker_names(run)
        _write(reader.new(), None if everything else names, node)
        if not live:
            _write(reader.rest(), None if everything else names, node)
            return
        clock.sleep(FOLLOW_S)


def _write(
    lines: Iterable[tuple[str, str]], workers: Mapping[int, str] | None, node: str | None
) -> None:
    """Print lines with their source; with `workers`, only theirs."""
    for source, line in lines:
        told = (source, line) if workers is None else of_worker(line, workers)
        if told is not None and (node is None or told[0].startswith(node)):
            sys.stdout.write(f"{told[0]}  {told[1]}\n")
    sys.stdout.flush()


def show_cost(names: list[str], *, as_json: bool, as_csv: bool) -> None:
    """Print what runs cost, split by what the time was good for."""
    runs = wiring.runs()
    chosen = [runs.find(name) for name in names] if names else list(runs.all())
    costs = [cost_of(run, wiring.clock(), wiring.owner_alive) for run in chosen]
    if as_json:
        print_json([to_json(cost) for cost in costs])
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(COLUMNS)
        writer.writerows(line for cost in costs for line in to_csv_rows(cost)[1:])
    elif len(costs) == 1 and names:
        sys.stdout.write("\n".join(cost_lines(costs[0])) + "\n")
    else:
        header = ["run", "cost", *kinds(), "useful steps", "repeated"]
        rows = [
            [
                cost.run_id,
                words.dollars(cost.total_usd),
                *[words.dollars(cost.by_kind.get(kind, Decimal(0))) for kind in kinds()],
                str(cost.steps_useful),
                str(cost.steps_repeated),
            ]
            for cost in costs
        ]
        sys.stdout.write(table(header, rows, right="l" + "r" * 8) + "\n")
