"""What a pod costs: SkyPilot knows no price of a cluster of one's own; pools.yaml may say one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from burst.cost.offers import Offer
from burst.cost.quotes import Quote
from burst.provision.k8s.contexts import POOL, context_of
from burst.provision.own import NO_PRICE, quote, usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Dollars per hour of one GPU and of one CPU."""

    gpu: Decimal
    cpu: Decimal

    def quote(self, gpus: int, cpus: float, now: datetime) -> Quote:
        """Return the price of a pod, or machine, of a size."""
        return quote(self.gpu * gpus + self.cpu * Decimal(repr(cpus)), "pools.yaml", now)


def read_rates(pools: Mapping[str, Any]) -> Mapping[str, Rates]:
    """Return the prices in pools.yaml's `k8s`, which burst.task_specs.pools checked, by context."""
    return {
        context: Rates(
            gpu=usd_per_hour((said or {}).get("usd_per_gpu_hour")),
            cpu=usd_per_hour((said or {}).get("usd_per_cpu_hour")),
        )
        for context, said in (pools.get(POOL) or {}).items()
    }


def priced(offers: Iterable[Offer], rates: Mapping[str, Rates], now: datetime) -> tuple[Offer, ...]:
    """Return the offers, those of Kubernetes at pools.yaml's price, else SkyPilot's, else none."""
    return tuple(_priced(one, rates, now) if context_of(one.pool) else one for one in offers)


def _priced(offer: Offer, rates: Mapping[str, Rates], now: datetime) -> Offer:
    mine = rates.get(context_of(offer.pool))
    if mine is not None:
        gpus = offer.accelerators.count if offer.accelerators else 0
        return replace(offer, quote=mine.quote(gpus, offer.cpus, now))
    usd = offer.quote.usd_per_hour
    source = "SkyPilot's kubernetes.pricing" if usd else NO_PRICE
    return replace(offer, quote=quote(usd, source, now))
