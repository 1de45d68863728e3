"""Where: C07."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.task_specs.infra import infra_text, parse_infra
from burst.task_specs.model import Infra, Task

FORMS = [
    ("aws", ("aws", None, None)),
    ("AWS", ("aws", None, None)),
    ("aws/us-east-1", ("aws", "us-east-1", None)),
    ("aws/us-east-1/us-east-1a", ("aws", "us-east-1", "us-east-1a")),
    ("aws/*/us-east-1a", ("aws", None, "us-east-1a")),
    ('"*/us-east-1"', (None, "us-east-1", None)),
    ('"*/*/us-east-1a"', (None, None, "us-east-1a")),
    ('"*"', (None, None, None)),
    ("aws/*", ("aws", None, None)),
    ('" aws / us-east-1 "', ("aws", "us-east-1", None)),
    ("k8s", ("k8s", None, None)),
    ("k8s/my-ctx", ("k8s", "my-ctx", None)),
    ("Kubernetes/my-ctx", ("k8s", "my-ctx", None)),
    ("k8s/arn:aws:eks:us-east-1:1:cluster/a", ("k8s", "arn:aws:eks:us-east-1:1:cluster/a", None)),
    ("ssh/rack/one", ("ssh", "rack/one", None)),
    ("slurm/lab/gpu", ("slurm", "lab", "gpu")),
    ("gcp/us-central1/us-central1-a", ("gcp", "us-central1", "us-central1-a")),
    ("azure/eastus/1", ("azure", "eastus", "1")),
    ("alibaba/cn-beijing", ("alibaba", "cn-beijing", None)),
    ("local", ("local", None, None)),
    ("aws/", ("aws", None, None)),  # as SkyPilot takes it
    ("/aws/us-east-1/", ("aws", "us-east-1", None)),
    ("k8s/", ("k8s", None, None)),
    ("aws/US-EAST-1/US-EAST-1A", ("aws", "us-east-1", "us-east-1a")),
    ("aws/*/us-west-2-lax-1a", ("aws", None, "us-west-2-lax-1a")),
    ("Slurm/Lab/GPU", ("slurm", "Lab", "GPU")),
    ("alibaba/ap-southeast-1/ap-southeast-1a", ("alibaba", "ap-southeast-1", "ap-southeast-1a")),
]


@pytest.mark.parametrize(("written", "want"), FORMS)
def test_c07_forms_that_are_taken(read: Callable[..., Task], written: str, want: Any) -> None:
    infra = read(f"resources:\n  infra: {written}\n").candidates[0].infra
    assert (infra.cloud, infra.region, infra.zone) == want
    assert parse_infra(infra_text(infra) or "*") == infra


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("aws//us-east-1a", "an empty part"),
        ("k8s//a", "an empty part"),
        ("/", "an empty part"),
        ("aws/us-east-1a", "us-east-1a is a zone; write aws/us-east-1/us-east-1a (written"),
        ("aws/us-west-2-lax-1a", "write aws/us-west-2/us-west-2-lax-1a"),
        ("aws/us-gov-west-1b", "write aws/us-gov-west-1/us-gov-west-1b"),
        ("gcp/us-central1-a", "write gcp/us-central1/us-central1-a"),
        ("alibaba/cn-beijing-h", "write alibaba/cn-beijing/cn-beijing-h"),
        ("alibaba/ap-southeast-1a", "write alibaba/ap-southeast-1/ap-southeast-1a"),
        ("ibm/us-south-1", "write ibm/us-south/us-south-1"),
        ("aws/us-east-1,us-west-2", "several places; write each as an item of `any_of`"),
        ("lambda/us-east-1/x", "lambda has no zones; write lambda/us-east-1"),
        ("local/x", "local is this machine, which has no parts; write local"),
        ('""', "an empty part"),
        ("amazon", "did you mean aws?"),
        ("awss", "did you mean aws?"),
        ("nowhere", "known: alibaba, aws, azure"),
        ("aws/us-east-1/us-west-2a", "zone us-west-2a is not in region us-east-1"),
        ("aws/us-east-1/us-east-1", "is not in region"),
        ("aws/us-east-1/us-east-1a/x", "4 parts"),
        ("*", "unquoted *"),
        ("*/us-east-1", "unquoted *"),
        ("[aws]", "needs a single value"),
    ],
)  # fmt: skip
def test_c07_forms_that_are_refused(
    refusals: Callable[..., list[str]], written: str, words: str
) -> None:
    (found,) = refusals(f"resources:\n  infra: {written}\n")
    assert words in found
    assert found.startswith("line 2: ")


def test_c07_infra_and_its_parts_together_are_refused(refusals: Callable[..., list[str]]) -> None:
    found = refusals("resources: {infra: aws, cloud: aws, region: us-east-1, zone: us-east-1a}\n")
    assert [problem.split(": ")[1] for problem in found] == [
        "resources.cloud", "resources.region", "resources.zone"
    ]  # fmt: skip


def test_c07_the_parts_alone_mean_the_same(read: Callable[..., Task]) -> None:
    text = "resources: {cloud: AWS, region: us-east-1, zone: us-east-1a}\n"
    assert read(text).candidates[0].infra == parse_infra("aws/us-east-1/us-east-1a")
    anywhere = 'resources: {region: "*", zone: us-east-1a}\n'
    assert read(anywhere).candidates[0].infra == parse_infra("*/*/us-east-1a")


def test_c07_parts_that_do_not_agree_are_refused(refusals: Callable[..., list[str]]) -> None:
    (found,) = refusals("resources: {cloud: aws, region: us-east-1, zone: us-west-2a}\n")
    assert "is not in region us-east-1" in found


def test_c07_regions_are_no_zones(read: Callable[..., Task]) -> None:
    for place in (
        "aws/us-east-1", "aws/ap-southeast-7", "aws/us-gov-east-1", "gcp/northamerica-northeast2",
        "gcp/us-central1", "alibaba/cn-hangzhou", "alibaba/us-west-1", "alibaba/cn-hongkong",
        "ibm/us-south", "azure/eastus2", "lambda/us-south-3", "oci/us-ashburn-1",
    ):  # fmt: skip
        assert str(read(f"resources:\n  infra: {place}\n").candidates[0].infra) == place


def test_c07_a_zone_for_a_region_is_told_of_the_parts_too(
    refusals: Callable[..., list[str]],
) -> None:
    (found,) = refusals("resources:\n  cloud: aws\n  region: us-east-1a\n")
    assert found.startswith("line 3: resources.region: us-east-1a is a zone; write ")


def test_c07_spot_in_one_zone_is_warned_of(read: Callable[..., Task]) -> None:
    pinned = "resources: {infra: aws/us-east-1/us-east-1a, use_spot: %s}\n"
    assert "nowhere else to go" in read(pinned % "true").warnings[0]
    assert read(pinned % "false").warnings == ()


PART = st.from_regex(r"[a-z][0-9]?[a-z-]{0,8}", fullmatch=True) | st.none()


@given(cloud=st.sampled_from(["aws", "gcp", "slurm", "azure", None]), region=PART, suffix=PART)
def test_every_infra_reads_back(cloud: str | None, region: str | None, suffix: str | None) -> None:
    zone = None if suffix is None else f"{region or ''}{suffix}"
    infra = Infra(cloud=cloud, region=region, zone=zone)
    assert parse_infra(infra_text(infra) or "*") == infra
