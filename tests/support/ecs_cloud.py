"""A stand-in for Alibaba Cloud's ECS and VPC: what its actions do, without HTTP (see ecs_http).

As the API References describe them (ECS 2014-05-26, VPC 2016-04-28), as far as burst asks. Time is
the test's: `clock` says what it is now.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network
from typing import Any

Parameters = Mapping[str, str]


class RefusedCallError(Exception):
    """What an error answer holds."""

    def __init__(self, status: int, code: str, said: str = "", **headers: str) -> None:
        super().__init__(code)
        self.status, self.code, self.said, self.headers = status, code, said or code, headers


@dataclass(frozen=True)
class Kind:
    """A machine type."""

    name: str
    cpus: int
    memory: float
    gpu: str = ""
    gpus: int = 0
    gpu_memory: float = 0.0
    price: float = 1.0
    spot: float = 0.3
    disks: tuple[str, ...] = ("cloud_essd", "cloud_efficiency")

    @property
    def family(self) -> str:
        return f"ecs.{re.split(r'[-.]', self.name.removeprefix('ecs.'))[0]}"


KINDS = (
    Kind("ecs.gn6i-c4g1.xlarge", 4, 15.0, "NVIDIA T4", 1, 16.0, 0.62, 0.17),
    Kind("ecs.gn6i-c24g1.12xlarge", 48, 186.0, "NVIDIA T4", 2, 16.0, 2.1, 0.6),
    Kind("ecs.gn7i-c8g1.2xlarge", 8, 30.0, "NVIDIA A10", 1, 24.0, 1.02, 0.31),
    Kind("ecs.gn7e-c16g1.4xlarge", 16, 125.0, "NVIDIA A100", 1, 80.0, 4.2, 1.3),
    Kind("ecs.gn8v.6xlarge", 24, 128.0, "GPU H", 1, 96.0, 6.0, 2.0, ("cloud_essd",)),
    Kind("ecs.vgn6i-m4-vws.xlarge", 4, 23.0, "NVIDIA T4", 0, 4.0, 0.3, 0.1),
    Kind("ecs.gn9x.4xlarge", 16, 64.0, "G59", 1, 72.0, 9.0, 3.0),
    Kind("ecs.g7.large", 2, 8.0, price=0.1, spot=0.03),
    Kind("ecs.g7.xlarge", 4, 16.0, price=0.2, spot=0.06),
    Kind("ecs.old.large", 2, 8.0, price=0.1, spot=0.03, disks=("cloud_efficiency",)),
)
ZONES = {
    "ap-southeast-1": ("ap-southeast-1a", "ap-southeast-1b"),
    "cn-hangzhou": ("cn-hangzhou-i", "cn-hangzhou-j"),
}
NOTICE = timedelta(minutes=5)  # of a spot machine's end
TOKEN_LIFE = timedelta(hours=24)
LONG_AGO = datetime(2009, 9, 10, tzinfo=UTC)


@dataclass
class Machine:
    """One ECS machine."""

    id: str
    kind: Kind
    region: str
    zone: str
    asked: Parameters
    created: datetime
    boots: datetime
    ip: str
    public_ip: str
    release_at: datetime | None
    tags: dict[str, str] = field(default_factory=dict)
    ends: datetime | None = None  # reclaimed: when it goes
    stopped: bool = False

    @property
    def limit(self) -> float:
        """What its owner pays for it per hour; on-demand machines have no market's price."""
        return float(self.asked.get("SpotPriceLimit", "inf"))

    @property
    def spot(self) -> bool:
        return self.asked.get("SpotStrategy", "NoSpot") != "NoSpot"


@dataclass
class Fault:
    """The next `times` calls of an action fail."""

    action: str
    status: int
    code: str
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False  # the call is carried out, only its answer is lost


class EcsCloud:
    """The state of a whole cloud, and its actions: methods of their names."""

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        self.clock = clock or (lambda: datetime.now(UTC))
        self.kinds = {kind.name: kind for kind in KINDS}
        self.zones = dict(ZONES)
        self.currency = "USD"
        self.stock: dict[tuple[str, str], int] = {}  # (zone, type or "*"): how many are left
        self.spot_prices: dict[tuple[str, str], list[tuple[datetime, float]]] = {}
        self.spot_quota = 400
        self.boot = timedelta()
        self.vpc_takes = timedelta()
        self.page = 100  # the most that one answer holds
        self.faults: list[Fault] = []
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.machines: dict[str, Machine] = {}
        self.gone: dict[str, tuple[Machine, datetime]] = {}
        self.things: dict[str, dict[str, Any]] = {}  # VPCs, VSwitches, security groups, key pairs
        self._tokens: dict[tuple[str, str], tuple[datetime, Parameters, dict[str, Any]]] = {}
        self._addresses = 0

    # What a test does to it -----------------------------------------------------------------------

    def count(self) -> Counter[str]:
        return Counter(action for action, _ in self.calls)

    def fail(self, action: str, code: str, status: int = 400, **more: Any) -> None:
        self.faults.append(Fault(action, status, code, **more))

    def reclaim(self, name: str, notice: timedelta = NOTICE) -> None:
        """Take a spot machine back, with a notice before."""
        self.machines[name].ends = self.clock() + notice

    def lose(self, name: str) -> None:
        """Take a machine away at once."""
        self._remove(name)

    def tick(self) -> None:
        """Let happen what is due."""
        now = self.clock()
        for machine in self.machines.values():
            if machine.limit < self.spot_price(machine.zone, machine.kind):
                machine.ends = machine.ends or now + NOTICE
        for machine in list(self.machines.values()):
            due = [at for at in (machine.ends, machine.release_at) if at is not None and at <= now]
            if due:
                self._remove(machine.id)

    def _remove(self, name: str) -> None:
        machine = self.machines.pop(name)
        self.gone[name] = (machine, self.clock())
        key = (machine.zone, machine.kind.name)
        if key in self.stock:
            self.stock[key] += 1

    def state_of(self, machine: Machine) -> str:
        if machine.stopped:
            return "Stopped"
        return "Pending" if self.clock() < machine.boots else "Running"

    # Calls ----------------------------------------------------------------------------------------

    def call(self, action: str, given: dict[str, str]) -> dict[str, Any]:
        """Carry a call out; RefusedCallError: no."""
        self.tick()
        self.calls.append((action, given))
        fault = next((f for f in self.faults if f.action in {action, "*"} and f.times > 0), None)
        if fault is not None:
            fault.times -= 1
            if not fault.after:
                raise RefusedCallError(fault.status, fault.code, **fault.headers)
        method = getattr(self, action, None)
        if method is None or not action[:1].isupper():
            raise RefusedCallError(404, "InvalidAction.NotFound")
        if given.get("RegionId", next(iter(self.zones))) not in self.zones:
            raise RefusedCallError(404, "InvalidRegionId.NotFound")
        answer = self._once(action, given, method)
        if fault is not None:
            raise RefusedCallError(fault.status, fault.code, **fault.headers)
        return answer

    def _once(
        self, action: str, given: dict[str, str], method: Callable[[Parameters], dict[str, Any]]
    ) -> dict[str, Any]:
        """ClientToken: the same again gives the same answer, another request is refused."""
        token = given.get("ClientToken")
        if not token:
            return method(given)
        if len(token) > 64 or not token.isascii():
            raise RefusedCallError(400, "InvalidClientToken.Malformed")
        rest = {k: v for k, v in given.items() if k != "ClientToken"}
        at, before, answer = self._tokens.get((action, token), (LONG_AGO, {}, {}))
        if answer and self.clock() - at < TOKEN_LIFE:
            if before != rest:
                raise RefusedCallError(400, "IdempotentParameterMismatch")
            return answer
        answer = method(given)
        self._tokens[(action, token)] = (self.clock(), rest, answer)
        return answer

    # ECS: machines --------------------------------------------------------------------------------

    def RunInstances(self, given: Parameters) -> dict[str, Any]:
        _need(given, "InstanceType", "SecurityGroupId", "VSwitchId")
        kind, zone = self._kind(given), self._zone_of(given)
        amount = int(given.get("Amount", 1))
        least = int(given.get("MinAmount", amount))
        self._check_launch(given, kind, zone, amount)
        left = self._left(zone, kind.name)
        if left < least:
            raise RefusedCallError(
                403, "OperationDenied.NoStock", "The requested resource is sold out in the zone."
            )
        ids = [self._start(given, kind, zone).id for _ in range(min(amount, left))]
        key = (zone, kind.name)
        if key in self.stock:
            self.stock[key] -= len(ids)
        return {"InstanceIdSets": {"InstanceIdSet": ids}, "OrderId": "", "TradePrice": 0.0}

    def _check_launch(self, given: Parameters, kind: Kind, zone: str, amount: int) -> None:
        if not 1 <= amount <= 100:
            raise RefusedCallError(400, "InvalidAmount.NotSupported")
        if bool(given.get("ImageId")) == bool(given.get("ImageFamily")):
            raise RefusedCallError(400, "MissingParameter.ImageId")
        self._thing(given["SecurityGroupId"], "InvalidSecurityGroupId.NotFound")
        if "KeyPairName" in given:
            self._thing(given["KeyPairName"], "InvalidKeyPairName.NotFound")
        if given.get("SystemDisk.Category") not in kind.disks:
            raise RefusedCallError(400, "InvalidSystemDiskCategory.ValueNotSupported")
        if "AutoReleaseTime" in given:
            self._release_time(given["AutoReleaseTime"])
        self._check_market(given, kind, zone, amount)

    def _check_market(self, given: Parameters, kind: Kind, zone: str, amount: int) -> None:
        strategy = given.get("SpotStrategy", "NoSpot")
        if strategy == "SpotWithPriceLimit":
            limit = given.get("SpotPriceLimit", "")
            if not re.fullmatch(r"\d+(\.\d{1,3})?", limit):
                raise RefusedCallError(400, "InvalidSpotPriceLimit")
            if float(limit) < self.spot_price(zone, kind):
                raise RefusedCallError(400, "InvalidSpotPriceLimit.LowerThanPublicPrice")
        spot_cpus = self._spot_cpus() + kind.cpus * amount
        if strategy != "NoSpot" and spot_cpus > self.spot_quota:
            raise RefusedCallError(403, "QuotaExceed.ElasticQuota", "Spot vCPUs of the zone.")

    def _start(self, given: Parameters, kind: Kind, zone: str) -> Machine:
        self._addresses += 1
        switch = self._thing(given["VSwitchId"], "InvalidVSwitchId.NotFound")
        ip = str(IPv4Network(switch["CidrBlock"])[9 + self._addresses])
        release = given.get("AutoReleaseTime")
        machine = Machine(
            id=f"i-{uuid.uuid4().hex[:20]}",
            kind=kind,
            region=given["RegionId"],
            zone=zone,
            asked=given,
            created=self.clock(),
            boots=self.clock() + self.boot,
            ip=ip,
            public_ip=self.public_ip(ip) if int(given.get("InternetMaxBandwidthOut", 0)) else "",
            release_at=self._release_time(release) if release else None,
            tags={tag["Key"]: tag.get("Value", "") for tag in listed(given, "Tag")},
        )
        self.machines[machine.id] = machine
        return machine

    def public_ip(self, private: str) -> str:
        return f"203.0.113.{private.rpartition('.')[2]}"

    def _release_time(self, text: str) -> datetime:
        at = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(second=0, tzinfo=UTC)
        if at < self.clock().replace(second=0, microsecond=0) + timedelta(minutes=30):
            raise RefusedCallError(400, "InvalidAutoReleaseTime.Malformed")
        return at

    def DescribeInstances(self, given: Parameters) -> dict[str, Any]:
        only = json.loads(given["InstanceIds"]) if "InstanceIds" in given else None
        found = [
            _told(self, machine)
            for machine in self.machines.values()
            if machine.region == given["RegionId"]
            and (only is None or machine.id in only)
            and given.get("VpcId") in {None, self.things[machine.asked["VSwitchId"]]["VpcId"]}
            and given.get("KeyPairName") in {None, machine.asked.get("KeyPairName")}
            and _tagged(given, machine.tags)
        ]
        return self._page(given, found, "Instances", "Instance", least=10)

    def DeleteInstances(self, given: Parameters) -> dict[str, Any]:
        ids = [str(one) for one in listed(given, "InstanceId")]
        if not 1 <= len(ids) <= 100:
            raise RefusedCallError(400, "InvalidParameter.InstanceId")
        for name in ids:
            if name not in self.machines:
                raise RefusedCallError(404, "InvalidInstanceId.NotFound")
            state = self.state_of(self.machines[name])
            if state == "Pending":
                raise RefusedCallError(403, "IncorrectInstanceStatus.Initializing")
            if state == "Running" and given.get("Force", "").lower() != "true":
                raise RefusedCallError(403, "IncorrectInstanceStatus")
        for name in ids:
            self._remove(name)
        return {}

    def ModifyInstanceAutoReleaseTime(self, given: Parameters) -> dict[str, Any]:
        machine = self.machines.get(given.get("InstanceId", ""))
        if machine is None:
            raise RefusedCallError(404, "InvalidInstanceId.NotFound")
        text = given.get("AutoReleaseTime")
        machine.release_at = self._release_time(text) if text else None
        return {}

    # ECS: what there is and what it costs ---------------------------------------------------------

    def DescribeRegions(self, given: Parameters) -> dict[str, Any]:
        return {"Regions": {"Region": [{"RegionId": region} for region in self.zones]}}

    def DescribeInstanceTypes(self, given: Parameters) -> dict[str, Any]:
        families = [str(one) for one in listed(given, "InstanceTypeFamilies")]
        found = [
            {
                "InstanceTypeId": kind.name,
                "InstanceTypeFamily": kind.family,
                "CpuCoreCount": kind.cpus,
                "MemorySize": kind.memory,
                "GPUSpec": kind.gpu,
                "GPUAmount": kind.gpus,
                "GPUMemorySize": kind.gpu_memory,
                "CpuArchitecture": "X86",
            }
            for kind in self.kinds.values()
            if kind.gpus >= int(given.get("MinimumGPUAmount", 0))
            and kind.cpus <= int(given.get("MaximumCpuCoreCount", 10_000))
            and (not families or kind.family in families)
        ]
        return self._page(given, found, "InstanceTypes", "InstanceType")

    def DescribeAvailableResource(self, given: Parameters) -> dict[str, Any]:
        _need(given, "DestinationResource")
        zones = []
        for zone in self.zones[given["RegionId"]]:
            sold = []
            for kind in self.kinds.values():
                left = self._left(zone, kind.name)
                category = "WithStock" if left else "WithoutStock"
                state = "Available" if left else "SoldOut"
                sold.append({"Value": kind.name, "Status": state, "StatusCategory": category})
            kinds = {"Type": "InstanceType", "SupportedResources": {"SupportedResource": sold}}
            zones.append(
                {
                    "RegionId": given["RegionId"],
                    "ZoneId": zone,
                    "Status": "Available",
                    "StatusCategory": "WithStock",
                    "AvailableResources": {"AvailableResource": [kinds]},
                }
            )
        return {"AvailableZones": {"AvailableZone": zones}}

    def DescribePrice(self, given: Parameters) -> dict[str, Any]:
        kind, zone = self._kind(given), self._zone_of(given)
        if given.get("SystemDisk.Category") not in kind.disks:
            raise RefusedCallError(400, "InvalidSystemDiskCategory.ValueNotSupported")
        spot = given.get("SpotStrategy", "NoSpot") != "NoSpot"
        price = self.spot_price(zone, kind) if spot else kind.price
        details = [
            {"Resource": "systemDisk", "TradePrice": 0.01},
            {"Resource": "instanceType", "OriginalPrice": kind.price, "TradePrice": price},
        ]
        told = {
            "Currency": self.currency,
            "TradePrice": price + 0.01,
            "DetailInfos": {"DetailInfo": details},
        }
        return {"PriceInfo": {"Price": told, "Rules": {"Rule": []}}}

    def DescribeSpotPriceHistory(self, given: Parameters) -> dict[str, Any]:
        _need(given, "NetworkType", "InstanceType")
        kind, now = self._kind(given), self.clock()
        rows = [
            {
                "ZoneId": zone,
                "InstanceType": kind.name,
                "SpotPrice": price,
                "OriginPrice": kind.price,
                "Timestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}",
            }
            for zone in self.zones[given["RegionId"]]
            for at, price in self.spot_prices.get((zone, kind.name), [(now, kind.spot)])
        ]
        start = int(given.get("Offset", 0))
        end = start + self.page
        return {
            "Currency": self.currency,
            "NextOffset": end if end < len(rows) else 0,
            "SpotPrices": {"SpotPriceType": rows[start:end]},
        }

    def DescribeAccountAttributes(self, given: Parameters) -> dict[str, Any]:
        known = {
            "max-spot-instance-vcpu-count": self.spot_quota,
            "used-spot-instance-vcpu-count": self._spot_cpus(),
        }
        items = [
            {"AttributeName": name, "AttributeValues": {"ValueItem": [{"Value": str(known[name])}]}}
            for name in map(str, listed(given, "AttributeName"))
            if name in known
        ]
        return {"AccountAttributeItems": {"AccountAttributeItem": items}}

    def spot_price(self, zone: str, kind: Kind) -> float:
        return self.spot_prices.get((zone, kind.name), [(LONG_AGO, kind.spot)])[-1][1]

    def _spot_cpus(self) -> int:
        return sum(machine.kind.cpus for machine in self.machines.values() if machine.spot)

    def _left(self, zone: str, kind: str) -> int:
        """How many are left: as the table says, for the zone and type or the zone."""
        if (zone, kind) in self.stock:
            return self.stock[zone, kind]
        return self.stock.get((zone, "*"), 100)

    def _kind(self, given: Parameters) -> Kind:
        if given.get("InstanceType") not in self.kinds:
            raise RefusedCallError(400, "InvalidInstanceType.ValueNotSupported")
        return self.kinds[given["InstanceType"]]

    def _zone_of(self, given: Parameters) -> str:
        zones = self.zones[given["RegionId"]]
        zone = given.get("ZoneId", zones[0])
        if zone not in zones:
            raise RefusedCallError(404, "InvalidZoneId.NotFound")
        return zone

    # Networks and keys ----------------------------------------------------------------------------

    def CreateVpc(self, given: Parameters) -> dict[str, Any]:
        name = self._make("vpc", given, Status="Available", CidrBlock=given["CidrBlock"])
        self.things[name]["ready"] = self.clock() + self.vpc_takes
        return {"VpcId": name}

    def CreateVSwitch(self, given: Parameters) -> dict[str, Any]:
        _need(given, "VpcId", "ZoneId", "CidrBlock")
        vpc = self._thing(given["VpcId"], "InvalidVpcId.NotFound")
        if self.clock() < vpc["ready"]:
            raise RefusedCallError(400, "IncorrectVpcStatus")
        block = IPv4Network(given["CidrBlock"])
        mine = self._of("vsw", VpcId=given["VpcId"])
        if any(block.overlaps(IPv4Network(one["CidrBlock"])) for one in mine):
            raise RefusedCallError(400, "InvalidCidrBlock.Overlapped")
        self._zone_of(given)
        asked = {name: given[name] for name in ("VpcId", "ZoneId", "CidrBlock")}
        return {"VSwitchId": self._make("vsw", given, Status="Available", **asked)}

    def CreateSecurityGroup(self, given: Parameters) -> dict[str, Any]:
        _need(given, "VpcId")
        self._thing(given["VpcId"], "InvalidVpcId.NotFound")
        return {"SecurityGroupId": self._make("sg", given, VpcId=given["VpcId"], rules=[])}

    def AuthorizeSecurityGroup(self, given: Parameters) -> dict[str, Any]:
        group = self._thing(given["SecurityGroupId"], "InvalidSecurityGroupId.NotFound")
        for rule in listed(given, "Permissions"):
            if rule not in group["rules"]:
                group["rules"].append(rule)
        return {}

    def DescribeSecurityGroupAttribute(self, given: Parameters) -> dict[str, Any]:
        group = self._thing(given["SecurityGroupId"], "InvalidSecurityGroupId.NotFound")
        return {"Permissions": {"Permission": group["rules"]}}

    def ImportKeyPair(self, given: Parameters) -> dict[str, Any]:
        name = given["KeyPairName"]
        if name in self.things:
            raise RefusedCallError(400, "KeyPair.AlreadyExist")
        raw = base64.b64decode(given["PublicKeyBody"].split()[1])
        finger = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        self._make("key", given, name=name, KeyPairFingerPrint=finger)
        self.things[name]["PublicKey"] = given["PublicKeyBody"]
        return {"KeyPairName": name, "KeyPairFingerPrint": finger}

    def DescribeVpcs(self, given: Parameters) -> dict[str, Any]:
        found = self._of("vpc", given)
        for one in found:
            one["Status"] = "Available" if self.clock() >= one["ready"] else "Pending"
        only = [one for one in found if given.get("VpcId") in {None, one["VpcId"]}]
        return self._numbered(given, only, "Vpcs", "Vpc")

    def DescribeVSwitches(self, given: Parameters) -> dict[str, Any]:
        found = self._of("vsw", given, **_named(given, "VpcId"))
        return self._numbered(given, found, "VSwitches", "VSwitch")

    def DescribeSecurityGroups(self, given: Parameters) -> dict[str, Any]:
        found = self._of("sg", given, **_named(given, "VpcId"))
        return self._page(given, found, "SecurityGroups", "SecurityGroup")

    def DescribeKeyPairs(self, given: Parameters) -> dict[str, Any]:
        found = self._of("key", given)
        only = [one for one in found if given.get("KeyPairName") in {None, one["KeyPairName"]}]
        return self._numbered(given, only, "KeyPairs", "KeyPair")

    def DeleteVpc(self, given: Parameters) -> dict[str, Any]:
        self._thing(given["VpcId"], "InvalidVpcId.NotFound")
        inside = [one for kind in ("vsw", "sg") for one in self._of(kind, VpcId=given["VpcId"])]
        return self._delete(given["VpcId"], in_use=bool(inside))

    def DeleteVSwitch(self, given: Parameters) -> dict[str, Any]:
        return self._delete_used(given["VSwitchId"], "VSwitchId", "InvalidVSwitchId.NotFound")

    def DeleteSecurityGroup(self, given: Parameters) -> dict[str, Any]:
        name = given["SecurityGroupId"]
        return self._delete_used(name, "SecurityGroupId", "InvalidSecurityGroupId.NotFound")

    def DeleteKeyPairs(self, given: Parameters) -> dict[str, Any]:
        for name in json.loads(given["KeyPairNames"]):
            self._delete(name, in_use=False)
        return {}

    def _delete_used(self, name: str, what: str, unknown: str) -> dict[str, Any]:
        self._thing(name, unknown)
        used = any(machine.asked.get(what) == name for machine in self.machines.values())
        return self._delete(name, in_use=used)

    def _delete(self, name: str, *, in_use: bool) -> dict[str, Any]:
        if in_use:
            raise RefusedCallError(403, "DependencyViolation")
        del self.things[name]
        return {}

    def _make(self, kind: str, given: Parameters, *, name: str = "", **more: Any) -> str:
        name = name or f"{kind}-{uuid.uuid4().hex[:16]}"
        words = {"vpc": "VpcId", "vsw": "VSwitchId", "sg": "SecurityGroupId", "key": "KeyPairName"}
        self.things[name] = {
            "kind": kind,
            "RegionId": given["RegionId"],
            "CreationTime": f"{self.clock():%Y-%m-%dT%H:%M:%SZ}",
            "tags": {tag["Key"]: tag.get("Value", "") for tag in listed(given, "Tag")},
            words[kind]: name,
            **more,
        }
        return name

    def _thing(self, name: str, unknown: str) -> dict[str, Any]:
        if name not in self.things:
            raise RefusedCallError(404, unknown)
        return self.things[name]

    def _of(self, kind: str, given: Parameters | None = None, **equal: str) -> list[dict[str, Any]]:
        return [
            one
            for one in self.things.values()
            if one["kind"] == kind
            and (given is None or one["RegionId"] == given["RegionId"])
            and (given is None or _tagged(given, one["tags"]))
            and all(one[name] == value for name, value in equal.items())
        ]

    # Pages ----------------------------------------------------------------------------------------

    def _page(
        self, given: Parameters, found: Sequence[Any], outer: str, inner: str, *, least: int = 1
    ) -> dict[str, Any]:
        size = int(given.get("MaxResults", 10))
        if not least <= size <= 1600:
            raise RefusedCallError(400, "InvalidParameter.MaxResults")
        size = min(size, self.page)
        start = int(base64.b64decode(given.get("NextToken", "")) or 0)
        left = start + size < len(found)
        token = base64.b64encode(str(start + size).encode()).decode() if left else ""
        return {
            outer: {inner: _shown(found[start : start + size])},
            "TotalCount": len(found),
            "NextToken": token,
        }

    def _numbered(
        self, given: Parameters, found: Sequence[Any], outer: str, inner: str
    ) -> dict[str, Any]:
        size, number = int(given.get("PageSize", 10)), int(given.get("PageNumber", 1))
        if not 1 <= size <= 50:
            raise RefusedCallError(400, "InvalidParameter.PageSize")
        some = found[(number - 1) * size : number * size]
        return {
            outer: {inner: _shown(some)},
            "TotalCount": len(found),
            "PageNumber": number,
            "PageSize": size,
        }


def _shown(things: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what is the stand-in's own."""
    return [{k: v for k, v in thing.items() if k[:1].isupper()} for thing in things]


def _told(cloud: EcsCloud, machine: Machine) -> dict[str, Any]:
    """A machine as DescribeInstances tells it; its times have no seconds."""
    locks = [{"LockReason": "Recycling"}] if machine.ends else []
    release = machine.release_at
    return {
        "InstanceId": machine.id,
        "RegionId": machine.region,
        "ZoneId": machine.zone,
        "InstanceType": machine.kind.name,
        "Status": cloud.state_of(machine),
        "CreationTime": f"{machine.created:%Y-%m-%dT%H:%MZ}",
        "AutoReleaseTime": f"{release:%Y-%m-%dT%H:%MZ}" if release else "",
        "SpotStrategy": machine.asked.get("SpotStrategy", "NoSpot"),
        "OperationLocks": {"LockReason": locks},
        "PublicIpAddress": {"IpAddress": [machine.public_ip] if machine.public_ip else []},
        "EipAddress": {"IpAddress": "", "AllocationId": ""},
        "VpcAttributes": {"PrivateIpAddress": {"IpAddress": [machine.ip]}},
        "Tags": {"Tag": [{"TagKey": k, "TagValue": v} for k, v in machine.tags.items()]},
    }


def listed(given: Parameters, name: str) -> list[Any]:
    """Read `Name.1=x` or `Name.1.Field=x` as a list."""
    found: dict[int, Any] = {}
    for key, value in given.items():
        match = re.fullmatch(rf"{re.escape(name)}\.(\d+)(?:\.(.+))?", key)
        if match and match[2]:
            found.setdefault(int(match[1]), {})[match[2]] = value
        elif match:
            found[int(match[1])] = value
    return [found[number] for number in sorted(found)]


def _named(given: Parameters, name: str) -> dict[str, str]:
    """Return a parameter that a request may leave out."""
    return {name: given[name]} if name in given else {}


def _tagged(given: Parameters, tags: Mapping[str, str]) -> bool:
    wanted = listed(given, "Tag")
    return all(
        tag["Key"] in tags and tag.get("Value", tags[tag["Key"]]) == tags[tag["Key"]]
        for tag in wanted
    )


def _need(given: Parameters, *names: str) -> None:
    for name in names:
        if not given.get(name):
            raise RefusedCallError(400, f"MissingParameter.{name}")
