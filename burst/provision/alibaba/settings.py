"""What `pools.yaml` says of Alibaba Cloud: where to look for machines, and what a yuan is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from burst.cost.quotes import Rate
from burst.errors import UsageError

EXAMPLE = "alibaba: {regions: [ap-southeast-1], cny: {usd: 0.14, on: 2026-12-01}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Regions whose prices and stock are asked for; rates of currencies other than dollars."""

    regions: tuple[str, ...]
    rates: tuple[Rate, ...] = ()


def read_settings(said: Mapping[str, Any], usual_region: str) -> Settings:
    """Read the `alibaba` entry of pools.yaml; UsageError if it cannot be understood."""
    unknown = sorted(said.keys() - {"regions", "cny"})
    if unknown:
        raise UsageError(f"pools.yaml: alibaba has no setting {unknown[0]}", hint=EXAMPLE)
    regions = said.get("regions") or ([usual_region] if usual_region else [])
    if not isinstance(regions, list) or not regions:
        raise UsageError("pools.yaml: alibaba.regions names no region", hint=EXAMPLE)
    return Settings(regions=tuple(str(one) for one in regions), rates=_rates(said.get("cny")))


def _rates(said: Any) -> tuple[Rate, ...]:  # noqa: ANN401 - the file's own shape
    if said is None:
        return ()
    try:
        day = date.fromisoformat(str(said["on"]))
        return (Rate("CNY", Decimal(str(said["usd"])), day, "pools.yaml"),)
    except (TypeError, KeyError, ValueError, InvalidOperation) as error:
        raise UsageError(
            f"pools.yaml: alibaba.cny is not what a yuan was worth on a day: {said}", hint=EXAMPLE
        ) from error
