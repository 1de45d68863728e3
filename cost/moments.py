"""Moments and days, always in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from burst.errors import UsageError


def utc(moment: datetime) -> datetime:
    """Return the same moment in UTC.

    Two datetimes of one zone subtract by their clock faces, which is an hour off across a change
    of summer time; so everything here is brought to UTC before anything is subtracted.
    """
    assert moment.tzinfo is not None, f"{moment} has no zone"
    return moment.astimezone(UTC)


def show(moment: datetime) -> str:
    """Write a moment for people and for JSON: ISO 8601, whole seconds, with a Z."""
    return utc(moment).isoformat(timespec="seconds").replace("+00:00", "Z")


def midnights(start: datetime, end: datetime) -> tuple[datetime, ...]:
    """Return every start of a UTC day strictly between two moments."""
    day = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    found = []
    while day < end:
        found.append(day)
        day += timedelta(days=1)
    return tuple(found)


def read_since(text: str) -> tuple[datetime, str]:
    """Read a day or a moment; without a zone it means UTC. Returns it and how it was understood."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a day or a moment",
            hint="write 2026-06-30, 2026-06-30T23:30Z or 2026-06-30T23:30+08:00",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
        return moment, f"since {show(moment)} (no zone was given: UTC)"
    return utc(moment), f"since {show(moment)}"
