"""Two agents as processes of their own measure the network between them when they are told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burst.records import RAY_TOKEN, desired_key, encode, status_key
from burst.records import RUN as RUN_KEY
from burst.storage.open import open_store
from burst.storage.port import ObjectStore
from some_run import RUN

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

Start = Callable[[str, str], None]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    made = open_store(f"file://{tmp_path}/run")
    run = replace(RUN, head_apart=False, workdir=str(tmp_path))
    made.put(RUN_KEY, run.encode())
    made.put(RAY_TOKEN, b"a secret of this run")
    return made


@pytest.fixture
def start(tmp_path: Path, store: ObjectStore) -> Iterator[Start]:
    """Start agents; when their pipe closes, they end by themselves."""
    theirs, mine = os.pipe()
    agents: list[subprocess.Popen[bytes]] = []

    def begin(name: str, ip: str) -> None:
        scratch = tmp_path / name
        scratch.mkdir()
        marks = {"BURST_RUN_ID": RUN.run_id, "BURST_NODE_ID": name}
        given = {
            "--run-uri": store.uri,
            "--run-id": RUN.run_id,
            "--node-id": name,
            "--index": "1",
            "--ip": ip,
            "--scratch": str(scratch),
            "--lease-ttl": "60",
            "--watch-fd": str(theirs),
        }
        argv = [word for pair in given.items() for word in pair]
        agent = subprocess.Popen(
            [sys.executable, "-m", "burst.agent", *argv],
            env={**os.environ, **marks},
            pass_fds=[theirs],
            start_new_session=True,
        )
        agents.append(agent)

    yield begin
    for name in ("n001", "n002"):
        store.put(desired_key(name), encode({"end": True}))
    for agent in agents:
        agent.wait(30)
    os.close(mine)
    os.close(theirs)


def told(store: ObjectStore, name: str, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until a node says something of its measurements."""
    end = time.monotonic() + 40
    while time.monotonic() < end:
        try:
            status = json.loads(store.get(status_key(name)))
        except FileNotFoundError:
            status = {}
        if what(found := status.get("probe") or {}):
            return dict(found)
        time.sleep(0.1)  # noqa: TID251 - other processes work meanwhile
    raise AssertionError(f"{name} did not say it in time")


def test_two_agents_measure_the_network_between_them(store: ObjectStore, start: Start) -> None:
    start("n001", "127.0.0.1")
    start("n002", "127.0.0.1")
    part: dict[str, Any] = {"ray": None, "driver": None}
    for name in ("n001", "n002"):
        store.put(desired_key(name), encode({**part, "probe": {"ask": {}, "reach": {}}}))
    one, two = (
        told(store, name, lambda said: bool(said.get("address")))["address"]
        for name in ("n001", "n002")
    )
    ask, reach = {"ask": {"n001": one}, "reach": {}}, {"ask": {}, "reach": {"n002": two}}
    store.put(desired_key("n002"), encode({**part, "probe": ask}))
    store.put(desired_key("n001"), encode({**part, "probe": reach}))
    link = told(store, "n002", lambda said: "n001" in said.get("links", {}))["links"]["n001"]
    back = told(store, "n001", lambda said: "n002" in said.get("reached", {}))["reached"]["n002"]
    assert back["error"] == ""
    assert link["error"] == ""
    assert link["bytes_per_s"] > 1e5
    assert link["round_trip_s"] > 0
    store.put(desired_key("n001"), encode(part))
    told(store, "n001", lambda said: said.get("address") is None)
