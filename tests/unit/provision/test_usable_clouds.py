"""Of which clouds that SkyPilot knows a task is offered machines, and what is said of others."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import pytest

from burst.cost.offers import Offer
from burst.cost.quotes import UNROUNDED, Quote
from burst.errors import SetupError
from burst.provision import skypilot
from burst.task_specs.model import Resources
from burst.task_specs.parse import parse

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LAMBDA_SAYS = "SkyPilot's server runs without burst's plugin, which lambda needs"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A SkyPilot with AWS and Lambda, whose server does not know burst's Lambda."""
    found: list[list[str]] = []

    def lame(cloud: str) -> None:
        raise SetupError(LAMBDA_SAYS, hint="sky api stop")

    def offers(_: object, __: object, enabled: list[str]) -> list[Offer]:
        found.append(enabled)
        return [offer(name) for name in enabled]

    monkeypatch.setattr(skypilot, "_sky", lambda: None)
    monkeypatch.setattr(skypilot, "_enabled", lambda _: ["aws", "lambda"])
    monkeypatch.setattr(skypilot, "_offers", offers)
    server = SimpleNamespace(check_plugin=lame)  # the real one imports SkyPilot
    monkeypatch.setitem(sys.modules, "burst.provision.sky_plugin.server", server)
    return found


def offer(pool: str) -> Offer:
    quote = Quote(usd_per_hour=Decimal(1), source="t", observed_at=NOW, billing=UNROUNDED)
    return Offer(
        pool=pool, region="", zone="", machine_type="m", cpus=8.0, memory_gb=64.0,
        accelerators=None, spot=False, quote=quote,
    )  # fmt: skip


def ask(*clouds: str) -> tuple[str, ...]:
    places = ", ".join(f"{{infra: {cloud}}}" for cloud in clouds)
    task = parse(f"run: x\nresources: {{any_of: [{places}]}}\n", source="t")
    return tuple(offer.pool for offer in skypilot.offers(task))


def test_those_that_can_be_used_are_asked_and_others_told(
    asked: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    assert ask("aws", "lambda", "gcp", "slurm/lab") == ("aws",)
    assert asked == [["aws"]] * 3
    assert caplog.messages == [
        "left out: SkyPilot cannot use gcp (see what it wants: sky check gcp)",
        f"left out: {LAMBDA_SAYS} (sky api stop)",
    ]


def test_each_offer_says_for_which_of_the_task_s_candidates_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offers(wanted: Resources, _: object, __: object) -> list[Offer]:
        return [offer("aws")] if "disk_tier" in wanted.other else [offer("aws"), offer("gcp")]

    monkeypatch.setattr(skypilot, "_offers", offers)
    text = "run: x\nresources: {any_of: [{infra: slurm/lab}, {disk_tier: high}, {cpus: 4}]}\n"
    found = {one.pool: one.made_for for one in skypilot.offers(parse(text, source="t"))}
    assert found == {"aws": (1, 2), "gcp": (2,)}


def test_who_names_none_hears_only_of_those_that_would_be_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert ask("'*'") == ("aws",)
    assert caplog.messages == [f"left out: {LAMBDA_SAYS} (sky api stop)"]


@pytest.mark.parametrize(
    ("clouds", "says", "hint"),
    [
        (
            ["gcp", "lambda"],
            f"{LAMBDA_SAYS}; SkyPilot cannot use gcp",
            "sky api stop; see what it wants: sky check gcp",
        ),
        (["lambda"], LAMBDA_SAYS, "sky api stop"),
        (["gcp"], "SkyPilot cannot use gcp", "see what it wants: sky check gcp"),
        (["ibm", "gcp"], "SkyPilot cannot use gcp, ibm", "see what it wants: sky check gcp ibm"),
    ],
)
def test_where_none_that_is_named_can_be_used_it_is_an_error(
    clouds: list[str], says: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Others that could be used are of no use to the task."""
    with pytest.raises(SetupError) as caught:
        ask(*clouds)
    assert (caught.value.message, caught.value.hint) == (says, hint)
    assert caplog.messages == []


def test_without_any_cloud_it_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skypilot, "_enabled", lambda _: [])
    with pytest.raises(SetupError, match="SkyPilot has no cloud enabled"):
        ask("'*'")


def test_a_server_that_does_not_answer_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dead(_: object) -> list[str]:
        raise RuntimeError("Could not connect to SkyPilot API server at http://127.0.0.1:46580")

    monkeypatch.setattr(skypilot, "_enabled", dead)
    for call in (partial(ask, "aws"), skypilot.enabled_clouds):
        with pytest.raises(SetupError, match="Could not connect") as caught:
            call()
        assert "sky api stop" in (caught.value.hint or "")
