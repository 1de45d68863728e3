"""Looking at an account of AWS whose answers a test makes up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from burst.cost.offers import Offer
from burst.cost.quotes import PER_SECOND_60, Quote
from burst.errors import SetupError, TransientError
from burst.provision.ec2 import AwsError
from burst.provision.inspection.aws import EC2_READS, EC2_WRITES, ROLE, Aws, principal, quota_of
from burst.provision.inspection.port import Finding, Wanted

NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)
DATE = {"HTTPHeaders": {"date": "Tue, 01 Dec 2026 10:00:00 GMT"}}
ANN = {"Account": "123456789012", "Arn": "arn:aws:iam::123456789012:user/ann"}
RENTING = Path(__file__).parents[4] / "docs/renting.md"
Answer = Callable[..., Mapping[str, Any]]


def no(code: str, said: str = "no") -> Answer:
    def answer(**_: Any) -> Mapping[str, Any]:
        raise AwsError("call", code, said)

    return answer


class Account:
    """See burst.provision.inspection.aws.Calls. What is not said is as an empty account says it."""

    def __init__(self, **answers: Answer) -> None:
        self.called: list[tuple[str, str, Mapping[str, Any]]] = []
        self.answers: dict[str, Answer] = {
            "get_caller_identity": lambda: {**ANN, "ResponseMetadata": DATE},
            "simulate_principal_policy": allowed(),
            "get_service_quota": lambda **_: {"Quota": {"Value": 64.0}},
            "describe_instances": lambda **_: {"Reservations": []},
            **answers,
        }

    def call(self, service: str, operation: str, region: str, **given: Any) -> Mapping[str, Any]:
        self.called.append((operation, region, given))
        return self.answers.get(operation, no("DryRunOperation"))(**given)


def allowed(*denied: str) -> Answer:
    def answer(*, ActionNames: list[str], **_: Any) -> Mapping[str, Any]:  # noqa: N803 - AWS's
        said = {name: "implicitDeny" if name in denied else "allowed" for name in ActionNames}
        results = [{"EvalActionName": k, "EvalDecision": v} for k, v in said.items()]
        return {"EvaluationResults": results, "IsTruncated": False}

    return answer


def offer(machine_type: str, cpus: float, *, spot: bool, region: str = "us-west-2") -> Offer:
    quote = Quote(usd_per_hour=Decimal(1), source="x", observed_at=NOW, billing=PER_SECOND_60)
    return Offer(
        pool="aws",
        region=region,
        zone="",
        machine_type=machine_type,
        cpus=cpus,
        memory_gb=16.0,
        accelerators=None,
        spot=spot,
        quote=quote,
    )


def look(account: Account, *machines: Offer, nodes: int = 1) -> dict[str, Finding]:
    pool = Aws(calls=account, region="us-east-1", now=lambda: NOW)
    found = pool.findings(Wanted(nodes=nodes, machines=machines))
    assert all(one.fix for one in found if one.works is False)
    return {one.what: one for one in found}


def test_an_account_where_everything_works() -> None:
    account = Account()
    found = look(account)
    assert found["credentials"].detail == ANN["Arn"]
    assert found["clock"].detail == "as here"
    assert found["rights"].detail == "none is refused (15 calls simulated by IAM)"
    assert all(one.works for one in found.values())
    (row,) = Aws(calls=account, region="us-east-1", now=lambda: NOW).rows()
    assert (row.healthy, row.detail) == (True, "account 123456789012 answers")


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        ("InvalidClientTokenId", "aws configure"),
        ("ExpiredToken", "aws sso login"),
        ("SignatureDoesNotMatch", "clock"),
    ],
)
def test_credentials_that_are_refused_end_the_look(code: str, fix: str) -> None:
    found = look(Account(get_caller_identity=no(code, "it said")))
    assert set(found) == {"credentials"}
    assert found["credentials"].works is False
    assert "it said" in found["credentials"].detail
    assert fix in found["credentials"].fix


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (SetupError("none found", hint="make some"), "credentials"),
        (TransientError("x"), "reachable"),
    ],
)
def test_no_credentials_and_no_way_there(error: Exception, what: str) -> None:
    def answer() -> Mapping[str, Any]:
        raise error

    found = look(Account(get_caller_identity=answer))
    assert {name: one.works for name, one in found.items()} == {what: False}


def test_a_clock_that_is_off_is_seen_in_an_answer() -> None:
    late = {"HTTPHeaders": {"date": "Tue, 01 Dec 2026 09:59:00 GMT"}}
    found = look(Account(get_caller_identity=lambda: {**ANN, "ResponseMetadata": late}))
    assert (found["clock"].works, found["clock"].detail) == (None, "-60 s from this machine's")


def test_rights_that_iam_denies_are_named() -> None:
    found = look(Account(simulate_principal_policy=allowed("ec2:RunInstances", "iam:PassRole")))
    assert found["rights"].works is False
    assert found["rights"].detail == (
        "refused: ec2:RunInstances, iam:PassRole (15 calls simulated by IAM)"
    )
    assert "docs/renting.md" in found["rights"].fix


def test_without_the_right_to_simulate_calls_are_tried_without_effect() -> None:
    images = {"Images": [{"ImageId": "ami-1"}]}

    def describe_images(**given: Any) -> Mapping[str, Any]:
        return no("DryRunOperation")(**given) if "DryRun" in given else images

    account = Account(
        simulate_principal_policy=no("AccessDenied"),
        describe_images=describe_images,
        run_instances=no("UnauthorizedOperation"),
    )
    found = look(account)["rights"]
    assert found.works is False
    assert found.detail.startswith("refused: ec2:RunInstances (10 calls tried with DryRun;")
    writes = [
        given
        for name, _, given in account.called
        if not name.startswith(("describe", "get", "sim"))
    ]
    assert len(writes) == 2
    assert all(given["DryRun"] is True for given in writes)
    assert {"ImageId": "ami-1", "MinCount": 1}.items() <= writes[-1].items()


def test_a_trial_that_fails_otherwise_is_no_refusal() -> None:
    account = Account(simulate_principal_policy=no("AccessDenied"), describe_images=no("Blocked"))
    found = look(account)["rights"]
    assert found.works is True
    assert "RunInstances" in found.detail.partition("DryRun; ")[2]  # it is said that it was not


def test_a_role_is_asked_for_by_its_own_name() -> None:
    arn = "arn:aws:sts::123456789012:assumed-role/trainer/i-0"
    account = Account(get_caller_identity=lambda: {**ANN, "Arn": arn})
    look(account)
    sources = {g["PolicySourceArn"] for name, _, g in account.called if name.startswith("sim")}
    assert sources == {"arn:aws:iam::123456789012:role/trainer"} == {principal(arn)}


def test_the_root_user_is_noted() -> None:
    arn = "arn:aws:iam::123456789012:root"
    found = look(Account(get_caller_identity=lambda: {**ANN, "Arn": arn}))
    assert found["rights"].works is None


def test_the_rights_are_those_of_the_documentation() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", RENTING.read_text(), re.DOTALL)
    statements = json.loads(block)["Statement"]
    documented = {action for one in statements for action in one["Action"]}
    known = {f"ec2:{name}" for name in (*EC2_READS, *EC2_WRITES)}
    known |= {"sts:GetCallerIdentity", "iam:GetInstanceProfile", "iam:PassRole"}
    assert known == documented
    assert {one["Resource"].rpartition("/")[2] for one in statements[1:]} == {ROLE}


def instances(*kinds: tuple[str, int, bool]) -> Answer:
    def answer(*, NextToken: str = "0", **_: Any) -> Mapping[str, Any]:  # noqa: N803 - AWS's
        number = int(NextToken)  # a page each
        name, cores, spot = kinds[number]
        one: dict[str, Any] = {"InstanceType": name}
        one["CpuOptions"] = {"CoreCount": cores, "ThreadsPerCore": 2}
        if spot:
            one["InstanceLifecycle"] = "spot"
        more = {"NextToken": str(number + 1)} if number + 1 < len(kinds) else {}
        return {"Reservations": [{"Instances": [one]}], **more}

    return answer


def test_vcpus_in_use_count_against_the_quota_of_their_family_and_market() -> None:
    there = instances(("g5.8xlarge", 16, True), ("g5.8xlarge", 16, False), ("m6i.large", 8, True))
    account = Account(describe_instances=there)
    found = look(account, offer("g5.8xlarge", 32, spot=True))
    quota = found["quota us-west-2 spot G and VT"]
    assert (quota.works, quota.detail) == (True, "32 of 64 vCPUs are in use; the task wants 32")
    found = look(account, offer("g5.8xlarge", 32, spot=True), nodes=2)
    quota = found["quota us-west-2 spot G and VT"]
    assert (quota.works, quota.detail) == (False, "32 of 64 vCPUs are in use; the task wants 64")
    assert quota.fix.endswith("us-west-2.console.aws.amazon.com/servicequotas/home/services/ec2/"
                              "quotas/L-3819A6DF")  # fmt: skip


def test_each_market_and_region_of_the_task_has_its_quota() -> None:
    machines = [
        offer("p4d.24xlarge", 96, spot=True),
        offer("p4d.24xlarge", 96, spot=True),
        offer("p4d.24xlarge", 96, spot=False),
        offer("p5.48xlarge", 192, spot=True, region="us-east-2"),
    ]
    found = look(Account(), *machines)
    assert [what for what in found if what.startswith("quota")] == [
        "quota us-west-2 spot P2, P3, P4",
        "quota us-west-2 on-demand P2, P3, P4",
        "quota us-east-2 spot P5",
    ]


def test_a_quota_that_nobody_raised_is_the_default_one() -> None:
    account = Account(
        get_service_quota=no("NoSuchResourceException"),
        get_aws_default_service_quota=lambda **_: {"Quota": {"Value": 0.0}},
    )
    found = look(account, offer("g5.xlarge", 4, spot=False))
    quota = found["quota us-west-2 on-demand G and VT"]
    assert (quota.works, quota.detail) == (False, "0 of 0 vCPUs are in use; the task wants 4")


def test_a_quota_that_may_not_be_read_fails_nothing() -> None:
    account = Account(get_service_quota=no("AccessDeniedException"))
    found = look(account, offer("g5.xlarge", 4, spot=False), offer("u-6tb1.metal", 4, spot=False))
    assert found["quota us-west-2 on-demand G and VT"].works is None
    assert "servicequotas:GetServiceQuota" in found["quota us-west-2 on-demand G and VT"].fix
    assert found["quota us-west-2 on-demand u-6tb1.metal"].works is None


@pytest.mark.parametrize(
    ("machine_type", "spot", "steady"),
    [
        ("g6e.xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("gr6.4xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("p3.2xlarge", "L-7212CCBC", "L-417A185B"),
        ("p5en.48xlarge", "L-C4BD4855", "L-417A185B"),
        ("p6-b200.48xlarge", "", "L-417A185B"),
        ("m6i.large", "L-34B43A08", "L-1216C47A"),
        ("inf2.xlarge", "L-B5D1601B", "L-1945791B"),
        ("trn1.2xlarge", "L-6B0D517C", "L-2C3B7624"),
        ("hpc7g.16xlarge", "", ""),
    ],
)
def test_which_quota_counts(machine_type: str, spot: str, steady: str) -> None:
    assert quota_of(machine_type, spot=True)[1] == spot
    assert quota_of(machine_type, spot=False)[1] == steady
