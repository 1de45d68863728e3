"""What is told to somebody who names Kubernetes on a machine that is not furnished for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from burst import wiring
from burst.errors import SetupError, UsageError
from burst.provision import hosts, skypilot
from burst.provision.k8s import needs
from burst.task_specs.parse import parse

CONFIG = """\
apiVersion: v1
kind: Config
current-context: {current}
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:1"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: lab, context: {{cluster: c, user: u}}}}]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with all that is needed: the commands, and a kubeconfig with one context."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BURST_HOME", str(tmp_path / ".burst"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", "")
    for name in needs.COMMANDS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").write_text(CONFIG.format(current="lab"))
    return tmp_path


def told(*contexts: str) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        needs.check(contexts)
    assert caught.value.exit_code == 2
    return caught.value.message, caught.value.hint or ""


def test_nothing_is_missing(home: Path) -> None:
    needs.check(["", "lab"])
    (home / "kubectl").unlink()
    needs.check([])  # a task that does not name it


def test_everything_that_is_missing_is_named_at_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*needs.COMMANDS, ".kube/config"):
        (home / name).unlink()
    monkeypatch.setattr(needs, "find_spec", lambda _: None)
    message, hint = told("")
    assert message == (
        "infra k8s needs the package kubernetes, the package sky, the command kubectl, "
        "the command socat, the command nc, a kubeconfig (there is none at ~/.kube/config)"
    )
    assert "pip install -e '.[kubernetes]'" in hint
    assert "apt install socat" in hint


def test_a_context_that_is_not_there_is_named(home: Path) -> None:
    assert told("lab", "typo") == (
        "infra k8s needs the context typo",
        "~/.kube/config has lab",
    )
    (home / ".kube/config").write_text(CONFIG.format(current='""'))
    message, hint = told("")
    assert message == "infra k8s needs a current context"
    assert hint.endswith("write infra: k8s/CONTEXT")
    (home / ".kube/config").write_text("{")
    with pytest.raises(SetupError, match="kubeconfig: "):
        needs.check(["lab"])


def test_the_kubeconfig_may_be_elsewhere_and_several(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".kube/config").rename(home / "elsewhere")
    monkeypatch.setenv("KUBECONFIG", f"{home}/none:{home}/elsewhere")
    needs.check(["lab"])


def test_it_is_told_before_any_pool_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "nc").unlink()
    asked: list[object] = []

    for module in (hosts, skypilot):
        monkeypatch.setattr(module, "offers", lambda *given: asked.append(given))
    task = parse(b"run: x\nresources: {any_of: [{infra: ssh}, {infra: k8s/lab}]}", source="t")
    with pytest.raises(UsageError, match="infra k8s needs the command nc"):
        wiring.offers(task)
    assert asked == []
