"""The network of a region: made once, closed but for SSH, taken away again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from burst.errors import BurstError
from burst.provision.alibaba.errors import EcsError
from burst.provision.alibaba.machines import launch
from burst.provision.alibaba.network import TAG, furnish, idle, key_pair
from ecs_cloud import listed
from ecs_scene import KEY, OTHER_ZONE, ZONE, Scene

pytestmark = pytest.mark.integration
MAKING = ("CreateVpc", "CreateVSwitch", "CreateSecurityGroup", "AuthorizeSecurityGroup")


def test_it_is_made_once_and_found_again(scene: Scene) -> None:
    first = furnish(scene.api(), [ZONE, OTHER_ZONE])
    made = scene.cloud.count()
    assert furnish(scene.api(), [OTHER_ZONE, ZONE]) == first
    assert [scene.cloud.count()[action] for action in MAKING] == [1, 2, 1, 1]
    assert [made[action] for action in MAKING] == [1, 2, 1, 1]
    assert all(one["tags"] == TAG for one in scene.cloud.things.values())


def test_a_further_zone_gets_a_vswitch_of_its_own_addresses(scene: Scene) -> None:
    furnish(scene.api(), [ZONE])
    network = furnish(scene.api(), [OTHER_ZONE])
    blocks = {one["CidrBlock"] for one in scene.cloud.things.values() if one["kind"] == "vsw"}
    assert blocks == {"10.0.0.0/20", "10.0.16.0/20"}
    assert set(network.vswitches) == {OTHER_ZONE}


def test_only_ssh_comes_in_from_outside(scene: Scene) -> None:
    network = furnish(scene.api(), [ZONE], ssh_from=["198.51.100.0/24"])
    rules = scene.cloud.things[network.security_group_id]["rules"]
    outside = [rule for rule in rules if "SourceCidrIp" in rule]
    assert [(r["IpProtocol"], r["PortRange"], r["SourceCidrIp"]) for r in outside] == [
        ("TCP", "22/22", "198.51.100.0/24")
    ]
    inside = [rule["SourceGroupId"] for rule in rules if "SourceGroupId" in rule]
    assert inside == [network.security_group_id]
    assert len(rules) == 2


def test_a_rule_that_is_missing_is_added(scene: Scene) -> None:
    network = furnish(scene.api(), [ZONE])
    scene.cloud.things[network.security_group_id]["rules"].clear()
    furnish(scene.api(), [ZONE])
    assert len(scene.cloud.things[network.security_group_id]["rules"]) == 2


def test_a_vpc_that_takes_its_time_is_waited_for(scene: Scene) -> None:
    scene.cloud.vpc_takes = timedelta(seconds=5)
    assert furnish(scene.api(), [ZONE]).vswitches
    assert sum(scene.time.slept) >= 5


@pytest.mark.parametrize("action", [*MAKING, "DescribeSecurityGroupAttribute"])
def test_what_was_made_is_undone_when_it_fails_in_the_middle(scene: Scene, action: str) -> None:
    scene.cloud.fail(action, "Forbidden.RAM", 403)
    with pytest.raises(EcsError, match=rf"{action}: Forbidden\.RAM"):
        furnish(scene.api(), [ZONE, OTHER_ZONE])
    assert scene.cloud.things == {}
    assert furnish(scene.api(), [ZONE, OTHER_ZONE]).vswitches


def test_what_was_there_before_stays_when_it_fails(scene: Scene) -> None:
    furnish(scene.api(), [ZONE])
    before = set(scene.cloud.things)
    scene.cloud.fail("CreateVSwitch", "QuotaExceeded.VSwitch", 400)
    with pytest.raises(EcsError) as caught:
        furnish(scene.api(), [OTHER_ZONE])
    assert caught.value.reason == "quota"
    assert set(scene.cloud.things) == before


def test_an_answer_that_is_lost_makes_no_second_one(scene: Scene) -> None:
    for action in MAKING:
        scene.cloud.fail(action, "ServiceUnavailable", 503, after=True)
    furnish(scene.api(), [ZONE])
    kinds = sorted(one["kind"] for one in scene.cloud.things.values())
    assert kinds == ["sg", "vpc", "vsw"]


def test_two_at_once_end_with_the_same_network(scene: Scene) -> None:
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(furnish, scene.api(), [zone]) for zone in (ZONE, OTHER_ZONE)]
        done = [one for one in asked if one.exception() is None]
    again = furnish(scene.api(), [ZONE, OTHER_ZONE])
    assert all(isinstance(one.exception(), BurstError) for one in asked if one not in done)
    vpcs = [one["VpcId"] for one in scene.cloud.things.values() if one["kind"] == "vpc"]
    assert vpcs == [again.vpc_id]


def test_a_key_pair_is_brought_once(scene: Scene) -> None:
    name = key_pair(scene.api(), KEY)
    assert key_pair(scene.api(), KEY.replace("me@here", "another comment")) == name
    assert scene.cloud.count()["ImportKeyPair"] == 1
    assert KEY.startswith(scene.cloud.things[name]["PublicKey"])
    other = KEY.replace("AAAAIG", "AAAAIF")
    assert key_pair(scene.api(), other) != name


def test_one_that_somebody_brings_at_the_same_time_is_fine(scene: Scene) -> None:
    scene.cloud.fail("ImportKeyPair", "KeyPair.AlreadyExist")
    assert key_pair(scene.api(), KEY).startswith("burst-")


def test_all_of_it_is_taken_away(scene: Scene) -> None:
    api = scene.api()
    network = furnish(api, [ZONE, OTHER_ZONE])
    key = key_pair(api, KEY)
    found = idle(api)
    assert [one.name for one in found] == [network.vpc_id, key]
    assert str(found[0]) == f"Alibaba Cloud's network {network.vpc_id} in ap-southeast-1"
    assert [one.remove() for one in found] == [True, True]
    assert scene.cloud.things == {}
    assert [one.remove() for one in found] == [False, False]
    assert idle(api) == ()


def test_not_while_a_machine_of_whomever_is_in_it(scene: Scene) -> None:
    api = scene.api()
    furnish(api, [ZONE])
    key_pair(api, KEY)
    before = idle(api)
    (name,) = launch(api, scene.order(tags={"owner": "somebody"}), "token")
    there = set(scene.cloud.things)
    assert idle(api) == ()
    assert [one.remove() for one in before] == [False, False]
    assert set(scene.cloud.things) == there
    scene.cloud.lose(name)
    assert [one.remove() for one in before] == [True, True]
    assert scene.cloud.things == {}


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("CreateVSwitch", {"ZoneId": ZONE, "CidrBlock": "10.0.240.0/20"}),
        ("CreateSecurityGroup", {"SecurityGroupName": "mine"}),
    ],
)
def test_not_while_something_of_a_person_is_in_it(
    scene: Scene, action: str, more: dict[str, str]
) -> None:
    network = furnish(scene.api(), [ZONE])
    here = {"RegionId": scene.api().region, "VpcId": network.vpc_id}
    scene.cloud.call(action, {**here, **more})
    assert idle(scene.api()) == ()


def test_what_is_not_ours_is_not_touched(scene: Scene) -> None:
    here = {"RegionId": scene.api().region}
    scene.cloud.call("CreateVpc", {**here, "CidrBlock": "172.16.0.0/12"})
    scene.cloud.call("ImportKeyPair", {**here, "KeyPairName": "mine", "PublicKeyBody": KEY})
    theirs = set(scene.cloud.things)
    furnish(scene.api(), [ZONE])
    assert [one.remove() for one in idle(scene.api())] == [True]
    assert set(scene.cloud.things) == theirs


def test_what_else_a_person_has_there_keeps_it(scene: Scene) -> None:
    """A database, say, which is in a VSwitch and is no machine."""
    network = furnish(scene.api(), [ZONE])
    scene.cloud.fail("DeleteVSwitch", "DependencyViolation", 403, times=99)
    (found,) = idle(scene.api())
    with pytest.raises(EcsError, match="DependencyViolation"):
        found.remove()
    assert furnish(scene.api(), [ZONE]) == network


@pytest.mark.parametrize("action", ["DeleteVSwitch", "DeleteSecurityGroup", "DeleteVpc"])
def test_what_a_broken_removal_leaves_is_found_again(scene: Scene, action: str) -> None:
    furnish(scene.api(), [ZONE, OTHER_ZONE])
    scene.cloud.fail(action, "Forbidden.RAM", 403)
    (found,) = idle(scene.api())
    with pytest.raises(EcsError, match=r"Forbidden\.RAM"):
        found.remove()
    assert [one.remove() for one in idle(scene.api())] == [True]
    assert scene.cloud.things == {}


def test_rules_are_read_as_they_are_sent() -> None:
    given = {"Permissions.2.PortRange": "b", "Permissions.1.PortRange": "a", "Other": "c"}
    assert listed(given, "Permissions") == [{"PortRange": "a"}, {"PortRange": "b"}]
