"""A price has an age, a source and a meaning, or it is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from burst.cost.quotes import PER_SECOND, Quote, Rate
from burst.errors import BurstError

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def quote(usd: str, *, free: bool = False, when: datetime = NOON) -> Quote:
    return Quote(
        usd_per_hour=Decimal(usd),
        source="pools.yaml",
        observed_at=when,
        billing=PER_SECOND,
        free=free,
    )


@pytest.mark.parametrize("usd", ["-0.01", "NaN", "sNaN", "Infinity", "-Infinity"])
def test_what_is_no_price_is_refused(usd: str) -> None:
    with pytest.raises(BurstError) as caught:
        quote(usd)
    assert str(caught.value) == f"pools.yaml: {usd} is not a price"


def test_zero_is_a_price_only_if_the_source_means_it() -> None:
    assert quote("0", free=True).usd_per_hour == 0
    with pytest.raises(BurstError, match=r"pools\.yaml: a price of 0 dollars per hour"):
        quote("0")


def test_age_is_never_negative() -> None:
    """C43: a price observed by a clock ahead of ours."""
    assert quote("1").age_s(NOON + timedelta(minutes=4)) == 240
    assert quote("1").age_s(NOON - timedelta(hours=1)) == 0
    assert quote("1").stale(NOON + timedelta(minutes=4), limit_s=239)
    assert not quote("1").stale(NOON + timedelta(minutes=4), limit_s=240)


def test_moments_are_brought_to_utc() -> None:
    """C91"""
    shanghai = timezone(timedelta(hours=8))
    one = quote("1", when=datetime(2026, 3, 1, 20, tzinfo=shanghai))
    assert one.observed_at.isoformat() == "2026-03-01T12:00:00+00:00"


@pytest.mark.parametrize("usd", ["0", "-1", "NaN"])
def test_a_rate_that_cannot_be_is_refused(usd: str) -> None:
    """C92"""
    with pytest.raises(BurstError, match=f"rates.yaml: 1 CNY cannot be worth {usd} USD"):
        Rate("CNY", Decimal(usd), date(2026, 3, 1), "rates.yaml")
