"""What a person does with runs: fail, stop, resume, use a bucket, run any command."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Person

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
TASK = str(Path(__file__).with_name("toy") / "task.yaml")


def test_the_users_error_is_shown_and_nothing_stays(person: Person, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def main():\n    raise ValueError('on purpose')\n")
    task = tmp_path / "task.yaml"
    task.write_text("name: bad\nnum_nodes: 2\nburst: {train: train.py:main, steps: 5}\n")
    said = person.burst("run", str(task), code=8)
    assert "ValueError: on purpose" in said
    assert "train.py" in said
    assert "Traceback" not in said
    assert person.status()["state"] == "failed"
    assert person.left() == ()


def test_ctrl_c_saves_and_resume_ends_with_the_same_bits(
    person: Person, undisturbed: dict[str, Any]
) -> None:
    run = person.start("run", TASK, "--env", "TOY_OUT")
    person.until_step(9)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    now = person.status()
    assert now["state"] == "stopped"
    assert now["saved_step"] == now["step"] >= 9
    assert person.left() == ()
    person.burst("resume", "toy", "--env", "TOY_OUT")
    assert person.weights() == undisturbed


def test_two_ctrl_c_stop_at_once_and_leave_nothing(person: Person) -> None:
    """C73: also in the middle of getting machines."""
    run = person.start("run", TASK, "--env", "TOY_OUT")
    person.until(lambda now: now["live"])
    run.send_signal(signal.SIGINT)
    time.sleep(0.3)  # noqa: TID251 - a person's second press
    if run.poll() is None:
        run.send_signal(signal.SIGINT)
    assert run.wait(30) == 130
    assert person.left() == ()


def test_a_detached_run_is_stopped_by_another_command(person: Person) -> None:
    told = json.loads(person.burst("run", TASK, "--env", "TOY_OUT", "--detach", "--json"))
    person.until_step(3)
    assert person.burst("resume", told["run"], "--env", "TOY_OUT", code=3).startswith("error: ")
    person.burst("stop", told["run"])
    now = person.status()
    assert (now["state"], now["live"]) == ("stopped", False)
    assert now["saved_step"] == now["step"] >= 3
    end = time.monotonic() + 20
    while person.left() and time.monotonic() < end:
        time.sleep(0.2)  # noqa: TID251
    assert person.left() == ()


@pytest.mark.slow
def test_a_run_whose_controller_was_killed_is_stopped(person: Person) -> None:
    person.start("run", TASK, "--env", "TOY_OUT")
    person.until_step(3)
    person.burst("chaos", "toy", "--kill", "controller")
    assert person.until(lambda now: not now["live"])["state"] == "orphaned"
    person.burst("stop", "toy")
    now = person.status()
    assert (now["state"], now["live"]) == ("stopped", False)
    nodes = json.loads(person.burst("status", "toy", "--json"))["nodes"]
    assert all(node["ended"] for node in nodes)
    assert person.left() == ()


COMMAND = """
name: any
num_nodes: 2
envs: {MODE: 0755, ANSWER: yes, SHA: 0757192}
run: |
  test -d work || exit 9
  n=$(cat work/count 2>/dev/null || echo 0)
  echo "from $n MODE=$MODE ANSWER=$ANSWER SHA=$SHA rank $RANK of $WORLD_SIZE at $MASTER_ADDR"
  while [ "$n" -lt "${LAST:-1000}" ]; do
    n=$((n + 1))
    if [ "$RANK" = 0 ]; then echo "$n" > work/count; fi
    sleep 0.3
  done
burst:
  checkpoint: {every: 1s, dir: work}
"""


def test_any_command_runs_on_each_node_and_its_folder_comes_back(
    person: Person, tmp_path: Path
) -> None:
    """C05: variables reach the command as typed."""
    task = tmp_path / "task.yaml"
    task.write_text(COMMAND)
    run = person.start("run", str(task))
    person.until(lambda now: now["saved_step"] >= 3)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    count = tmp_path / "work" / "count"
    saved = int(count.read_text())
    count.write_text("0")  # as on a new machine
    text = task.read_text().replace("envs: {", f"envs: {{LAST: {saved + 5}, ")
    run_folder = person.status()["uri"].removeprefix("file://")
    Path(run_folder, "task.yaml").write_text(text.replace("envs:", f"workdir: {tmp_path}\nenvs:"))
    person.burst("resume", "any")
    logs = person.burst("logs", "any")
    assert "from 0 MODE=0755 ANSWER=yes SHA=0757192 rank 0 of 2" in logs
    assert "rank 1 of 2" in logs
    assert f"from {saved} " in logs
    assert int(count.read_text()) == saved + 5


@pytest.mark.slow
def test_a_bucket_holds_a_run_that_loses_a_node(
    person: Person, undisturbed: dict[str, Any], new_bucket: Callable[[], str], moto_url: str
) -> None:
    person.env |= {
        "AWS_ENDPOINT_URL_S3": moto_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "TOY_PAUSE_S": "0.4",
    }
    root = f"s3://{new_bucket()}/runs"
    person.start("run", TASK, "--env", "TOY_OUT", "--run-uri", root)
    person.until_step(9)
    person.burst("chaos", "toy", "--kill", "node", "--notice", "2s")
    assert person.started[-1].wait(240) == 0, person.said()
    assert person.weights() == undisturbed
    assert person.status()["uri"].startswith(root)
