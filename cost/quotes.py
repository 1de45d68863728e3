"""What a machine costs per hour, who said so and when, and how its time is billed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Self

from burst.cost.moments import utc
from burst.errors import BurstError

USD = "USD"


@dataclass(frozen=True, slots=True)
class BillingRule:
    """How a pool bills a machine's time: whole units of `unit_s`, at least `minimum_s` a start."""

    unit_s: int  # 0: the time as it was
    minimum_s: int
    known: bool  # False: nobody said, so per second is assumed

    def billed(self, used: timedelta) -> timedelta:
        """Return the time that is paid for. A machine that never ran is not billed."""
        if used <= timedelta():
            return timedelta()
        if unit := timedelta(seconds=self.unit_s):
            used = -(-used // unit) * unit
        return max(used, timedelta(seconds=self.minimum_s))

    def __str__(self) -> str:
        if not self.known:
            return "rule unknown, taken as per second"
        return f"in units of {self.unit_s} s, at least {self.minimum_s} s"


UNROUNDED = BillingRule(0, 0, known=True)  # own machines: nobody sends a bill
PER_SECOND = BillingRule(1, 0, known=True)
PER_SECOND_60 = BillingRule(1, 60, known=True)
PER_MINUTE = BillingRule(60, 60, known=True)
PER_HOUR = BillingRule(3600, 3600, known=True)
RULE_UNKNOWN = BillingRule(1, 0, known=False)


@dataclass(frozen=True, slots=True)
class Rate:
    """What one unit of a currency was worth in dollars on a day."""

    currency: str
    usd: Decimal
    on: date
    source: str

    def __post_init__(self) -> None:
        if not self.usd.is_finite() or self.usd <= 0:
            raise BurstError(f"{self.source}: 1 {self.currency} cannot be worth {self.usd} USD")

    def __str__(self) -> str:
        return f"1 {self.currency} = {self.usd} USD on {self.on} ({self.source})"


def rate_on(rates: Iterable[Rate], currency: str, day: date) -> Rate:
    """Return the newest rate of a currency that is not younger than the day."""
    known = [rate for rate in rates if rate.currency == currency and rate.on <= day]
    if not known:
        raise BurstError(
            f"no rate from {currency} to USD is known for {day}",
            hint=f"add a dated {currency} rate, or leave out the regions that bill in {currency}",
        )
    return max(known, key=lambda rate: (rate.on, rate.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A price in dollars per hour of one machine, frozen when it was observed.

    A pool that bills in another currency is quoted through `Quote.converted`: the dollars are
    those of the rate at hand when the price was observed, and what the pool will really ask for
    stays beside them. So dollars are only ever added to dollars, and past rows keep their rate.
    """

    usd_per_hour: Decimal
    source: str
    observed_at: datetime
    billing: BillingRule
    currency: str = USD  # what the pool bills in
    native_per_hour: Decimal | None = None  # in that currency; None: dollars
    rate: Rate | None = None  # how it became dollars; None: it always was
    free: bool = False  # the source itself says that 0 is meant

    def __post_init__(self) -> None:
        if not self.usd_per_hour.is_finite() or self.usd_per_hour < 0:
            raise BurstError(
                f"{self.source}: {self.usd_per_hour} is not a price",
                hint="a price is a number of dollars per hour, not below 0",
            )
        if self.usd_per_hour == 0 and not self.free:
            raise BurstError(
                f"{self.source}: a price of 0 dollars per hour, from a source whose machines "
                "are not free",
                hint="a missing price often reads as 0; leave the offer out",
            )
        assert (self.currency == USD) == (self.rate is None), "another currency needs its rate"
        object.__setattr__(self, "observed_at", utc(self.observed_at))

    @classmethod
    def converted(
        cls,
        native_per_hour: Decimal,
        rate: Rate,
        *,
        source: str,
        observed_at: datetime,
        billing: BillingRule,
    ) -> Self:
        """Quote a price of another currency."""
        return cls(
            usd_per_hour=native_per_hour * rate.usd,
            source=source,
            observed_at=observed_at,
            billing=billing,
            currency=rate.currency,
            native_per_hour=native_per_hour,
            rate=rate,
        )

    @property
    def billed_per_hour(self) -> Decimal:
        """The price in the currency the pool bills in."""
        return self.usd_per_hour if self.native_per_hour is None else self.native_per_hour

    def age_s(self, now: datetime) -> float:
        """Return how old the price is; 0 if it comes from a clock ahead of ours."""
        return max(0.0, (now - self.observed_at).total_seconds())

    def stale(self, now: datetime, limit_s: float) -> bool:
        """Return whether the price is older than the limit, so that it has to be said."""
        return self.age_s(now) > limit_s
