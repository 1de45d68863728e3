"""What machines cost and whether there are any: DescribePrice, spot prices, stock.

An account of the Chinese site is billed in CNY, an international one in USD. Yuan are compared with
dollars only through a rate that somebody gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from burst.cost.quotes import PER_SECOND, USD, Quote, Rate, rate_on
from burst.errors import BurstError
from burst.provision.alibaba.client import Api
from burst.provision.alibaba.machines import moment, on_some_disk

BILLING = PER_SECOND  # ECS, "Pay-as-you-go": per second, invoiced hourly
NOT_FOR_SALE = "WithoutStock", "ClosedWithoutStock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one machine costs per hour, its disk and traffic apart."""

    per_hour: Decimal
    currency: str
    at: datetime
    source: str


def on_demand(api: Api, machine_type: str, zone: str) -> Price:
    """Return the price of an on-demand machine; EcsError if the zone sells none."""
    answer = on_some_disk(
        lambda disk: api.call(
            "DescribePrice",
            ResourceType="instance",
            InstanceType=machine_type,
            ZoneId=zone,
            PriceUnit="Hour",
            Period=1,
            SpotStrategy="NoSpot",
            SystemDisk={"Category": disk, "Size": 40},
        )
    )
    price = answer["PriceInfo"]["Price"]
    details = price["DetailInfos"]["DetailInfo"]
    of_machine = (d["TradePrice"] for d in details if d["Resource"] == "instanceType")
    return Price(
        per_hour=_decimal(next(of_machine)),
        currency=price["Currency"],
        at=api.clock.now(),
        source="ECS DescribePrice",
    )


def spot(api: Api, machine_type: str) -> dict[str, Price]:
    """Return the newest spot price of a machine type in each zone that has one."""
    newest: dict[str, Price] = {}
    for currency, row in _history(api, machine_type):
        price = Price(
            per_hour=_decimal(row["SpotPrice"]),
            currency=currency,
            at=moment(str(row["Timestamp"])),
            source="ECS DescribeSpotPriceHistory",
        )
        zone = str(row["ZoneId"])
        if zone not in newest or newest[zone].at < price.at:
            newest[zone] = price
    return newest


def _history(api: Api, machine_type: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    offset = 0
    while True:
        answer = api.call(
            "DescribeSpotPriceHistory",
            InstanceType=machine_type,
            NetworkType="vpc",
            OSType="linux",
            IoOptimized="optimized",
            SpotDuration=0,
            Offset=offset,
        )
        for row in answer["SpotPrices"]["SpotPriceType"]:
            yield answer["Currency"], row
        offset = int(answer.get("NextOffset") or 0)
        if offset == 0:
            return


def stock(api: Api, *, spot: bool) -> dict[str, frozenset[str]]:
    """Return the machine types that each zone has, by zone."""
    answer = api.call(
        "DescribeAvailableResource",
        DestinationResource="InstanceType",
        ResourceType="instance",
        InstanceChargeType="PostPaid",
        SpotStrategy="SpotAsPriceGo" if spot else "NoSpot",
        SpotDuration=0 if spot else None,
        IoOptimized="optimized",
        NetworkCategory="vpc",
    )
    return {
        zone["ZoneId"]: frozenset(
            one["Value"]
            for resource in zone["AvailableResources"]["AvailableResource"]
            for one in resource["SupportedResources"]["SupportedResource"]
            if one["Status"] == "Available" and one["StatusCategory"] not in NOT_FOR_SALE
        )
        for zone in answer["AvailableZones"]["AvailableZone"]
    }


def quote(price: Price, rates: Iterable[Rate]) -> Quote:
    """Return a price in dollars; BurstError if it is in another currency without a rate."""
    if price.currency == USD:
        return Quote(
            usd_per_hour=price.per_hour,
            source=price.source,
            observed_at=price.at,
            billing=BILLING,
        )
    rate = rate_on(rates, price.currency, price.at.date())
    return Quote.converted(
        price.per_hour, rate, source=price.source, observed_at=price.at, billing=BILLING
    )


def _decimal(number: object) -> Decimal:
    """Return a price as it was written, not as a binary float holds it."""
    found = Decimal(str(number))
    if found <= 0:
        raise BurstError(f"Alibaba Cloud names a price of {found} per hour")
    return found
