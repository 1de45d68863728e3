"""What is told to somebody who names Kubernetes on a machine that is not furnished for it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from burst import plan_wiring, pool_wiring
from burst.cost.offers import Offer
from burst.errors import SetupError, UsageError
from burst.provision import hosts, skypilot
from burst.provision.k8s import needs
from burst.provision.own import quote
from burst.task_specs.model import Accelerators
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


def offer(pool: str) -> Offer:
    return Offer(
        pool=pool,
        region="",
        zone="",
        machine_type="m",
        cpus=8.0,
        memory_gb=64.0,
        accelerators=Accelerators(kind="H100", count=1),
        spot=False,
        quote=quote(Decimal(1), "t", datetime.now(UTC)),
    )


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


@pytest.mark.parametrize("text", ["hello", "contexts: 3\n", "- a\n"])
def test_a_file_that_is_no_kubeconfig_is_told_in_words(home: Path, text: str) -> None:
    (home / ".kube/config").write_text(text)
    with pytest.raises(SetupError) as caught:
        needs.check(["lab"])
    assert caught.value.message == "kubeconfig: ~/.kube/config has not the form of one"


@pytest.mark.parametrize("lacks", ["kubectl", ""])
def test_pods_are_left_out_and_told_where_the_task_leaves_its_place_open(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lacks: str
) -> None:
    if lacks:
        (home / lacks).unlink()
    known = [offer("aws"), offer("k8s/lab")]
    monkeypatch.setattr(skypilot, "prepare", lambda _: None)
    monkeypatch.setattr(skypilot, "offers", lambda _: tuple(known))
    task = parse(b"run: x\nresources: {accelerators: H100}", source="t")
    there = ["local", "aws"] if lacks else ["local", "aws", "k8s/lab"]
    assert [one.pool for one in plan_wiring.offers(task)] == there
    told = [
        one for one in caplog.messages if "left out: infra k8s needs the command kubectl" in one
    ]
    assert len(told) == bool(lacks)


@pytest.mark.parametrize(
    ("config", "there", "says"),
    [
        (CONFIG, ["k8s/lab"], "infra k8s needs the context elsewhere"),
        ("{{", [], "kubeconfig: "),
    ],
)
def test_a_context_that_is_not_known_here_hides_no_other_pool(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    config: str, there: list[str], says: str,
) -> None:  # fmt: skip
    """SkyPilot's server, on another machine, may know more than this one."""
    (home / ".kube/config").write_text(config.format(current="lab"))
    known = [offer("aws"), offer("k8s/elsewhere"), offer("k8s/lab")]
    monkeypatch.setattr(skypilot, "prepare", lambda _: None)
    monkeypatch.setattr(skypilot, "offers", lambda _: tuple(known))
    task = parse(b"run: x\nresources: {accelerators: H100}", source="t")
    assert [one.pool for one in plan_wiring.offers(task)] == ["local", "aws", *there]
    (told,) = (one for one in caplog.messages if one.startswith("left out: "))
    assert told.startswith(f"left out: {says}")


@pytest.mark.parametrize(
    ("pool", "lacks", "says"),
    [
        ("k8s", "nc", "infra k8s needs the command nc"),
        ("k8s", ".kube/config", "infra k8s needs a kubeconfig (there is none at ~/.kube/config)"),
        ("k8s/labb", "nothing", "infra k8s needs the context labb"),
    ],
)
def test_who_looks_for_clusters_hears_what_is_missing(
    home: Path, pool: str, lacks: str, says: str
) -> None:
    (home / lacks).unlink(missing_ok=True)
    assert pool_wiring.absent(pool).message == says


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
        plan_wiring.offers(task)
    assert asked == []
