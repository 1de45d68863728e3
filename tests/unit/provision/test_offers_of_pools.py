"""Which pools are asked for a task, and what is said of those that cannot be."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from burst import wiring
from burst.errors import SetupError
from burst.provision import hosts, skypilot
from burst.task_specs.model import Task
from burst.task_specs.parse import parse

NO_CLOUD = SetupError("no cloud is enabled", hint="enable one")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two silent SSH hosts in a pool, and a SkyPilot without clouds."""

    def no_cloud(_: Task) -> None:
        raise NO_CLOUD

    monkeypatch.setenv("BURST_HOME", str(tmp_path))
    monkeypatch.setattr(hosts, "offers", lambda *_: ())
    monkeypatch.setattr(skypilot, "offers", no_cloud)
    (tmp_path / "pools.yaml").write_text("ssh: {lab: {hosts: [127.0.0.8, 127.0.0.9]}}\n")
    return tmp_path


def _task(resources: str) -> Task:
    return parse(f"run: x\nresources: {{{resources}}}\n".encode(), source="task")


@pytest.mark.parametrize("infra", ["ssh", "ssh/lab"])
def test_no_cloud_is_asked_for_a_task_that_names_own_machines(
    infra: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert [offer.pool for offer in wiring.offers(_task(f"infra: {infra}"))] == ["local"]
    assert caplog.messages == []


def test_an_ssh_pool_that_nobody_described_is_named(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wiring.offers(_task("infra: ssh/labb"))
    (said,) = caplog.messages
    assert said == (
        f"the task names ssh/labb; {home / 'pools.yaml'} has ssh/lab"
        " (an SSH node pool of SkyPilot's is k8s/ssh-labb)"
    )


def test_without_clouds_a_task_that_names_none_gets_what_there_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    assert [offer.pool for offer in wiring.offers(_task("cpus: 4000"))] == ["local"]
    assert caplog.messages == ["no machine can be rented: no cloud is enabled (enable one)"]


@pytest.mark.parametrize("place", ["infra: aws", "any_of: [{infra: ssh/lab}, {infra: aws}]"])
def test_without_clouds_a_task_that_names_one_is_refused(place: str) -> None:
    with pytest.raises(SetupError) as caught:
        wiring.offers(_task(place))
    assert caught.value is NO_CLOUD
