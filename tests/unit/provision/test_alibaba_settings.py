"""What pools.yaml may say of Alibaba Cloud."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from burst.cost.quotes import Rate
from burst.errors import UsageError
from burst.provision.alibaba.settings import Settings, read_settings


def test_regions_and_a_rate() -> None:
    said = {"regions": ["cn-beijing"], "cny": {"usd": "0.14", "on": "2026-12-01"}}
    rate = Rate("CNY", Decimal("0.14"), date(2026, 12, 1), "pools.yaml")
    assert read_settings(said, "cn-hangzhou") == Settings(regions=("cn-beijing",), rates=(rate,))


def test_nothing_said_is_the_region_of_the_profile() -> None:
    assert read_settings({}, "cn-hangzhou") == Settings(regions=("cn-hangzhou",))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "alibaba.regions names no region"),
        ({"regions": "cn-beijing"}, "alibaba.regions names no region"),
        ({"region": "cn-beijing"}, "alibaba has no setting region"),
        ({"regions": ["a"], "cny": "0.14"}, "alibaba.cny is not what a yuan was worth"),
        ({"regions": ["a"], "cny": {"usd": "0.14"}}, "alibaba.cny is not what"),
        ({"regions": ["a"], "cny": {"usd": "much", "on": "2026-12-01"}}, "alibaba.cny is not"),
    ],
)
def test_what_is_not_understood_is_told(said: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_settings(said, "")
    assert caught.value.exit_code == 2
