"""Manifests read back as written, and nothing else reads at all."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burst.checkpointing.manifest import (
    CheckpointRef,
    File,
    Layout,
    Manifest,
    checkpoint_key,
    from_json,
    parse_key,
)
from burst.errors import CheckpointError

MANIFEST = Manifest(
    step=120,
    attempt=3,
    world_size=2,
    created_at="2026-01-02T03:04:05+00:00",
    files=(File("__0_0.distcp", 7, "a" * 64), File(".metadata", 0, "0" * 64)),
    position={"epoch": 1, "samples": 3840},
    layout=Layout(params=(("w", (2, 3), "float32"),), groups=(("w",), ())),
)

names = st.text(min_size=1, max_size=8)
layouts = st.builds(
    Layout,
    params=st.lists(
        st.tuples(names, st.lists(st.integers(0, 9), max_size=3).map(tuple), names), max_size=3
    ).map(tuple),
    groups=st.lists(st.lists(names, max_size=3).map(tuple), max_size=3).map(tuple),
)


@given(
    layout=st.none() | layouts,
    position=st.dictionaries(names, st.integers() | names | st.none(), max_size=3),
    step=st.integers(0, 10**12),
    attempt=st.integers(0, 10**6),
)
def test_reads_back_as_written(
    layout: Layout | None, position: dict[str, Any], step: int, attempt: int
) -> None:
    manifest = replace(MANIFEST, layout=layout, position=position, step=step, attempt=attempt)
    text = manifest.to_json()
    assert from_json(text) == manifest
    assert from_json(text).to_json() == text


@given(st.integers(0, 10**12), st.integers(0, 10**6), st.sampled_from(["", "/x", "/a/b.c"]))
def test_keys_parse_back(step: int, attempt: int, below: str) -> None:
    key = checkpoint_key(step, attempt)
    assert parse_key(key + below) == CheckpointRef(attempt=attempt, step=step)


def test_key_is_padded() -> None:
    assert checkpoint_key(120, 3) == "checkpoints/step-00000120-a0003"


@pytest.mark.parametrize(
    "key",
    [
        "checkpoints/step-120-a3",
        "checkpoints/step-000000120-a0003",  # one zero too many: another name for the same
        "checkpoints/step-00000120-a0003.old/x",
        "checkpoints/step-00000120/x",
        "logs/step-00000120-a0003",
        "checkpoints/last",
    ],
)
def test_other_names_are_no_checkpoints(key: str) -> None:
    assert parse_key(key) is None


def test_order_is_by_number_and_attempt_first() -> None:
    """C29, C43: 10000 follows 9900, and what a later attempt saved is newer."""
    assert CheckpointRef(1, 9900) < CheckpointRef(1, 10000) < CheckpointRef(2, 50)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": -1}, "step: -1 is not a whole number from 0"),
        ({"step": True}, "step: True is not a whole number from 0"),
        ({"step": 1.0}, "step: 1.0 is not a whole number from 0"),
        ({"world_size": 0}, "world_size: 0 is not a whole number from 1"),
        ({"created_at": 5}, "created_at: 5 is not a text"),
        ({"files": []}, "files: must list every file, and each once"),
        ({"files": [{"path": "x"}]}, "files[0]: has missing or unknown keys: sha256, size_bytes"),
        ({"extra": 1}, "the manifest: has missing or unknown keys: extra"),
        ({"position": []}, "position: is not an object"),
        ({"format": "zip"}, "format: 'zip' is none of dcp, folder"),
        ({"layout": {"params": [["w", [1.5], "f"]], "groups": []}}, "layout.params: ['w', [1.5]"),
        ({"layout": {"params": [], "groups": [[1]]}}, "layout.groups: [1] are not names"),
        ({"format_version": 2}, "has format_version 2; this burst reads 1"),
    ],
)
def test_wrong_manifests_say_what_is_wrong(change: dict[str, Any], said: str) -> None:
    raw = {**json.loads(MANIFEST.to_json()), **change}
    with pytest.raises(CheckpointError) as caught:
        from_json(json.dumps(raw).encode())
    assert said in caught.value.message


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", "a/../b", ".", "", "manifest.json", "a\0b"])
def test_files_stay_in_their_folder(path: str) -> None:
    with pytest.raises(CheckpointError, match="not a path below"):
        replace(MANIFEST, files=(File(path, 1, "a" * 64),)).to_json()


def test_a_torn_text_is_no_manifest() -> None:
    with pytest.raises(CheckpointError, match="no JSON"):
        from_json(MANIFEST.to_json()[:-1])


def test_a_hash_is_64_digits() -> None:
    with pytest.raises(CheckpointError, match="64 hexadecimal digits"):
        replace(MANIFEST, files=(File("x", 1, "A" * 64),)).to_json()


SAVED = Layout(
    params=(("a", (2,), "float32"), ("b", (3,), "float32"), ("c", (3,), "float32")),
    groups=(("a", "b"), ("c",)),
)


def test_the_same_layout_in_another_order_fits() -> None:
    """C37 c: state is matched by name, so the order within a group is no difference."""
    assert SAVED.differences(replace(SAVED, groups=(("b", "a"), ("c",)))) == ()


@pytest.mark.parametrize("groups", [(("a", "b", "c"),), (("a",), ("b", "c")), (("a", "b"), ())])
def test_other_groups_are_listed_by_name(groups: tuple[tuple[str, ...], ...]) -> None:
    """C37 a, b, d."""
    lines = SAVED.differences(replace(SAVED, groups=groups))
    assert lines[:2] == ("saved group 0: a, b", "saved group 1: c")
    assert lines[2] == f"current group 0: {', '.join(groups[0])}"


def test_tensors_that_differ_are_named() -> None:
    """C37 e, and a changed shape named with both shapes."""
    now = Layout(
        params=(("a", (5,), "float32"), ("b", (3,), "bfloat16"), ("d", (1,), "float32")),
        groups=SAVED.groups,
    )
    assert SAVED.differences(now) == (
        "c: saved, not in the model now",
        "d: in the model now, not saved",
        "a: saved as [2] float32, now [5] float32",
        "b: saved as [3] float32, now [3] bfloat16",
    )
