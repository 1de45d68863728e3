"""ls, status, cost, logs, stop and chaos on a run whose journal and facts are written by hand."""

from __future__ import annotations

import csv
import importlib
import io
import json
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from burst import pool_wiring, wiring
from burst.cli.control import _victim
from burst.controller.runs import Run
from burst.controller.status import status_of
from burst.errors import BurstError, LeftoverError, UsageError
from cli_scene import Call, Scene


@pytest.fixture
def on(scene: Scene) -> Run:
    """Return a run that its controller drives."""
    run = scene.make()
    scene.train(run)
    scene.hold(run)
    return run


@pytest.fixture
def over(scene: Scene) -> Run:
    run = scene.make()
    scene.train(run)
    scene.finish(run)
    return run


def test_ls_without_runs(burst: Call, scene: Scene) -> None:
    del scene
    assert burst("ls") == (0, "no runs yet; start one with: burst run FILE\n", "")
    assert burst("ls", "--json") == (0, "[]\n", "")


def test_ls_has_a_line_per_run_newest_first(burst: Call, scene: Scene, on: Run) -> None:
    scene.clock.seconds = 120.0
    other = scene.make("older-by-name-only")
    out = burst("ls").out.splitlines()
    assert out[0].split() == ["run", "state", "step", "loss", "cost", "created"]
    assert out[1].split()[:3] == [other.record.run_id, "new", "0"]
    assert out[2].split() == (
        [on.record.run_id, "running", "4/8", "0.500", "$0.12", "2026-01-01", "00:00Z"]
    )


def test_ls_shows_the_last_ten_that_are_over_unless_asked(burst: Call, scene: Scene) -> None:
    for _ in range(12):
        scene.clock.sleep(1)
        scene.make()
    assert len(burst("ls").out.splitlines()) == 1 + 10
    assert len(burst("ls", "--all").out.splitlines()) == 1 + 12


def test_ls_in_json(burst: Call, on: Run) -> None:
    said = burst("ls", "--json")
    assert (said.code, said.err) == (0, "")
    (found,) = json.loads(said.out)
    assert found["run"] == on.record.run_id
    assert (found["state"], found["step"], found["saved_step"]) == ("running", 4, 4)
    assert (found["spent_usd"], found["loss"], found["total_steps"]) == ("0.060000", 0.5, 8)
    assert found["owner"] == "ann, process 7 on box, started 0"


def test_a_loss_that_is_no_number_is_valid_json_too(burst: Call, scene: Scene) -> None:
    scene.train(scene.make(), loss="nan")

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    (found,) = json.loads(burst("ls", "--json").out, parse_constant=refuse)
    assert found["loss"] == "nan"


def test_status_of_a_run_that_is_on(burst: Call, on: Run) -> None:
    name = on.record.run_id
    said = burst("status", "toy")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        f"{name}  running  (driven by ann, process 7 on box, started 0)\n"
        f"  in        memory://here/{name}\n"
        "  training  step 4 of 8  loss 0.500  10 tokens/s  $0.0600  40 s left\n"
        "  saved     step 4\n"
        "  losses    0 nodes, 0 restarts of the workers\n"
        "node  for      state  place      from      to    price\n"
        "n001  head     up     local box  00:00:00      $0.00/h\n"
        "n002  workers  up     local box  00:00:00      $3.60/h\n"
    )
    found = json.loads(burst("status", name, "--json").out)
    assert [node["state"] for node in found["nodes"]] == ["up", "up"]
    assert found["workers"][0]["pid"] == 99


def test_status_of_a_run_whose_controller_is_gone_says_how_to_go_on(
    burst: Call, on: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "owner_alive", lambda _: False)
    out = burst("status", on.record.run_id).out
    assert f"{on.record.run_id}  orphaned  (no controller drives it)\n" in out
    assert out.endswith(f"go on with: burst resume {on.record.run_id}\n")


@pytest.mark.parametrize("command", ["status", "logs", "stop", "resume", "cost"])
def test_a_run_that_is_not_known(burst: Call, scene: Scene, command: str) -> None:
    del scene
    assert burst(command, "nope") == (
        2,
        "",
        "error: there is no run nope\nhint: see the runs there are: burst ls --all\n",
    )


def test_cost_of_one_run_is_what_its_time_was_good_for(burst: Call, over: Run) -> None:
    said = burst("cost", "toy")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        f"cost of {over.record.run_id}  node time              usd\n"
        "useful                   40 s  66.7 %  $0.0400\n"
        "repeated                  0 s   0.0 %    $0.00\n"
        "restart                  10 s  16.7 %  $0.0100\n"
        "checkpoint                5 s   8.3 %  $0.0050\n"
        "idle                      5 s   8.3 %  $0.0050\n"
        "total               1 min 0 s          $0.0600\n"
        "4 useful steps, 0 repeated; $0.015000 per useful step; $150.0000 per million tokens\n"
    )


def test_cost_of_all_runs_is_a_line_each(burst: Call, over: Run) -> None:
    lines = burst("cost").out.splitlines()
    assert lines[0].split()[:3] == ["run", "cost", "useful"]
    assert lines[1].split() == [
        over.record.run_id, "$0.0600", "$0.0400", "$0.00", "$0.0100", "$0.0050", "$0.0050", "4", "0"
    ]  # fmt: skip


def test_cost_in_json_adds_up(burst: Call, over: Run) -> None:
    said = burst("cost", "--json")
    (found,) = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert found["run_id"] == over.record.run_id
    assert found["total_usd"] == "0.060000"
    assert sum(Decimal(row["usd"]) for row in found["rows"]) == Decimal("0.06")
    assert sum(map(Decimal, found["by_kind"].values())) == Decimal("0.06")


def test_cost_as_csv_has_one_header_however_many_runs(burst: Call, scene: Scene, over: Run) -> None:
    other = scene.make("other")
    scene.train(other)
    scene.finish(other)
    rows = list(csv.DictReader(io.StringIO(burst("cost", "--csv").out)))
    assert {row["run"] for row in rows} == {over.record.run_id, other.record.run_id}
    assert sum(Decimal(row["usd"]) for row in rows) == Decimal("0.12")


def test_cost_as_csv_without_runs_is_the_header(burst: Call, scene: Scene) -> None:
    del scene
    out = burst("cost", "--csv").out
    assert out.startswith("run,node,pool,")
    assert len(out.splitlines()) == 1


def test_logs_are_what_the_workers_wrote_and_all_of_it_on_request(burst: Call, over: Run) -> None:
    over.store.put("logs/n002/ray/000001.log", b"one\ntwo\n")
    line = b"(RayTrainWorker pid=4711, ip=127.0.0.9) hello\ndrove\xff\n"
    over.store.put("logs/n001/driver/000001.log", line)
    assert burst("logs", "toy").out == "worker 4711  hello\n"
    assert burst("logs", "toy", "--all").out == (
        "n001/driver  (RayTrainWorker pid=4711, ip=127.0.0.9) hello\n"
        "n001/driver  drove\ufffd\n"
        "n002/ray  one\n"
        "n002/ray  two\n"
    )
    assert burst("logs", "toy", "--all", "--node", "n002").out.count("\n") == 2
    assert burst("logs", "toy", "--all", "-f").out.count("\n") == 4, "it is over: no more waiting"
    assert burst("logs", "toy", "--node", "nope").code == 2


# Stopping, resuming, disturbing -------------------------------------------------------------------


def test_resume_of_a_finished_run_does_nothing(burst: Call, over: Run) -> None:
    name = over.record.run_id
    said = burst("resume", "toy", "--json")
    assert (said.code, said.err) == (0, f"{name} is finished; there is nothing to resume\n")
    found = json.loads(said.out)
    assert (found["state"], found["cost"]["total_usd"]) == ("finished", "0.060000")


def test_resume_of_a_run_that_is_on_is_refused(burst: Call, on: Run) -> None:
    said = burst("resume", "toy")
    assert said == (
        3,
        "",
        (
            f"error: {on.record.run_id} is on, driven by ann, process 7 on box, started 0\n"
            f"hint: burst logs -f {on.record.run_id}\n"
        ),
    )


def test_stop_now_says_what_is_lost_and_wants_to_be_sure(
    burst: Call, on: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    scene.decide(on, 58, {"type": "Active", "driving": True, "step": 7, "saved_step": 4})
    said = burst("stop", "toy", "--now")
    assert said == (
        2,
        "",
        "error: --now loses 3 steps (step 7, saved 4)\nhint: add --yes if that is meant\n",
    )


def test_stop_asks_the_controller_and_gives_up_waiting_aloud(
    burst: Call, on: Run, scene: Scene
) -> None:
    said = burst("stop", "toy")
    name = on.record.run_id
    assert said == (
        1,
        "",
        (
            f"error: {name} has not stopped within 120 s; it goes on trying\n"
            f"hint: stop without saving: burst stop {name} --now\n"
        ),
    )
    assert json.loads(on.store.get("control/stop.json"))["now"] is False
    assert scene.clock.seconds >= 180


def test_chaos_on_a_run_that_is_over(burst: Call, over: Run) -> None:
    said = burst("chaos", "toy", "--kill", "worker")
    assert (said.code, said.out) == (2, "")
    assert said.err == (f"error: {over.record.run_id} is finished; there is nothing to kill\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--kill", "cat"], "--kill cat: write worker, node or controller"),
        (
            ["--kill", "worker", "--notice", "5s"],
            "--notice goes with --kill node: only machines are given notice",
        ),
        (["--kill", "node", "--notice", "soon"], "--notice soon: "),
    ],
)
def test_chaos_that_cannot_be(burst: Call, on: Run, argv: list[str], message: str) -> None:
    del on
    said = burst("chaos", "toy", *argv)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("worker", {"rank": 0, "pid": 99, "start_time": 1.0, "node_id": "n002"}),
        ("node", {"node_id": "n002"}),
        ("controller", {"pid": 7}),
    ],
)
def test_chaos_kills_one_part_and_says_which(
    burst: Call, on: Run, monkeypatch: pytest.MonkeyPatch, kind: str, part: dict[str, object]
) -> None:
    killed: list[tuple[str, object]] = []
    monkeypatch.setattr(wiring, "kill", lambda _, kind, victim: killed.append((kind, victim)))
    said = burst("chaos", "toy", "--kill", kind, "--json")
    told = json.loads(said.out)
    assert (said.code, killed) == (0, [(kind, part)])
    assert told == {"run": on.record.run_id, "killed": kind, "at_step": 4, **part}
    assert burst("chaos", "toy", "--kill", kind).out.startswith(f"killed the {kind} of ")


def test_a_notice_comes_before_the_kill(
    burst: Call, on: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: list[float] = []
    monkeypatch.setattr(wiring, "kill", lambda *_: at.append(scene.clock.seconds))
    assert burst("chaos", "toy", "--kill", "node", "--notice", "5").code == 0
    assert json.loads(on.store.get("nodes/n002/notice.json"))["left_s"] == 5.0
    assert at == [65.0]


def test_the_head_is_never_the_node_that_dies(scene: Scene, on: Run) -> None:
    now = status_of(on, scene.clock, lambda _: True)
    assert {_victim(now, "node")["node_id"] for _ in range(20)} == {"n002"}


def test_a_run_without_workers_yet_has_none_to_kill(scene: Scene) -> None:
    run = scene.make()
    scene.hold(run)
    now = status_of(run, scene.clock, lambda _: True)
    for kind in ("worker", "node"):
        with pytest.raises(UsageError, match=f"no {kind} "):
            _victim(now, kind)


def test_a_name_of_a_folder_that_is_no_run(burst: Call, tmp_path: Path) -> None:
    said = burst("status", tmp_path)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: there is no run at ")


def test_nodes_of_a_run_and_of_all_that_are_on(burst: Call, on: Run) -> None:
    said = burst("nodes", "toy")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[2] == "n001  head     up     local box  00:00:00      $0.00/h"
    assert burst("nodes").out == said.out
    found = json.loads(burst("nodes", "--json").out)
    assert [node["node_id"] for node in found[on.record.run_id]] == ["n001", "n002"]


def test_without_a_run_that_is_on_there_are_no_nodes(burst: Call, over: Run) -> None:
    del over
    assert burst("nodes").out == "no run is on\n"


def test_a_shell_on_a_node_that_is_a_process_here_is_refused(burst: Call, on: Run) -> None:
    name = on.record.run_id
    said = burst("ssh", "toy")
    assert (said.code, said.out) == (2, "")
    assert said.err == f"error: {name} runs on this machine; its nodes are processes here\n"
    said = burst("ssh", "toy", "n009")
    assert said.err == f"error: {name} has no such node that is up (up: n001, n002)\n"


def test_reaping_lists_and_ends_only_when_told_to(
    burst: Call, on: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    orphans = wiring.Orphans(((on, "i-1 (m6i.large) in us-east-1a"),), ())
    monkeypatch.setattr(wiring, "orphans", lambda: orphans)
    module = importlib.import_module("burst.cli.doctor")
    monkeypatch.setattr(module, "release", lambda run, now: ended.append(run.store.uri))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    said = burst("doctor", "--reap")
    assert (said.code, said.out) == (2, "i-1 (m6i.large) in us-east-1a\n")
    assert ended == []
    said = burst("doctor", "--reap", "--yes", "--json")
    assert json.loads(said.out) == {
        "ended": [{"run": on.record.run_id, "machine": "i-1 (m6i.large) in us-east-1a"}],
        "removed": [],
        "stays": [],
        "unknown": [],
    }
    assert ended == [on.store.uri]
    silent = replace(orphans, unknown=("toy: what lambda has is not known: 503",))
    monkeypatch.setattr(wiring, "orphans", lambda: silent)
    said = burst("doctor", "--reap", "--yes")
    assert (said.code, said.out) == (9, "i-1 (m6i.large) in us-east-1a\n")
    assert said.err == "not known: toy: what lambda has is not known: 503\n"
    assert ended == [on.store.uri] * 2
    monkeypatch.setattr(wiring, "orphans", lambda: replace(silent, found=()))
    said = burst("doctor", "--reap")
    assert (said.code, said.out) == (9, "")
    monkeypatch.setattr(wiring, "orphans", lambda: wiring.Orphans((), ()))
    assert burst("doctor", "--reap").out == "no machine of a run that nobody drives\n"


def test_a_run_that_cannot_be_ended_keeps_no_other_and_is_told(
    burst: Call, on: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(on, record=replace(on.record, run_id="toy-zzzzzz"))
    ended: list[str] = []

    def release(run: Run, *, now: bool) -> None:
        if run is on:
            raise LeftoverError("i-1 is still there")
        ended.append(run.record.run_id)

    found = ((on, "i-1"), (on, "i-2"), (other, "i-3"))
    monkeypatch.setattr(wiring, "orphans", lambda: wiring.Orphans(found, ()))
    monkeypatch.setattr(importlib.import_module("burst.cli.doctor"), "release", release)
    said = burst("doctor", "--reap", "--yes", "--json")
    assert (said.code, ended) == (10, ["toy-zzzzzz"])
    told = json.loads(said.out)
    assert told["ended"] == [{"run": "toy-zzzzzz", "machine": "i-3"}]
    assert told["stays"] == [f"{on.record.run_id}: i-1 is still there"]


class Network:
    """What burst.provision.alibaba.network.Idle is to the command line."""

    def __init__(self, name: str, *, used: bool = False, fault: str = "") -> None:
        self.name, self.used, self.fault, self.asked = name, used, fault, 0

    def __str__(self) -> str:
        return f"network {self.name}"

    def remove(self) -> bool:
        self.asked += 1
        if self.fault:
            raise BurstError(self.fault)
        return not self.used


def test_networks_that_no_machine_uses_are_removed_only_when_told_to(
    burst: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = (Network("vpc-1"), Network("vpc-2", used=True))
    monkeypatch.setattr(pool_wiring, "idle_networks", lambda: there)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    said = burst("doctor", "--reap")
    assert said.out.splitlines()[1:] == [f"{one}: no machine uses it" for one in there]
    assert (said.code, "add --yes" in said.err) == (2, True)
    said = burst("doctor", "--reap", "--yes", "--json")
    told = {"ended": [], "removed": ["network vpc-1"], "stays": [], "unknown": []}
    assert json.loads(said.out) == told


def test_a_network_that_cannot_be_removed_keeps_no_other_and_is_told(
    burst: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = (Network("vpc-1", fault="DependencyViolation"), Network("vpc-2"))
    monkeypatch.setattr(pool_wiring, "idle_networks", lambda: there)
    said = burst("doctor", "--reap", "--yes")
    assert (said.code, there[1].asked) == (10, 1)
    assert said.err == "stays: network vpc-1: DependencyViolation\n"
    said = burst("doctor", "--reap", "--yes", "--json")
    assert said.code == 10
    assert json.loads(said.out)["removed"] == ["network vpc-2"]
    assert json.loads(said.out)["stays"] == ["network vpc-1: DependencyViolation"]
