"""ECS machines: asked for, looked at, kept, and given back.

The rules are those of the ECS API Reference: RunInstances (2014-05-26), DescribeInstances,
DeleteInstances, ModifyInstanceAutoReleaseTime.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from typing import Any, Literal

from burst.provision.alibaba.client import Answer, Api, pages, tags
from burst.provision.alibaba.codes import GONE, OTHER_DISK, among
from burst.provision.alibaba.errors import EcsBusyError, EcsError

log = logging.getLogger(__name__)

DISKS = ("cloud_essd", "cloud_efficiency", "cloud_ssd")  # types differ in what they take
MOST_AT_ONCE = 100  # of RunInstances and DeleteInstances
LEAST_AHEAD = timedelta(minutes=30)  # of AutoReleaseTime
BOOT_S = 300.0  # how long a machine may be too young to be deleted
DELETE_AGAIN_S = 5.0
RECYCLING = "Recycling"
State = Literal["Pending", "Starting", "Running", "Stopping", "Stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Machines to be asked for, all alike and in one zone."""

    zone: str
    machine_type: str
    image_id: str = ""  # of this region
    image_family: str = ""  # or the newest of a family
    vswitch_id: str
    security_group_id: str
    key_pair: str
    name: str
    tags: Mapping[str, str]
    count: int = 1
    least: int | None = None  # fewer than that: none at all. None: all or nothing
    spot: bool = False
    price_limit: Decimal | None = None  # of a spot machine per hour; None: up to on-demand
    disk_gb: int = 100
    user_data: str = field(default="", repr=False)
    public_address: bool = True
    release_at: datetime | None = None  # when ECS deletes it unless that is put off


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine as ECS tells of it. One that was deleted is not told of any more."""

    instance_id: str
    region: str
    zone: str
    machine_type: str
    state: State
    spot: bool
    taken: bool  # ECS is about to take it back
    since: datetime  # ECS tells minutes
    release_at: datetime | None
    public_ip: str
    private_ip: str
    tags: Mapping[str, str]

    def __str__(self) -> str:
        state = f"{self.state}, {RECYCLING}" if self.taken else self.state
        what = f"{self.instance_id} ({self.machine_type}, {state}) in {self.zone}"
        return f"{what}, since {self.since:%Y-%m-%d %H:%MZ}"


def launch(api: Api, order: Order, token: str) -> tuple[str, ...]:
    """Ask for machines and return their ids; the same token with the same order: the same ones.

    EcsError with `reason` when there are none; then there is nothing of them left.
    """
    answer = on_some_disk(
        lambda disk: api.call("RunInstances", **_wish(order, disk), ClientToken=f"{token}-{disk}")
    )
    return tuple(answer["InstanceIdSets"]["InstanceIdSet"])


def on_some_disk(call: Callable[[str], Answer]) -> Answer:
    """Make a call for the first kind of system disk that its machine type takes."""
    for disk in DISKS:
        try:
            return call(disk)
        except EcsError as error:
            if disk == DISKS[-1] or not among(error.code, OTHER_DISK):
                raise
            log.info("no %s: %s", disk, error)
    raise AssertionError(DISKS)


def _wish(order: Order, disk: str) -> dict[str, Any]:
    """Return the parameters of RunInstances."""
    wish: dict[str, Any] = {
        "ZoneId": order.zone,
        "InstanceType": order.machine_type,
        "VSwitchId": order.vswitch_id,
        "SecurityGroupId": order.security_group_id,
        "KeyPairName": order.key_pair,
        "InstanceName": order.name,
        "Tag": tags(order.tags),
        "Amount": order.count,
        "MinAmount": order.count if order.least is None else order.least,
        "InstanceChargeType": "PostPaid",
        "SystemDisk": {"Category": disk, "Size": str(order.disk_gb)},
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",  # nobody reads the metadata without a token
        "InternetChargeType": "PayByTraffic",
        "InternetMaxBandwidthOut": 100 if order.public_address else 0,
        **_market(order),
    }
    wish |= {"ImageId": order.image_id} if order.image_id else {"ImageFamily": order.image_family}
    if order.user_data:
        wish["UserData"] = base64.b64encode(order.user_data.encode()).decode()
    if order.release_at is not None:
        wish["AutoReleaseTime"] = minute(order.release_at)
    return wish


def _market(order: Order) -> dict[str, Any]:
    if not order.spot:
        return {"SpotStrategy": "NoSpot"}
    market: dict[str, Any] = {
        "SpotStrategy": "SpotAsPriceGo",
        "SpotDuration": 0,  # no protected hour, which would cost more; see docs
        "SpotInterruptionBehavior": "Terminate",  # a stopped one's disk goes on costing
    }
    if order.price_limit is not None:
        limit = order.price_limit.quantize(Decimal("0.001"), ROUND_DOWN)
        market |= {"SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": float(limit)}
    return market


def observe(api: Api, wanted: Mapping[str, str]) -> tuple[Instance, ...]:
    """Return the machines of the region that have all of some tags."""
    told = pages(api, "DescribeInstances", Tag=tags(wanted))
    return tuple(
        _instance(raw, api.region) for page in told for raw in page["Instances"]["Instance"]
    )


def keep(api: Api, instances: Iterable[Instance], until: datetime) -> None:
    """Put off until when ECS deletes machines by itself. `until` is 30 minutes ahead or more."""
    assert until - api.clock.now() >= LEAST_AHEAD, until
    for instance in instances:
        try:
            api.call(
                "ModifyInstanceAutoReleaseTime",
                InstanceId=instance.instance_id,
                AutoReleaseTime=minute(until),
            )
        except EcsError as error:
            if not among(error.code, GONE):
                raise


def delete(api: Api, instance_ids: Collection[str]) -> None:
    """Give machines back, running or not; none is left when this returns.

    One that is just being made cannot be deleted; it is asked again until it can.
    """
    left = sorted(set(instance_ids))
    until_s = api.clock.monotonic() + BOOT_S
    while left:
        some = left[:MOST_AT_ONCE]
        try:
            api.call("DeleteInstances", InstanceId=some, Force=True)
            left = left[MOST_AT_ONCE:]
        except EcsBusyError:
            if api.clock.monotonic() >= until_s:
                raise
            api.clock.sleep(DELETE_AGAIN_S)
        except EcsError as error:  # one that is not there stops the whole call
            if not among(error.code, GONE):
                raise
            left = [*_there(api, some), *left[MOST_AT_ONCE:]]


def _there(api: Api, instance_ids: list[str]) -> list[str]:
    told = pages(api, "DescribeInstances", InstanceIds=json.dumps(instance_ids))
    return [raw["InstanceId"] for page in told for raw in page["Instances"]["Instance"]]


def _instance(raw: Mapping[str, Any], region: str) -> Instance:
    locks = [one["LockReason"] for one in raw["OperationLocks"]["LockReason"]]
    public = [*raw["PublicIpAddress"]["IpAddress"], raw.get("EipAddress", {}).get("IpAddress", "")]
    return Instance(
        instance_id=raw["InstanceId"],
        region=region,
        zone=raw["ZoneId"],
        machine_type=raw["InstanceType"],
        state=raw["Status"],
        spot=raw["SpotStrategy"] != "NoSpot",
        taken=RECYCLING in locks,
        since=moment(raw["CreationTime"]),
        release_at=moment(raw["AutoReleaseTime"]) if raw.get("AutoReleaseTime") else None,
        public_ip=public[0],
        private_ip=next(iter(raw["VpcAttributes"]["PrivateIpAddress"]["IpAddress"]), ""),
        tags={tag["TagKey"]: tag["TagValue"] for tag in raw.get("Tags", {}).get("Tag", ())},
    )


def moment(text: str) -> datetime:
    """Read a time of ECS, with seconds or without; they are in UTC.

    >>> moment("2026-01-05T18:02Z").isoformat()
    '2026-01-05T18:02:00+00:00'
    """
    return datetime.fromisoformat(text).astimezone(UTC)


def minute(at: datetime) -> str:
    """Write a time as AutoReleaseTime wants it, not earlier: ECS drops the seconds."""
    whole = at.astimezone(UTC).replace(second=0, microsecond=0)
    return f"{whole if whole == at else whole + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
