"""`pools.yaml` in a person's burst folder: what this machine and other pools cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burst.errors import Problem, SpecError
from burst.task_specs.nodes import ListNode, MapNode, Node, Scalar, is_null
from burst.task_specs.problems import Report
from burst.task_specs.yaml_nodes import read_document


def read_pools(path: Path) -> Mapping[str, Any]:
    """Return the file's mapping, every value as the text typed; empty if there is no file.

    SpecError if it cannot be read or is no mapping of mappings.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        reason = (error.strerror or "unknown").lower()
        problems: tuple[Problem, ...] = (Problem(field="", message=f"cannot be read: {reason}"),)
    else:
        report = Report()
        root = read_document(data, report)
        if isinstance(root, MapNode):
            for name, entry in root.entries.items():
                if not isinstance(entry.value, MapNode):
                    message = "needs a mapping, as in `local: {usd_per_hour: 0.12}`"
                    report.problem(name, message, line=entry.line)
            if not report.problems:
                return {name: _typed(entry.value) for name, entry in root.entries.items()}
        elif root is not None:
            message = "needs a mapping, as in `local: {usd_per_hour: 0.12}`"
            report.problem("", message, line=root.line)
        problems = report.problems
    raise SpecError(str(path), problems)


def _typed(node: Node) -> Any:  # noqa: ANN401 - the file's own shape
    match node:
        case MapNode():
            return {name: _typed(entry.value) for name, entry in node.entries.items()}
        case ListNode():
            return [_typed(item) for item in node.items]
        case Scalar():
            return None if is_null(node) else node.text
