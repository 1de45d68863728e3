"""AWS, looked at: whose account it is, what it may do, and how many vCPUs it may have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from burst.cost.offers import Offer
from burst.errors import BurstError, SetupError, TransientError
from burst.provision.ec2 import COSTING, AwsError
from burst.provision.inspection.port import Finding, Row, Wanted, clock_finding

POLICY = "docs/renting.md, section Rights on AWS, has the policy"
EC2_READS = (
    "DescribeAvailabilityZones",
    "DescribeImages",
    "DescribeInstances",
    "DescribeRegions",
    "DescribeRouteTables",
    "DescribeSecurityGroups",
    "DescribeSubnets",
    "DescribeVpcs",
)
EC2_WRITES = (
    "AuthorizeSecurityGroupIngress",
    "CreateSecurityGroup",
    "CreateTags",
    "RunInstances",
    "TerminateInstances",
)
QUOTA_RIGHTS = "servicequotas:GetServiceQuota and servicequotas:GetAWSDefaultServiceQuota"
ROLE = "skypilot-v1"  # SkyPilot's, and its instance profile's
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
SKEWED = frozenset({"RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch"})
# AWS Service Quotas, "Amazon EC2": vCPUs of running machines, by family; spot, on-demand
QUOTAS: tuple[tuple[re.Pattern[str], str, str, str], ...] = tuple(
    (re.compile(rf"(?:{families})\d"), name, spot, steady)
    for families, name, spot, steady in (
        ("g|gr|vt", "G and VT", "L-3819A6DF", "L-DB2E81BA"),
        ("p(?=[234])", "P2, P3, P4", "L-7212CCBC", "L-417A185B"),
        ("p(?=5)", "P5", "L-C4BD4855", "L-417A185B"),
        ("p", "P", "", "L-417A185B"),
        ("inf", "Inf", "L-B5D1601B", "L-1945791B"),
        ("trn", "Trn", "L-6B0D517C", "L-2C3B7624"),
        ("x", "X", "L-E3A00192", "L-7295265B"),
        ("f", "F", "L-88CF9481", "L-74FC7D96"),
        ("dl", "DL", "L-85EED4F7", "L-6E869C2A"),
        ("a|c|d|h|i|im|is|m|r|t|z", "standard", "L-34B43A08", "L-1216C47A"),
    )
)


class Calls(Protocol):
    """See burst.provision.ec2.Account."""

    def call(self, service: str, operation: str, region: str, **given: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
        """Make one call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Aws:
    """See burst.provision.inspection.port.Inspected."""

    name: str = "aws"
    calls: Calls
    region: str  # where to look without a task
    now: Callable[[], datetime]

    def rows(self) -> tuple[Row, ...]:
        """Return whether the account answers; AWS does not say what it could give."""
        who = self._identity()
        return (Row(pool=self.name, healthy=True, detail=f"account {who['Account']} answers"),)

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        try:
            who = self._identity()
        except AwsError as error:
            return (self._no_credentials(error),)
        except SetupError as error:
            fix = f"{error.hint or 'aws configure'}; then: aws sts get-caller-identity"
            return (self._finding("credentials", error.message, works=False, fix=fix),)
        except TransientError as error:
            fix = "see whether https://sts.amazonaws.com is reachable, and the proxy settings"
            return (self._finding("reachable", error.message, works=False, fix=fix),)
        mine = [one for one in wanted.machines if one.pool == self.name]
        region = mine[0].region if mine else self.region
        return (
            self._finding("credentials", f"{who['Arn']}", works=True),
            *self._clock(who),
            self._rights(str(who["Arn"]), region),
            *self._quotas(mine, wanted.nodes, region),
        )

    def _identity(self) -> Mapping[str, Any]:
        return self.calls.call("sts", "get_caller_identity", self.region)

    def _finding(self, what: str, detail: str, *, works: bool | None, fix: str = "") -> Finding:
        return Finding(pool=self.name, what=what, works=works, detail=detail, fix=fix)

    def _no_credentials(self, error: AwsError) -> Finding:
        if error.code in SKEWED:
            fix = "set this machine's clock (timedatectl), or copy the secret key once more"
        elif error.code.startswith("ExpiredToken"):
            fix = "they have run out; log in again: aws sso login"
        else:
            fix = "aws configure, or the right AWS_PROFILE; then: aws sts get-caller-identity"
        return self._finding("credentials", error.message, works=False, fix=fix)

    def _clock(self, answer: Mapping[str, Any]) -> Iterator[Finding]:
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date:
            theirs = parsedate_to_datetime(date)
            yield clock_finding(self.name, "clock", (theirs - self.now()).total_seconds())

    def _rights(self, arn: str, region: str) -> Finding:
        """Ask IAM what it would say to each call that burst makes; else try them without effect."""
        if arn.endswith(":root"):
            fix = "make a user with the rights of docs/renting.md, and use its keys"
            return self._finding("rights", "the root user may do everything", works=None, fix=fix)
        try:
            refused, asked = self._simulated(arn), len(EC2_READS) + len(EC2_WRITES) + 2
            how = f"{asked} calls simulated by IAM"
        except BurstError:
            refused, how = self._tried(region)
        if not refused:
            return self._finding("rights", f"none is refused ({how})", works=True)
        words = f"refused: {', '.join(refused)} ({how})"
        return self._finding("rights", words, works=False, fix=f"allow them: {POLICY}")

    def _simulated(self, arn: str) -> list[str]:
        source = principal(arn)
        account = arn.split(":")[4]
        asked: list[tuple[Sequence[str], str]] = [
            ([f"ec2:{name}" for name in (*EC2_READS, *EC2_WRITES)], "*"),
            (["iam:GetInstanceProfile"], f"arn:aws:iam::{account}:instance-profile/{ROLE}"),
            (["iam:PassRole"], f"arn:aws:iam::{account}:role/{ROLE}"),
        ]
        results = [
            result
            for actions, resource in asked
            for result in self._pages(source, actions, resource)
        ]
        return [r["EvalActionName"] for r in results if r["EvalDecision"] != "allowed"]

    def _pages(
        self, source: str, actions: Sequence[str], resource: str
    ) -> Iterator[Mapping[str, Any]]:
        marker: dict[str, str] = {}
        while True:
            answer = self.calls.call(
                "iam",
                "simulate_principal_policy",
                self.region,
                PolicySourceArn=source,
                ActionNames=list(actions),
                ResourceArns=[resource],
                **marker,
            )
            yield from answer["EvaluationResults"]
            if not answer.get("IsTruncated"):
                return
            marker = {"Marker": answer["Marker"]}

    def _tried(self, region: str) -> tuple[list[str], str]:
        """Return what is refused when EC2 is asked with DryRun, which changes nothing."""
        tried: list[tuple[str, Mapping[str, Any]]] = [(name, {}) for name in EC2_READS]
        group = {"GroupName": "burst-doctor", "Description": "never made"}
        tried.append(("CreateSecurityGroup", group))
        if image := self._some_image(region):
            order = {"ImageId": image, "InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1}
            tried.append(("RunInstances", order))
        refused = []
        for name, given in tried:
            try:
                self.calls.call("ec2", _snake(name), region, DryRun=True, **given)
            except AwsError as error:
                if error.code in DENIED:
                    refused.append(f"ec2:{name}")
        names = {name for name, _ in tried}
        left = [name for name in EC2_WRITES if name not in names]
        how = f"{len(tried)} calls tried with DryRun; {', '.join(left)} and iam are not tried, as "
        return refused, how + "iam:SimulatePrincipalPolicy is not allowed"

    def _some_image(self, region: str) -> str:
        """Return any public image, which a trial of RunInstances must name; "" if none is seen."""
        name = {"Name": "name", "Values": ["al2023-ami-2023.*-x86_64"]}
        try:
            answer = self.calls.call(
                "ec2", "describe_images", region, Owners=["amazon"], Filters=[name]
            )
        except BurstError:
            return ""
        return next((str(image["ImageId"]) for image in answer["Images"]), "")

    def _quotas(self, mine: Sequence[Offer], nodes: int, region: str) -> Iterator[Finding]:
        """Compare vCPUs that are left with those of the task's machines; without one, tell."""
        if not mine:
            for family, spot in (("g5.xlarge", True), ("g5.xlarge", False), ("p4d", True)):
                yield self._quota(region, family, spot=spot, needed=0)
            return
        seen: set[tuple[str, str, bool]] = set()
        for offer in mine:
            key = (offer.region, quota_of(offer.machine_type, spot=offer.spot)[1], offer.spot)
            if key not in seen:
                seen.add(key)
                needed = int(offer.cpus) * nodes
                yield self._quota(offer.region, offer.machine_type, spot=offer.spot, needed=needed)

    def _quota(self, region: str, machine_type: str, *, spot: bool, needed: int) -> Finding:
        family, code = quota_of(machine_type, spot=spot)
        market = "spot" if spot else "on-demand"
        what = f"quota {region} {market} {family or machine_type}"
        if not code:
            return self._finding(what, "which quota counts is not known", works=None)
        page = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
        try:
            most = int(self._most(region, code))
            used = self._used(region, code, spot=spot)
        except BurstError as error:
            denied = isinstance(error, AwsError) and error.code in DENIED
            fix = f"allow {QUOTA_RIGHTS}" if denied else f"see {page}/{code}"
            return self._finding(what, error.message, works=None, fix=fix)
        words = f"{used} of {most} vCPUs are in use"
        if needed:
            words += f"; the task wants {needed}"
        works = most - used >= needed if needed else True
        return self._finding(what, words, works=works, fix=f"ask for more: {page}/{code}")

    def _most(self, region: str, code: str) -> float:
        given = {"ServiceCode": "ec2", "QuotaCode": code}
        try:
            answer = self.calls.call("service-quotas", "get_service_quota", region, **given)
        except AwsError as error:
            if error.code != "NoSuchResourceException":
                raise
            answer = self.calls.call(
                "service-quotas", "get_aws_default_service_quota", region, **given
            )
        return float(answer["Quota"]["Value"])

    def _used(self, region: str, code: str, *, spot: bool) -> int:
        states = {"Name": "instance-state-name", "Values": [s for s in COSTING if s != "stopped"]}
        used = 0
        token: dict[str, str] = {}
        while True:
            answer = self.calls.call("ec2", "describe_instances", region, Filters=[states], **token)
            for reservation in answer["Reservations"]:
                for one in reservation["Instances"]:
                    same = quota_of(one["InstanceType"], spot=spot)[1] == code
                    if same and (one.get("InstanceLifecycle") == "spot") == spot:
                        cores = one.get("CpuOptions", {})
                        used += cores.get("CoreCount", 0) * cores.get("ThreadsPerCore", 1)
            if not answer.get("NextToken"):
                return used
            token = {"NextToken": answer["NextToken"]}


def quota_of(machine_type: str, *, spot: bool) -> tuple[str, str]:
    """Return the name of a machine type's family and the code of its quota; "" if unknown.

    >>> quota_of("g5.xlarge", spot=True), quota_of("p5.48xlarge", spot=False)
    (('G and VT', 'L-3819A6DF'), ('P5', 'L-417A185B'))
    >>> quota_of("im4gn.large", spot=True)[0], quota_of("u-6tb1.metal", spot=True)
    ('standard', ('', ''))
    """
    for families, name, of_spot, steady in QUOTAS:
        if families.match(machine_type):
            return name, of_spot if spot else steady
    return "", ""


def principal(arn: str) -> str:
    """Return the user or role that IAM knows behind the ARN of a caller.

    >>> principal("arn:aws:sts::123456789012:assumed-role/trainer/session")
    'arn:aws:iam::123456789012:role/trainer'
    """
    match = re.fullmatch(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/.*", arn)
    return f"arn:{match[1]}:iam::{match[2]}:role/{match[3]}" if match else arn


def _snake(action: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", action).lower()
