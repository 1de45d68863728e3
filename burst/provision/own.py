"""What machines of one's own are and cost: GPUs as nvidia-smi names them, prices as typed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from burst.cost.quotes import UNROUNDED, Quote
from burst.task_specs.model import Accelerators

ASK_GPUS = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
NO_PRICE = "own machine, no price set in pools.yaml"


def accelerators(lines: Iterable[str]) -> Accelerators | None:
    """Return the GPUs that `ASK_GPUS` lists, one a line; None for none."""
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        return None
    return Accelerators(kind=names[0].removeprefix("NVIDIA ").replace(" ", "-"), count=len(names))


def usd_per_hour(text: object) -> Decimal:
    """Return a price in pools.yaml, which burst.task_specs.pools has checked; nothing for 0."""
    return Decimal("0" if text is None else str(text))


def quote(price: Decimal, source: str, now: datetime) -> Quote:
    """Return the price of one machine, paid to the second."""
    return Quote(
        usd_per_hour=price, source=source, observed_at=now, billing=UNROUNDED, free=price == 0
    )
