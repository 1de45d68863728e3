"""When Alibaba Cloud is asked: for a run's machines, and for prices."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from burst import plan_wiring, wiring
from burst.controller.runs import Run
from burst.cost.placement import Choice, Place
from burst.errors import SetupError
from burst.provision import skypilot
from burst.provision.alibaba.machines import launch
from burst.provision.alibaba.settings import Settings
from burst.task_specs.model import Task
from ecs_scene import REGION, Scene

pytestmark = pytest.mark.integration


def run(*pools: str) -> Run:
    places = [Place(pool=pool, region=REGION, spot=True) for pool in pools]
    choices = tuple(Choice(place=place, usd_per_hour=Decimal(1)) for place in places)
    return cast("Run", SimpleNamespace(record=SimpleNamespace(choices=choices)))


def task(*places: tuple[str | None, str | None]) -> Task:
    infra = [SimpleNamespace(cloud=cloud, region=region) for cloud, region in places]
    return cast("Task", SimpleNamespace(candidates=[SimpleNamespace(infra=one) for one in infra]))


def test_a_run_s_machines_are_looked_for_where_it_may_be(scene: Scene) -> None:
    assert wiring.cloud_of(run("gcp")) is None
    launch(scene.api(), scene.order(), "token")
    cloud = wiring.cloud_of(run("gcp", "alibaba"))
    assert cloud is not None
    assert set(cloud.machines("toy-abc123")) == {"n001"}
    assert cloud.machines("other-abcdef") == {}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scene: Scene) -> list[Settings]:
    """What was asked for prices, by somebody with keys and an empty home."""
    seen: list[Settings] = []
    monkeypatch.setattr(skypilot, "refresh_alibaba", lambda settings, _: seen.append(settings))
    monkeypatch.setenv("BURST_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return seen


def test_the_region_of_the_task_is_asked_for(asked: list[Settings]) -> None:
    plan_wiring._refresh_alibaba(task(("alibaba", "cn-beijing"), ("aws", "us-east-1")))
    assert asked == [Settings(regions=("cn-beijing",))]


def test_pools_yaml_says_where_else(asked: list[Settings], tmp_path: Path) -> None:
    (tmp_path / "pools.yaml").write_text("alibaba: {regions: [ap-southeast-1, cn-beijing]}\n")
    plan_wiring._refresh_alibaba(task(("alibaba", "cn-beijing")))
    plan_wiring._refresh_alibaba(task((None, None)))
    assert asked == [Settings(regions=("ap-southeast-1", "cn-beijing"))] * 2


def test_who_does_not_name_it_is_not_kept_waiting(asked: list[Settings]) -> None:
    plan_wiring._refresh_alibaba(task(("aws", None)))
    plan_wiring._refresh_alibaba(task((None, None)))
    assert asked == []


def test_without_keys_it_is_said_what_to_do(
    asked: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALIBABA_CLOUD_ACCESS_KEY_ID")
    with pytest.raises(SetupError, match="no credentials for Alibaba Cloud") as caught:
        plan_wiring._refresh_alibaba(task(("alibaba", None)))
    assert "aliyun configure" in str(caught.value.hint)
    assert asked == []
