"""Adding up money exactly, and reading it in millionths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)


class Meter:
    """The cost of one thing up to a moment: one exact fraction, rounded only when it is read.

    A part of it gets the difference of two readings. So parts are never negative, and they add up
    to the whole to the last digit, however finely time is cut.
    """

    def __init__(self) -> None:
        self._exact = Fraction()

    def run(self, per_hour: Decimal | Fraction, time: timedelta) -> Decimal:
        """Go on for a while at a price; return by how much the reading grew."""
        before = millionths(self._exact)
        self._exact += exact_cost(per_hour, time)
        return millionths(self._exact) - before


def exact_cost(per_hour: Decimal | Fraction, time: timedelta) -> Fraction:
    """Return what an hourly price comes to, exactly."""
    return Fraction(per_hour) * Fraction(time // MICROSECOND, HOUR // MICROSECOND)


def millionths(exact: Fraction) -> Decimal:
    """Round to a millionth, halves to the even one."""
    return Decimal(round(exact * 1_000_000)).scaleb(-6)


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Add up amounts of one currency."""
    return sum(amounts, Decimal(0))


def shares(usd: Decimal, used: Mapping[str, timedelta]) -> dict[str, Decimal]:
    """Split a shared cost by time of use; the shares add up to the whole to the last digit."""
    whole = sum(used.values(), timedelta())
    assert whole > timedelta(), "nobody used it"
    found, until, given = {}, timedelta(), Decimal(0)
    for name in sorted(used):
        until += used[name]
        reading = millionths(Fraction(usd) * Fraction(until // MICROSECOND, whole // MICROSECOND))
        found[name] = reading - given
        given = reading
    return found
