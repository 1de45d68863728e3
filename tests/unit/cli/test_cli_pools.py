"""`burst pools`, and what `burst doctor` says of pools and for a task."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from burst import plan_wiring, pool_wiring, wiring
from burst.controller.last_refusals import LastRefusal
from burst.cost.placement import Place
from burst.errors import TransientError
from burst.provision.inspection.port import Finding, Inspected, Price, Row, Wanted
from burst.storage.memory import MemoryStore
from burst.task_specs.parse import parse
from cli_scene import BEGIN, Call, StillClock

LAB = Row(
    pool="ssh/lab",
    machine="2xH100",
    free=1,
    whole=3,
    gpus_free=2,
    gpus=6,
    price=Price(
        usd_per_hour=Decimal("3.00"),
        usd_per_gpu_hour=Decimal("1.50"),
        source="pools.yaml",
        observed_at=BEGIN,
        stale=False,
    ),
    healthy=True,
    detail="",
)
AWS = Row(
    pool="aws",
    machine="4xT4 spot",
    price=Price(
        usd_per_hour=Decimal("0.80"),
        usd_per_gpu_hour=Decimal("0.20"),
        source="SkyPilot's catalog of 2025-12-30",
        observed_at=BEGIN - timedelta(days=2),
        stale=True,
    ),
    healthy=True,
    detail="account 1 answers",
)
SLURM = Row(pool="slurm/hpc", machine="gpu", waiting=7, healthy=False, detail="no answer\nfrom it")
REFUSED = LastRefusal(
    place=Place(
        pool="aws", region="us-east-1", zone="us-east-1a", machine_type="g5.xlarge", spot=True
    ),
    reason="capacity",
    detail="none left",
    at=BEGIN - timedelta(hours=2),
    run_id="toy-abcdef",
)  # fmt: skip


@dataclass(frozen=True)
class Pool:
    """A pool that says what a test wrote down."""

    name: str
    told: Sequence[Row] = ()
    found: Callable[[Wanted], Sequence[Finding]] = lambda _: ()

    def rows(self) -> Sequence[Row]:
        if not self.told:
            raise TransientError(f"{self.name} is silent")
        return self.told

    def findings(self, wanted: Wanted) -> Sequence[Finding]:
        return self.found(wanted)


@pytest.fixture(autouse=True)
def pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an SSH pool, a Slurm cluster and a cloud, and no other."""
    kinds: dict[str, Callable[[], Sequence[Inspected]]] = {
        "local": lambda: (),
        "ssh": lambda: [Pool("ssh/lab", [LAB], lambda w: [finding("ssh/lab", w)])],
        "aws": lambda: [Pool("aws", [AWS], lambda w: [finding("aws", w)])],
    }
    monkeypatch.setattr(pool_wiring, "KINDS", kinds)
    monkeypatch.setattr(
        pool_wiring, "_rented", lambda: Pool("clouds", [AWS, replace(AWS, pool="gcp")])
    )
    monkeypatch.setattr(
        pool_wiring, "last_refusals", lambda *, far: {"aws": REFUSED} if far else {}
    )
    monkeypatch.setattr(wiring, "clock", StillClock)


def finding(pool: str, wanted: Wanted) -> Finding:
    words = f"{wanted.nodes} nodes, GPUs: {wanted.gpus}, {len(wanted.machines)} machines"
    return Finding(pool=pool, what="disk", works=False, detail=words, fix="free some")


def test_a_table_of_pools(burst: Call) -> None:
    said = burst("pools", "--all")
    assert said.code == 0
    assert said.err == "asking the pools; SkyPilot's server starts for it if none runs\n"
    header, lab, aws, gcp = said.out.splitlines()
    assert header.split("  ")[0] == "pool"
    assert [cell.strip() for cell in lab.split("  ") if cell] == [
        "ssh/lab", "2xH100", "1/3", "2/6", "1.50 (pools.yaml)", "-", "ok", "-",
    ]  # fmt: skip
    assert [cell.strip() for cell in aws.split("  ") if cell] == [
        "aws", "4xT4 spot", "-", "-",
        "0.20 (SkyPilot's catalog of 2025-12-30, 2 d 0 h old: stale)", "-",
        "ok: account 1 answers",
        "aws/us-east-1a g5.xlarge spot: capacity, 2 h 0 min ago, toy-abcdef",
    ]  # fmt: skip
    assert gcp.startswith("gcp")


def test_in_json_a_row_has_everything(burst: Call) -> None:
    said = burst("pools", "--all", "--json")
    lab, aws, _ = json.loads(said.out)
    assert lab == {
        "pool": "ssh/lab",
        "machine": "2xH100",
        "free": 1,
        "whole": 3,
        "gpus_free": 2,
        "gpus": 6,
        "price": {
            "usd_per_hour": "3.00",
            "usd_per_gpu_hour": "1.50",
            "source": "pools.yaml",
            "observed_at": "2026-01-01T00:00:00.000000Z",
            "stale": False,
        },
        "waiting": None,
        "healthy": True,
        "detail": "",
        "last_refusal": None,
    }
    assert aws["price"]["stale"] is True
    assert aws["last_refusal"] == {
        "place": {
            "pool": "aws", "region": "us-east-1", "zone": "us-east-1a",
            "machine_type": "g5.xlarge", "spot": True, "owned": False,
        },
        "reason": "capacity",
        "detail": "none left",
        "at": "2025-12-31T22:00:00.000000Z",
        "run_id": "toy-abcdef",
    }  # fmt: skip


def test_buckets_are_read_only_when_asked(burst: Call) -> None:
    rows = json.loads(burst("pools", "--json").out)
    assert {row["last_refusal"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("name", "shown"), [("ssh", ["ssh/lab"]), ("ssh/lab", ["ssh/lab"]), ("gcp", ["gcp"])]
)
def test_a_name_means_a_pool_or_a_group(burst: Call, name: str, shown: list[str]) -> None:
    said = burst("pools", name, "--json")
    assert [row["pool"] for row in json.loads(said.out)] == shown
    assert ("SkyPilot" in said.err) is (name == "gcp")


def test_a_pool_that_is_not_there(burst: Call) -> None:
    said = burst("pools", "ssh/other")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "error: there is no pool ssh/other\n"
        "hint: see the pools there are: burst pools; `ssh:` in pools.yaml names the hosts\n"
    )


@pytest.mark.parametrize("argv", [["pools"], ["doctor", "--pool"]])
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        (
            "lambda",
            9,
            "no credentials that SkyPilot accepts\nhint: see what it wants: sky check lambda\n",
        ),
        ("azure/eastus", 9, "sky check azure\n"),
        ("alibaba", 9, "no credentials\nhint: set ALIBABA_CLOUD_ACCESS_KEY_ID"),
        ("slurm/hpc", 2, "burst pools; ~/.slurm/config names the login nodes\n"),
        ("k8s", 2, "a kubeconfig (there is none at ~/.kube/config)\nhint: "),
        ("lcoal", 2, "error: there is no pool lcoal; did you mean local?\nhint: see the pools"),
        ("ssh/lba", 2, "error: there is no pool ssh/lba; did you mean ssh/lab?\nhint: see the"),
        ("nowhere", 2, "error: there is no pool nowhere\nhint: see the pools"),
    ],
)
def test_a_name_without_a_pool_is_told_what_it_wants(
    burst: Call, argv: list[str], name: str, code: int, words: str
) -> None:
    """And SkyPilot, whose server would have to start, is asked for clouds only."""
    said = burst(*argv, name)
    assert (said.code, said.out) == (code, "")
    assert words in said.err
    assert ("SkyPilot's server" in said.err) is (argv == ["pools"] and code != 2)


def test_a_pool_that_is_silent_is_a_row(burst: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_wiring, "_rented", lambda: Pool("clouds"))
    kinds = {**pool_wiring.KINDS, "local": lambda: [Pool("slurm/hpc", [SLURM])]}
    monkeypatch.setattr(pool_wiring, "KINDS", kinds)
    rows = {row["pool"]: row for row in json.loads(burst("pools", "--json").out)}
    assert rows["ssh/lab"]["healthy"]
    assert (rows["clouds"]["healthy"], rows["clouds"]["detail"]) == (False, "clouds is silent")
    assert rows["slurm/hpc"]["waiting"] == 7
    assert "NO: no answer from it" in burst("pools").out


@pytest.fixture
def task(tmp_path: Path) -> Path:
    file = tmp_path / "task.yaml"
    file.write_text("name: toy\nnum_nodes: 2\nresources: {accelerators: A100:1}\nrun: x\n")
    return file


def of_pools(said: str) -> dict[str, tuple[str, object]]:
    return {f"{f['pool']} {f['what']}".strip(): (f["detail"], f["works"]) for f in json.loads(said)}


def test_doctor_looks_at_every_pool_and_at_one(burst: Call) -> None:
    found = of_pools(burst("doctor", "--json").out)
    assert {"python", "ssh/lab disk", "aws disk"} <= set(found)
    said = burst("doctor", "--pool", "ssh", "--json")
    assert (said.code, said.err) == (9, "")
    assert of_pools(said.out) == {"ssh/lab disk": ("1 nodes, GPUs: False, 0 machines", False)}
    text = burst("doctor", "--pool", "aws").out.splitlines()
    assert text == [
        "aws disk  NO  1 nodes, GPUs: False, 0 machines",
        "fix aws disk: free some",
    ]


def test_doctor_holds_pools_against_a_task(
    burst: Call, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(wiring, "store", lambda _: store)
    found = of_pools(burst("doctor", task, "--json").out)
    assert found["ssh/lab disk"][0] == "2 nodes, GPUs: True, 0 machines"
    assert found["plan"] == ("no pool has what the task wants", False)
    assert found["run URI"][1] is True
    assert list(store.keys()) == []


def test_a_store_that_cannot_be_used_is_told_for_the_task(
    burst: Call, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(MemoryStore):
        def put(self, key: str, data: bytes) -> None:
            raise TransientError("no space")

    monkeypatch.setattr(wiring, "store", lambda _: Full())
    detail, works = of_pools(burst("doctor", task, "--pool", "ssh", "--json").out)["run URI"]
    assert works is False
    assert "cannot write: no space" in detail


def test_nodes_elsewhere_cannot_reach_a_folder_here(
    burst: Call, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = plan_wiring.offers

    def elsewhere(wanted: object) -> object:
        (offer,) = here(wanted)  # type: ignore[arg-type] # the scene's own
        return (replace(offer, pool="ssh/lab"),)

    task.write_text("name: toy\nrun: x\n")
    monkeypatch.setattr(plan_wiring, "offers", elsewhere)
    monkeypatch.setattr(wiring, "store", lambda _: MemoryStore())
    found = of_pools(burst("doctor", task, "--json").out)
    assert found["run URI of nodes"][1] is False
    assert found["aws disk"][0] == "1 nodes, GPUs: False, 1 machines"


def test_a_run_uri_that_is_tried_out_leaves_no_folder(burst: Call, task: Path) -> None:
    runs = task.parent / "shared" / "runs"
    task.write_text(f"name: toy\nrun: x\nburst: {{run_uri: file://{runs}}}\n")
    detail, works = of_pools(burst("doctor", task, "--json").out)["run URI"]
    assert works is True
    assert detail.endswith("listed; it is not there yet: a run makes it")
    assert not runs.parent.exists()
    runs.mkdir(parents=True)
    assert burst("doctor", task, "--json").out.count("not there yet") == 0
    assert list(runs.iterdir()) == []


def test_nodes_on_slurm_see_a_folder_of_a_file_system_they_share(
    burst: Call, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `burst run`: each node is asked for the folder before it becomes one."""
    (offer,) = plan_wiring.offers(parse("name: toy\nrun: x\n", source=str(task)))
    task.write_text("name: toy\nrun: x\n")
    monkeypatch.setattr(plan_wiring, "offers", lambda _: (replace(offer, pool="slurm/lab"),))
    monkeypatch.setattr(wiring, "store", lambda _: MemoryStore())
    assert "run URI of nodes" not in of_pools(burst("doctor", task, "--json").out)


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--pool", "ssh/other"], "there is no pool ssh/other"),
        (["--reap", "--pool", "aws"], "--reap ends machines of any pool"),
        (["nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_what_cannot_be_asked_for(burst: Call, argv: list[str], word: str) -> None:
    said = burst("doctor", *argv)
    assert (said.code, said.out) == (2, "")
    assert word in said.err
