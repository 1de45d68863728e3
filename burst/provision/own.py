"""What machines of one's own are and cost: GPUs as nvidia-smi names them, prices as typed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from burst.cost.quotes import UNROUNDED, Quote
from burst.task_specs.model import Accelerators

ASK_GPUS = ("nvidia-smi", "--query-gpu=name,uuid", "--format=csv,noheader")
DEVICES = "CUDA_VISIBLE_DEVICES"
_NO_NAME = re.compile(r"\[|ERR!|No devices|Unable|Failed|$")
NO_PRICE = "own machine, no price set in pools.yaml"


def accelerators(lines: Sequence[str]) -> Accelerators | None:
    """Return the GPUs that `ASK_GPUS` lists, one a line; None for none.

    Of several kinds that which there are most of, the first of as many: a card for the screen is
    none to train on. One that fell off the bus has no name, but `[Unknown Error]`.

    >>> accelerators(["NVIDIA T400, GPU-1", "NVIDIA A100, GPU-2", "NVIDIA A100, GPU-3", "ERR!, -"])
    Accelerators(kind='A100', count=2)
    """
    gpus = _offered(lines)
    if not gpus:
        return None
    kind = gpus[0][0].removeprefix("NVIDIA ").replace(" ", "-")
    return Accelerators(kind=kind, count=len(gpus))


def visible(lines: Sequence[str]) -> str:
    """Return the UUIDs of `accelerators` for CUDA_VISIBLE_DEVICES; "" where there are no others.

    Not their numbers: CUDA counts in another order than nvidia-smi.

    >>> visible(["NVIDIA T400, GPU-1", "NVIDIA A100, GPU-2", "NVIDIA A100, GPU-3", "ERR!, -"])
    'GPU-2,GPU-3'
    """
    gpus = _offered(lines)
    return ",".join(uuid for _, uuid in gpus) if 0 < len(gpus) < len(lines) else ""


def chosen(lines: Sequence[str], devices: str | None) -> Sequence[str]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves; None: it is not set.

    By number or by the begin of a UUID; what comes after one that is not there is not seen (CUDA
    C++ Programming Guide, "CUDA Environment Variables").

    >>> chosen(["NVIDIA T400, GPU-1", "NVIDIA A100, GPU-2", "NVIDIA A100, GPU-3"], "1,GPU-3,7,0")
    ['NVIDIA A100, GPU-2', 'NVIDIA A100, GPU-3']
    """
    if devices is None:
        return lines
    found: list[str] = []
    for device in map(str.strip, devices.split(",")):
        match = [line for n, line in enumerate(lines) if _is_device(device, n, line)]
        if len(match) != 1:
            break
        found += match
    return found


def _is_device(device: str, number: int, line: str) -> bool:
    uuid = line.partition(",")[2].strip()
    return device == str(number) or (device.startswith("GPU-") and uuid.startswith(device))


def _offered(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and UUID of each GPU of the kind that counts."""
    parts = [line.partition(",") for line in lines]
    gpus = [(name.strip(), uuid.strip()) for name, _, uuid in parts]
    names = Counter(name for name, _ in gpus if not _NO_NAME.match(name))
    most = {name for name, _ in names.most_common(1)}
    return [gpu for gpu in gpus if gpu[0] in most]


def usd_per_hour(text: object) -> Decimal:
    """Return a price in pools.yaml, which burst.task_specs.pools has checked; nothing for 0."""
    return Decimal("0" if text is None else str(text))


def quote(price: Decimal, source: str, now: datetime) -> Quote:
    """Return the price of one machine, paid to the second."""
    return Quote(
        usd_per_hour=price, source=source, observed_at=now, billing=UNROUNDED, free=price == 0
    )
