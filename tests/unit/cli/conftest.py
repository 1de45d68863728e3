from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import pytest

from burst import plan_wiring, pool_wiring, wiring
from burst.cli import main
from burst.cost.offers import Offer
from burst.cost.quotes import UNROUNDED, Quote
from burst.provision.local import LocalMachine
from burst.task_specs.model import Task
from cli_scene import BEGIN, Call, Said, Scene


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test away from the person's own runs, and give all the same machine."""
    folder = tmp_path / "home"
    monkeypatch.setenv("BURST_HOME", str(folder))
    monkeypatch.delenv("BURST_TRACEBACK", raising=False)
    monkeypatch.setattr(plan_wiring, "offers", lambda task: (offer(task),))
    machine = LocalMachine(
        cpus=2,
        memory_gb=8.0,
        accelerators=None,
        usd_per_node_hour=Decimal("3.60"),
        price_source="test",
    )
    monkeypatch.setattr(wiring, "this_machine", lambda: machine)
    own = {kind: ask for kind, ask in pool_wiring.KINDS.items() if kind in {"local", "ssh"}}
    monkeypatch.setattr(pool_wiring, "KINDS", own)  # nobody's credentials
    monkeypatch.setattr(pool_wiring, "idle_networks", tuple)
    return folder


def offer(task: Task) -> Offer:
    """Offer a machine; a task named `dear` finds it at 1.80 an hour, any other free."""
    usd = Decimal("1.80") if task.name == "dear" else Decimal(0)
    quote = Quote(
        usd_per_hour=usd, source="test", observed_at=BEGIN, billing=UNROUNDED, free=not usd
    )
    return Offer(
        pool="local",
        region="",
        zone="",
        machine_type="box",
        cpus=2.0,
        memory_gb=8.0,
        accelerators=None,
        spot=False,
        quote=quote,
    )


@pytest.fixture
def burst(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process, from the words typed to the exit code."""

    def call(*argv: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["burst", *map(str, argv)])
        try:
            code = main()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


@pytest.fixture
def scene(home: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Have the command line see runs in memory, at a time that stands still."""
    made = Scene(home)
    monkeypatch.setattr(wiring, "runs", lambda: made.runs)
    monkeypatch.setattr(wiring, "clock", lambda: made.clock)
    monkeypatch.setattr(wiring, "owner_alive", lambda _: True)
    return made
