"""What a run has at Alibaba Cloud, by its tags."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from burst.errors import TransientError
from burst.provision.alibaba.cloud import NOTICE, TERM, Alibaba
from burst.provision.alibaba.machines import launch
from ecs_scene import REGION, Scene

pytestmark = pytest.mark.integration
RUN = "toy-abc123"


def cloud(scene: Scene) -> Alibaba:
    return Alibaba([REGION, "cn-hangzhou"], scene.api)


def node(scene: Scene, name: str, release_at: datetime | None = None) -> str:
    tags = {"burst-run": RUN, "burst-node": name}
    (made,) = launch(scene.api(), scene.order(tags=tags, release_at=release_at), name)
    return made


def test_a_machine_is_there_and_then_it_is_not(scene: Scene) -> None:
    alibaba, name = cloud(scene), node(scene, "n001")
    found = alibaba.machines(RUN)["n001"]
    assert found.costs
    assert found.until is None
    assert found.since == scene.time.now().replace(second=0)
    assert name in str(found)
    scene.cloud.lose(name)
    scene.time.sleep(7)
    gone = alibaba.machines(RUN)["n001"]
    assert (gone.costs, gone.until) == (False, scene.time.now())
    scene.time.sleep(7)
    assert alibaba.machines(RUN)["n001"] == gone


def test_the_newest_machine_of_a_node_counts(scene: Scene) -> None:
    alibaba = cloud(scene)
    scene.cloud.lose(node(scene, "n001"))
    assert alibaba.machines(RUN) == {}
    first = node(scene, "n002")
    alibaba.machines(RUN)
    scene.cloud.lose(first)
    scene.time.sleep(60)
    tags = {"burst-run": RUN, "burst-node": "n002"}
    launch(scene.api(), scene.order(tags=tags), "again")
    assert alibaba.machines(RUN)["n002"].costs


def test_two_machines_of_a_launch_that_was_made_once_more_count_as_one(scene: Scene) -> None:
    alibaba, began = cloud(scene), scene.time.now().replace(second=0)
    node(scene, "n001")
    scene.time.sleep(120)
    tags = {"burst-run": RUN, "burst-node": "n001"}
    (second,) = launch(scene.api(), scene.order(tags=tags), "once more")
    assert alibaba.machines(RUN)["n001"].since == began
    scene.cloud.lose(second)
    left = alibaba.machines(RUN)["n001"]
    assert (left.since, left.until, left.costs) == (began, None, True)


def test_a_machine_that_is_being_taken_back_says_from_when_on_it_may_be_gone(scene: Scene) -> None:
    alibaba, name = cloud(scene), node(scene, "n001")
    assert alibaba.machines(RUN)["n001"].leaves is None
    before = scene.time.now()
    scene.time.sleep(20)
    scene.cloud.reclaim(name)
    scene.time.sleep(25)
    told = alibaba.machines(RUN)["n001"]
    assert (told.costs, told.leaves) == (True, before + NOTICE)
    scene.time.sleep(45)
    assert alibaba.machines(RUN)["n001"].leaves == told.leaves
    later = cloud(scene).machines(RUN)["n001"]  # another controller, who does not know since when
    assert later.leaves == scene.time.now()
    scene.time.sleep(230)
    assert not alibaba.machines(RUN)["n001"].costs


def test_some_nodes_are_ended(scene: Scene) -> None:
    for name in ("n001", "n002", "n003"):
        node(scene, name)
    alibaba = cloud(scene)
    alibaba.end(RUN, ["n001", "n003"])
    assert set(alibaba.machines(RUN)) == {"n002"}
    alibaba.end(RUN, [])
    alibaba.end("other-abcdef", ["n002"])
    assert len(scene.cloud.machines) == 1


def test_a_driven_run_keeps_its_machines_and_a_forsaken_one_loses_them(scene: Scene) -> None:
    node(scene, "n001", release_at=scene.time.now() + TERM)
    alibaba = cloud(scene)
    for _ in range(20):  # somebody looks every ten minutes
        scene.time.sleep(600)
        alibaba.keep(RUN)
    assert alibaba.machines(RUN)["n001"].costs
    renewals = scene.cloud.count()["ModifyInstanceAutoReleaseTime"]
    assert 5 <= renewals <= 12  # not with each look
    scene.time.sleep(TERM.total_seconds() + 60)
    assert not alibaba.machines(RUN)["n001"].costs
    assert scene.cloud.machines == {}


def test_one_look_lists_each_region_once(scene: Scene) -> None:
    node(scene, "n001", release_at=scene.time.now() + timedelta(minutes=31))
    alibaba = cloud(scene)
    alibaba.machines(RUN)
    alibaba.keep(RUN)
    told = scene.cloud.count()
    assert (told["DescribeInstances"], told["ModifyInstanceAutoReleaseTime"]) == (2, 1)
    scene.time.sleep(60)
    alibaba.keep(RUN)
    assert scene.cloud.count()["DescribeInstances"] == 4


def test_a_machine_without_a_term_gets_none(scene: Scene) -> None:
    node(scene, "n001")
    cloud(scene).keep(RUN)
    scene.time.sleep(timedelta(days=1).total_seconds())
    assert cloud(scene).machines(RUN)["n001"].costs


def test_a_cloud_that_does_not_answer_is_no_cloud_without_machines(scene: Scene) -> None:
    node(scene, "n001")
    scene.cloud.fail("DescribeInstances", "Forbidden.RAM", 403, times=2)
    with pytest.raises(TransientError, match=r"ECS in ap-southeast-1: .*Forbidden\.RAM"):
        cloud(scene).machines(RUN)
    with pytest.raises(TransientError):
        cloud(scene).keep(RUN)
