"""`burst doctor --reap`: networks and keys that no machine uses, in all regions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burst import pool_wiring
from burst.cli.doctor import clear_up
from burst.provision.alibaba.machines import launch
from burst.provision.alibaba.network import furnish, key_pair
from ecs_cloud import RefusedCallError
from ecs_scene import KEY, ZONE, Scene

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _nobody_s_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BURST_HOME", str(tmp_path / ".burst"))


def test_nothing_is_left_in_any_region(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    far = furnish(scene.api("cn-hangzhou"), ["cn-hangzhou-i"])
    near = furnish(scene.api(), [ZONE])
    key = key_pair(scene.api(), KEY)
    clear_up(yes=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["removed"] == [
        f"Alibaba Cloud's network {near.vpc_id} in ap-southeast-1",
        f"Alibaba Cloud's key pair {key} in ap-southeast-1",
        f"Alibaba Cloud's network {far.vpc_id} in cn-hangzhou",
    ]
    assert scene.cloud.things == {}


def test_what_a_machine_uses_stays(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    launch(scene.api(), scene.order(), "token")
    there = set(scene.cloud.things)
    clear_up(yes=True, as_json=False)
    assert capsys.readouterr().out == "no machine of a run that nobody drives\n"
    assert set(scene.cloud.things) == there


def test_a_region_that_does_not_answer_hides_no_other(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    network = furnish(scene.api(), [ZONE])
    scene.cloud.zones["cn-secret"] = ("cn-secret-a", "cn-secret-b")
    refused = scene.cloud.DescribeVpcs

    def describe(given: dict[str, str]) -> object:
        if given["RegionId"] == "cn-secret":
            raise RefusedCallError(403, "RegionUnauthorized")
        return refused(given)

    scene.cloud.DescribeVpcs = describe  # type: ignore[method-assign,assignment]
    assert [one.name for one in pool_wiring.idle_networks()] == [network.vpc_id]
    assert "not looked for networks in cn-secret" in caplog.text


def test_without_keys_nobody_is_asked(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    furnish(scene.api(), [ZONE])
    before = len(scene.cloud.calls)
    monkeypatch.delenv("ALIBABA_CLOUD_ACCESS_KEY_ID")
    assert pool_wiring.idle_networks() == ()
    assert len(scene.cloud.calls) == before
