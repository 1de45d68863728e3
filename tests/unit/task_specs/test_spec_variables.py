"""envs and secrets: C04 (required ones), C05 (kept as typed)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from burst.task_specs.dump import dump
from burst.task_specs.model import Task
from burst.task_specs.parse import Overrides
from burst.task_specs.skypilot import to_skypilot

TYPED = {
    "MODEL_SIZE": "7", "USE_FLASH": "0", "MODE": "0755", "STAFF": "03303560", "SHA": "0757192",
    "PYVER": "3.10", "BIG": "1_000", "HEXY": "0x10", "ANSWER": "yes", "COUNTRY": "no",
    "WINDOW": "1:30", "DAY": "2025-01-01", "LR": "1e-4", "LR2": "1.0e-5", "EXP": "1e3",
    "PLUS": "+5", "OCT": "0o17", "INF": ".inf", "DOT": ".", "TRUE": "True", "SPACES": "a  b",
    "DASH": "--x", "DOLLAR": "$HOME", "SEXA": "22:22:22", "TILDE": "~/x",
}  # fmt: skip


def test_c05_values_are_the_characters_typed(read: Callable[..., Task]) -> None:
    lines = "".join(f"  {name}: {value}\n" for name, value in TYPED.items())
    text = f"envs:\n{lines}  EMPTY: \"\"\n  QUOTED: '007'\n  BLOCK: |\n    two\n    lines\n"
    task = read(text)
    assert task.envs == {**TYPED, "EMPTY": "", "QUOTED": "007", "BLOCK": "two\nlines\n"}
    handed = to_skypilot(task)
    assert {**handed["envs"], **handed.get("secrets", {})} == task.envs


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{A: {b: 1}}", "needs text, not a mapping"),
        ("{A: [1]}", "needs text, not a list"),
        ("{MY-VAR: 1}", "so MY_VAR and not MY-VAR"),
        ("{1A: 1}", "no digit first"),
        ("{été: 1}", "letters, digits and underscores"),
        ('{"": 1}', "letters, digits and underscores"),
        ("{BURST_RUN_ID: 1}", "set by burst itself"),
        ("[A=1]", "needs a mapping"),
        ("A=1", "needs a mapping"),
    ],
)  # fmt: skip
def test_c05_blocks_that_are_refused(
    refusals: Callable[..., list[str]], block: str, words: str
) -> None:
    (found,) = refusals(f"envs: {block}\n")
    assert words in found
    assert "=1" not in found


REQUIRED = """\
envs:
  HUB_TOKEN: # give it
  BUCKET:
file_mounts:
  /book:
    name: ${BUCKET}
    mode: MOUNT
run: login --token ${HUB_TOKEN}
"""


def test_c04_all_missing_values_are_told_at_once(refusals: Callable[..., list[str]]) -> None:
    assert refusals(REQUIRED) == [
        'line 2: envs.HUB_TOKEN: has no value; give it with --env HUB_TOKEN, or write "" for empty',
        'line 3: envs.BUCKET: has no value; give it with --env BUCKET, or write "" for empty',
    ]


def test_c04_values_come_from_the_command_line_and_the_shell(read: Callable[..., Task]) -> None:
    given = Overrides(envs=("BUCKET=bk=one", "HUB_TOKEN"), environ={"HUB_TOKEN": "tok-SECRET-123"})
    task = read(REQUIRED, overrides=given)
    assert task.mounts[0].name == "bk=one"
    assert task.run == "login --token ${HUB_TOKEN}"
    assert task.envs["HUB_TOKEN"] == "tok-SECRET-123"  # noqa: S105 - made up
    assert task.private_envs == {"HUB_TOKEN"}
    for shown in (repr(task), dump(task), repr(given), str(task.warnings)):
        assert "tok-SECRET-123" not in shown
    assert to_skypilot(task)["secrets"] == {"HUB_TOKEN": "tok-SECRET-123"}


def test_c04_a_name_the_shell_does_not_have_is_refused(refusals: Callable[..., list[str]]) -> None:
    found = refusals(REQUIRED, overrides=Overrides(envs=("HUB_TOKEN", "BUCKET=b")))
    assert "--env HUB_TOKEN: is not set in this shell; set it or give a value" in found


def test_c04_an_empty_value_counts_as_given(read: Callable[..., Task]) -> None:
    text = REQUIRED.replace("HUB_TOKEN: # give it", 'HUB_TOKEN: ""')
    assert read(text, overrides=Overrides(envs=("BUCKET=",))).envs == {
        "HUB_TOKEN": "",
        "BUCKET": "",
    }


def test_the_command_line_beats_the_file_and_adds_to_it(read: Callable[..., Task]) -> None:
    task = read("envs: {A: 1}\n", overrides=Overrides(envs=("A=2", "B=3", "B=4")))
    assert task.envs == {"A": "2", "B": "4"}


@pytest.mark.parametrize("item", ["=x", "A-B=tok-SECRET", "tok SECRET", ""])
def test_what_is_no_variable_is_refused_and_not_repeated(
    refusals: Callable[..., list[str]], item: str
) -> None:
    found = refusals("run: x\n", overrides=Overrides(envs=(item,)))
    assert "needs NAME=VALUE or NAME" in found[0]
    assert "SECRET" not in found[0]


def test_secrets_stay_out_of_everything_that_is_shown(read: Callable[..., Task]) -> None:
    text = "secrets: {API: tok-SECRET-1, OTHER: }\n"
    task = read(text, overrides=Overrides(secrets=("OTHER=tok-SECRET-2",)))
    assert task.secrets == {"API": "tok-SECRET-1", "OTHER": "tok-SECRET-2"}
    for shown in (repr(task), dump(task)):
        assert "SECRET" not in shown


def test_a_secret_without_a_value_and_one_given_twice_are_refused(
    refusals: Callable[..., list[str]],
) -> None:
    assert "give it with --secret A" in refusals("secrets: {A: }\n")[0]
    assert "is in `envs` too" in refusals("envs: {A: 1}\nsecrets: {A: tok-SECRET}\n")[0]
    for block in ("tok-SECRET", "[tok-SECRET]", "{tok-SECRET}", "{A=tok-SECRET}", "{A=SECRET: 1}"):
        for key in ("envs", "secrets"):
            assert "SECRET" not in str(refusals(f"{key}: {block}\n"))


def test_managed_secrets_are_handed_on_by_name(read: Callable[..., Task]) -> None:
    for text in ("secrets: [secrets:HF]\n", "secrets: {'secrets:HF': }\n"):
        task = read(text)
        assert task.other == {"managed_secrets": ["HF"]}
        assert "SkyPilot server" in task.warnings[0]


def test_credentials_in_the_file_are_private_too(read: Callable[..., Task]) -> None:
    task = read("envs: {WANDB_API_KEY: abc, MONKEY: x, TOKENIZER: gpt2, HF_TOKEN: ''}\n")
    assert task.private_envs == {"WANDB_API_KEY"}
