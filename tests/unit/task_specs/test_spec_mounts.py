"""file_mounts: C23, and the variables in them (C04)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from burst.task_specs.model import Mount, Task
from burst.task_specs.parse import Overrides

MANY = """\
name: big
resources: {use_spot: true}
num_nodes: 4
file_mounts:
  ~/.ssh/id_rsa: ~/.ssh/cluster-key
  /conf: ./conf
  /data/: s3://some-data/
  /more:
    source: s3://some-more
    mode: copy
  /ckpt:
    source: s3://some-ckpt
    mode: mount_cached
  /scratch: {name: bucket, store: s3, persistent: false}
  /many: {name: bucket, source: [a, b]}
run: train
"""


def test_c23_modes_sources_and_warnings(read: Callable[..., Task]) -> None:
    task = read(MANY)
    key, conf, data, more, ckpt, scratch, many = task.mounts
    assert (key.source or "").endswith("/.ssh/cluster-key")
    assert conf == Mount(target="/conf", source="/somewhere/conf")
    assert data == Mount(target="/data", source="s3://some-data", remote=True)
    assert (more.mode, ckpt.mode) == ("COPY", "MOUNT_CACHED")
    assert (scratch.mode, scratch.other) == ("MOUNT", {"store": "s3", "persistent": False})
    assert many.other == {"source": ["a", "b"]}
    assert any("cluster-key looks like a private key" in text for text in task.warnings)
    assert any("/ckpt is MOUNT_CACHED" in text for text in task.warnings)
    assert len(task.warnings) == 2


def test_c23_nested_targets_are_warned_of(read: Callable[..., Task]) -> None:
    task = read("file_mounts: {/ckpt: s3://abc, /ckpt/x: s3://def, /ckptx: s3://ghi}\n")
    assert task.warnings == ("file_mounts: /ckpt/x lies inside /ckpt, which may hide it",)


@pytest.mark.parametrize("name", ["~/.ssh/config", "keys/id_rsa.pub", "./id_card.txt"])
def test_c23_public_files_are_not_taken_for_keys(read: Callable[..., Task], name: str) -> None:
    assert read(f"file_mounts: {{/x: {name}}}\n").warnings == ()


@pytest.mark.parametrize("name", ["~/.ssh/anything", "keys/id_ed25519", "aws.pem", "tls.key"])
def test_c23_private_keys_are_warned_of(read: Callable[..., Task], name: str) -> None:
    assert "private key" in read(f"file_mounts: {{/x: {name}}}\n").warnings[0]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{/x: {source: s3://abc, mode: CACHED}}", "needs one of COPY, MOUNT, MOUNT_CACHED"),
        ("{/x: s3://abc, /x/: s3://def}", "the same place as `/x`"),
        ("{/x: s3://abc, /x/../x: s3://def}", "the same place as `/x`"),
        ("{/x: s3://}", "no bucket after s3://"),
        ("{/x: s3:///key}", "no bucket after s3://"),
        ("{/x: s3:/abc}", "two slashes after the colon"),
        ("{/: ./x}", "whole disk"),
        ("{/x/..: ./x}", "whole disk"),
        ("{/x: {name: a, store: s4}}", "did you mean s3?"),
        ('{/x: {name: abc, persistent: "no"}}', "write true or false"),
        ("{/x: {source: s3://}}", "no bucket after s3://"),
        ("{/x: s4://abc}", "did you mean s3://?"),
        ("{x: s3://abc}", "begins with / or ~"),
        ("{s3://abc: /x}", "the key is a path on the node"),
        ('{/x: ""}', "empty"),
        ("{/x: }", "has no source"),
        ("{/x: [a]}", "not a list"),
        ("{/x: {mode: COPY}}", "needs a `source`, or a bucket's `name`"),
        ("{/x: {source: , mode: COPY}}", "needs a `source`, or a bucket's `name`"),
        ("{/x: {store: s3}}", "needs a `source`, or a bucket's `name`"),
        ("{/x: s3://$NOBODY/a}", "$NOBODY is not in `envs`"),
        ("[a]", "needs a mapping"),
    ],
)  # fmt: skip
def test_c23_mounts_that_are_refused(
    refusals: Callable[..., list[str]], written: str, words: str
) -> None:
    (found,) = refusals(f"file_mounts: {written}\n")
    assert words in found


def test_c23_a_local_source_must_exist_where_files_are_looked_for(
    refusals: Callable[..., list[str]],
) -> None:
    looked: list[str] = []

    def exists(path: str) -> bool:
        looked.append(path)
        return path.endswith("/here")

    text = "file_mounts: {/a: ./here, /b: ./gone, /c: s3://far}\n"
    found = refusals(text, exists=exists)
    assert found == [
        "line 1: file_mounts./b: there is no such file or folder on this machine (written: ./gone)"
    ]
    assert looked == ["/somewhere/here", "/somewhere/gone"]


def test_variables_are_put_into_mounts_and_values_are_not_told(
    read: Callable[..., Task], refusals: Callable[..., list[str]]
) -> None:
    text = "envs: {SIZE: 7}\nfile_mounts: {'/m-${SIZE}b': s3://w-$SIZE/x}\n"
    assert read(text).mounts[0] == Mount(target="/m-7b", source="s3://w-7/x", remote=True)
    hidden_bucket = "secrets: {WHERE: tok-SECRET}\nfile_mounts: {/x: s3://$WHERE}\n"
    assert read(hidden_bucket).mounts[0].source == "s3://$WHERE"
    hidden = "envs: {AT: }\nfile_mounts: {/x: ./$AT}\n"
    given = Overrides(envs=("AT=tok-SECRET",))
    assert "SECRET" not in str(refusals(hidden, overrides=given, exists=lambda _: False))
