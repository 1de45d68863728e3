"""Task files from the command line: check, plan, dry runs, and the question before spending."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from burst import plan_wiring, wiring
from burst.cli.tasks import Given, confirm, read_task, user_env
from burst.controller.loop import Controller
from burst.controller.runs import Run
from burst.cost.network import Bridge, Link
from burst.cost.offers import Offer, Plan
from burst.errors import OwnedError, UsageError
from burst.records import TASK
from burst.task_specs.model import Task
from burst.task_specs.parse import parse
from cli_scene import Call, Scene

SECRET = "tok-SECRET-123"  # noqa: S105
SIMPLE = "name: simple\nrun: python train.py\n"
DEAR = "name: dear\nnum_nodes: 2\nrun: python train.py\nburst: {budget_usd: 20, deadline: 2h}\n"
PRIVATE = """\
name: private
envs: {HF_TOKEN: null, PLAIN: "seen", WHO: null}
secrets: {API: null}
run: python train.py
"""
GIVEN = ["--env", f"HF_TOKEN={SECRET}", "--env", "WHO", "--secret", f"API={SECRET}"]
IMPOSSIBLE = "name: big\nresources: {accelerators: H100:8, infra: aws}\nrun: python train.py\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "task.yaml"


def test_check_says_what_a_valid_file_does(burst: Call, file: Path) -> None:
    file.write_text(SIMPLE)
    said = burst("check", file)
    assert said == (0, f"{file}: ok; simple runs its run command on 1 node\n", "")


def test_check_names_the_function_and_warns_on_stderr(burst: Call, file: Path) -> None:
    (file.parent / "train.py").write_text("def main(): pass\n")
    file.write_text("name: two\nnum_nodes: 2\nburst: {train: train.py:main, micro_batch: 2}\n")
    said = burst("check", file)
    assert (said.code, said.out) == (0, f"{file}: ok; two runs train.py:main on 2 nodes\n")
    assert all(line.startswith("warning: ") for line in said.err.splitlines())


def test_misspelt_fields_are_told_with_line_path_and_the_nearest_name(
    burst: Call, file: Path
) -> None:
    """C11."""
    file.write_text("name: typo\nnum_workers: 2\nresources:\n  accelerator: T4:1\nrun: x\n")
    assert burst("check", file) == (
        2,
        "",
        (
            f"error: {file} has 2 problems\n"
            "  line 2: num_workers: unknown field; did you mean num_nodes?\n"
            "  line 4: resources.accelerator: unknown field; did you mean accelerators?\n"
            "hint: burst schema prints every field; examples/ has complete task files\n"
        ),
    )


def test_a_key_written_twice_is_told_with_both_lines(burst: Call, file: Path) -> None:
    """C16."""
    file.write_text("name: twice\nenvs: {A: x}\nrun: x\nenvs: {A: y}\n")
    said = burst("run", file)
    assert (said.code, said.out) == (2, "")
    assert "  line 4: envs: `envs` on line 4 repeats line 2; keep one of them\n" in said.err


def test_a_file_of_another_tool_is_called_that(burst: Call, file: Path) -> None:
    """C20."""
    file.write_text("type: task\nname: t\nnodes: 2\ncommands: [python train.py]\n")
    said = burst("plan", file)
    assert (said.code, said.out) == (2, "")
    assert "looks like a dstack task" in said.err


@pytest.mark.parametrize("command", ["check", "plan", "run"])
def test_a_file_that_is_not_there(burst: Call, file: Path, command: str) -> None:
    said = burst(command, file)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(
        f"error: {file} has 1 problem\n  cannot be read: no such file or directory\n"
    )


@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run"]])
def test_the_plan_shows_where_at_what_price_and_the_most_it_can_cost(
    burst: Call, file: Path, command: list[str]
) -> None:
    file.write_text(DEAR)
    assert burst(*command, file) == (
        0,
        (
            "    pool   place  machine  nodes   $/h  price from\n"
            "->  local  -      box      2 own  3.60  test\n"
            "dear: at most $7.20 (the deadline of 2 h at up to 3.60 USD per hour)\n"
        ),
        "",
    )


def test_the_plan_says_what_is_known_of_the_network_between_islands(
    burst: Call, file: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    pools = [("ssh/lab", ""), ("aws", "eu-west-1"), ("aws", "us-east-1"), ("lambda", "us-west-1")]
    (mine,) = plan_wiring.offers(parse(b"name: x\nrun: x\n", source="x"))
    found = [replace(mine, pool=pool, region=region) for pool, region in pools]
    monkeypatch.setattr(plan_wiring, "offers", lambda _: found)
    pair = ("aws/us-east-1", "ssh/lab")
    link = Link(round_trip_s=0.012, bytes_per_s=1e7)
    now = wiring.clock().now()
    wiring.networks().note(Bridge(islands=pair, link=link), now - timedelta(hours=3, minutes=1))
    assert (home / "networks").is_dir()
    file.write_text("name: x\nrun: x\n")
    known, unknown = json.loads(burst("plan", file, "--json").out)["network"]
    assert known == (
        "ssh/lab and aws/us-east-1: 12 ms, 80 Mbit/s; measured 3 h 1 min ago, and again before "
        "nodes of both train together"
    )
    assert unknown == (
        "ssh/lab to aws/eu-west-1 and 1 more island: measured when a node of each is up; only "
        "nodes that reach each other fast enough train together"
    )
    assert f"   network: {known}\n   network: {unknown}\n" in burst("plan", file).out


def test_a_free_machine_costs_nothing_and_says_so(burst: Call, file: Path) -> None:
    file.write_text(SIMPLE)
    said = burst("plan", file)
    assert said.out.splitlines()[-1] == (
        "simple: at most $0.00 (the machines cost nothing per hour)"
    )


def test_without_a_limit_the_plan_says_how_to_set_one(burst: Call, file: Path) -> None:
    file.write_text("name: dear\nrun: x\n")
    said = burst("plan", file)
    assert said.out.splitlines()[-1] == (
        "dear: no limit is set (give burst.budget_usd or burst.deadline)"
    )


def test_a_plan_that_nothing_fits_speaks_of_no_limit(burst: Call, file: Path) -> None:
    file.write_text(IMPOSSIBLE)
    assert burst("plan", file).out.splitlines()[-1] == "big: nothing fits"


@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run"], ["run", "--yes"]])
def test_what_nothing_here_can_run_ends_with_4_and_the_reason(
    burst: Call, file: Path, command: list[str]
) -> None:
    file.write_text(IMPOSSIBLE)
    said = burst(*command, file)
    assert said.code == 4
    assert said.err == (
        "error: nothing here can run big\n"
        "  local: not asked, the task names infra aws\n"
        "hint: burst doctor shows what this machine and your pools have\n"
    )


def test_a_plan_says_of_each_place_it_passes_over_why(burst: Call, file: Path) -> None:
    file.write_text(IMPOSSIBLE)
    said = burst("plan", file)
    assert said.out.startswith("   local: not asked, the task names infra aws\nbig: ")


@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run"]])
def test_with_json_too_what_nothing_can_run_ends_with_4(
    burst: Call, file: Path, command: list[str]
) -> None:
    file.write_text(IMPOSSIBLE)
    said = burst(*command, file, "--json")
    assert said.code == 4
    found = json.loads(said.out)
    assert found["candidates"] == []
    assert found["rejected"][0]["reason"] == "not asked, the task names infra aws"
    assert found["error"]["message"].startswith("nothing here can run big\n")
    assert found["error"]["exit_code"] == 4
    assert said.err.startswith("error: nothing here can run big\n")


@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run"]])
def test_a_plan_in_json_is_that_and_nothing_else(
    burst: Call, file: Path, command: list[str]
) -> None:
    file.write_text(DEAR)
    said = burst(*command, file, "--json")
    found = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert (found["usd_per_hour"], found["most_usd"]) == ("3.60", "7.200000")
    assert found["candidates"][0]["offer"]["pool"] == "local"
    assert found["task"]["num_nodes"] == 2


def test_a_check_in_json_is_that_and_nothing_else(burst: Call, file: Path) -> None:
    file.write_text(SIMPLE)
    said = burst("check", file, "--json")
    found = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert (found["valid"], found["warnings"]) == (True, [])
    assert found["task"]["name"] == "simple"


def test_a_check_in_json_has_the_problems_of_a_bad_file(burst: Call, file: Path) -> None:
    file.write_text("name: typo\nnum_workers: 2\nrun: x\n")
    said = burst("check", file, "--json")
    message = "unknown field; did you mean num_nodes?"
    problem = {"field": "num_workers", "message": message, "line": 2, "written": None}
    error = {
        "exit_code": 2,
        "message": f"{file} has 1 problem",
        "hint": "burst schema prints every field; examples/ has complete task files",
        "file": str(file),
        "problems": [problem],
    }
    told = {"valid": False, "file": str(file), "problems": [problem], "error": error}
    assert json.loads(said.out) == told
    assert (said.code, said.err) == (2, burst("check", file).err)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("", 2),
        ("setup: git clone somewhere", 0),
        ("workdir: {url: https://example.com/a.git}", 0),
        ("file_mounts: {/src: s3://bucket/src}", 0),
    ],
)
def test_a_file_of_the_function_must_be_there_unless_it_may_come_later(
    burst: Call, file: Path, more: str, code: int
) -> None:
    file.write_text(f"name: late\n{more}\nburst: {{train: train.py:main}}\n")
    said = burst("check", file)
    path = file.parent / "train.py"
    problem = f"  line 3: burst.train: there is no file {path} (written: train.py:main)\n"
    assert (said.code, problem in said.err) == (code, code == 2)


def test_a_workdir_that_is_a_git_repository_is_refused_before_a_node_starts(
    burst: Call, file: Path
) -> None:
    file.write_text("name: far\nworkdir: {url: https://host/code.git, ref: main}\nrun: make\n")
    assert burst("check", file).err == (
        "warning: workdir: burst fetches no git repository; clone it and name its folder\n"
    )
    said = burst("run", file, "--dry-run")
    assert said.code == 9
    assert "error: workdir is a git repository, which this version does not fetch" in said.err


def test_a_strategy_that_there_is_not_yet_is_refused_before_a_node_starts(
    burst: Call, file: Path, scene: Scene
) -> None:
    (file.parent / "train.py").write_text("def main(): pass\n")
    file.write_text("name: sharded\nburst: {train: train.py:main, strategy: fsdp2}\n")
    said = burst("run", file)
    assert said.code == 9
    assert "error: strategy fsdp2 is not available yet" in said.err
    assert list(scene.runs.all()) == []


def test_the_schema_is_json(burst: Call) -> None:
    said = burst("schema")
    assert (said.code, said.err) == (0, "")
    assert "burst" in json.loads(said.out)["properties"]


def test_the_command_line_beats_the_file(burst: Call, file: Path) -> None:
    (file.parent / "t.py").write_text("def main(): pass\n")
    file.write_text(
        "name: dear\nnum_nodes: 2\nresources: {use_spot: true}\n"
        "burst: {train: t.py:main, workers: 2, budget_usd: 20}\n"
    )
    more = ["--num-nodes", "3", "--workers", "3..6", "--no-use-spot", "--budget", "5"]
    task = json.loads(burst("plan", file, *more, "--json").out)["task"]
    assert (task["num_nodes"], task["burst"]["budget_usd"]) == (3, 5.0)
    assert task["burst"]["workers"] == {"low": 3, "high": 6}
    assert task["candidates"][0]["use_spot"] is False


def test_a_bad_option_is_a_problem_like_one_in_the_file(burst: Call, file: Path) -> None:
    file.write_text(SIMPLE)
    said = burst("plan", file, "--budget", "much", "--workers", "6..3")
    assert (said.code, said.out) == (2, "")
    assert f"error: {file} has 2 problems\n" in said.err
    assert "burst.budget_usd" in said.err
    assert "burst.workers" in said.err


# Secrets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["check"], ["check", "--json"], ["plan"], ["plan", "--json"], ["run", "--dry-run", "--json"]],
)
def test_a_secret_is_never_printed(
    burst: Call, file: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("WHO", SECRET)
    file.write_text(PRIVATE)
    said = burst(*command, file, *GIVEN)
    assert said.code == 0, said.err
    assert SECRET not in said.out + said.err
    if "--json" in command:
        task = json.loads(said.out)["task"]
        assert task["envs"] == {"HF_TOKEN": None, "PLAIN": "seen", "WHO": None}
        assert task["secrets"] == {"API": None}


@pytest.mark.parametrize(
    "more",
    [
        ["--env", f"1BAD={SECRET}"],
        ["--env", f"NOT A NAME={SECRET}"],
        ["--secret", f"={SECRET}"],
        ["--secret", f"HF_TOKEN={SECRET}", "--num-nodes", "2", "--budget", "x"],
    ],
)
@pytest.mark.parametrize("traceback", ["", "1"])
def test_a_secret_is_never_in_a_problem(
    burst: Call, file: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], traceback: str
) -> None:
    monkeypatch.setenv("WHO", SECRET)
    monkeypatch.setenv("BURST_TRACEBACK", traceback)
    file.write_text(PRIVATE)
    said = burst("check" if "--budget" not in more else "plan", file, *GIVEN, *more)
    assert said.code == 2
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize("detach", [[], ["--detach"], ["--detach", "--json"]])
def test_a_secret_reaches_the_run_and_not_its_folder(
    burst: Call, file: Path, monkeypatch: pytest.MonkeyPatch, home: Path, detach: list[str]
) -> None:
    monkeypatch.setenv("WHO", SECRET)
    reached: list[dict[str, str]] = []

    def foreground(run: Run, view: object, env: Mapping[str, str], *, wait_s: float) -> Controller:
        assert wait_s == 0
        reached.append(dict(env))
        raise OwnedError("that is far enough")

    def background(argv: list[str], env: dict[str, str], log: Path) -> int:
        del log
        assert SECRET not in " ".join(argv), "every user of the machine sees that"
        reached.append(json.loads(env["BURST_USER_ENV"]))
        return 7

    monkeypatch.setattr(wiring, "controller", foreground)
    monkeypatch.setattr(wiring, "detach", background)
    file.write_text(PRIVATE)
    said = burst("run", file, *GIVEN, *detach)
    assert said.code == (0 if detach else 3), said.err
    assert SECRET not in said.out + said.err
    assert reached == [{"HF_TOKEN": SECRET, "PLAIN": "seen", "WHO": SECRET, "API": SECRET}]
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {"task.yaml", "run.json"} <= {path.name for path in files}
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_a_detached_run_says_how_to_go_on_with_it(
    burst: Call, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "detach", lambda *_: 7)
    file.write_text(SIMPLE)
    told = json.loads(burst("run", file, "--detach", "--json").out)
    assert told["pid"] == 7
    assert told["uri"].endswith(f"/runs/{told['run']}")
    out = burst("run", file, "-d").out
    name = out.splitlines()[-1].rpartition(" ")[2]
    assert out.endswith(
        f"{name} goes on in the background (pid 7)\n"
        f"  burst logs -f {name}\n  burst status {name}\n  burst stop {name}\n"
    )


def test_a_dry_run_refuses_what_a_run_would(
    burst: Call, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = plan_wiring.offers

    def rented(task: Task) -> tuple[Offer, ...]:
        return tuple(replace(offer, pool="aws") for offer in here(task))

    monkeypatch.setattr(plan_wiring, "offers", rented)
    file.write_text(SIMPLE)
    assert burst("plan", file).code == 0
    said = burst("run", file, "--dry-run")
    assert said.code == 9
    assert "other machines than this one cannot reach file://" in said.err
    assert burst("run", file, "--dry-run", "--run-uri", "s3://bucket/runs").code == 0


# Asking -------------------------------------------------------------------------------------------


def planned(usd_per_hour: str | None, most_usd: str | None = None) -> Plan:
    return Plan(
        candidates=(),
        rejected=(),
        nodes=1,
        usd_per_hour=None if usd_per_hour is None else Decimal(usd_per_hour),
        most_usd=None if most_usd is None else Decimal(most_usd),
        why="",
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("usd", [None, "0"])
def test_nothing_is_asked_where_nothing_can_be_spent(
    monkeypatch: pytest.MonkeyPatch, usd: str | None
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # reading it would fail
    confirm(planned(usd), yes=False)


def test_yes_spends_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    confirm(planned("3.60"), yes=True)


@pytest.mark.parametrize(
    ("most", "text"),
    [
        ("20", "this can spend $3.60 an hour, at most $20.00"),
        (None, "this can spend $3.60 an hour, with no limit"),
    ],
)
def test_without_a_terminal_nothing_is_spent(
    monkeypatch: pytest.MonkeyPatch, most: str | None, text: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError) as caught:
        confirm(planned("3.60", most), yes=False)
    assert caught.value.message == text
    assert caught.value.hint == "add --yes to spend it without being asked"


@pytest.mark.parametrize("answer", ["y\n", "YES\n", " yes \n"])
def test_a_person_who_agrees_spends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    confirm(planned("3.60", "20"), yes=False)
    asked = "this can spend $3.60 an hour, at most $20.00. Continue? [y/N] "
    assert capsys.readouterr() == ("", asked)


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yep\n"])
def test_any_other_answer_starts_nothing(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    with pytest.raises(UsageError, match="nothing was started"):
        confirm(planned("3.60"), yes=False)


def test_a_run_that_costs_is_refused_before_anything_is_written(
    burst: Call, file: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    file.write_text(DEAR)
    said = burst("run", file, "--json")
    assert (said.code, list(json.loads(said.out))) == (2, ["error"])
    assert said.err.startswith("error: this can spend $3.60 an hour, at most $7.20\nhint: ")
    assert not home.exists()


def test_given_options_reach_the_parser_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "ann")
    found = Given(name="n", env=["A=1", "WHO"], secret=["S=2"], use_spot=False).overrides()
    assert (found.name, found.envs, found.secrets) == ("n", ("A=1", "WHO"), ("S=2",))
    assert found.use_spot is False
    assert found.environ["WHO"] == "ann"
    nothing = Given().overrides()
    assert (nothing.envs, nothing.secrets, nothing.use_spot) == ((), (), None)


def test_the_users_code_finds_variables_and_secrets_and_the_secret_wins() -> None:
    given = Given(env=["A=1"], secret=["B=2"])
    task = read_task(b"run: x\n", given, source="/somewhere/task.yaml")
    assert dict(user_env(task)) == {"A": "1", "B": "2"}


def test_a_resume_that_costs_asks_as_well(
    scene: Scene, burst: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scene.make("dear")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    said = burst("resume", run.record.run_id)
    assert said.code == 2
    assert said.err.startswith("error: this can spend $1.80 an hour, with no limit\n")


def test_resume_says_which_values_it_needs_again(
    scene: Scene, burst: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scene.make("private")
    run.store.put(TASK, b"name: private\nenvs: {WHO: null}\nsecrets: {PIN: null}\nrun: x\n")
    monkeypatch.delenv("WHO", raising=False)
    said = burst("resume", run.record.run_id)
    assert said.code == 2
    name = run.record.run_id
    assert said.err == (
        f"error: {name} needs WHO, PIN again: their values are written down nowhere\n"
        f"hint: with them set in this shell: burst resume {name} --env WHO --secret PIN\n"
    )


def test_resume_of_a_damaged_task_names_its_line(scene: Scene, burst: Call) -> None:
    run = scene.make("damaged")
    run.store.put(TASK, b"name: damaged\nenvs: {WHO: null}\nnum_nodes: -1\nrun: x\n")
    said = burst("resume", run.record.run_id)
    assert said.code == 2
    assert "line 3: num_nodes" in said.err


def test_a_plan_promises_no_more_nodes_than_there_are(
    burst: Call, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = plan_wiring.offers

    def two(task: Task) -> tuple[Offer, ...]:
        return tuple(replace(one, pool="ssh/lab", most=2) for one in offers(task))

    monkeypatch.setattr(plan_wiring, "offers", two)
    file.write_text("name: dear\nnum_nodes: 4\nburst: {train: t.py:f, workers: 2..4}\n")
    (file.parent / "t.py").write_text("def f(): pass\n")
    said = burst("plan", file)
    assert (said.code, said.err) == (0, "")
    assert "   there can be 2 of 4 nodes; the task needs 2\n" in said.out
    assert " 2 own " in said.out
    assert " 3.60 " in said.out
    assert json.loads(burst("plan", file, "--json").out)["nodes"] == 2
    for command in ("plan", "run"):
        said = burst(command, file, "--workers", "4")
        told = "ssh/lab: has 2 of these machines, the task needs 4 nodes"
        assert (said.code, told in said.err) == (4, True)
