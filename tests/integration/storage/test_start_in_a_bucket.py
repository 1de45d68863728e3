"""`burst run` into a bucket: what is tried there first, at what cost, and what a dry run leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from burst import wiring
from burst.cli import main
from burst.controller.runs import Run
from burst.records import RUN
from burst.storage.lease import Lease
from fault_proxy import Answer, FaultProxy, Request

pytestmark = pytest.mark.integration

Start = Callable[..., int]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Return the runs that were made; none of them gets a controller."""
    runs: list[Run] = []

    def detach(words: Sequence[str], *_: object) -> int:
        runs.append(wiring.runs().find(words[-1]))
        return 0

    monkeypatch.setattr(wiring, "detach", detach)
    return runs


@pytest.fixture
def start(
    proxy: FaultProxy,
    new_bucket: Callable[[], str],
    aws_env: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Start:
    """Return `burst run` of a small task, into an empty bucket behind the proxy."""
    aws_env.setenv("AWS_ENDPOINT_URL", proxy.url)
    aws_env.setenv("BURST_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text("def main(): pass\n")
    task = tmp_path / "task.yaml"
    task.write_text("name: toy\nresources: {infra: local}\nburst: {train: train.py:main}\n")
    uri = f"s3://{new_bucket()}/runs"

    def run(*more: str) -> int:
        words = ["burst", "run", str(task), "--yes", "--detach", "--run-uri", uri, *more]
        aws_env.setattr(sys, "argv", words)
        try:
            return main()
        except SystemExit as end:
            return int(end.code or 0)

    return run


def is_part(request: Request) -> bool:
    return request.verb == "PUT" and "partNumber" in request.path


def test_a_run_starts_after_a_few_requests_and_nothing_stays_of_them(
    start: Start, started: list[Run], proxy: FaultProxy
) -> None:
    assert start() == 0
    (run,) = started
    tried = [r for r in proxy.requests if "preflight-" in r.path]
    assert 5 <= len(tried) <= 14, [f"{r.verb} {r.path}" for r in tried]
    assert [key for key in run.store.keys() if "preflight" in key] == []  # noqa: SIM118
    assert run.store.stat(RUN).size_bytes > 0


def test_a_dry_run_asks_the_bucket_for_nothing(
    start: Start, started: list[Run], proxy: FaultProxy, tmp_path: Path
) -> None:
    assert start("--dry-run") == 0
    assert proxy.requests == []
    assert started == []
    assert not (tmp_path / "home" / "index").exists()


def test_a_right_that_lacks_is_told_before_a_run_is_made(
    start: Start,
    started: list[Run],
    proxy: FaultProxy,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    proxy.rule(Answer(403, "AccessDenied"), is_part)
    assert start() != 0
    assert "cannot upload in parts" in capsys.readouterr().err
    assert started == []
    assert not (tmp_path / "home" / "index").exists()


def test_a_renewal_costs_a_write_and_two_reads(
    start: Start, started: list[Run], proxy: FaultProxy
) -> None:
    """No listing: its price is a write's, and it would come every five seconds."""
    assert start() == 0
    lease = Lease.acquire(started[0].store, wiring.this_owner(), ttl_s=15, clock=wiring.clock())
    proxy.requests.clear()
    lease.renew()
    assert sorted(request.verb for request in proxy.requests) == ["GET", "GET", "PUT"]
    proxy.requests.clear()
    lease.release()
    assert [request.verb for request in proxy.requests] == ["PUT"]
