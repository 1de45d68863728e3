"""The resources block: C01 (candidates), C08 (autostop), C10 (fields), C13 (use_spot)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from burst.task_specs.model import Accelerators, Amount, Autostop, Infra, Task

EIGHT = """\
name: small-gpt
resources:
  accelerators: A100:8
  any_of:
    - cloud: gcp
      image_id: projects/some/global/images/v7
    - cloud: aws
    - cloud: azure
    - cloud: lambda
    - cloud: runpod
    - cloud: paperspace
    - cloud: fluidstack
    - cloud: kubernetes
file_mounts:
  ~/.cache/corpus: gs://some-corpus
setup: |
  cd ~
  if [ -f ./READY ]; then
    echo "here's one"
  fi
  os=$(lsb_release -si | tr '[:upper:]' '[:lower:]')
  export tag="${os}" LIBRARY_PATH=$LIBRARY_PATH:/opt/lib
run: |
  mpirun -np $SKYPILOT_NUM_GPUS_PER_NODE ./train -b 64 \\
      -q 0.0
"""


def test_c01_eight_clouds_with_one_image_and_scripts_byte_for_byte(
    read: Callable[..., Task],
) -> None:
    task = read(EIGHT)
    assert [one.infra.cloud for one in task.candidates] == [
        "gcp", "aws", "azure", "lambda", "runpod", "paperspace", "fluidstack", "k8s"
    ]  # fmt: skip
    assert not task.ordered
    assert {one.accelerators for one in task.candidates} == {Accelerators(kind="A100", count=8)}
    assert [one.image_id for one in task.candidates].count(None) == 7
    for script, key in ((task.setup, "setup"), (task.run, "run")):
        plain = yaml.safe_load(EIGHT)[key]
        assert script is not None
        assert hashlib.sha256(script.encode()).digest() == hashlib.sha256(plain.encode()).digest()
    assert task.mounts[0].remote


def test_labels_of_a_candidate_are_joined_and_all_else_replaces(read: Callable[..., Task]) -> None:
    task = read("""\
        resources:
          labels: {a: "1", b: "2"}
          disk_size: 100
          ordered:
            - {infra: aws, labels: {b: "3"}, disk_size: 50}
            - {infra: gcp}
    """)
    first, second = task.candidates
    assert task.ordered
    assert (first.labels, first.disk_size_gb) == ({"a": "1", "b": "3"}, 50)
    assert (second.labels, second.disk_size_gb) == ({"a": "1", "b": "2"}, 100)


def test_each_type_meets_each_candidate(read: Callable[..., Task]) -> None:
    task = read("resources: {accelerators: {T4: 1, L4: 1}, any_of: [{infra: aws}, {infra: gcp}]}\n")
    found = [
        (one.infra.cloud, one.accelerators and one.accelerators.kind) for one in task.candidates
    ]
    assert found == [("aws", "T4"), ("aws", "L4"), ("gcp", "T4"), ("gcp", "L4")]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{any_of: [{infra: aws}], ordered: [{infra: gcp}]}", "keep one of them"),
        ("{accelerators: [T4, L4], any_of: [{infra: aws}]}", "in an order, inside `any_of`"),
        ("{accelerators: {T4: 1, L4: 1}, ordered: [{infra: aws}]}", "inside `ordered`"),
        ("{infra: aws, any_of: [{cloud: gcp}]}", "`infra` says this already"),
        ("{any_of: [{any_of: [{infra: aws}]}]}", "write all candidates in one list"),
        ("{any_of: {infra: aws}}", "needs a list"),
        ("{any_of: [aws]}", "needs a mapping, not a single value, as in `{infra: aws}` (written: "),
        ("{any_of: [{gpus: T4}]}", "did you mean accelerators?"),
        ("[{infra: aws}]", "needs a mapping, not a list, as in `resources: {any_of: [...]}`"),
        ("aws", "needs a mapping, not a single value, as in `resources: {infra: aws}` (written: "),
    ],
)  # fmt: skip
def test_candidates_that_are_refused(
    refusals: Callable[..., list[str]], written: str, words: str
) -> None:
    assert words in refusals(f"resources: {written}\n")[0]


def test_a_mistake_that_holds_for_every_candidate_is_told_once(
    refusals: Callable[..., list[str]],
) -> None:
    found = refusals("resources:\n  cpus: many\n  any_of: [{infra: aws}, {infra: gcp}]\n")
    told = "line 2: resources.cpus: needs a number of CPUs, as in 8, or 8+ for at least 8"
    assert found == [f"{told} (written: many)"]


def test_like_mistakes_on_one_line_are_all_told(refusals: Callable[..., list[str]]) -> None:
    found = refusals("envs: {B C: x, 3D: y}\nresources: {ports: [[1], [2]], gpus: 1, gpu: 1}\n")
    assert [problem.split(": ")[1] for problem in found] == [
        "envs.B C", "envs.3D", "resources.gpus", "resources.gpu",
        "resources.ports[0]", "resources.ports[1]",
    ]  # fmt: skip


AUTOSTOP = [
    ("true", Autostop(idle_minutes=5)),
    ("yes", Autostop(idle_minutes=5)),
    ("false", Autostop(idle_minutes=None)),
    ("10", Autostop(idle_minutes=10)),
    ("10m", Autostop(idle_minutes=10)),
    ("10h", Autostop(idle_minutes=600)),
    ("1d", Autostop(idle_minutes=1440)),
    ("1w", Autostop(idle_minutes=10_080)),
    ("1h30m", Autostop(idle_minutes=90)),
    ("90", Autostop(idle_minutes=90)),
    ('"10 m"', Autostop(idle_minutes=10)),
    ("1.5h", Autostop(idle_minutes=90)),
    ("{idle_minutes: 10, down: true}", Autostop(idle_minutes=10, down=True)),
    ("{idle_minutes: 10m}", Autostop(idle_minutes=10)),
    ("{down: true}", Autostop(idle_minutes=5, down=True)),
    ("{idle_minutes: 1, wait_for: none}", Autostop(idle_minutes=1, other={"wait_for": "none"})),
]


@pytest.mark.parametrize(("written", "want"), AUTOSTOP)
def test_c08_autostop(read: Callable[..., Task], written: str, want: Any) -> None:
    assert read(f"resources:\n  autostop: {written}\n").candidates[0].autostop == want


def test_c08_autostop_at_once_is_warned_of(read: Callable[..., Task]) -> None:
    task = read("resources: {autostop: 0}\n")
    assert task.candidates[0].autostop == Autostop(idle_minutes=0)
    assert "as soon as it is idle" in task.warnings[0]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("-1", "use false for never"),
        ("{idle_minutes: -1}", "use false for never"),
        ("10s", "the shortest unit here is a minute"),
        ("soon", "units are m, h, d, w"),
        ('"true"', "units are m, h, d, w"),
        ("[10]", "not a list"),
        ("{minutes: 10}", "did you mean idle_minutes?"),
        ("{down: maybe}", "write true or false"),
    ],
)  # fmt: skip
def test_c08_autostop_refused(refusals: Callable[..., list[str]], written: str, words: str) -> None:
    (found,) = refusals(f"resources:\n  autostop: {written}\n")
    assert words in found


def test_c10_sizes_of_a_machine(read: Callable[..., Task]) -> None:
    (one,) = read("resources: {cpus: 8+, memory: 32+, disk_size: 256GB}\n").candidates
    assert (one.cpus, one.memory_gb, one.disk_size_gb) == (
        Amount(value=8, at_least=True), Amount(value=32, at_least=True), 256
    )  # fmt: skip


def test_c10_every_bad_size_is_told_with_what_was_written(
    refusals: Callable[..., list[str]],
) -> None:
    found = refusals("resources:\n  cpus: 4x\n  memory: 1e+06+\n  disk_size: 1500MB\n")
    assert [line.rpartition("(written: ")[2] for line in found] == ["4x)", "1e+06+)", "1500MB)"]


@pytest.mark.parametrize("word", ["no", "off", "false", "No", "FALSE"])
def test_c13_words_for_false(read: Callable[..., Task], word: str) -> None:
    assert read(f"resources: {{use_spot: {word}}}\n").candidates[0].use_spot is False


@pytest.mark.parametrize("word", ['"false"', "0", "1", "y", "n", '"yes"', "[]", '""'])
def test_c13_no_truthiness(refusals: Callable[..., list[str]], word: str) -> None:
    (found,) = refusals(f"resources: {{use_spot: {word}}}\n")
    assert "write true or false" in found


def test_ports_labels_and_images(
    read: Callable[..., Task], refusals: Callable[..., list[str]]
) -> None:
    (one,) = read("""\
        resources:
          ports: [8080, 10022-10040]
          labels: {team: 007, on: yes}
          image_id: {us-east-1: ami-1}
    """).candidates
    assert one.ports == ("8080", "10022-10040")
    assert one.labels == {"team": "007", "on": "yes"}
    assert one.other == {"image_id": {"us-east-1": "ami-1"}}
    assert read("resources: {ports: 22}\n").candidates[0].ports == ("22",)
    assert "resources.ports[1]" in refusals("resources: {ports: [1, 22:22]}\n")[0]
    assert "labels.a" in refusals("resources: {labels: {a: }}\n")[0]
    assert "not a mapping" in refusals("resources: {ports: {a: 1}}\n")[0]


def test_an_empty_block_is_no_block(read: Callable[..., Task]) -> None:
    assert read("resources:\n").candidates[0].infra == Infra()


TIERS = [
    ("disk_tier: bst", "needs one of low, medium, high, ultra, best; did you mean best?"),
    ("disk_tier: none", "needs one of low, medium, high, ultra, best"),
    ("network_tier: fast", "needs one of standard, best"),
    ("local_disk: fast", "as in nvme, 500+, nvme:500+ or ssd:500"),
    ("local_disk: 'nvme:'", "as in nvme, 500+, nvme:500+ or ssd:500"),
    ("local_disk: ssd:0", "as in nvme, 500+, nvme:500+ or ssd:500"),
]


@pytest.mark.parametrize(("written", "words"), TIERS)
def test_a_tier_or_local_disk_that_no_cloud_has_is_refused(
    refusals: Callable[..., list[str]], written: str, words: str
) -> None:
    (found,) = refusals(f"resources: {{any_of: [{{infra: aws}}, {{infra: gcp}}], {written}}}\n")
    assert words in found


@pytest.mark.parametrize("disk", ["nvme", "SSD", "500", "500+", "nvme:500+", "ssd:1.5"])
def test_tiers_and_local_disks_that_skypilot_takes(read: Callable[..., Task], disk: str) -> None:
    text = f"resources: {{disk_tier: ULTRA, network_tier: best, local_disk: '{disk}'}}\n"
    found = {"disk_tier": "ULTRA", "network_tier": "best", "local_disk": disk}
    assert read(text).candidates[0].other == found
