"""Hyper-parameters: C13 (words and booleans), C14 (numbers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from burst.task_specs.model import Task

SFT = """\
name: sft
train:
  method: full
  deepspeed: conf/zero3.json   # a file
  cutoff: 2048
  logging_steps: 10
  save_steps: 500
  per_device_batch: 1
  grad_accum: 2
  learning_rate: 2e-5
  min_lr: 1.0e-6
  weight_decay: 0.
  sub_group_size: 1e9
  epochs: 3.0
  warmup_ratio: .03
run: python train.py
"""


def test_c14_numbers_reach_the_trainer_as_python_writes_them(read: Callable[..., Task]) -> None:
    assert repr(read(SFT).burst.params) == repr({
        "method": "full", "deepspeed": "conf/zero3.json", "cutoff": 2048, "logging_steps": 10,
        "save_steps": 500, "per_device_batch": 1, "grad_accum": 2, "learning_rate": 2e-05,
        "min_lr": 1e-06, "weight_decay": 0.0, "sub_group_size": 1e9, "epochs": 3.0,
        "warmup_ratio": 0.03,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("written", "want"),
    [("2e-5", 2e-5), ("1E-4", 1e-4), ("1e+5", 1e5), ("5.e-5", 5e-5), ('"2e-5"', 2e-5),
     ('"1e-4 "', 1e-4), ("auto", "auto"), ("", None)],
)  # fmt: skip
def test_c14_learning_rates(read: Callable[..., Task], written: str, want: Any) -> None:
    assert read(f"train: {{learning_rate: {written}}}\nrun: x\n").burst.params == {
        "learning_rate": want
    }


@pytest.mark.parametrize(
    "written", ['"0,0001"', "1e-400", ".inf", ".nan", "0", "-1e-5", "fast", "1_0", "true", "010"]
)
def test_c14_learning_rates_refused_with_their_name(
    refusals: Callable[..., list[str]], written: str
) -> None:
    (found,) = refusals(f"train:\n  learning_rate: {written}\nrun: x\n")
    assert found.startswith("line 2: train.learning_rate: ")


def test_c14_whole_numbers(read: Callable[..., Task], refusals: Callable[..., list[str]]) -> None:
    text = "train: {save_steps: 1e3, seed: 42, max_steps: -1, eval_steps: 0.1}\nrun: x\n"
    assert read(text).burst.params == {
        "save_steps": 1000, "seed": 42, "max_steps": -1, "eval_steps": 0.1
    }  # fmt: skip
    for bad in ("save_steps: 2.5", "grad_accum: 1.5", "cutoff_len: 0", "per_device_batch: x"):
        assert len(refusals(f"train: {{{bad}}}\nrun: x\n")) == 1


def test_c14_unknown_names_follow_one_rule(read: Callable[..., Task]) -> None:
    text = """\
        burst:
          train: train.py:main
          params:
            a: 2e-5
            b: 3
            c: true
            d: no
            e: 0755
            f: 1:30
            g: 0x10
            h: "5"
            i: 3.10
            j: 1_000
            k: ~
            l: {m: [1, two, yes, {lr: 1e-3}]}
            n: 2025-01-01
            o: -1.5E+3
    """
    assert read(text).burst.params == {
        "a": 2e-5, "b": 3, "c": True, "d": "no", "e": "0755", "f": "1:30", "g": "0x10", "h": "5",
        "i": 3.1, "j": "1_000", "k": None, "l": {"m": [1, "two", "yes", {"lr": 1e-3}]},
        "n": "2025-01-01", "o": -1500.0,
    }  # fmt: skip


def test_c14_names_keep_their_type_at_any_depth(refusals: Callable[..., list[str]]) -> None:
    text = "train: {opt: {groups: [{lr: 1e-3}, {lr: 0}]}, lr: [1e-3, .nan]}\nrun: x\n"
    assert [problem.split(": ")[1] for problem in refusals(text)] == [
        "train.opt.groups[1].lr", "train.lr[1]"
    ]  # fmt: skip


def test_c14_numbers_that_are_not_finite_are_refused_under_any_name(
    refusals: Callable[..., list[str]],
) -> None:
    for written in (".inf", "-.INF", ".nan", "1e-400", "1e999"):
        assert len(refusals(f"train: {{anything: {written}}}\nrun: x\n")) == 1


def test_c13_words_stay_words_and_booleans_booleans(read: Callable[..., Task]) -> None:
    text = """\
        train:
          save_strategy: no
          downcast_bf16: 'no'
          report_to: none
          bf16: True
          tf32: Off
          fp16: auto
          group_by_length: yes
        run: x
    """
    assert read(text).burst.params == {
        "save_strategy": "no", "downcast_bf16": "no", "report_to": "none", "bf16": True,
        "tf32": False, "fp16": "auto", "group_by_length": True,
    }  # fmt: skip


@pytest.mark.parametrize("written", ['"false"', "0", "1", "y", "n", "none", '"true"'])
def test_c13_a_boolean_is_never_guessed(refusals: Callable[..., list[str]], written: str) -> None:
    (found,) = refusals(f"train:\n  packing: {written}\nrun: x\n")
    assert "write true or false" in found
    assert found.endswith(f"(written: {written})")


def test_a_credential_among_the_parameters_is_warned_of_and_not_shown(
    read: Callable[..., Task],
) -> None:
    assert "goes in `secrets`" in read("train: {hub_token: tok-SECRET}\nrun: x\n").warnings[0]
    assert "SECRET" not in str(read("train: {hub_token: tok-SECRET}\nrun: x\n").warnings)


def test_a_function_at_the_top_is_told_where_it_belongs(refusals: Callable[..., list[str]]) -> None:
    assert "belongs under `burst`" in refusals("train: train.py:main\nrun: x\n")[0]
