"""Several ranks save and load together, and agree whatever happens to one of them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burst.checkpointing.commit import list_checkpoints
from burst.storage.backends.local import LocalStore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]
WORKER = Path(__file__).with_name("checkpoint_worker.py")


class Team:
    """Starts ranks that follow orders; each rank's answers come back in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = LocalStore(folder / "store")
        self.logs: list[str] = []
        self._started: list[subprocess.Popen[str]] = []
        self._teams = 0

    def do(self, *orders: dict[str, Any], world: int = 2, nodes: int = 1) -> list[list[Any]]:
        self._teams += 1
        common = {
            "store": str(self.folder / "store"),
            "scratch": str(self.folder / "scratch"),
            "meeting": str(self.folder / f"meeting-{self._teams}"),
            "world": world,
            "nodes": nodes,
            "steps": orders,
        }
        team = [self._start({**common, "rank": rank}) for rank in range(world)]
        answers = [process.communicate(timeout=60) for process in team]
        self.logs = [err for _, err in answers]
        assert [process.returncode for process in team] == [0] * world, "\n".join(self.logs)
        return [[json.loads(line) for line in out.splitlines()] for out, _ in answers]

    def _start(self, given: dict[str, Any]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def complete(self) -> list[int]:
        return [found.ref.step for found in list_checkpoints(self.store) if found.complete]

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    team = Team(tmp_path)
    yield team
    team.end()


def save(step: int, **how: Any) -> dict[str, Any]:
    return {"do": "save", "step": step, **how}


LOAD = {"do": "load"}


def test_all_ranks_step_back_together(team: Team) -> None:
    """C26: an index that is gone, a shard cut to half, a shard cut to nothing."""
    harm = [{**LOAD, "harm": name, "ranks": [0]} for name in ("no index", "half", "empty")]
    answers = team.do(save(10), save(20), *harm, LOAD)
    for one in answers:
        assert [answer["step"] for answer in one[2:]] == [10, 10, 10, 20]
        assert all(answer["weights"] == one[0]["weights"] for answer in one[2:5])
        assert all(answer["moments"] == one[0]["moments"] for answer in one[2:5])
        assert one[5]["weights"] == one[1]["weights"] != one[0]["weights"]
    assert all(text.count("resumes from step 10 of attempt 1") == 3 for text in team.logs)


def test_damage_seen_from_one_node_only_is_everybodys(team: Team) -> None:
    """C26: rank 0 could read step 20, another node cannot, so all take step 10."""
    team.do(save(10), save(20))
    damage = {**LOAD, "damage": "step-00000020-a0001/__", "ranks": [1]}
    assert [answer["step"] for (answer,) in team.do(damage, nodes=2)] == [10, 10]
    assert not list((team.folder / "scratch").rglob("*.distcp"))


def test_a_failed_or_hung_upload_is_everybodys(team: Team) -> None:
    """C85: three saves, the middle two in trouble on one rank each; nobody waits for ever."""
    answers = team.do(
        save(5),
        save(10, ranks=[1], fail=True),
        save(15, ranks=[1], hang=True, deadline_s=0.5),
        save(20),
        LOAD,
    )
    for one in answers:
        assert one[0]["saved"] == 5
        assert one[1]["kind"] == "TransientError"
        assert one[1]["error"] == (
            "saving step 10 failed on rank 1:"
            " checkpoints/step-00000010-a0001/__1_0.distcp: 503 slow down"
        )
        assert one[2]["kind"] == "StorageError"
        assert one[2]["error"] == (
            "saving step 15 failed on rank 1:"
            " checkpoints/step-00000015-a0001/__1_0.distcp: not through after 0.5 s"
        )
        assert one[3]["saved"] == 20
        assert one[4]["step"] == 20
        assert one[4]["weights"] == one[3]["weights"]
    assert team.complete() == [5, 20]
    assert not list(team.store.keys("checkpoints/step-00000010"))


def test_a_disk_that_takes_no_more_is_everybodys(team: Team) -> None:
    """C40: the writes really fail, in torch's writer; the save before stays good."""
    answers = team.do(save(10), save(20, disk_bytes=2000), LOAD, save(30), LOAD)
    for one in answers:
        assert one[1]["kind"] == "StorageError"
        assert "saving step 20 failed on rank 0: cannot write" in one[1]["error"]
        assert (one[2]["step"], one[4]["step"]) == (10, 30)
    assert team.complete() == [10, 30]
    assert [p for p in (team.folder / "scratch").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("world", [1, 3])
def test_another_number_of_ranks_loads_the_same_state(team: Team, world: int) -> None:
    """C35, for data parallel: names and numbers are those of the two ranks that saved."""
    saved = team.do(save(1), save(2))[0][-1]
    for (answer,) in team.do(LOAD, world=world):
        assert (answer["step"], answer["names"]) == (2, saved["names"])
        assert (answer["weights"], answer["moments"]) == (saved["weights"], saved["moments"])


def test_one_rank_saves_what_two_load(team: Team) -> None:
    """C35: a bare module and one wrapped in DDP have the same names."""
    saved = team.do(save(1), world=1)[0][0]
    for (answer,) in team.do(LOAD):
        assert (answer["weights"], answer["moments"]) == (saved["weights"], saved["moments"])
