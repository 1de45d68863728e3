"""How much an account may have at once, and has: DescribeAccountAttributes."""

from __future__ import annotations

from dataclasses import dataclass

from burst.provision.alibaba.client import Api

NAMES = {True: "spot-instance-vcpu-count", False: "postpaid-instance-vcpu-count"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """vCPUs of one market in one region; None: Alibaba Cloud does not say."""

    region: str
    spot: bool
    most: int | None
    used: int | None

    def __str__(self) -> str:
        market = "spot" if self.spot else "on-demand"
        most = "an unknown number" if self.most is None else self.most
        used = "an unknown number" if self.used is None else self.used
        return f"{used} of {most} {market} vCPUs are in use in {self.region}"


def quota(api: Api, *, spot: bool) -> Quota:
    """Return what an account may have in the region, and has."""
    most, used = (f"{kind}-{NAMES[spot]}" for kind in ("max", "used"))
    answer = api.call("DescribeAccountAttributes", AttributeName=[most, used])
    told = {
        item["AttributeName"]: [one["Value"] for one in item["AttributeValues"]["ValueItem"]]
        for item in answer["AccountAttributeItems"]["AccountAttributeItem"]
    }
    numbers = {name: int(values[0]) for name, values in told.items() if values}
    return Quota(region=api.region, spot=spot, most=numbers.get(most), used=numbers.get(used))
