"""Which of this machine's GPUs a node gets."""

from __future__ import annotations

import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

from burst.cost.placement import Choice, Place
from burst.ports import NodeRequest
from burst.provision.local import LocalProvisioner, this_machine

SMI = """#!/bin/sh
echo NVIDIA T400, GPU-1a
echo NVIDIA A100-SXM4-80GB, GPU-2b
echo NVIDIA A100-SXM4-80GB, GPU-3c
echo NVIDIA A100-SXM4-80GB, GPU-4d
"""


@pytest.fixture(autouse=True)
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("chosen", "there"),
    [
        (None, ("A100-SXM4-80GB", 3)),
        ("1,2", ("A100-SXM4-80GB", 2)),
        ("GPU-1", ("T400", 1)),
        ("3, 9, 1", ("A100-SXM4-80GB", 1)),
        ("", None),
        ("-1", None),
        ("NoDevFiles", None),
    ],
)
def test_only_what_the_person_left_visible_is_offered(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, there: tuple[str, int] | None
) -> None:
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    found = this_machine({}).accelerators
    assert (found and (found.kind, found.count)) == there


@pytest.mark.parametrize(
    ("chosen", "seen"), [(None, "GPU-2b,GPU-3c,GPU-4d"), ("0,1", "0,1"), ("", "")]
)
def test_a_node_sees_what_is_offered_or_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, seen: str
) -> None:
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    told, agent = tmp_path / "told", tmp_path / "agent"
    agent.write_text(
        f'#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" > {told}.new; mv {told}.new {told}\n'
    )
    agent.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(agent))
    pool = LocalProvisioner(tmp_path)
    choice = Choice(place=Place(pool="local", owned=True), usd_per_hour=Decimal(0))
    run_id = f"gpus-{abs(hash(tmp_path)):x}"
    pool.launch(
        NodeRequest(run_id=run_id, node_id="n001", run_uri=f"file://{tmp_path}", index=0,
                    choice=choice)
    )  # fmt: skip
    end = time.monotonic() + 10
    while not told.exists() and time.monotonic() < end:
        time.sleep(0.01)  # noqa: TID251
    assert told.read_text() == f"{seen}\n"
    pool.sweep(run_id)
