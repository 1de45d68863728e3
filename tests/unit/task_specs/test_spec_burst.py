"""The burst block, the run URI (C58) and what the command line changes (C13)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burst.task_specs.model import NEVER_S, Burst, CheckpointRule, Pools, Range, Task
from burst.task_specs.parse import Overrides

WHOLE = """\
resources: {infra: aws}
burst:
  train: train.py:main
  params: {lr: 1e-3}
  workers: 2..8
  strategy: FSDP2
  precision: bf16
  global_batch: 256
  micro_batch: 4
  epochs: 3
  steps: 1000
  seed: 0
  clip_norm: 1
  reduction: exact
  run_uri: s3://my-bucket/runs/
  checkpoint: {every: 5m, keep: 2, dir: out}
  spot_policy: on-demand
  max_price: 2.5
  budget_usd: "120.50"
  deadline: 12h
  max_failures: 1
  pools: {prefer: [slurm/lab, AWS], overflow_after: 10m, return_after: 90s}
"""


def test_every_field(read: Callable[..., Task]) -> None:
    task = read(WHOLE)
    assert task.burst == Burst(
        train="train.py:main", params={"lr": 1e-3}, workers=Range(low=2, high=8),
        strategy="fsdp2", precision="bf16", global_batch=256, micro_batch=4, epochs=3, steps=1000,
        seed=0, clip_norm=1.0, reduction="exact", run_uri="s3://my-bucket/runs",
        checkpoint=CheckpointRule(every_s=300.0, keep=2, dir="out"), spot="on-demand",
        budget_usd=120.5, deadline_s=43_200.0, max_failures=1,
        pools=Pools(prefer=("slurm/lab", "aws"), overflow_after_s=600.0, return_after_s=90.0),
    )  # fmt: skip
    assert task.candidates[0].max_hourly_usd == 2.5


def test_the_defaults_of_a_plain_skypilot_file(read: Callable[..., Task]) -> None:
    assert read("run: x\n").burst == Burst()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{strategy: fsdp}", "did you mean fsdp2?"),
        ("{strategy: zero-3}", "did you mean zero3?"),
        ("{strategy: horovod}", "needs one of ddp, fsdp2"),
        ("{precision: bfloat16}", "did you mean bf16?"),
        ("{precision: fp8}", "did you mean fp"),
        ("{spot: yes}", "did you mean spot?"),
        ("{workers: 2-8}", "a range has two dots: 2..8"),
        ("{workers: 0}", "needs at least 1"),
        ("{workers: 8..2}", "the smaller number first: 2..8"),
        ("{workers: {min: 1}}", "needs a single value"),
        ("{global_batch: 4, workers: 8}", "8 workers cannot share 4 samples"),
        ("{global_batch: 4, micro_batch: 8}", "is more than global_batch, 4"),
        ("{global_batch: 0}", "needs at least 1"),
        ("{epochs: 1.5}", "needs a whole number"),
        ("{clip_norm: 0}", "needs to be more than 0"),
        ("{budget_usd: 0}", "needs to be more than 0 dollars"),
        ("{budget_usd: -5}", "needs to be more than 0 dollars"),
        ("{budget_usd: 120 EUR}", "needs US dollars"),
        ("{budget_usd: '1,000'}", "needs US dollars"),
        ("{deadline: 12}", "needs a unit"),
        ("{deadline: 0s}", "more than 0"),
        ("{checkpoint: {every: 0s}}", "more than 0"),
        ("{checkpoint: {every: 5}}", "200 steps"),
        ("{checkpoint: {every: 0 steps}}", "at least 1 step"),
        ("{checkpoint: {keep: 1}}", "burst keeps at least 2"),
        ("{checkpoint: 5m}", "needs a mapping"),
        ("{max_failures: -1}", "needs at least 0"),
        ("{pools: {prefer: slurm}}", "needs a list"),
        ("{pools: {prefer: [amazon]}}", "did you mean aws?"),
        ("[a]", "needs a mapping"),
    ],
)  # fmt: skip
def test_what_is_refused(refusals: Callable[..., list[str]], written: str, words: str) -> None:
    found = refusals(f"burst: {written}\n")
    assert words in found[0]
    assert found[0].startswith("line 1: burst")


@pytest.mark.parametrize("written", ["{a: b}", "slurm"])
def test_pools_that_are_no_list_are_told_once(
    refusals: Callable[..., list[str]], written: str
) -> None:
    (found,) = refusals(f"burst: {{pools: {{prefer: {written}}}}}\n")
    assert "burst.pools.prefer: needs a list" in found


@pytest.mark.parametrize("written", ["train.py", "main", "train.py:", "a b.py:main", "train:1x"])
def test_a_function_has_a_file_or_module_and_a_name(
    refusals: Callable[..., list[str]], written: str
) -> None:
    assert "needs a function" in refusals(f"burst: {{train: '{written}'}}\n")[0]


def test_exactly_one_thing_runs(refusals: Callable[..., list[str]]) -> None:
    assert "one of them starts" in refusals("run: x\nburst: {train: a.py:main}\n")[0]
    for text in ("name: a\n---\n", "run: ''\n", "run:\n", "burst: {workers: 2} # no run:\n"):
        assert "nothing to run" in refusals(text)[0]
    assert "write `run: |`" in refusals("run: [a, b]\n")[0]
    assert "write `setup: |`" in refusals("setup: [a]\nrun: x\n")[0]


def test_checkpoints_by_steps_are_not_made_by_time(read: Callable[..., Task]) -> None:
    rule = read("burst: {checkpoint: {every: 200 steps}}\n").burst.checkpoint
    assert (rule.every_steps, rule.every_s) == (200, NEVER_S)


@pytest.mark.parametrize(
    ("typed", "uri"),
    [
        ("s3://bkt", "s3://bkt"),
        ("s3://bkt/", "s3://bkt"),
        ("s3://bkt/a/", "s3://bkt/a"),
        ("S3://bkt/a", "s3://bkt/a"),
        ("OSS://bkt-1/a/", "oss://bkt-1/a"),
        ("/abs/dir", "file:///abs/dir"),
        ("/abs/dir/", "file:///abs/dir"),
        ("file:///abs/dir", "file:///abs/dir"),
        ("~/d", f"file://{Path.home()}/d"),
        ("bkt/a", "file:///somewhere/bkt/a"),
        ("./runs", "file:///somewhere/runs"),
        ("../runs", "file:///runs"),
    ],
)  # fmt: skip
def test_c58_run_uris(read: Callable[..., Task], typed: str, uri: str) -> None:
    assert read(f"burst: {{run_uri: {typed}}}\n").burst.run_uri == uri


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("s3://bkt//a", "write each folder once"),
        ("s3://bkt/a//b", "write each folder once"),
        ("s3://bkt/../b", "write each folder once"),
        ("s3:///a", "no bucket"),
        ("s3://", "no bucket"),
        ("s3:/bkt", "two slashes"),
        ('""', "empty"),
        ("s4://bkt", "did you mean s3://?"),
        ("oss://my.bkt/a", "bucket can have this name"),
        ("oss://bkt//a", "write each folder once"),
        ("file://host/dir", "a path from the root"),
        ("s3://key:tok-SECRET@bkt", "bucket can have this name"),
    ],
)  # fmt: skip
def test_c58_run_uris_refused(refusals: Callable[..., list[str]], typed: str, words: str) -> None:
    (found,) = refusals(f"burst: {{run_uri: {typed}}}\n")
    assert words in found
    assert "SECRET" not in found


def test_c58_a_relative_run_uri_means_nothing_to_several_nodes(
    refusals: Callable[..., list[str]],
) -> None:
    (found,) = refusals("num_nodes: 2\nburst: {run_uri: bkt/a}\n")
    assert "a relative path with 2 nodes" in found


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ("infra: aws, disk_tier: high, image_id: {us-east-1: ami-1}, labels: {a: b}", []),
        ("infra: aws, priority: 3", [
            "resources.priority has no effect: burst does not hand it on",
        ]),
        ("infra: ssh/lab, disk_size: 300, image_id: docker:a/b", [
            "resources.disk_size has no effect on ssh/lab: those machines stay as they are",
            "resources.image_id has no effect on ssh/lab: those machines stay as they are",
        ]),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_told(
    read: Callable[..., Task], resources: str, told: list[str]
) -> None:
    task = read(f"resources: {{{resources}}}\n")
    assert [line for line in task.warnings if "no effect" in line] == told


@pytest.mark.parametrize(
    ("prefer", "told"),
    [
        ("[ssh/lab, aws, slurm, slurm/hpc]", []),
        ("[slurm/hpc/gpu]", ["slurm/hpc/gpu has no effect; a pool is preferred whole: slurm/hpc"]),
        ("[aws/us-east-1]", ["aws/us-east-1 has no effect; a pool is preferred whole: aws"]),
        ("[ssh/den, gcp]", [
            "ssh/den has no effect: resources name other places",
            "gcp has no effect: resources name other places",
        ]),
    ],
)  # fmt: skip
def test_what_is_preferred_in_vain_is_told(
    read: Callable[..., Task], prefer: str, told: list[str]
) -> None:
    places = "any_of: [{infra: ssh/lab}, {infra: slurm/hpc/debug}, {infra: aws/us-east-1}]"
    task = read(f"resources: {{{places}}}\nburst: {{pools: {{prefer: {prefer}}}}}\n")
    assert task.warnings == tuple(f"burst.pools.prefer: {words}" for words in told)
    anywhere = read(f"burst: {{pools: {{prefer: {prefer}}}}}\n").warnings
    assert not any("other places" in words for words in anywhere)


def test_top_level_keys_that_burst_does_not_hand_on_are_told(read: Callable[..., Task]) -> None:
    task = read("config: {docker: {run_options: [x]}}\nvolumes: {/mnt: data}\nx-mine: 1\n")
    assert task.warnings == (
        "config has no effect: burst does not hand it on",
        "volumes has no effect: burst does not hand it on",
    )


@pytest.mark.parametrize(
    ("infra", "far"), [("aws", True), ("ssh/lab", True), ("slurm/lab", False), ("local", False)]
)
def test_a_folder_of_this_machine_is_far_from_others(
    read: Callable[..., Task], infra: str, far: bool
) -> None:
    task = read(f"resources: {{infra: {infra}}}\nburst: {{run_uri: /runs}}\n")
    words = f"machines on {infra.partition('/')[0]} cannot reach"
    assert any(words in one for one in task.warnings) is far


@pytest.mark.parametrize(
    ("resources", "spot"),
    [("{use_spot: true}", "spot"), ("{use_spot: no}", "on-demand"), ("{}", "auto"),
     ("{any_of: [{use_spot: true}, {use_spot: false}]}", "auto")],
)  # fmt: skip
def test_spot_follows_use_spot(read: Callable[..., Task], resources: str, spot: Any) -> None:
    assert read(f"resources: {resources}\n").burst.spot == spot


@pytest.mark.parametrize("said", ["spot: on-demand", "spot: auto", "spot_policy: on-demand"])
def test_spot_and_use_spot_must_agree(refusals: Callable[..., list[str]], said: str) -> None:
    (found,) = refusals(f"resources: {{use_spot: true}}\nburst: {{{said}}}\n")
    assert "does not agree" in found


NO_SPOT = [
    ("resources: {infra: lambda}\nburst: {spot: spot}\n", "line 2: burst.spot: ", "on-demand"),
    (
        "resources: {infra: lambda}\nburst: {spot_policy: spot}\n",
        "line 2: burst.spot_p",
        "on-demand",
    ),
    (
        "resources: {infra: lambda/us-east-1, use_spot: true}\n",
        "line 1: resources.use_spot",
        "false",
    ),
    (
        "resources: {use_spot: true, any_of: [{infra: lambda, cpus: 4}, {cloud: lambda}]}\n",
        "line 1: resources.use_spot",
        "false",
    ),
    (
        "resources:\n  any_of: [{infra: lambda, use_spot: true}]\n",
        "line 2: resources.any_of[0].use_spot",
        "false",
    ),
]


@pytest.mark.parametrize(("text", "where", "instead"), NO_SPOT)
def test_spot_machines_are_refused_where_there_are_none(
    refusals: Callable[..., list[str]], text: str, where: str, instead: str
) -> None:
    (found,) = refusals(text)
    assert found.startswith(where)
    assert f"lambda rents no spot machines; write {instead}" in found


def test_a_cloud_without_spot_machines_may_stand_beside_others(read: Callable[..., Task]) -> None:
    both = "resources: {any_of: [{infra: aws}, {infra: lambda}]}\n"
    assert (
        "lambda rents no spot machines, so none is taken there"
        in read(both + "burst: {spot: spot}\n").warnings
    )
    assert "spot" not in "".join(read(both).warnings)
    spot = "resources: {any_of: [{infra: aws}, {infra: lambda, use_spot: true}]}\n"
    assert "lambda rents no spot machines, so none is taken there" in read(spot).warnings
    two = "resources: {any_of: [{infra: aws, use_spot: true}, {infra: lambda, use_spot: false}]}\n"
    assert "lambda rents no spot" not in "".join(read(two).warnings)
    assert read("resources: {infra: lambda, use_spot: false}\n").burst.spot == "on-demand"
    assert read("resources: {infra: lambda}\n").burst.spot == "auto"


@pytest.mark.parametrize("others", ["", "{infra: aws}, "])
def test_machines_that_cannot_end_themselves_are_told(
    read: Callable[..., Task], others: str
) -> None:
    found = read(f"resources: {{any_of: [{others}{{infra: lambda}}]}}\n").warnings
    assert [text for text in found if text.startswith("machines of lambda cannot end themselves")]
    assert read("resources: {infra: aws}\n").warnings == ()


def test_failures_allowed_come_from_job_recovery_if_nothing_else_says(
    read: Callable[..., Task],
) -> None:
    text = "resources: {job_recovery: {max_restarts_on_errors: 3}}\n"
    assert read(text).burst.max_failures == 3
    assert read(text + "burst: {max_failures: 0}\n").burst.max_failures == 0


@pytest.mark.parametrize("written", ["no", '"false"', "1", "yes", ""])
@pytest.mark.parametrize("option", [True, False])
def test_c13_the_command_line_beats_the_file_both_ways(
    read: Callable[..., Task], written: str, option: Any
) -> None:
    text = f"resources:\n  use_spot: {written}\n  any_of: [{{use_spot: {written}}}, {{cpus: 1}}]\n"
    task = read(text + "burst: {spot: auto}\n", overrides=Overrides(use_spot=option))
    assert [one.use_spot for one in task.candidates] == [option, option]
    assert task.burst.spot == ("spot" if option else "on-demand")


@pytest.mark.parametrize("block", ["resources: 5", "burst: [1]"])
def test_an_option_does_not_hide_a_block_of_the_wrong_kind(
    refusals: Callable[..., list[str]], block: str
) -> None:
    found = refusals(f"{block}\n", overrides=Overrides(use_spot=True, workers="2"))
    assert len(found) == 1
    assert "needs a mapping" in found[0]


def test_every_option_beats_the_file_and_is_checked_like_it(
    read: Callable[..., Task], refusals: Callable[..., list[str]]
) -> None:
    options = Overrides(
        name="other", num_nodes=3, workers="1..3", budget_usd="5", run_uri="/r", deadline="1h"
    )
    task = read(WHOLE, overrides=options)
    assert (task.name, task.num_nodes, task.burst.workers) == ("other", 3, Range(low=1, high=3))
    assert (task.burst.budget_usd, task.burst.run_uri) == (5.0, "file:///r")
    assert task.burst.deadline_s == 3600
    bad = Overrides(name="a/b", num_nodes=0, workers="2-3", budget_usd=-1)
    assert len(refusals(WHOLE, overrides=bad)) == 4
