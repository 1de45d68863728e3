"""The YAML layer: C04 (stray line), C16 (repeats), C17 (anchors), C19 (documents), encodings."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from burst.errors import SpecError
from burst.task_specs.model import Task
from burst.task_specs.parse import parse
from burst.task_specs.problems import Report
from burst.task_specs.yaml_nodes import MAX_CHARACTERS, read_document


def problems(data: str | bytes) -> list[tuple[int | None, str]]:
    report = Report()
    read_document(data, report)
    return [(problem.line, problem.message) for problem in report.problems]


def test_c16_every_repeat_is_told_with_both_lines(refusals: Callable[..., list[str]]) -> None:
    found = refusals("""\
        envs:
          BUCKET: one
          "BUCKET": two
        resources:
          any_of:
            - {cloud: aws, cloud: gcp}
          image_id: docker:a
          image_id: docker:b
        run: x
        envs:
          BUCKET: three
    """)
    assert found == [
        "line 3: envs.BUCKET: `BUCKET` on line 3 repeats line 2; keep one of them",
        "line 6: resources.any_of[0].cloud: `cloud` on line 6 repeats line 6; keep one of them",
        "line 8: resources.image_id: `image_id` on line 8 repeats line 7; keep one of them",
        "line 10: envs: `envs` on line 10 repeats line 1; keep one of them",
    ]


def test_c16_a_repeat_does_not_hide_other_problems(refusals: Callable[..., list[str]]) -> None:
    assert len(refusals("name: a\nname: b\nnum_workers: 2\nrun: x\n")) == 2


MERGED = """\
x-small: &small
  use_spot: true
  disk_size: 100
  labels: {team: blue, cost: c1}
x-there: &there
  infra: aws/us-west-2
  disk_size: 300
resources:
  %s
  accelerators: L4:1
  labels: {team: red}
run: x
"""


@pytest.mark.parametrize("merge", ["<<: [*small, *there]", "<<: *small\n  <<: *there"])
def test_c17_a_merge_is_shallow_and_the_own_key_wins(read: Callable[..., Task], merge: str) -> None:
    (one,) = read(MERGED % merge).candidates
    assert (one.infra.region, one.use_spot, one.disk_size_gb) == ("us-west-2", True, 100)
    assert one.labels == {"team": "red"}


def test_c17_an_own_key_beside_a_merged_one_is_no_repeat(read: Callable[..., Task]) -> None:
    (one,) = read(MERGED % "<<: *small\n  disk_size: 50").candidates
    assert one.disk_size_gb == 50


def test_c17_a_merge_of_something_else_is_refused(refusals: Callable[..., list[str]]) -> None:
    (found,) = refusals("resources:\n  <<: 5\nrun: x\n")
    assert "takes a mapping or a list of mappings" in found


def test_c17_a_quoted_merge_sign_is_an_ordinary_key(refusals: Callable[..., list[str]]) -> None:
    (found,) = refusals('x: &x {a: 1}\n"<<": *x\nrun: x\n'.replace("x:", "x-x:", 1))
    assert "unknown field" in found


def test_c17_an_unused_anchor_is_fine_and_an_unknown_alias_has_its_line(
    read: Callable[..., Task], refusals: Callable[..., list[str]]
) -> None:
    assert read("x-a: &never {b: 1}\nrun: x\n").run == "x"
    (found,) = refusals("name: a\nresources:\n  infra: *nobody\nrun: x\n")
    assert found.startswith("line 3: YAML reads an unquoted * as an alias")
    assert "nobody" not in found  # it may be a password that begins with a star


def test_c17_a_bomb_and_a_loop_are_refused_fast_and_small() -> None:
    row = "[" + ",".join(["lol"] * 10) + "]"
    bomb = f"a0: &a0 {row}\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    merges = (
        "a0: &a0 {"
        + ",".join(f"k{n}: 1" for n in range(100))
        + "}\n"
        + "".join(f"a{n}: &a{n}\n  <<: [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    )
    tracemalloc.start()
    began = time.perf_counter()
    for text in (bomb, merges):
        assert "once every alias is written out" in problems(text)[0][1]
    for text in ("a: &a [*a]\n", "a: &a {b: *a}\n", "a: &a\n  <<: *a\n"):
        assert "a loop without end" in problems(text)[0][1]
    took, peak = time.perf_counter() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 1
    assert peak < 200e6


def test_c19_several_documents_are_refused_with_their_lines(
    refusals: Callable[..., list[str]],
) -> None:
    text = "# head\n---\nname: a\nexecution: parallel\n\n---\nrun: x\n---\nrun: y\n"
    assert refusals(text)[0].startswith(
        "3 documents found (starting at lines 2, 6, 8); burst runs one task per file"
    )


@pytest.mark.parametrize(
    "text", ["---\nrun: x\n...\n", "run: x\n---\n", "run: x\n---\n# end\n", "---\n---\nrun: x\n"]
)
def test_c19_one_document_with_markers_or_empty_ones_is_one_task(text: str) -> None:
    assert parse(text, source="t.yaml").run == "x"


@pytest.mark.parametrize("text", ["", "\n", "# only a remark\n", "---\n...\n", "~", "{}", "run:"])
def test_a_file_without_a_task_is_refused(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text, source="t.yaml")
    assert "run" in caught.value.problems[0].message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("run: x\nenvs:\n  A: 1\n\n4\n", 5, "no `key: value`"),
        ("run: x\nenvs:\n\tA: 1\n", 3, "a tab"),
        ("run:\tx: y\n", 1, "a tab"),
        ("run: x\nresources: {infra: *}\n", 2, "unquoted *"),
        ("resources:\n  infra: */us-east-1\n", 2, "unquoted *"),
        ("name: [a\nrun: x\n", 1, "the [ on this line is not closed"),
        ("name: {a: 1\nrun: x\n", 1, "the { on this line is not closed"),
        ("name: 'a\nrun: x\n", 1, "the quote opened on this line"),
        ('name: "a\\q"\n', 1, "backslash"),
        ("name: a: b\n", 1, "a second `: `"),
        ("a:\n    b: 1\n  c: 2\n", 3, "indent"),
        ("name: @me\n", 1, "cannot begin with"),
        ("name: {{ who }}\n", 1, "as a key"),
        ("name: !!python/name:os.system x\n", 1, "`!tag`"),
        ("name: !mine {a: 1}\n", 1, "`!tag`"),
        ("a: 1\nname:\u00a0me\n", 2, "odd space"),
        ("name: a\x07\n", 1, "control character"),
        ('name: "\\0"\n', 1, "NUL"),
        ('name: "\\ud83d"\n', 1, "half a character"),
        ('name: "\\UFFFFFFFF"\n', None, "out of range"),
        ("a: " + "[" * 100 + "\n", 1, "deep"),
        ("{" * 5000, 1, "deep"),
        ("? " * 5000, 1, "deep"),
        ("a: &a\n" + "".join(" " * n + "b:\n" for n in range(1, 100)), 41, "deep"),
    ],
)  # fmt: skip
def test_what_yaml_cannot_read_is_explained_with_its_line(
    text: str, line: int | None, words: str
) -> None:
    ((found_line, message),) = problems(text)
    assert found_line == line
    assert words in message


def test_no_text_of_a_broken_line_is_repeated() -> None:
    for text in ("T: 1\ntok-SECRET\n", "T: *tok-SECRET\n", "T: !tok-SECRET\n", "T: @tok-SECRET"):
        assert "SECRET" not in str(problems(text))


def test_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    text = "name: a\r\nrun: |\r\n  one\r\n  two\r\n"
    for data in (b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16"), "\ufeff" + text):
        assert parse(data, source="t.yaml").run == "one\ntwo\n"


def test_bytes_that_are_not_utf8_have_their_line() -> None:
    assert problems(b"name: a\nrun: \xe9t\xe9\n") == [
        (2, "not UTF-8 text here; save the file as UTF-8")
    ]


def test_a_huge_file_is_refused_by_its_size() -> None:
    assert "at most" in problems("#" * (MAX_CHARACTERS + 1))[0][1]


def test_json_is_yaml_with_its_surrogate_pairs() -> None:
    assert parse('{"run": "\\ud83d\\ude00", "num_nodes": 2}', source="t.json").run == "😀"
