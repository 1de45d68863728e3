"""EC2 by our tags: what is there, from when to when, and its end. For what SkyPilot cannot say.

SkyPilot's own database may be lost, and it does not know when a machine was taken. The tags are
on the machine itself. `python -m burst.provision.ec2 RUN NODE REGION` ends one, for the dead-man
switch: the machine calls it on itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    ProfileNotFound,
)
from botocore.parsers import ResponseParserError

from burst.errors import BurstError, SetupError, TransientError
from burst.provision.rented import NODE_TAG, RUN_TAG, Machine, by_node

COSTING = ("pending", "running", "shutting-down", "stopping", "stopped")
_ENDED = re.compile(r"\((\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine of ours. `until` is when the cloud was told to end it, or ended it by itself."""

    instance_id: str
    region: str
    zone: str
    machine_type: str
    run_id: str
    node_id: str
    state: str
    since: datetime
    until: datetime | None

    @property
    def costs(self) -> bool:
        """Whether it is there, and so costs money or soon will again."""
        return self.state in COSTING

    def __str__(self) -> str:
        what = f"{self.instance_id} ({self.machine_type}, {self.state}) in {self.zone}"
        return f"{what} of {self.run_id} {self.node_id}, since {self.since:%Y-%m-%d %H:%M:%SZ}"


def instances(regions: Iterable[str], run_id: str | None = None) -> tuple[Instance, ...]:
    """Return the machines with our tags in some regions, those ended lately too."""
    wanted = {"Name": f"tag:{RUN_TAG}", "Values": [run_id or "*"]}
    found: list[Instance] = []
    for region in sorted(set(regions)):
        try:
            pages = _client(region).get_paginator("describe_instances").paginate(Filters=[wanted])
            found += [_instance(raw, region) for page in pages for raw in _raw(page)]
        except (BotoCoreError, ClientError) as error:
            raise TransientError(f"EC2 in {region} does not say what is there: {error}") from error
    return tuple(found)


class Ec2:
    """See burst.provision.rented.Cloud: what EC2 says of a run's machines."""

    def __init__(self, regions: Iterable[str]) -> None:
        self._regions = tuple(sorted(set(regions)))

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        return by_node((one.node_id, _machine(one)) for one in instances(self._regions, run_id))

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        there = instances(self._regions, run_id)
        end(one for one in there if one.node_id in node_ids and one.costs)

    def keep(self, run_id: str) -> None:
        """Do nothing: EC2 ends no machine by itself that was not reclaimed."""


def _machine(one: Instance) -> Machine:
    return Machine(name=str(one), since=one.since, until=one.until, costs=one.costs)


def end(machines: Iterable[Instance]) -> None:
    """Terminate machines; TransientError if the cloud does not take it."""
    by_region: dict[str, list[str]] = {}
    for machine in machines:
        by_region.setdefault(machine.region, []).append(machine.instance_id)
    for region, names in by_region.items():
        try:
            _client(region).terminate_instances(InstanceIds=names)
        except (BotoCoreError, ClientError) as error:
            raise TransientError(f"EC2 in {region} did not end {names}: {error}") from error


def regions() -> tuple[str, ...]:
    """Return the regions that this account may use."""
    try:
        answer = _client("us-east-1").describe_regions()
    except (BotoCoreError, ClientError) as error:
        raise TransientError(f"EC2 does not say which regions there are: {error}") from error
    return tuple(sorted(str(region["RegionName"]) for region in answer["Regions"]))


def has_credentials() -> bool:
    """Whether AWS credentials are found where AWS's own tools look."""
    try:
        return boto3.Session().get_credentials() is not None
    except BotoCoreError:
        return False


def usual_region() -> str:
    """Return the region that is set for AWS's own tools, or us-east-1."""
    try:
        return boto3.Session().region_name or "us-east-1"
    except BotoCoreError:
        return "us-east-1"


class AwsError(BurstError):
    """AWS said no. `code` is its own word for why."""

    def __init__(self, operation: str, code: str, said: str) -> None:
        super().__init__(f"AWS refused {operation}: {code}: {said}")
        self.code = code


class Account:
    """Calls to any service of AWS with this person's credentials; a person waits for them."""

    def call(self, service: str, operation: str, region: str, **given: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
        """Make one call, as boto3 spells it; AwsError if it is refused.

        SetupError when there are no credentials, TransientError when nobody answers.
        """
        try:
            return _ask(region, service, operation, given)
        except ClientError as error:
            told = error.response.get("Error", {})
            code, said = str(told.get("Code", "")), str(told.get("Message", ""))
            raise AwsError(operation, code, said) from error
        except (NoCredentialsError, CredentialRetrievalError, ProfileNotFound) as error:
            raise SetupError(f"no credentials for AWS: {error}", hint="aws configure") from error
        except (BotoCoreError, ResponseParserError) as error:  # a proxy's page is no answer
            raise TransientError(f"no answer from AWS to {operation}: {error}") from error


def _ask(region: str, service: str, operation: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = getattr(_client(region, service, attempts=2), operation)(**given)
    return answer


def _client(region: str, service: str = "ec2", *, attempts: int = 5) -> Any:  # noqa: ANN401 - boto3 has no types
    config = Config(retries={"max_attempts": attempts, "mode": "standard"}, connect_timeout=10)
    return boto3.client(service, region_name=region, config=config)


def _raw(page: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for reservation in page["Reservations"]:
        yield from reservation["Instances"]


def _instance(raw: dict[str, Any], region: str) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in raw.get("Tags", ())}
    return Instance(
        instance_id=raw["InstanceId"],
        region=region,
        zone=raw.get("Placement", {}).get("AvailabilityZone", region),
        machine_type=raw["InstanceType"],
        run_id=tags.get(RUN_TAG, ""),
        node_id=tags.get(NODE_TAG, ""),
        state=raw["State"]["Name"],
        since=raw["LaunchTime"].astimezone(UTC),
        until=_ended(raw),
    )


def _ended(raw: dict[str, Any]) -> datetime | None:
    """Read "User initiated (2026-12-01 10:00:00 GMT)"; it is in UTC whatever it says."""
    if raw["State"]["Name"] not in {"shutting-down", "terminated"}:
        return None
    match = _ENDED.search(raw.get("StateTransitionReason") or "")
    if match is None:
        return None
    return datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")


def main() -> int:
    """End the machine of one node, from anywhere."""
    run_id, node_id, region = sys.argv[1:]
    mine = [m for m in instances([region], run_id) if m.node_id == node_id and m.costs]
    end(mine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
