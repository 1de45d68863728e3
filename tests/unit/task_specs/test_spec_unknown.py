"""Misspelt and misplaced fields (C11), files of other tools (C20)."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def test_c11_both_typos_are_told_with_their_paths(refusals: Callable[..., list[str]]) -> None:
    assert refusals("num_workers: 2\nresources:\n  accelerator: V100:1\nrun: x\n") == [
        "line 1: num_workers: unknown field; did you mean num_nodes?",
        "line 3: resources.accelerator: unknown field; did you mean accelerators?",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resources:\nports: [8080]\n", "`ports` at top level; it belongs under `resources`"),
        ("resources: {gpus: T4, accelerators: V100}\n", "accelerators, which is given already?"),
        ("Resources: {cpus: 1}\n", "did you mean resources?"),
        ("resources: {setup: pip}\n", "`setup` at `resources`; it belongs at top level"),
        ("resources: {use-spot: true}\n", "did you mean use_spot?"),
        ("resources: {num_nodes: 2}\n", "it belongs at top level"),
        ("resources: {hooks: []}\n", "belongs under `config`"),
        ("accelerators: A100\n", "it belongs under `resources`"),
        ("gpus: A100\n", "did you mean accelerators under `resources`?"),
        ("budget_usd: 5\n", "it belongs under `burst`"),
        ("burst: {num_nodes: 2}\n", "it belongs at top level"),
        ("burst: {every: 5m}\n", "it belongs under `burst.checkpoint`"),
        ("burst: {budget: 5}\n", "did you mean budget_usd?"),
        ("burst: {checkpoint: {save_total_limit: 3}}\n", "did you mean keep?"),
        ("burst: {pools: {prefers: [aws]}}\n", "did you mean prefer?"),
        ("file_mounts: {/a: {src: s3://b}}\n", "unknown field"),
        ("env: {A: 1}\n", "did you mean envs?"),
        ("commands: [a]\nrun: x\n", "did you mean run, which is given already?"),
        ("resources: {job_recovery: {max_restart_on_error: 3}}\n", "max_restarts_on_errors?"),
        ("zzz: 1\n", "unknown field; top level takes name, workdir"),
        ("workdir: {url: a, branch: b}\n", "a git workdir takes url and ref"),
    ],
)  # fmt: skip
def test_c11_fields_in_the_wrong_place_or_spelling(
    refusals: Callable[..., list[str]], text: str, words: str
) -> None:
    (found,) = refusals(text)
    assert words in found


def test_c11_two_names_for_one_thing_are_refused_even_if_they_agree(
    refusals: Callable[..., list[str]],
) -> None:
    for text in (
        "burst: {spot: spot, spot_policy: spot}\n",
        "burst: {max_price: 2}\nresources: {max_hourly_cost: 2}\n",
        "burst: {params: {a: 1}}\ntrain: {a: 1}\n",
    ):
        (found,) = refusals(text + "run: x\n")
        assert "keep one of them" in found


def test_no_value_of_an_unknown_field_is_shown(refusals: Callable[..., list[str]]) -> None:
    assert "SECRET" not in str(refusals("hf_token: tok-SECRET\n"))


DSTACK = """\
type: task
name: tune
python: 3.10
nodes: 2
env:
  - HUB_TOKEN=tok-SECRET
commands:
  - pip install tool
resources:
  gpu: 40GB..80GB:4
spot_policy: auto
max_price: 2.5
"""


def test_c20_a_dstack_task_is_refused_with_our_names(refusals: Callable[..., list[str]]) -> None:
    (found,) = refusals(DSTACK + "---\n")
    assert found.startswith("line 1: looks like a dstack task")
    for pair in (
        "env -> envs", "commands -> run", "nodes -> num_nodes", "gpu -> accelerators",
        "cpu -> cpus", "disk -> disk_size", "spot_policy -> resources.use_spot",
        "`python: 3.10` is the number 3.1",
    ):  # fmt: skip
        assert pair in found
    assert "SECRET" not in found


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("commands: [a]\nnodes: 2\n", "a dstack task"),
        ("services: {web: {image: x}}\n", "a compose file"),
        ("version: '3'\nservices:\n  web:\n    image: x\n", "a compose file"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n", "a Kubernetes manifest"),
        ("on: push\njobs: {a: {}}\n", "a GitHub workflow"),
        ("base_model: x\nload_in_4bit: true\n", "axolotl"),
        ("model_name_or_path: x\nstage: sft\n", "LLaMA-Factory"),
        ('{"zero_optimization": {"stage": 3}}', "a DeepSpeed config"),
        ("#!/bin/bash\n#SBATCH -N 2\nsrun x\n", "a script, not a task file"),
        ("- hosts: all\n  tasks: []\n", "a list"),
        ("echo hi", "plain text"),
    ],
)  # fmt: skip
def test_c20_files_of_other_tools_are_recognised(
    refusals: Callable[..., list[str]], text: str, tool: str
) -> None:
    found = refusals(text + "\n---\n")  # an empty document: nothing is added to the text
    assert len(found) == 1
    assert tool in found[0]
