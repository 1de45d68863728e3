"""What a pod costs: SkyPilot knows no price of a cluster of one's own; pools.yaml may say one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from burst.cost.offers import Offer
from burst.errors import Problem, SpecError
from burst.provision.own import NO_PRICE, quote, usd_per_hour

POOL = "k8s"
GPU, CPU = "usd_per_gpu_hour", "usd_per_cpu_hour"
EXAMPLE = f"as in `k8s: {{my-context: {{{GPU}: 1.10}}}}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Dollars per hour of one GPU and of one CPU."""

    gpu: Decimal
    cpu: Decimal


def read_rates(pools: Mapping[str, Any]) -> Mapping[str, Rates]:
    """Return the prices in pools.yaml's `k8s`, by context; SpecError with every problem at once."""
    problems: list[Problem] = []
    found = {
        name: _rates(f"k8s.{name}", said, problems)
        for name, said in (pools.get(POOL) or {}).items()
    }
    if problems:
        raise SpecError("pools.yaml", tuple(problems))
    return found


def _rates(where: str, said: Any, problems: list[Problem]) -> Rates:  # noqa: ANN401 - what was typed
    if not isinstance(said, Mapping):
        problems.append(Problem(field=where, message=f"needs a mapping, {EXAMPLE}"))
        said = {}
    for name in sorted(said.keys() - {GPU, CPU}):
        message = f"is not known; what can be here: {CPU}, {GPU}"
        problems.append(Problem(field=f"{where}.{name}", message=message))
    return Rates(gpu=_rate(where, GPU, said, problems), cpu=_rate(where, CPU, said, problems))


def _rate(where: str, name: str, said: Mapping[str, Any], problems: list[Problem]) -> Decimal:
    price = usd_per_hour(said.get(name))
    if price is None:
        message = "needs dollars per hour as a plain number, as in 1.10"
        written = str(said[name])
        problems.append(Problem(field=f"{where}.{name}", message=message, written=written))
    return price or Decimal(0)


def priced(offers: Iterable[Offer], rates: Mapping[str, Rates], now: datetime) -> tuple[Offer, ...]:
    """Return the offers, those of Kubernetes at pools.yaml's price, else SkyPilot's, else none."""
    return tuple(_priced(offer, rates, now) if offer.pool == POOL else offer for offer in offers)


def _priced(offer: Offer, rates: Mapping[str, Rates], now: datetime) -> Offer:
    mine = rates.get(offer.region)
    if mine is not None:
        gpus = offer.accelerators.count if offer.accelerators else 0
        price, source = mine.gpu * gpus + mine.cpu * Decimal(repr(offer.cpus)), "pools.yaml"
    else:
        price = offer.quote.usd_per_hour
        source = "SkyPilot's kubernetes.pricing" if price else NO_PRICE
    return replace(offer, quote=quote(price, source, now))
