"""A task that names a pool which nobody set up: a fault of the file, before anything is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burst import plan_wiring, wiring
from burst.provision.ssh import Ssh
from cli_scene import Call


@pytest.mark.parametrize("command", ["check", "plan", "run", "run --dry-run", "doctor"])
@pytest.mark.parametrize("kind", ["ssh", "slurm", "k8s"])
def test_it_is_told_with_its_field_and_the_names_there_are(
    burst: Call,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    kind: str,
) -> None:
    kube, slurm = tmp_path / "kube", tmp_path / "slurm"
    context = {"name": "lab", "context": {"cluster": "c", "user": "u"}}
    kube.write_text(json.dumps({"contexts": [context], "clusters": [], "users": []}))
    slurm.write_text("Host lab\n  HostName 127.0.0.9\n")
    home.mkdir()
    (home / "pools.yaml").write_text("ssh: {lab: {hosts: [127.0.0.8]}}\n")
    monkeypatch.setenv("KUBECONFIG", str(kube))
    monkeypatch.setattr(wiring, "slurm_config", lambda: slurm)
    asked: list[object] = []
    monkeypatch.setattr(Ssh, "run", lambda *_, **__: asked.append("a host"))
    monkeypatch.setattr(plan_wiring, "offers", asked.append)
    file = tmp_path / "task.yaml"
    file.write_text(f"name: toy\nresources: {{infra: {kind}/labb}}\nrun: x\n")
    said = burst(*command.split(), file)
    where = {"ssh": home / "pools.yaml", "slurm": slurm, "k8s": kube}[kind]
    assert (said.code, said.out, asked) == (2, "", [])
    first, told = said.err.splitlines()[:2]
    assert first == f"error: {file} has 1 problem"
    assert told == (
        f"  line 2: resources.infra: {where} has no such pool; did you mean {kind}/lab? "
        f"(there: {kind}/lab) (written: {kind}/labb)"
    )
