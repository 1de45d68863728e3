"""Values that burst only hands on, read as SkyPilot's own reader (YAML 1.1) would."""

from __future__ import annotations

import math
from typing import Any

import yaml

from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar
from burst.task_specs.problems import Report

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def handed_on(node: Node, path: str, report: Report) -> Any:  # noqa: ANN401 - YAML enters here
    """Return the node in plain types that JSON has too; a date stays text, as JSON has none."""
    match node:
        case MapNode():
            return {
                key: handed_on(entry.value, f"{path}.{key}", report)
                for key, entry in node.entries.items()
            }
        case ListNode():
            return [
                handed_on(item, f"{path}[{index}]", report) for index, item in enumerate(node.items)
            ]
        case Scalar():
            try:
                return _value(node)
            except (ValueError, OverflowError):
                report.problem(path, "neither a number nor text; put it in quotes", line=node.line)
                return None


def _value(node: Scalar) -> object:
    if node.quoted:
        return node.text
    loader = yaml.SafeLoader("")
    tag: str = loader.resolve(yaml.ScalarNode, node.text, (True, False))  # type: ignore[no-untyped-call]  # the stubs leave it out
    if tag == _TIMESTAMP:
        return node.text
    if not tag.endswith((":int", ":float", ":bool", ":null")):
        return node.text
    value: object = loader.construct_object(yaml.ScalarNode(tag, node.text))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not finite")
    return value
