"""The task's set-up on a node: once, in the workdir, with the task's variables; its failure."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from burst.agent.set_up import SetUp
from burst.records import RUN as RUN_KEY
from burst.storage.memory import MemoryStore
from some_run import RUN

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


def set_up(tmp_path: Path, text: str | None, *, index: int = 1) -> SetUp:
    store = MemoryStore()
    run = replace(RUN, setup=text, workdir=str(tmp_path))
    store.put(RUN_KEY, run.encode())
    return SetUp(store, tmp_path, index=index)


def finish(made: SetUp) -> None:
    end = time.monotonic() + 20
    while not made.done and made.error is None:
        made.step()
        assert time.monotonic() < end
        time.sleep(0.05)  # noqa: TID251


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BURST_USER_ENV", json.dumps({"WHO": "ann"}))
    monkeypatch.setenv("BURST_WORKDIR", str(tmp_path))


def test_it_runs_in_the_workdir_with_the_tasks_variables(tmp_path: Path) -> None:
    finish(set_up(tmp_path, "echo $WHO > who; pwd >> who"))
    assert (tmp_path / "who").read_text() == f"ann\n{tmp_path}\n"


def test_a_failure_has_its_exit_code_and_its_last_lines(tmp_path: Path) -> None:
    """C64 (b)."""
    made = set_up(tmp_path, "for i in $(seq 99); do echo line $i; done; exit 3")
    finish(made)
    assert made.error is not None
    lines = made.error.splitlines()
    assert lines[0] == "exit code 3; its last lines:"
    assert lines[1:] == [f"line {n}" for n in range(50, 100)]
    assert not made.done


def test_a_node_for_the_head_alone_sets_nothing_up(tmp_path: Path) -> None:
    finish(set_up(tmp_path, "exit 1", index=0))
    finish(set_up(tmp_path, None))
