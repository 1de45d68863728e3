"""The network that machines need in a region: made when missing, found again, taken away again.

One VPC, a VSwitch for each zone, a security group that lets in SSH only, and a key pair, all with
our tag; none of them costs anything. All runs of an account share them. What a call made is undone
when the call fails in the middle.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network
from typing import Any, Literal, TypeVar

from burst.errors import BurstError
from burst.provision.alibaba.client import Api, numbered, pages, tags
from burst.provision.alibaba.codes import GONE, IN_USE, among
from burst.provision.alibaba.errors import EcsError, EcsSilentError

log = logging.getLogger(__name__)

NAME = "burst"
TAG = {"burst-network": NAME}
RANGE = IPv4Network("10.0.0.0/16")
ZONE_BITS = 20  # a VSwitch has 4,092 addresses
LOOK_S = 2.0
LOOKS = 60
UNSEEN = 5  # looks that do not show something, and it is gone
SETTLE_S = 2.0  # longer than the second in which times of creation are told
TRIES = 5
TAKEN = ("InvalidCidrBlock.Overlapped",)
ANYWHERE = ("0.0.0.0/0",)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What RunInstances wants to be told."""

    vpc_id: str
    vswitches: Mapping[str, str]  # by zone
    security_group_id: str


class _Undo:
    """How to take back what was made, newest first."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, Callable[[], None]]] = []

    def __call__(self, what: str, step: Callable[[], None]) -> None:
        self._steps.append((what, step))

    def now(self, what: str) -> None:
        """Take back one thing."""
        steps = [one for one in self._steps if one[0] == what]
        self._steps = [one for one in self._steps if one[0] != what]
        for _, step in steps:
            self._try(what, step)

    def all(self) -> None:
        """Take back everything."""
        for what, step in reversed(self._steps):
            self._try(what, step)

    def _try(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except BurstError as error:  # another failure may be the one to tell
            log.warning("%s is left behind: %s", what, error)


def furnish(api: Api, zones: Collection[str], ssh_from: Collection[str] = ANYWHERE) -> Network:
    """Return the region's network with a VSwitch in each zone; make what is missing.

    `ssh_from` are the address ranges that may log in. Safe to call again, and by several at once:
    they end with the same network, also when one of them fails and takes back what it made.
    """
    return afresh(lambda: _furnish(api, zones, ssh_from))


def afresh(make: Callable[[], T], codes: tuple[str, ...] = GONE) -> T:
    """Make something in the network; once more if an error's code is one of these.

    By default: if somebody took a part of it away meanwhile.
    """
    for left in reversed(range(TRIES)):
        try:
            return make()
        except EcsError as error:
            if left == 0 or not among(error.code, codes):
                raise
            log.info("once more: %s", error)
    raise AssertionError(TRIES)


def _furnish(api: Api, zones: Collection[str], ssh_from: Collection[str]) -> Network:
    undo = _Undo()
    try:
        vpc = _vpc(api, undo)
        group = _security_group(api, vpc, undo)
        _let_in(api, group, ssh_from)
        switches = {zone: _vswitch(api, vpc, zone, undo) for zone in sorted(set(zones))}
    except BaseException:  # also an interrupt: nothing half made stays
        undo.all()
        raise
    return Network(vpc_id=vpc, vswitches=switches, security_group_id=group)


def key_pair(api: Api, public_key: str) -> str:
    """Return the name of the key pair for a public key ("ssh-ed25519 AAAA... who").

    The name is made of the key, so the same name is the same key.
    """
    kind, body = public_key.split()[:2]
    name = f"{NAME}-{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    known = api.call("DescribeKeyPairs", KeyPairName=name)
    if known["KeyPairs"]["KeyPair"]:
        return name
    try:
        api.call("ImportKeyPair", KeyPairName=name, PublicKeyBody=f"{kind} {body}", Tag=tags(TAG))
    except EcsError as error:
        if not among(error.code, ("KeyPair.AlreadyExist",)):  # somebody was faster
            raise
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A network of burst, or a key pair, that no machine uses."""

    api: Api
    what: Literal["network", "key pair"]
    name: str

    def __str__(self) -> str:
        return f"Alibaba Cloud's {self.what} {self.name} in {self.api.region}"

    def remove(self) -> bool:
        """Take it away; False if it is in use by now. EcsError if something that is not ours is.

        A launch that was about to use it makes a new one.
        """
        if self not in idle(self.api):
            return False
        if self.what == "network":
            _delete_network(self.api, self.name)
        else:
            with _fine_if_gone():
                self.api.call("DeleteKeyPairs", KeyPairNames=json.dumps([self.name]))
        return True


def idle(api: Api) -> tuple[Idle, ...]:
    """Return the networks and key pairs of the region that have our tag, and that nobody uses.

    A VPC that holds a machine of whomever, or a VSwitch or security group without our tag, is in
    use.
    """
    vpcs = _ids(_vpcs(api), "VpcId")
    keys = _ids(_found(api, "DescribeKeyPairs", "KeyPairs", "KeyPair"), "KeyPairName")
    return (
        *(Idle(api=api, what="network", name=vpc) for vpc in vpcs if _is_idle(api, vpc)),
        *(
            Idle(api=api, what="key pair", name=key)
            for key in keys
            if not _has_machines(api, KeyPairName=key)
        ),
    )


def _is_idle(api: Api, vpc: str) -> bool:
    switches = _all_vswitches(api, vpc)
    told = pages(api, "DescribeSecurityGroups", VpcId=vpc)
    groups = [one for page in told for one in page["SecurityGroups"]["SecurityGroup"]]
    only_ours = len(switches) == len(_vswitches(api, vpc)) and len(groups) == len(_groups(api, vpc))
    return only_ours and not _has_machines(api, VpcId=vpc)


def _has_machines(api: Api, **parameters: str) -> bool:
    return any(
        page["Instances"]["Instance"] for page in pages(api, "DescribeInstances", **parameters)
    )


def _delete_network(api: Api, vpc: str) -> None:
    """Take away a VPC and what is ours in it: VSwitches first, as most things would use those."""
    for switch in _vswitches(api, vpc):
        _delete_vswitch(api, switch["VSwitchId"])
    for group in _groups(api, vpc):
        _delete_group(api, group["SecurityGroupId"])
    _delete_vpc(api, vpc)


# Finding and making -------------------------------------------------------------------------------


def _vpc(api: Api, undo: _Undo) -> str:
    def make() -> str:
        return _create(api, "CreateVpc", "VpcId", CidrBlock=str(RANGE), VpcName=NAME)

    vpc = _agreed(api, lambda: _ids(_vpcs(api), "VpcId"), make, partial(_delete_vpc, api), undo)
    _available(api, lambda: _found(api, "DescribeVpcs", "Vpcs", "Vpc", VpcId=vpc))
    return vpc


def _vswitch(api: Api, vpc: str, zone: str, undo: _Undo) -> str:
    def there() -> list[str]:
        return _ids((o for o in _vswitches(api, vpc) if o["ZoneId"] == zone), "VSwitchId")

    def make() -> str:  # somebody may take its addresses at the same time
        return afresh(partial(_make_vswitch, api, vpc, zone), TAKEN)

    switch = _agreed(api, there, make, partial(_delete_vswitch, api), undo)
    _available(api, lambda: [s for s in _vswitches(api, vpc) if s["VSwitchId"] == switch])
    return switch


def _make_vswitch(api: Api, vpc: str, zone: str) -> str:
    """Make a VSwitch of addresses that no other has."""
    taken = [IPv4Network(one["CidrBlock"]) for one in _all_vswitches(api, vpc)]
    free = (n for n in RANGE.subnets(new_prefix=ZONE_BITS) if not any(map(n.overlaps, taken)))
    return _create(
        api, "CreateVSwitch", "VSwitchId",
        VpcId=vpc, ZoneId=zone, CidrBlock=str(next(free)), VSwitchName=f"{NAME}-{zone}",
    )  # fmt: skip


def _security_group(api: Api, vpc: str, undo: _Undo) -> str:
    def make() -> str:
        return _create(
            api, "CreateSecurityGroup", "SecurityGroupId",
            VpcId=vpc, SecurityGroupName=NAME, SecurityGroupType="normal",
        )  # fmt: skip

    there = partial(_groups, api, vpc)
    delete = partial(_delete_group, api)
    return _agreed(api, lambda: _ids(there(), "SecurityGroupId"), make, delete, undo)


def _agreed(
    api: Api,
    there: Callable[[], list[str]],
    make: Callable[[], str],
    delete: Callable[[str], None],
    undo: _Undo,
) -> str:
    """Return the oldest of what is there, made if there is none; all who do so get the same one.

    Ages are told in seconds. So it is looked again when those are over in which another one could
    be made that passes for older than ours; ours goes if it is not the oldest.
    """
    known = there()
    if known:
        return known[0]
    made = make()
    undo(made, lambda: delete(made))
    api.clock.sleep(SETTLE_S)
    oldest = next(iter(there()), made)
    if oldest != made:
        undo.now(made)
    return oldest


def _ids(found: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    """Return the names of things, oldest first."""
    return [one for _, one in sorted((o.get("CreationTime", ""), str(o[name])) for o in found)]


def _let_in(api: Api, group: str, ssh_from: Collection[str]) -> None:
    """Let SSH in from some ranges and everything from the group itself, and nothing else."""
    wanted = [_rule("TCP", "22/22", SourceCidrIp=source) for source in sorted(ssh_from)]
    wanted.append(_rule("ALL", "-1/-1", SourceGroupId=group))
    there = api.call("DescribeSecurityGroupAttribute", SecurityGroupId=group, Direction="ingress")
    known = {_gist(rule) for rule in there["Permissions"]["Permission"]}
    missing = [rule for rule in wanted if _gist(rule) not in known]
    if missing:
        api.call(
            "AuthorizeSecurityGroup",
            SecurityGroupId=group,
            Permissions=missing,
            ClientToken=str(uuid.uuid4()),
        )


def _rule(protocol: str, ports: str, **source: str) -> dict[str, str]:
    rule = {"IpProtocol": protocol, "PortRange": ports, "Policy": "accept", "Priority": "1"}
    return {**rule, **source}


def _gist(rule: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("IpProtocol", "PortRange", "SourceCidrIp", "SourceGroupId")
    return tuple(str(rule.get(name) or "").casefold() for name in names)


def _create(api: Api, action: str, answer: str, **parameters: Any) -> str:  # noqa: ANN401 - JSON
    token = str(uuid.uuid4())  # for trying again; another call makes another one
    said = api.call(action, ClientToken=token, Tag=tags(TAG), **parameters)
    return str(said[answer])


def _available(api: Api, look: Callable[[], list[Mapping[str, Any]]]) -> None:
    """Wait until what was made can be used. EcsError of a code in GONE: somebody took it away."""
    unseen = 0
    for _ in range(LOOKS):
        found = look()
        if any(one.get("Status") == "Available" for one in found):
            return
        unseen = 0 if found else unseen + 1
        if unseen == UNSEEN:
            raise EcsError("to show the network", "InvalidVpcId.NotFound", f"none in {api.region}")
        api.clock.sleep(LOOK_S)
    raise EcsSilentError(f"the network in {api.region} is not ready after {LOOKS * LOOK_S:g} s")


def _found(
    api: Api,
    action: str,
    outer: str,
    inner: str,
    **parameters: Any,  # noqa: ANN401 - JSON
) -> list[Mapping[str, Any]]:
    told = numbered(api, action, Tag=tags(TAG), **parameters)
    return [one for page in told for one in page[outer][inner]]


def _vpcs(api: Api) -> list[Mapping[str, Any]]:
    return _found(api, "DescribeVpcs", "Vpcs", "Vpc")


def _vswitches(api: Api, vpc: str) -> list[Mapping[str, Any]]:
    return _found(api, "DescribeVSwitches", "VSwitches", "VSwitch", VpcId=vpc)


def _all_vswitches(api: Api, vpc: str) -> list[Mapping[str, Any]]:
    """Return a VPC's VSwitches, those of others too."""
    told = numbered(api, "DescribeVSwitches", VpcId=vpc)
    return [one for page in told for one in page["VSwitches"]["VSwitch"]]


def _groups(api: Api, vpc: str) -> list[Mapping[str, Any]]:
    told = pages(api, "DescribeSecurityGroups", VpcId=vpc, Tag=tags(TAG))
    return [one for page in told for one in page["SecurityGroups"]["SecurityGroup"]]


# Taking away --------------------------------------------------------------------------------------


def _delete_vpc(api: Api, vpc: str) -> None:
    _patiently(api, "DeleteVpc", VpcId=vpc)


def _delete_vswitch(api: Api, switch: str) -> None:
    _patiently(api, "DeleteVSwitch", VSwitchId=switch)


def _delete_group(api: Api, group: str) -> None:
    _patiently(api, "DeleteSecurityGroup", SecurityGroupId=group)


def _patiently(api: Api, action: str, **parameters: str) -> None:
    """Delete something that another one, which is just going, may still need."""
    for left in reversed(range(5)):
        try:
            with _fine_if_gone():
                api.call(action, **parameters)
        except EcsError as error:
            if left == 0 or not among(error.code, IN_USE):
                raise
            api.clock.sleep(LOOK_S)
        else:
            return


@contextlib.contextmanager
def _fine_if_gone() -> Iterator[None]:
    try:
        yield
    except EcsError as error:
        if not among(error.code, GONE):
            raise
