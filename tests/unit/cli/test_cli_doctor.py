from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from burst import wiring
from burst.errors import StorageError, TransientError
from burst.provision.ssh import Ssh
from burst.storage.memory import MemoryStore
from burst.storage.open import open_store
from cli_scene import Call

PLENTY = 10 * 1024**3


@pytest.fixture(autouse=True)
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything work; each test breaks one thing."""
    monkeypatch.setattr(wiring, "missing_packages", dict)
    monkeypatch.setattr("burst.provision.inspection.local.driver_here", lambda: None)
    monkeypatch.setattr(wiring, "disk_free", lambda _: PLENTY)
    monkeypatch.setattr(wiring, "leftovers", tuple)
    monkeypatch.setattr(wiring, "store", lambda _: MemoryStore())
    shared_memory(monkeypatch, PLENTY)


def shared_memory(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def broken(burst: Call) -> dict[str, tuple[str, str]]:
    """Return what does not work: its detail and what to do about it."""
    said = burst("doctor", "--json")
    told = [f for f in json.loads(said.out) if f["works"] is False]
    found = {f"{f['pool']} {f['what']}".strip(): (f["detail"], f["fix"]) for f in told}
    assert said.code == (9 if found else 0)
    assert said.err == ""
    return found


def test_where_everything_works_it_is_said_and_the_exit_code_is_0(burst: Call) -> None:
    assert broken(burst) == {}
    said = burst("doctor")
    lines = {line.split("  ")[0]: line for line in said.out.splitlines()}
    assert (said.code, said.err) == (0, "")
    assert lines["local machine"].endswith("2 CPUs, 0 GPUs, $3.60 per node-hour (test)")
    assert all("  ok  " in line or line.endswith("  ok") for line in lines.values())


def test_a_missing_package_is_told_with_the_command_that_brings_it(
    burst: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "missing_packages", lambda: {"ray": "pip install 'x[train]'"})
    assert broken(burst) == {"ray": ("missing; training need it", "pip install 'x[train]'")}
    said = burst("doctor")
    assert (said.code, said.out.splitlines()[-1]) == (9, "fix ray: pip install 'x[train]'")


def test_a_full_disk(burst: Call, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(wiring, "disk_free", lambda path: 1024 if path == home else PLENTY)
    assert broken(burst) == {
        "disk for runs": (
            f"1.0 KiB free at {home}",
            f"free some space on the disk of {home}; checkpoints need room",
        )
    }


def test_little_shared_memory(burst: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_memory(monkeypatch, 64 * 1024**2)
    assert broken(burst) == {
        "shared memory": (
            "64.0 MiB free",
            "give the container more shared memory (docker run --shm-size 1g)",
        )
    }


def test_a_store_that_cannot_be_written(
    burst: Call, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    def refuse(_: str) -> MemoryStore:
        raise StorageError("read-only file system")

    monkeypatch.setattr(wiring, "store", refuse)
    fix = f"make file://{home}/runs writable"
    assert broken(burst) == {"run store": ("read-only file system", fix)}


def test_the_probe_of_the_store_is_taken_away(burst: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(wiring, "store", lambda _: store)
    assert broken(burst) == {}
    assert list(store.keys()) == []


def test_nothing_is_left_in_the_folder_of_runs(
    burst: Call, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(wiring, "store", open_store)
    assert broken(burst) == {}
    assert list((home / "runs").iterdir()) == []


def test_an_ssh_host_that_is_silent_is_told_with_the_login_to_try(
    burst: Call, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    def silent(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        raise TransientError(f"{ssh.login.host}: no answer within {limit_s:.0f} s")

    monkeypatch.setattr(Ssh, "run", silent)
    home.mkdir(exist_ok=True)
    (home / "pools.yaml").write_text(
        "ssh: {lab: {user: me, identity_file: /k, hosts: [{ip: box, port: 2222}]}}\n"
    )
    fix = "let this command work without a password: ssh -p 2222 -i /k me@box true"
    assert broken(burst) == {"ssh/lab box answers": ("box: no answer within 15 s", fix)}


def test_what_still_runs_of_a_run_that_nobody_drives(
    burst: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "leftovers", lambda: ("toy-a n001", "toy-a n002"))
    assert broken(burst) == {"left-overs": ("toy-a n001; toy-a n002", "end them: burst stop RUN")}
