"""Pools of one's own that a task names: those that nobody set up are told while it is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from burst.task_specs.model import Task
from burst.task_specs.places import Names

KNOWN = {
    "ssh": Names("pools.yaml", lambda: ["lab", "den"]),
    "slurm": Names("~/.slurm/config", lambda: ["hpc"]),
    "k8s": Names("~/.kube/config", lambda: ["arn:aws:eks:eu-west-1:1:cluster/a"]),
}
NONE = {kind: Names(names.where, list) for kind, names in KNOWN.items()}
SSH = "pools.yaml has no such pool (there: ssh/den, ssh/lab)"
SLURM = "~/.slurm/config has no such pool (there: slurm/hpc)"
LIKE_SLURM = "~/.slurm/config has no such pool; did you mean slurm/hpc? (there: slurm/hpc)"
LIKE_LAB = "pools.yaml has no such pool; did you mean ssh/lab? (there: ssh/den, ssh/lab)"
K8S = "~/.kube/config has no such pool (there: k8s/arn:aws:eks:eu-west-1:1:cluster/a)"

FIRST_HOST = "write it there, as in `ssh: {lab: {hosts: [10.0.0.7]}}`"
FIRST_LOGIN = "write it there, as in `Host lab` and below it `HostName login.example.org`"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("infra: ssh/labb", [f"infra: {LIKE_LAB} (written: ssh/labb)"]),
        ("infra: SSH/x/", [f"infra: {SSH} (written: SSH/x/)"]),
        ("infra: slurm/x/gpu", [f"infra: {SLURM} (written: slurm/x/gpu)"]),
        ("cloud: slurm, region: HPC", [f"region: {LIKE_SLURM} (written: HPC)"]),
        ("infra: k8s/lab", [f"infra: {K8S} (written: k8s/lab)"]),
        (
            "any_of: [{infra: ssh/lab}, {infra: ssh/x}, {infra: aws}, {cloud: ssh, region: y}]",
            [f"any_of[1].infra: {SSH} (written: ssh/x)", f"any_of[3].region: {SSH} (written: y)"],
        ),
        ("ordered: [{infra: ssh/x}]", [f"ordered[0].infra: {SSH} (written: ssh/x)"]),
    ],
)
def test_a_pool_that_nobody_set_up_is_told_with_those_there_are(
    refusals: Callable[..., list[str]], text: str, told: list[str]
) -> None:
    found = refusals(f"resources: {{{text}}}\n", known=KNOWN)
    assert found == [f"line 1: resources.{line}" for line in told]


def test_one_that_is_preferred_is_told_too(refusals: Callable[..., list[str]]) -> None:
    text = "burst: {pools: {prefer: [ssh/lab, aws, slurm/x, ssh]}}\n"
    (told,) = refusals(text, known=KNOWN)
    assert told.startswith("line 1: burst.pools.prefer[2]: ~/.slurm/config has no such pool")


@pytest.mark.parametrize(
    ("infra", "said"),
    [
        ("ssh", f"pools.yaml has no ssh pool; {FIRST_HOST}"),
        ("ssh/lab", f"pools.yaml has no ssh pool; {FIRST_HOST}"),
        ("slurm", f"~/.slurm/config has no slurm pool; {FIRST_LOGIN}"),
        ("k8s", "~/.kube/config has no k8s pool"),
    ],
)
def test_without_any_pool_of_the_kind_it_is_said_how_to_write_one(
    refusals: Callable[..., list[str]], infra: str, said: str
) -> None:
    (told,) = refusals(f"resources: {{infra: {infra}}}\n", known=NONE)
    assert told == f"line 1: resources.infra: {said} (written: {infra})"


@pytest.mark.parametrize(
    "infra",
    ["ssh/lab", "ssh", "SSH/*", "slurm/hpc/gpu", "slurm/*/gpu", "Slurm/hpc/", "aws/us-east-1",
     "kubernetes/arn:aws:eks:eu-west-1:1:cluster/a", "'*'", "local"],
)  # fmt: skip
def test_pools_that_are_there_are_taken(read: Callable[..., Task], infra: str) -> None:
    assert read(f"resources: {{infra: {infra}}}\n", known=KNOWN).warnings == ()


def test_a_run_that_goes_on_is_not_asked_where_its_pools_are(read: Callable[..., Task]) -> None:
    assert read("resources: {infra: ssh/gone}\n").candidates[0].infra.region == "gone"


def test_what_cannot_be_read_is_told_once(refusals: Callable[..., list[str]]) -> None:
    text = "resources: {any_of: [{infra: awss}, {infra: [ssh]}, {cloud: ssh, region: [a]}, 5]}\n"
    text += "burst: {pools: {prefer: [awss]}}\n"
    assert refusals(text, known=KNOWN) == refusals(text)
