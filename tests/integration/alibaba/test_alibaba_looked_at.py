"""Looking at Alibaba Cloud, at its stand-in."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from burst.cost.offers import Offer
from burst.cost.quotes import PER_SECOND, Quote
from burst.errors import SetupError, TransientError
from burst.provision.alibaba.client import Api
from burst.provision.inspection.alibaba import LOOKS, AlibabaPool
from burst.provision.inspection.port import Finding, Wanted
from ecs_scene import REGION, Scene

pytestmark = pytest.mark.integration
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def offer(*, spot: bool, cpus: float = 4.0) -> Offer:
    quote = Quote(usd_per_hour=Decimal(1), source="x", observed_at=NOW, billing=PER_SECOND)
    return Offer(
        pool="alibaba",
        region=REGION,
        zone="",
        machine_type="ecs.gn6i-c4g1.xlarge",
        cpus=cpus,
        memory_gb=15.0,
        accelerators=None,
        spot=spot,
        quote=quote,
    )


def pool(scene: Scene, ahead_s: float | None = 0.0) -> AlibabaPool:
    return AlibabaPool(connect=scene.api, region=REGION, ahead_s=lambda _: ahead_s)


def look(looked_at: AlibabaPool, wanted: Wanted | None = None) -> dict[str, Finding]:
    found = looked_at.findings(wanted or Wanted())
    assert all(one.fix for one in found if one.works is False)
    return {one.what: one for one in found}


def test_an_account_where_everything_works(scene: Scene) -> None:
    found = look(pool(scene))
    untold = found.pop(f"quota {REGION} on-demand")  # by the stand-in
    assert untold.works is None
    assert all(one.works for one in found.values())
    assert found["credentials"].detail == f"ECS in {REGION} takes them"
    assert found["clock"].detail == "as here"
    assert found["rights"].detail.startswith("7 calls that look are allowed")
    assert found[f"quota {REGION} spot"].detail.startswith("0 of 400 spot vCPUs are in use")
    assert all(action.startswith("Describe") for action in scene.cloud.count())  # made nothing
    (row,) = pool(scene).rows()
    assert (row.pool, row.healthy) == ("alibaba", True)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("InvalidAccessKeyId.NotFound", "credentials"),
        ("SignatureDoesNotMatch", "credentials"),
        ("InvalidTimeStamp.Expired", "clock"),
        ("Forbidden.RAM", "rights"),
    ],
)
def test_what_a_refusal_at_the_door_means(scene: Scene, code: str, what: str) -> None:
    scene.cloud.fail("DescribeRegions", code, 403)
    found = look(pool(scene, ahead_s=None))
    assert {name: one.works for name, one in found.items()} == {what: False}
    assert code in found[what].detail


def test_a_clock_that_is_off_is_told_beside_the_refusal(scene: Scene) -> None:
    scene.cloud.fail("DescribeRegions", "SignatureDoesNotMatch", 403)
    found = look(pool(scene, ahead_s=1000.0))
    assert (found["credentials"].works, found["clock"].works) == (False, False)


def test_looks_that_are_refused_are_named(scene: Scene) -> None:
    scene.cloud.fail("DescribeVpcs", "Forbidden.RAM", 403)
    scene.cloud.fail("DescribeKeyPairs", "Forbidden.RAM", 403)
    found = look(pool(scene))["rights"]
    assert (found.works, found.detail) == (False, "refused: DescribeKeyPairs, DescribeVpcs")
    assert "docs/alibaba.md" in found.fix


def test_the_quota_of_the_tasks_market_is_held_against_its_machines(scene: Scene) -> None:
    scene.cloud.spot_quota = 10
    what = f"quota {REGION} spot"
    found = look(pool(scene), Wanted(nodes=2, machines=(offer(spot=True),)))
    assert found[what].works is True
    assert found[what].detail.endswith("the task wants 8")
    found = look(pool(scene), Wanted(nodes=3, machines=(offer(spot=True),)))
    assert found[what].works is False
    assert f"quota {REGION} on-demand" not in found


def test_a_quota_that_is_not_told_fails_nothing(scene: Scene) -> None:
    scene.cloud.fail("DescribeAccountAttributes", "Forbidden.RAM", 403, times=9)
    found = look(pool(scene))
    assert found["rights"].works is False
    assert found[f"quota {REGION} spot"].works is None


@pytest.mark.parametrize(
    ("error", "what"),
    [(SetupError("no keys", hint="set them"), "credentials"), (TransientError("x"), "reachable")],
)
def test_no_credentials_and_no_way_there(error: Exception, what: str) -> None:
    def connect(_: str) -> Api:
        raise error

    looked_at = AlibabaPool(connect=connect, region=REGION, ahead_s=lambda _: None)
    assert {name: one.works for name, one in look(looked_at).items()} == {what: False}


def test_a_server_that_does_not_tell_its_time_is_no_finding(scene: Scene) -> None:
    def ahead_s(_: str) -> float:
        raise TransientError("x")

    looked_at = AlibabaPool(connect=scene.api, region=REGION, ahead_s=ahead_s)
    assert "clock" not in look(looked_at)


def test_the_looks_are_among_the_documented_rights() -> None:
    page = (Path(__file__).parents[3] / "docs/alibaba.md").read_text()
    documented = set(re.findall(r'"(?:ecs|vpc):(\w+)"', page))
    assert documented >= set(LOOKS)
