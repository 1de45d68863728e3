"""Showing pools: what each has, costs and does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from burst import pool_wiring, wiring
from burst.cli.output import plain, print_json, table
from burst.cli.words import human_time
from burst.controller.last_refusals import LastRefusal
from burst.provision.inspection.port import Price, Row

HEADER = ["pool", "machine", "free", "GPUs free", "$/GPU-hour", "queue", "health", "last refusal"]


def show_pools(name: str | None, *, all_runs: bool, as_json: bool) -> None:
    """Print a row for each kind of machine of each pool; progress goes to standard error."""
    wiring.pools()  # what is wrong in pools.yaml is told whole, and nothing is asked
    if pool_wiring.asks_skypilot(name):
        sys.stderr.write("asking the pools; SkyPilot's server starts for it if none runs\n")
    rows = pool_wiring.pool_rows(name)
    if name and not rows:
        raise pool_wiring.absent(name)
    refusals = pool_wiring.last_refusals(far=all_runs)
    if as_json:
        print_json([{**plain(row), "last_refusal": plain(_of(row, refusals))} for row in rows])
        return
    sys.stdout.write(table(HEADER, _cells(rows, refusals)) + "\n")


def _of(row: Row, refusals: Mapping[str, LastRefusal]) -> LastRefusal | None:
    return refusals.get(row.pool)


def _cells(rows: Sequence[Row], refusals: Mapping[str, LastRefusal]) -> list[list[str]]:
    return [
        [
            row.pool,
            row.machine or "-",
            _share(row.free, row.whole),
            _share(row.gpus_free, row.gpus),
            _price(row.price),
            "-" if row.waiting is None else str(row.waiting),
            _health(row),
            _refusal(_of(row, refusals)),
        ]
        for row in rows
    ]


def _share(free: int | None, whole: int | None) -> str:
    return "-" if free is None or not whole else f"{free}/{whole}"


def _price(price: Price | None) -> str:
    """Say a price with where it is from, and how old it is when it may have changed since."""
    if price is None:
        return "-"
    usd, what = price.usd_per_gpu_hour, ""
    if usd is None:
        usd, what = price.usd_per_hour, " a machine"
    age_s = (wiring.clock().now() - price.observed_at).total_seconds()
    old = f", {human_time(age_s)} old: stale" if price.stale else ""
    return f"{usd:.2f}{what} ({price.source}{old})"


def _health(row: Row) -> str:
    word = "ok" if row.healthy else "NO"
    return f"{word}: {' '.join(row.detail.split())}" if row.detail else word


def _refusal(found: LastRefusal | None) -> str:
    if found is None:
        return "-"
    age_s = (wiring.clock().now() - found.at).total_seconds()
    return f"{found.place}: {found.reason}, {human_time(age_s)} ago, {found.run_id}"
