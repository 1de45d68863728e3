"""A Task as the text of a task file, from which parse gives an equal Task."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import yaml

from burst.task_specs.burst_block import implied_failures, implied_spot
from burst.task_specs.model import Burst, CheckpointRule, Pools, Range, Task
from burst.task_specs.skypilot import skypilot_keys
from burst.task_specs.units import decimal_text


def dump(task: Task) -> str:
    """Return the task as YAML, without the value of any secret or private env.

    Those stand there as names without values: parse then wants them from the command line again.
    """
    envs = {name: None if name in task.private_envs else v for name, v in task.envs.items()}
    keys = skypilot_keys(task, envs=envs, secrets=dict.fromkeys(task.secrets))
    burst = _burst(task)
    if burst:
        keys["burst"] = burst
    text: str = yaml.dump(
        keys, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return text


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z_-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"}


class _Dumper(yaml.SafeDumper):
    """Puts all text in quotes or blocks, so that none reads as a number, and writes no aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    style: str | None = '"'
    if len(lines) > 1 and all(line.isprintable() for line in lines):
        style = "|"
    elif _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        style = None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _burst(task: Task) -> dict[str, Any]:
    """Return the block with only what differs from the defaults."""
    burst = task.burst
    written: dict[str, Any] = {}
    for field in fields(Burst):
        value = getattr(burst, field.name)
        if field.name == "spot":
            written |= {} if value == implied_spot(task.candidates) else {"spot": value}
        elif field.name == "max_failures":
            written |= {} if value == implied_failures(task.candidates) else {"max_failures": value}
        elif value != getattr(Burst(), field.name):
            written |= _entry(field.name, value)
    return written


def _entry(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - one field of Burst
    match value:
        case Range(low=low, high=high):
            return {name: f"{low}..{high}"}
        case CheckpointRule():
            return {name: _checkpoint(value)}
        case Pools():
            pools = {
                "prefer": list(value.prefer) or None,
                "overflow_after": _seconds(value.overflow_after_s),
                "return_after": _seconds(value.return_after_s),
            }
            return {name: {key: each for key, each in pools.items() if each is not None}}
        case _:
            return {"deadline": _seconds(value)} if name == "deadline_s" else {name: value}


def _checkpoint(rule: CheckpointRule) -> dict[str, Any]:
    steps = rule.every_steps
    every = _seconds(rule.every_s) if steps is None else f"{steps} steps"
    return {"every": every, "keep": rule.keep} | ({} if rule.dir is None else {"dir": rule.dir})


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{decimal_text(seconds)}s"
