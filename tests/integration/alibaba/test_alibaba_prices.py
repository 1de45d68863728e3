"""Prices, stock and the catalog made of them."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from burst.cost.quotes import PER_SECOND, Rate
from burst.errors import BurstError
from burst.provision.alibaba import prices
from burst.provision.alibaba.errors import EcsBusyError
from burst.provision.alibaba.survey import survey, write
from ecs_scene import OTHER_ZONE, T4, ZONE, Scene

pytestmark = pytest.mark.integration
YUAN = Rate("CNY", Decimal("0.14"), date(2026, 12, 1), "a bank")


def test_the_price_is_that_of_the_machine_alone(scene: Scene) -> None:
    price = prices.on_demand(scene.api(), T4, ZONE)
    assert (price.per_hour, price.currency, price.at) == (Decimal("0.62"), "USD", scene.time.at)
    assert prices.on_demand(scene.api(), "ecs.old.large", ZONE).per_hour == Decimal("0.1")


def test_the_newest_spot_price_of_each_zone(scene: Scene) -> None:
    now = scene.time.now()
    hours = [(now - timedelta(hours=h), usd) for h, usd in ((3, 0.23), (1, 0.21), (2, 0.22))]
    scene.cloud.spot_prices[ZONE, T4] = hours
    scene.cloud.page = 2
    found = prices.spot(scene.api(), T4)
    assert found[ZONE].per_hour == Decimal("0.21")
    assert found[ZONE].at == (now - timedelta(hours=1)).replace(microsecond=0)
    assert found[OTHER_ZONE].per_hour == Decimal("0.17")


def test_yuan_want_a_rate(scene: Scene) -> None:
    scene.cloud.currency = "CNY"
    price = prices.on_demand(scene.api(), T4, ZONE)
    with pytest.raises(BurstError, match="no rate from CNY to USD"):
        prices.quote(price, [])
    quote = prices.quote(price, [YUAN])
    assert (quote.usd_per_hour, quote.native_per_hour) == (Decimal("0.0868"), Decimal("0.62"))
    assert (quote.currency, quote.billing) == ("CNY", PER_SECOND)
    with pytest.raises(BurstError, match="no rate from CNY to USD"):
        survey(scene.api(), [])


def test_a_price_of_nothing_is_an_error(scene: Scene) -> None:
    scene.cloud.spot_prices[ZONE, T4] = [(scene.time.now(), 0.0)]
    with pytest.raises(BurstError, match="a price of 0"):
        prices.spot(scene.api(), T4)


def test_what_is_sold_out_is_not_in_stock(scene: Scene) -> None:
    scene.cloud.stock[ZONE, T4] = 0
    found = prices.stock(scene.api(), spot=True)
    assert T4 not in found[ZONE]
    assert T4 in found[OTHER_ZONE]


def test_the_catalog(scene: Scene, tmp_path: Path) -> None:
    scene.cloud.stock[ZONE, T4] = 0
    at = datetime(2026, 12, 2, 9, 30, tzinfo=UTC)
    path = tmp_path / "alibaba/vms.csv"
    write(path, survey(scene.api(), []), at)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    by_type = {row["InstanceType"]: row for row in rows}
    assert [r["AvailabilityZone"] for r in rows if r["InstanceType"] == T4] == [OTHER_ZONE]
    twelve = by_type["ecs.gn6i-c24g1.12xlarge"]
    assert (twelve["AcceleratorName"], twelve["AcceleratorCount"]) == ("T4", "2")
    assert (twelve["Price"], twelve["SpotPrice"]) == ("2.1", "0.6")
    assert by_type["ecs.gn8v.6xlarge"]["AcceleratorName"] == "H20"
    assert by_type["ecs.g7.large"]["AcceleratorName"] == ""
    assert "ecs.vgn6i-m4-vws.xlarge" not in by_type
    assert "ecs.gn9x.4xlarge" not in by_type
    assert datetime.fromtimestamp(path.stat().st_mtime, UTC) == at
    assert [one.name for one in path.parent.iterdir()] == ["vms.csv"]
    assert twelve["UsdRate"] == "1"
    scene.cloud.currency = "CNY"
    yuan = Rate("CNY", Decimal("0.14"), at.date(), "test")
    write(path, survey(scene.api(), [yuan]), at)
    assert {r["UsdRate"] for r in csv.DictReader(path.read_text().splitlines())} == {"0.14"}


def test_a_type_without_a_price_hides_no_other_and_a_busy_cloud_hides_all(scene: Scene) -> None:
    scene.cloud.fail("DescribePrice", "InvalidInstanceType.ValueNotSupported")
    names = {sale.machine.name for sale in survey(scene.api(), [])}
    assert T4 not in names
    assert "ecs.gn6i-c24g1.12xlarge" in names
    scene.cloud.fail("DescribePrice", "Throttling", times=99)
    with pytest.raises(EcsBusyError):
        survey(scene.api(), [])
