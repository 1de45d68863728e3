"""The rights that the documentation asks for are those that are used, and no more."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from burst.provision.alibaba.client import OF_VPC
from burst.provision.alibaba.cloud import Alibaba
from burst.provision.alibaba.machines import launch
from burst.provision.alibaba.network import idle
from burst.provision.alibaba.quotas import quota
from burst.provision.alibaba.survey import survey
from ecs_scene import REGION, Scene

pytestmark = pytest.mark.integration
DOCS = Path(__file__).parents[3] / "docs/alibaba.md"


def documented() -> list[str]:
    (block,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (statement,) = json.loads(block)["Statement"]
    actions: list[str] = statement["Action"]
    return actions


def test_the_documented_rights_are_those_that_a_run_needs(scene: Scene) -> None:
    api = scene.api()
    api.call("DescribeRegions")  # how SkyPilot's check asks whether the keys are good
    survey(api, [])
    quota(api, spot=True)
    launch(api, scene.order(release_at=scene.time.now() + timedelta(minutes=31)), "token")
    alibaba = Alibaba([REGION], scene.api)
    alibaba.keep("toy-abc123")
    alibaba.end("toy-abc123", ["n001"])
    assert not alibaba.machines("toy-abc123")
    assert all(one.remove() for one in idle(api))
    used = {f"{'vpc' if name in OF_VPC else 'ecs'}:{name}" for name in scene.cloud.count()}
    assert sorted(documented()) == sorted(used)
