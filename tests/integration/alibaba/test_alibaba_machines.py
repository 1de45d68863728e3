"""Machines: asked for, refused, kept, taken back and given back."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from burst.provision.alibaba import machines
from burst.provision.alibaba.errors import EcsBusyError, EcsError
from burst.provision.alibaba.machines import delete, keep, launch, observe
from burst.provision.alibaba.quotas import quota
from ecs_scene import T4, ZONE, Scene

pytestmark = pytest.mark.integration
RUN = {"burst-run": "toy-abc123"}


def asked(scene: Scene) -> dict[str, str]:
    """Return the parameters of the last RunInstances."""
    return [given for action, given in scene.cloud.calls if action == "RunInstances"][-1]


def test_a_spot_machine(scene: Scene) -> None:
    (name,) = launch(scene.api(), scene.order(), "token")
    (seen,) = observe(scene.api(), RUN)
    assert (seen.instance_id, seen.zone, seen.machine_type) == (name, ZONE, T4)
    assert (seen.state, seen.spot, seen.taken) == ("Running", True, False)
    assert seen.tags == {"burst-run": "toy-abc123", "burst-node": "n001"}
    assert seen.public_ip
    assert seen.private_ip.startswith("10.0.")
    given = asked(scene)
    wanted = {
        "SpotStrategy": "SpotAsPriceGo",
        "SpotDuration": "0",
        "SpotInterruptionBehavior": "Terminate",
        "HttpTokens": "required",
        "InstanceChargeType": "PostPaid",
        "InternetMaxBandwidthOut": "100",
        "ImageFamily": "acs:ubuntu_22_04_x64",
    }
    assert {name: given[name] for name in wanted} == wanted
    assert "SpotPriceLimit" not in given


def test_an_on_demand_machine_without_a_public_address(scene: Scene) -> None:
    order = scene.order(spot=False, public_address=False, image_family="", image_id="m-123")
    launch(scene.api(), order, "token")
    (seen,) = observe(scene.api(), RUN)
    assert (seen.spot, seen.public_ip) == (False, "")
    assert asked(scene)["ImageId"] == "m-123"
    assert "SpotDuration" not in asked(scene)


def test_a_price_limit(scene: Scene) -> None:
    with pytest.raises(EcsError) as caught:
        launch(scene.api(), scene.order(price_limit=Decimal("0.1699")), "low")
    assert caught.value.reason == "price"
    assert launch(scene.api(), scene.order(price_limit=Decimal("0.1704")), "high")
    assert asked(scene)["SpotPriceLimit"] == "0.17"


def test_a_machine_whose_market_becomes_dearer_than_its_limit_is_taken(scene: Scene) -> None:
    (limited,) = launch(scene.api(), scene.order(price_limit=Decimal("0.2")), "limited")
    (other,) = launch(scene.api(), scene.order(), "any price")
    scene.cloud.spot_prices[ZONE, T4] = [(scene.time.now(), 0.21)]
    seen = {one.instance_id: one.taken for one in observe(scene.api(), RUN)}
    assert seen == {limited: True, other: False}
    scene.time.sleep(300)
    assert [one.instance_id for one in observe(scene.api(), RUN)] == [other]


def test_the_same_token_gives_the_same_machines(scene: Scene) -> None:
    order = scene.order(count=2)
    first = launch(scene.api(), order, "token")
    assert launch(scene.api(), order, "token") == first
    assert len(scene.cloud.machines) == 2
    with pytest.raises(EcsError, match="IdempotentParameterMismatch"):
        launch(scene.api(), scene.order(count=1), "token")


def test_an_answer_that_is_lost_costs_no_second_machine(scene: Scene) -> None:
    scene.cloud.fail("RunInstances", "ServiceUnavailable", 503, after=True)
    (name,) = launch(scene.api(), scene.order(), "token")
    assert list(scene.cloud.machines) == [name]


@pytest.mark.parametrize(("least", "there"), [(None, 0), (2, 2), (3, 0)])
def test_all_or_nothing_or_as_many_as_there_are(
    scene: Scene, least: int | None, there: int
) -> None:
    scene.cloud.stock[ZONE, T4] = 2
    order = scene.order(count=3, least=least)
    if there:
        assert len(launch(scene.api(), order, "token")) == there
    else:
        with pytest.raises(EcsError) as caught:
            launch(scene.api(), order, "token")
        assert (caught.value.code, caught.value.reason) == ("OperationDenied.NoStock", "capacity")
    assert len(scene.cloud.machines) == there


def test_a_full_quota(scene: Scene) -> None:
    scene.cloud.spot_quota = 6
    launch(scene.api(), scene.order(), "one")
    with pytest.raises(EcsError) as caught:
        launch(scene.api(), scene.order(), "two")
    assert caught.value.reason == "quota"
    found = quota(scene.api(), spot=True)
    assert str(found) == "4 of 6 spot vCPUs are in use in ap-southeast-1"
    unknown = quota(scene.api(), spot=False)
    assert (unknown.most, unknown.used) == (None, None)


def test_a_type_that_takes_no_such_disk_gets_another(scene: Scene) -> None:
    launch(scene.api(), scene.order(machine_type="ecs.old.large"), "token")
    assert asked(scene)["SystemDisk.Category"] == "cloud_efficiency"
    assert scene.cloud.count()["RunInstances"] == 2


def test_a_machine_that_is_being_taken_back_says_so_and_is_gone_later(scene: Scene) -> None:
    (name,) = launch(scene.api(), scene.order(), "token")
    scene.cloud.reclaim(name)
    (seen,) = observe(scene.api(), RUN)
    assert seen.taken
    assert "Recycling" in str(seen)
    scene.time.sleep(299)
    assert observe(scene.api(), RUN)
    scene.time.sleep(1)
    assert observe(scene.api(), RUN) == ()


def test_only_machines_with_the_tags_are_seen(scene: Scene) -> None:
    launch(scene.api(), scene.order(), "mine")
    launch(scene.api(), scene.order(tags={"burst-run": "other-abcdef"}), "theirs")
    assert len(observe(scene.api(), RUN)) == 1
    assert observe(scene.api("cn-hangzhou"), RUN) == ()


def test_more_machines_than_a_page_holds(scene: Scene) -> None:
    scene.cloud.page, scene.cloud.spot_quota = 3, 10_000
    launch(scene.api(), scene.order(count=10), "token")
    assert len({one.instance_id for one in observe(scene.api(), RUN)}) == 10


def test_a_machine_ends_at_its_time_unless_that_is_put_off(scene: Scene) -> None:
    release = scene.time.now() + timedelta(minutes=40)
    launch(scene.api(), scene.order(release_at=release), "token")
    (seen,) = observe(scene.api(), RUN)
    assert seen.release_at is not None
    assert timedelta() <= seen.release_at - release < timedelta(minutes=1)
    scene.time.sleep(600)
    keep(scene.api(), [seen], scene.time.now() + timedelta(minutes=45))
    scene.time.sleep(44 * 60)
    assert observe(scene.api(), RUN)
    scene.time.sleep(120)
    assert observe(scene.api(), RUN) == ()


def test_a_term_below_half_an_hour_is_refused(scene: Scene) -> None:
    soon = scene.time.now() + timedelta(minutes=20)
    with pytest.raises(EcsError, match="InvalidAutoReleaseTime"):
        launch(scene.api(), scene.order(release_at=soon), "token")
    with pytest.raises(AssertionError):
        keep(scene.api(), [], soon)


def test_keeping_one_that_is_gone_is_nothing(scene: Scene) -> None:
    (name,) = launch(scene.api(), scene.order(), "token")
    seen = observe(scene.api(), RUN)
    scene.cloud.lose(name)
    keep(scene.api(), seen, scene.time.now() + timedelta(hours=1))


def test_a_young_machine_is_deleted_as_soon_as_it_can_be(scene: Scene) -> None:
    scene.cloud.boot = timedelta(seconds=50)
    names = launch(scene.api(), scene.order(), "token")
    delete(scene.api(), names)
    assert scene.cloud.machines == {}


def test_one_that_never_can_be_is_told(scene: Scene) -> None:
    scene.cloud.boot = timedelta(days=1)
    names = launch(scene.api(), scene.order(), "token")
    with pytest.raises(EcsBusyError, match=r"IncorrectInstanceStatus\.Initializing"):
        delete(scene.api(), names)
    assert list(scene.cloud.machines) == list(names)


def test_one_that_is_gone_already_does_not_keep_the_others(scene: Scene) -> None:
    names = launch(scene.api(), scene.order(count=3), "token")
    scene.cloud.lose(names[1])
    delete(scene.api(), names)
    delete(scene.api(), names)
    assert scene.cloud.machines == {}


def test_more_than_can_be_deleted_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "MOST_AT_ONCE", 2)
    names = launch(scene.api(), scene.order(count=5), "token")
    delete(scene.api(), names)
    assert scene.cloud.machines == {}
    assert scene.cloud.count()["DeleteInstances"] == 3


def test_user_data_and_tags_travel(scene: Scene) -> None:
    launch(scene.api(), scene.order(user_data="#cloud-config\n"), "token")
    given: dict[str, Any] = asked(scene)
    assert given["UserData"] == "I2Nsb3VkLWNvbmZpZwo="
    assert "cloud-config" not in repr(scene.order(user_data="#cloud-config\n"))
