"""Clouds to rent from, looked at: what SkyPilot can use, what a GPU costs there, who answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from burst.cost.offers import Offer
from burst.errors import BurstError
from burst.provision.inspection.port import Finding, Inspected, Row, Wanted, price

ENABLE = "see what it wants: sky check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """See burst.provision.inspection.port.Inspected; all clouds, as SkyPilot is asked for all.

    `own` are those that burst itself can ask, of which this person has credentials.
    """

    name: str = "clouds"
    own: Sequence[Inspected]
    enabled: Callable[[], Sequence[str]]  # SetupError without SkyPilot
    cheapest: Callable[[str], Offer | None]  # the machine with a cloud's cheapest GPU
    now: Callable[[], datetime]

    def rows(self) -> tuple[Row, ...]:
        """Return a row for each cloud that has credentials or that SkyPilot can use."""
        try:
            enabled, why = sorted(self.enabled()), ""
        except BurstError as error:
            enabled, why = [], "; ".join(filter(None, (error.message, error.hint)))
        mine = {pool.name: pool for pool in self.own}
        found = []
        for name in sorted({*enabled, *mine}):
            row = self._answer(mine.get(name), name)
            if name in enabled:
                found.append(self._priced(row))
            else:
                said = why or f"SkyPilot cannot rent there; {ENABLE} {name}"
                found.append(replace(row, healthy=False, detail=_join(row.detail, said)))
        return tuple(found)

    def _answer(self, pool: Inspected | None, name: str) -> Row:
        if pool is None:
            return Row(pool=name, healthy=True, detail="SkyPilot can rent there")
        try:
            return pool.rows()[0]
        except BurstError as error:
            return Row(pool=name, healthy=False, detail=_join(error.message, error.hint))

    def _priced(self, row: Row) -> Row:
        try:
            offer = self.cheapest(row.pool)
        except BurstError as error:
            return replace(row, detail=_join(row.detail, f"no price: {error.message}"))
        if offer is None:
            return row
        gpus = offer.accelerators
        kind = f"{gpus.count}x{gpus.kind}" if gpus else f"{offer.cpus:g}-cpu"
        market = "spot" if offer.spot else "on-demand"
        count = gpus.count if gpus else 0
        cost = price(offer.quote, count, self.now(), ages=True)
        return replace(row, machine=f"{kind} {market}", price=cost)

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        """Say of the clouds that only SkyPilot can ask whether it can rent there."""
        del wanted
        mine = {pool.name for pool in self.own}
        return tuple(
            Finding(pool=name, what="SkyPilot", works=True, detail="has rights to rent there")
            for name in sorted(set(self.enabled()) - mine)
        )


def _join(*words: str | None) -> str:
    return "; ".join(word for word in words if word)
