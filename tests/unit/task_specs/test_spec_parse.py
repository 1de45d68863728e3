"""The parser as a whole: it ends with a Task or a SpecError, and dump gives the Task back."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burst.errors import SpecError
from burst.task_specs.dump import dump
from burst.task_specs.keys import PLACES
from burst.task_specs.parse import load, parse
from burst.task_specs.skypilot import to_skypilot

FULL = """\
name: full
workdir: {url: https://example.com/a/b.git, ref: main}
num_nodes: 2
event_callback: echo done
resources:
  any_of:
    - {infra: aws/us-east-1, use_spot: true, network_tier: best}
    - {infra: k8s/ctx, labels: {a: b}}
  accelerators: {a100: 8, H100: 8}
  cpus: 8+
  memory: 64GB+
  disk_size: 1TB
  disk_tier: best
  image_id: docker:ubuntu
  autostop: 1h30m
  ports: [8080, 9000-9010]
  job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 3}
  max_hourly_cost: 20
  accelerator_args: {tpu_vm: yes}
  priority: 5
envs: {A: 1, B: yes}
secrets: {TOK: abc}
volumes: {/mnt: "vol-${B}"}
file_mounts:
  /data: s3://bucket/x
  /b: {name: bkt, mode: mount, store: s3}
config: {kubernetes: {pod_config: {spec: {x: 0755}}}}
inputs: {s3://a: 3}
outputs: {s3://b: 4.5}
api_server_access: no
x-note: {anything: goes}
run: echo hi
"""


def test_every_key_of_skypilots_format_keeps_its_meaning() -> None:
    handed = to_skypilot(parse(FULL, source="/w/t.yaml"))
    assert "x-note" not in handed
    assert handed["envs"] == {"A": "1", "B": "yes"}
    assert handed["config"] == {"kubernetes": {"pod_config": {"spec": {"x": 493}}}}
    assert handed["volumes"] == {"/mnt": "vol-yes"}
    assert (handed["inputs"], handed["outputs"]) == ({"s3://a": 3}, {"s3://b": 4.5})
    assert handed["api_server_access"] is False
    assert handed["file_mounts"]["/b"] == {"name": "bkt", "mode": "MOUNT", "store": "s3"}
    first, _, third, _ = handed["resources"]["any_of"]
    assert first == {
        "infra": "aws/us-east-1", "accelerators": "A100:8", "cpus": "8+", "memory": "64+",
        "disk_size": 1024, "use_spot": True, "image_id": "docker:ubuntu", "max_hourly_cost": 20.0,
        "autostop": {"idle_minutes": 90, "down": False}, "ports": ["8080", "9000-9010"],
        "job_recovery": {"strategy": "FAILOVER", "max_restarts_on_errors": 3}, "disk_tier": "best",
        "network_tier": "best", "accelerator_args": {"tpu_vm": True}, "priority": 5,
    }  # fmt: skip
    assert third["labels"] == {"a": "b"}
    assert "burst" not in handed


def test_values_handed_on_are_read_as_skypilot_reads_them() -> None:
    text = "config: {a: yes, b: 0x10, c: 2025-01-01, d: '5', e: 1e3, f: , g: 1:30}\nrun: x\n"
    assert to_skypilot(parse(text, source="t.yaml"))["config"] == {
        "a": True, "b": 16, "c": "2025-01-01", "d": "5", "e": "1e3", "f": None, "g": 90,
    }  # fmt: skip


def test_a_value_handed_on_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        parse("config:\n  a: [1, .inf]\nrun: x\n", source="t.yaml")
    (problem,) = caught.value.problems
    assert (problem.field, problem.line) == ("config.a[1]", 2)


def test_a_list_of_commands_is_one_problem() -> None:
    with pytest.raises(SpecError) as caught:
        parse("run: [a, b]\n", source="t.yaml")
    words = "line 1: run: needs text; write `run: |` and the commands below it"
    assert [str(problem) for problem in caught.value.problems] == [words]


def test_serving_is_warned_of() -> None:
    text = "run: x\nservice: {readiness_probe: /, replicas: 1}\n"
    assert "serves nothing" in parse(text, source="t.yaml").warnings[0]


WORDS = st.sampled_from(
    ["run", "name", "x", "yes", "1e3", "0755", "~", "A100:8", "s3://bucket", "true", "-1", "5m",
     "", "2..8", "*", "spot", "${A}", "null", "a: b", "\u2028", "é", "[", "#", "'", "/abs"]
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(sorted({key for keys in PLACES.values() for key in keys})) | WORDS,
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
FILES = st.dictionaries(
    st.sampled_from(PLACES[""]) | WORDS, VALUES, max_size=5
).map(lambda keys: yaml.safe_dump({"run": "x", **keys}))  # fmt: skip


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    data=st.text() | st.binary() | FILES | st.text("{}[]:-,&*!|>'\"#%@`? \n\tab0~<", max_size=40)
)
def test_nothing_but_a_spec_error_ever_leaves(data: Any) -> None:
    with contextlib.suppress(SpecError):
        parse(data, source="t.yaml")


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
SCRIPT = st.text(st.sampled_from("ab \n\t'\"#:-|$\\é\u2028"), min_size=1, max_size=30)
PARAMS = st.dictionaries(
    st.from_regex(r"p[a-z]{0,5}", fullmatch=True),
    TEXT | st.booleans() | st.none() | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False),
    max_size=4,
)  # fmt: skip
TASKS = st.fixed_dictionaries(
    {"run": SCRIPT},
    optional={
        "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,20}", fullmatch=True),
        "setup": SCRIPT,
        "num_nodes": st.integers(1, 9),
        "envs": st.dictionaries(st.from_regex(r"[A-Z_]{1,6}", fullmatch=True), TEXT, max_size=3),
        "file_mounts": st.dictionaries(
            st.sampled_from(["/a", "~/b", "/c/d"]),
            st.sampled_from(["s3://bucket/x", "./y", "~/z"])
            | st.fixed_dictionaries(
                {"source": st.just("s3://b"), "mode": st.sampled_from(["COPY", "mount"])},
                optional={"name": st.just("bucket"), "persistent": st.booleans()},
            ),
        ),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "accelerators": st.sampled_from(["A100:8", "t4", {"L4": 1, "T4": 2}, ["L4", "T4"]]),
                "infra": st.sampled_from(["aws", "gcp/us-central1", "k8s/a/b", "*/r"]),
                "cpus": st.sampled_from(["8", "8+", 0.5]),
                "memory": st.sampled_from(["8", "8GB+", "4x", "100KB"]),
                "use_spot": st.booleans(),
                "autostop": st.sampled_from([True, False, 0, "1h30m", {"down": True}]),
                "ports": st.sampled_from([80, [80, "90-91"]]),
                "labels": st.dictionaries(TEXT, TEXT, max_size=2),
                "disk_tier": TEXT,
                "image_id": TEXT,
            },
        ),
        "burst": st.fixed_dictionaries(
            {},
            optional={
                "params": PARAMS,
                "workers": st.sampled_from(["1", "2..8"]),
                "strategy": st.sampled_from(["ddp", "zero2"]),
                "run_uri": st.sampled_from(["s3://bucket/x/", "/a/b"]),
                "checkpoint": st.sampled_from([{"every": "90s"}, {"every": "7 steps", "keep": 5}]),
                "budget_usd": st.floats(0.01, 1e6),
                "deadline": st.sampled_from(["1.5h", "90s", "0.1m"]),
                "pools": st.sampled_from([{"prefer": ["aws"]}, {"overflow_after": "0s"}]),
                "seed": st.integers(0, 9),
                "max_failures": st.integers(0, 3),
            },
        ),
    },
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(keys=TASKS)
def test_a_dumped_task_parses_to_an_equal_task(keys: dict[str, Any]) -> None:
    text = yaml.safe_dump(keys, default_style='"') if "burst" not in keys else yaml.safe_dump(keys)
    try:
        task = parse(text, source="/w/t.yaml")
    except SpecError:
        return
    if not task.private_envs:
        assert parse(dump(task), source="/w/t.yaml") == task


def test_a_dump_names_private_values_without_giving_them() -> None:
    text = dump(parse("envs: {HF_TOKEN: abc, B: no}\nsecrets: {S: xyz}\nrun: x\n", source="t"))
    assert 'HF_TOKEN: null\n  B: "no"\n' in text
    assert "abc" not in text
    assert "xyz" not in text


def test_a_script_is_dumped_as_people_write_it() -> None:
    text = "run: |\n  cd x\n\n  go --now\n"
    assert text in dump(parse(text, source="t.yaml"))


def test_load_reads_files_and_looks_for_what_they_name(tmp_path: Path) -> None:
    path = tmp_path / "my-task.yaml"
    path.write_bytes(b"\xef\xbb\xbfworkdir: code\r\nfile_mounts: {/c: conf}\r\nrun: x\r\n")
    with pytest.raises(SpecError) as caught:
        load(path)
    assert [problem.field for problem in caught.value.problems] == ["workdir", "file_mounts./c"]
    (tmp_path / "code").write_text("a file is no folder")
    with pytest.raises(SpecError) as caught:
        load(path)
    assert "no such folder" in caught.value.problems[0].message
    (tmp_path / "code").unlink()
    (tmp_path / "code").mkdir()
    (tmp_path / "conf").mkdir()
    task = load(path)
    assert (task.name, task.workdir) == ("my-task", str(tmp_path / "code"))


@pytest.mark.parametrize("name", ["gone.yaml", ".", "a\0b"])
def test_load_explains_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path / name)
    assert "cannot be read" in caught.value.problems[0].message


def test_the_error_names_the_file_and_survives_pickling() -> None:
    with pytest.raises(SpecError) as caught:
        parse("runn: x\n", source="my.yaml")
    error = caught.value
    assert error.message == "my.yaml has 2 problems"
    assert error.__cause__ is None
    assert error.__context__ is None  # a YAML error would hold the file's text
    assert pickle.loads(pickle.dumps(error)).problems == error.problems  # noqa: S301 - our own


@pytest.mark.parametrize("count", ["0", "-1", "1.5", "two", "1e9", "010", "[2]", '""'])
def test_a_count_of_nodes_is_a_count(count: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"num_nodes: {count}\nrun: x\n", source="t.yaml")
    assert caught.value.problems[0].field == "num_nodes"


@pytest.mark.parametrize(
    ("written", "why"),
    [("two", ""), ("2.5", ""), ("1_000", "; leave out the underscores"), ("1..4", "")],
)
def test_a_count_that_is_none_is_told_what_to_write(written: str, why: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"run: x\nnum_nodes: {written}\n", source="t.yaml")
    (problem,) = caught.value.problems
    told = f"line 2: num_nodes: needs a whole number, as in 2{why} (written: {written})"
    assert str(problem) == told


EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/task.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_example_is_a_good_task_without_warnings(path: Path) -> None:
    assert load(path).warnings == ()
