"""What `pools.yaml` says of Alibaba Cloud: where to look for machines, and what a yuan is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from burst.cost.quotes import Rate
from burst.errors import UsageError

USUAL_REGION = "ap-southeast-1"  # where nobody names one, and what any region answers is asked
EXAMPLE = "alibaba: {regions: [ap-southeast-1], cny: {usd: 0.14, on: 2026-12-01}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Regions whose prices and stock are asked for; rates of currencies other than dollars."""

    regions: tuple[str, ...]
    rates: tuple[Rate, ...] = ()


def read_settings(said: Mapping[str, Any], usual_region: str) -> Settings:
    """Read the `alibaba` entry of pools.yaml, which burst.task_specs.pools has checked.

    UsageError when neither it nor the person's profile names a region.
    """
    regions = said.get("regions") or ([usual_region] if usual_region else [])
    if not regions:
        raise UsageError("pools.yaml: alibaba.regions names no region", hint=EXAMPLE)
    return Settings(regions=tuple(regions), rates=_rates(said.get("cny")))


def _rates(said: Mapping[str, str] | None) -> tuple[Rate, ...]:
    if said is None:
        return ()
    day = date.fromisoformat(said["on"])
    return (Rate("CNY", Decimal(said["usd"].strip().removeprefix("$")), day, "pools.yaml"),)
