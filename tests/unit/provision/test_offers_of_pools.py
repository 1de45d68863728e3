"""Which pools are asked for a task, and what is said of those that cannot be."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from burst import plan_wiring
from burst.cost.offers import Offer
from burst.errors import SetupError
from burst.provision import hosts, own, skypilot
from burst.task_specs.model import Task
from burst.task_specs.parse import parse

NO_CLOUD = SetupError("no cloud is enabled", hint="enable one")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two silent SSH hosts in a pool, and a SkyPilot without clouds."""

    def no_cloud(_: Task) -> None:
        raise NO_CLOUD

    monkeypatch.setenv("BURST_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))  # nobody's credentials
    for name in ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ECS_METADATA", "LAMBDA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hosts, "offers", lambda *_: ())
    monkeypatch.setattr(skypilot, "offers", no_cloud)
    (tmp_path / "pools.yaml").write_text("ssh: {lab: {hosts: [127.0.0.8, 127.0.0.9]}}\n")
    return tmp_path


def _task(resources: str) -> Task:
    return parse(f"run: x\nresources: {{{resources}}}\n".encode(), source="task")


@pytest.mark.parametrize("infra", ["ssh", "ssh/lab"])
def test_no_cloud_is_asked_for_a_task_that_names_own_machines(
    infra: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert [offer.pool for offer in plan_wiring.offers(_task(f"infra: {infra}"))] == ["local"]
    assert caplog.messages == []


def test_an_ssh_pool_that_nobody_described_is_named(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan_wiring.offers(_task("infra: ssh/labb"))
    assert caplog.messages == [f"the task names ssh/labb; {home / 'pools.yaml'} has ssh/lab"]


def test_without_clouds_a_task_that_names_none_gets_what_there_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    assert [offer.pool for offer in plan_wiring.offers(_task("cpus: 4000"))] == ["local"]
    assert caplog.messages == ["left out: no cloud is enabled (enable one)"]


@pytest.mark.parametrize("place", ["infra: aws", "any_of: [{infra: ssh/lab}, {infra: aws}]"])
def test_without_clouds_a_task_that_names_one_is_refused(place: str) -> None:
    with pytest.raises(SetupError) as caught:
        plan_wiring.offers(_task(place))
    assert caught.value is NO_CLOUD


LAB = Offer(
    pool="ssh/lab", region="", zone="", machine_type="8-cpu", cpus=8.0, memory_gb=32.0,
    accelerators=None, spot=False, quote=own.quote(Decimal(0), "test", datetime.now(UTC)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("cloud", "told"),
    [
        ("aws", ["left out: no cloud is enabled (enable one)"]),
        ("alibaba", ["left out: no credentials for Alibaba Cloud ("]),
        ("alibaba}, {infra: aws", [
            "left out: no credentials for Alibaba Cloud (",
            "left out: no cloud is enabled (enable one)",
        ]),
    ],
)  # fmt: skip
def test_own_machines_serve_though_a_cloud_beside_them_cannot_be_used(
    cloud: str, told: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "offers", lambda *_: (LAB,))
    found = plan_wiring.offers(_task(f"any_of: [{{infra: ssh/lab}}, {{infra: {cloud}}}]"))
    assert [offer.pool for offer in found] == ["local", "ssh/lab"]
    assert [m[: len(t)] for m, t in zip(caplog.messages, told, strict=True)] == told


def test_a_cloud_that_cannot_be_used_hides_no_other_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Task] = []

    def offers(task: Task) -> tuple[Offer, ...]:
        asked.append(task)
        return (replace(LAB, pool="aws", made_for=(0,)),)

    monkeypatch.setattr(skypilot, "offers", offers)
    found = plan_wiring.offers(_task("any_of: [{infra: alibaba}, {infra: aws}]"))
    assert [(offer.pool, offer.made_for) for offer in found] == [("local", None), ("aws", (1,))]
    assert [one.infra.cloud for task in asked for one in task.candidates] == ["aws"]
    assert len(caplog.messages) == 1


def test_where_nothing_is_left_all_that_cannot_be_used_is_told() -> None:
    with pytest.raises(SetupError) as caught:
        plan_wiring.offers(_task("any_of: [{infra: alibaba}, {infra: aws}]"))
    told = "no credentials for Alibaba Cloud; no cloud is enabled"
    assert (caught.value.message, caught.value.exit_code) == (told, 9)
    assert str(caught.value.hint).endswith("; enable one")
    with pytest.raises(SetupError, match="no credentials for Alibaba Cloud"):
        plan_wiring.offers(_task("infra: alibaba"))
