"""Looking at AWS through boto3, against moto: sts, EC2's DryRun, Service Quotas."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing

import boto3
import pytest

from burst.clock import SystemClock
from burst.errors import TransientError
from burst.provision.ec2 import Account, AwsError
from burst.provision.inspection.aws import Aws
from burst.provision.inspection.port import Finding, Wanted

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]  # moto reads all of its images
REGION = "us-east-1"


@pytest.fixture
def pool(moto_url: str, aws_env: pytest.MonkeyPatch) -> Aws:
    aws_env.setenv("AWS_ENDPOINT_URL", moto_url)
    forget_keys(aws_env)
    return Aws(calls=Account(), region=REGION, now=SystemClock().now)


def forget_keys(aws_env: pytest.MonkeyPatch) -> None:
    """Have boto3 read the environment anew."""
    aws_env.setattr(boto3, "DEFAULT_SESSION", None)


def look(pool: Aws) -> dict[str, Finding]:
    return {finding.what: finding for finding in pool.findings(Wanted())}


def count() -> tuple[int, int]:
    """Count what there is of what a look must not make."""
    ec2 = boto3.client("ec2", region_name=REGION)
    machines = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
    return len(machines), len(ec2.describe_security_groups()["SecurityGroups"])


def test_an_account_is_looked_at_and_nothing_is_made(pool: Aws) -> None:
    before = count()
    found = look(pool)
    assert found["credentials"].detail.startswith("arn:aws:sts::123456789012:")
    assert found["clock"].works is True
    assert found["rights"].works is True
    assert found["rights"].detail.startswith("none is refused (10 calls tried with DryRun")
    quotas = [one for what, one in found.items() if what.startswith("quota")]
    assert {one.works for one in quotas} == {None}  # moto has quotas of VPCs only
    assert count() == before
    assert pool.rows()[0].detail == "account 123456789012 answers"


@pytest.fixture
def guarded(moto_url: str, pool: Aws, aws_env: pytest.MonkeyPatch) -> Iterator[None]:
    """Be a user who may look at EC2 and do nothing else, where moto minds."""
    iam = boto3.client("iam", region_name=REGION)
    iam.create_user(UserName="ann")
    actions = ["ec2:Describe*", "sts:GetCallerIdentity"]
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="ann", PolicyName="look", PolicyDocument=document)
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    aws_env.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    aws_env.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    forget_keys(aws_env)
    _mind(moto_url, 0)
    yield
    _mind(moto_url, 10**9)


def _mind(moto_url: str, after: int) -> None:
    """Have moto check rights after so many calls."""
    with closing(http.client.HTTPConnection(moto_url.removeprefix("http://"))) as connection:
        connection.request("POST", "/moto-api/reset-auth", body=str(after))
        assert connection.getresponse().status == 200


@pytest.mark.usefixtures("guarded")
def test_rights_that_are_missing_are_named(pool: Aws) -> None:
    found = look(pool)
    assert found["credentials"].works is True
    assert found["rights"].works is False
    assert found["rights"].detail.startswith("refused: ec2:CreateSecurityGroup, ec2:RunInstances (")


def test_a_key_that_moto_does_not_know_is_no_credential(
    moto_url: str, pool: Aws, aws_env: pytest.MonkeyPatch
) -> None:
    aws_env.setenv("AWS_ACCESS_KEY_ID", "AKIANOBODY")
    forget_keys(aws_env)
    _mind(moto_url, 0)
    try:
        found = look(pool)
    finally:
        _mind(moto_url, 10**9)
    assert {what: one.works for what, one in found.items()} == {"credentials": False}
    assert "InvalidClientTokenId" in found["credentials"].detail


def test_nobody_answers(pool: Aws, aws_env: pytest.MonkeyPatch) -> None:
    aws_env.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    forget_keys(aws_env)
    found = look(pool)
    assert {what: one.works for what, one in found.items()} == {"reachable": False}
    with pytest.raises(TransientError):
        pool.rows()


def test_a_refusal_has_awss_own_word(pool: Aws) -> None:
    with pytest.raises(AwsError) as caught:
        Account().call("ec2", "describe_instances", REGION, InstanceIds=["i-00000000"])
    assert caught.value.code.startswith("InvalidInstanceID")
