"""Lambda Cloud on this machine, with a clock that moves only when it is slept on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from burst.provision.lambda_cloud.api import LambdaApi
from burst.provision.lambda_cloud.pace import Pace
from lambda_emulator import KEY, LambdaEmulator, StepClock


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def emulator(clock: StepClock) -> Iterator[LambdaEmulator]:
    with LambdaEmulator(clock) as made:
        made.add_key("sky-key-me")
        yield made


@pytest.fixture
def api(emulator: LambdaEmulator, clock: StepClock, tmp_path: Path) -> LambdaApi:
    return LambdaApi(KEY, Pace(tmp_path / "pace", clock), clock, emulator.url)
