"""What `burst pools` and `burst doctor` say of Lambda Cloud, against an emulator of its API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from burst.cost.offers import Offer
from burst.cost.quotes import PER_MINUTE, Quote
from burst.provision.inspection.lambda_cloud import LambdaPool
from burst.provision.inspection.port import Wanted
from burst.provision.lambda_cloud.api import LambdaApi
from burst.provision.lambda_cloud.pace import Pace
from lambda_emulator import KEY, LambdaEmulator, StepClock


@pytest.fixture
def emulator() -> Iterator[LambdaEmulator]:
    with LambdaEmulator(StepClock()) as made:
        yield made


def pool(emulator: LambdaEmulator, folder: Path, *, key: str = KEY, url: str = "") -> LambdaPool:
    clock = StepClock()
    return LambdaPool(
        connect=lambda: LambdaApi(key, Pace(folder, clock), clock, url or emulator.url)
    )


def offer(machine_type: str) -> Offer:
    quote = Quote(
        usd_per_hour=Decimal(1),
        source="test",
        observed_at=datetime(2026, 12, 2, tzinfo=UTC),
        billing=PER_MINUTE,
    )
    return Offer(
        pool="lambda",
        region="us-east-1",
        zone="",
        machine_type=machine_type,
        cpus=30.0,
        memory_gb=200.0,
        accelerators=None,
        spot=False,
        quote=quote,
    )


def test_what_is_in_stock(emulator: LambdaEmulator, tmp_path: Path) -> None:
    (row,) = pool(emulator, tmp_path).rows()
    assert row.healthy
    assert "gpu_1x_a10" in row.detail


def test_a_good_key_and_the_stock_of_what_a_task_wants(
    emulator: LambdaEmulator, tmp_path: Path
) -> None:
    wanted = Wanted(machines=(offer("gpu_1x_a10"), offer("gpu_9x_none")))
    found = {one.what: one for one in pool(emulator, tmp_path).findings(wanted)}
    assert {name: one.works for name, one in found.items()} == {
        "credentials": True,
        "gpu_1x_a10": True,
        "gpu_9x_none": None,
    }


def test_a_wrong_key_says_where_to_make_one(emulator: LambdaEmulator, tmp_path: Path) -> None:
    (found,) = pool(emulator, tmp_path, key="wrong").findings(Wanted())
    assert (found.what, found.works) == ("credentials", False)
    assert "key" in found.fix


def test_nobody_there(emulator: LambdaEmulator, tmp_path: Path) -> None:
    (found,) = pool(emulator, tmp_path, url="http://127.0.0.1:9").findings(Wanted())
    assert (found.what, found.works) == ("reachable", False)
