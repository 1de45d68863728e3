"""When Lambda Cloud is asked for a run's machines, and what a machine of it can and cannot do."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from burst import plan_wiring, wiring
from burst.controller.runs import Run
from burst.cost.offers import Offer
from burst.cost.placement import Choice, Place
from burst.cost.quotes import PER_MINUTE, Quote
from burst.errors import SetupError
from burst.ports import NodeRequest
from burst.provision import skypilot
from burst.task_specs.parse import parse
from lambda_emulator import KEY, LambdaEmulator, StepClock

OFFERS = plan_wiring.offers  # before a fixture puts others there


def choice(pool: str) -> Choice:
    place = Place(pool=pool, region="us-east-1", machine_type="gpu_1x_a10")
    return Choice(place=place, usd_per_hour=Decimal("1.29"))


def run(*pools: str) -> Run:
    choices = tuple(choice(pool) for pool in pools)
    return cast("Run", SimpleNamespace(record=SimpleNamespace(choices=choices)))


def offer(pool: str) -> Offer:
    quote = Quote(
        usd_per_hour=Decimal("0.75"),
        source="SkyPilot's catalog",
        observed_at=StepClock().now(),
        billing=PER_MINUTE,
    )
    return Offer(
        pool=pool, region="us-east-1", zone="", machine_type="gpu_1x_a10", cpus=30.0,
        memory_gb=226.0, accelerators=None, spot=False, quote=quote,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    return tmp_path


@pytest.fixture
def account(home: Path, monkeypatch: pytest.MonkeyPatch) -> LambdaEmulator:
    """A person with a key, whose clock is the emulator's."""
    clock = StepClock()
    monkeypatch.setattr(wiring, "clock", lambda: clock)
    emulator = LambdaEmulator(clock)
    (home / ".lambda_cloud").mkdir()
    (home / ".lambda_cloud/lambda_keys").write_text(f"api_key = {KEY}\n")
    monkeypatch.setenv("BURST_LAMBDA_URL", emulator.url)
    return emulator


def test_its_machines_are_looked_for_and_ended_where_a_run_may_be(
    account: LambdaEmulator,
) -> None:
    account.add_key("k")
    with account:
        tags = [{"key": "burst-run", "value": "toy-abcdef"}, {"key": "burst-node", "value": "n001"}]
        made = account.launch({"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10",
                               "ssh_key_names": ["k"], "name": "x-head", "tags": tags})  # fmt: skip
        assert wiring.cloud_of(run("gcp")) is None
        cloud = wiring.cloud_of(run("gcp", "lambda"))
        assert cloud is not None
        assert made in str(cloud.machines("toy-abcdef")["n001"])
        cloud.end("toy-abcdef", ["n001"])
        assert account.running() == []


def test_without_a_key_a_run_with_machines_there_is_told_so() -> None:
    with pytest.raises(SetupError, match="no key of Lambda Cloud"):
        wiring.cloud_of(run("lambda"))


def test_a_machine_does_not_end_itself_as_that_would_take_the_accounts_key() -> None:
    """Shut down, it would be billed on, and be of no use to a controller that comes back."""
    asked = NodeRequest(
        run_id="toy-abcdef", node_id="n001", run_uri="s3://b/r", index=0, choice=choice("lambda")
    )
    assert skypilot.end_command(asked) == ""


def test_prices_are_lambdas_own(account: LambdaEmulator) -> None:
    with account:
        mine, other = plan_wiring._at_todays_price((offer("lambda"), offer("aws")))
        assert str(mine.quote.usd_per_hour) == "1.29"
        assert other == offer("aws")
        before = account.calls.total()
        assert plan_wiring._at_todays_price((offer("aws"),)) == (offer("aws"),)
        assert account.calls.total() == before


def test_offers_there_are_none_of_ours_without_a_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of other clouds stay; if there is none, it is what ends the command."""
    both = parse("resources: {any_of: [{infra: lambda}, {infra: aws}]}\nrun: x\n", source="t")
    found: tuple[Offer, ...] = (offer("lambda"), offer("aws"))
    monkeypatch.setattr(skypilot, "prepare", lambda _: None)
    monkeypatch.setattr(skypilot, "offers", lambda _: found)
    assert OFFERS(both)[1:] == (offer("aws"),)
    assert ["left out: no key of Lambda Cloud" in line for line in caplog.messages] == [True]
    found = (offer("lambda"),)
    with pytest.raises(SetupError, match="no key of Lambda Cloud"):
        OFFERS(both)
