"""The JSON schema for editors."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from burst.task_specs.schema import SHIPPED, json_schema, shipped_text


def test_the_shipped_schema_is_the_current_one() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == shipped_text()


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/task.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_it_takes_every_example(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), json_schema())


@pytest.mark.parametrize(
    "text",
    ["num_workers: 2", "resources: {gpus: T4}", "burst: {strategy: horovod}", "ports: [1]",
     "burst: {checkpoint: {keep: 1}}", "resources: {any_of: [{any_of: []}]}", "num_nodes: 0"],
)  # fmt: skip
def test_it_marks_what_parse_refuses(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), json_schema())


@pytest.mark.parametrize(
    "text", ["x-a: 1\nrun: x", "resources: {accelerators: [{T4: 1}]}", "envs: {A: 1, B: }"]
)
def test_it_takes_what_parse_takes(text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), json_schema())
