"""What machines of one's own are and cost: GPUs as nvidia-smi names them, prices as typed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from burst.cost.quotes import UNROUNDED, Quote
from burst.task_specs.model import Accelerators

ASK_GPUS = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
_NO_NAME = re.compile(r"\[|ERR!|No devices|Unable|Failed|$")
NO_PRICE = "own machine, no price set in pools.yaml"


def accelerators(lines: Iterable[str]) -> Accelerators | None:
    """Return the GPUs that `ASK_GPUS` lists, one a line; None for none.

    Of several kinds that which there are most of, the first of as many: a card for the screen is
    none to train on. One that fell off the bus has no name, but `[Unknown Error]`.

    >>> accelerators(["NVIDIA T400 4GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "ERR!"])
    Accelerators(kind='A100-SXM4-80GB', count=2)
    """
    names = Counter(line.strip() for line in lines if not _NO_NAME.match(line.strip()))
    if not names:
        return None
    ((name, count),) = names.most_common(1)
    return Accelerators(kind=name.removeprefix("NVIDIA ").replace(" ", "-"), count=count)


def usd_per_hour(text: object) -> Decimal:
    """Return a price in pools.yaml, which burst.task_specs.pools has checked; nothing for 0."""
    return Decimal("0" if text is None else str(text))


def quote(price: Decimal, source: str, now: datetime) -> Quote:
    """Return the price of one machine, paid to the second."""
    return Quote(
        usd_per_hour=price, source=source, observed_at=now, billing=UNROUNDED, free=price == 0
    )
