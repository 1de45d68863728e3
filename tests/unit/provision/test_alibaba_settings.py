"""What pools.yaml may say of Alibaba Cloud."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

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


def test_without_a_region_anywhere_it_says_how_to_name_one() -> None:
    with pytest.raises(UsageError, match=r"alibaba\.regions names no region") as caught:
        read_settings({}, "")
    assert caught.value.exit_code == 2
