"""Clouds as SkyPilot and their own interfaces tell of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from burst.cost.offers import Offer
from burst.cost.quotes import PER_SECOND_60, Quote
from burst.errors import BurstError, SetupError, TransientError
from burst.provision.inspection.clouds import Rented
from burst.provision.inspection.port import Finding, Row, Wanted
from burst.task_specs.model import Accelerators

NOW = datetime(2026, 12, 1, tzinfo=UTC)
T4 = Offer(
    pool="aws",
    region="us-east-1",
    zone="",
    machine_type="g4dn.12xlarge",
    cpus=48.0,
    memory_gb=192.0,
    accelerators=Accelerators(kind="T4", count=4),
    spot=True,
    quote=Quote(
        usd_per_hour=Decimal("0.8"),
        source="SkyPilot's catalog of 2026-11-30",
        observed_at=NOW - timedelta(hours=23),
        billing=PER_SECOND_60,
    ),
)


@dataclass(frozen=True)
class Own:
    """A cloud that burst can ask itself."""

    name: str = "aws"
    error: BurstError | None = None

    def rows(self) -> tuple[Row, ...]:
        if self.error:
            raise self.error
        return (Row(pool=self.name, healthy=True, detail="account 1 answers"),)

    def findings(self, _: Wanted) -> tuple[Finding, ...]:
        return ()


def rented(
    *own: Own,
    enabled: Sequence[str] | BurstError = ("aws",),
    offers: Mapping[str, Offer | BurstError] | None = None,
) -> Rented:
    def clouds() -> Sequence[str]:
        if isinstance(enabled, BurstError):
            raise enabled
        return enabled

    def cheapest(cloud: str) -> Offer | None:
        found = (offers or {"aws": T4}).get(cloud)
        if isinstance(found, BurstError):
            raise found
        return found

    return Rented(own=own, enabled=clouds, cheapest=cheapest, now=lambda: NOW)


def test_a_cloud_has_the_price_of_its_cheapest_gpu_with_source_and_age() -> None:
    (row,) = rented(Own()).rows()
    assert (row.pool, row.machine, row.healthy) == ("aws", "4xT4 spot", True)
    assert (row.detail, row.free, row.whole) == ("account 1 answers", None, None)
    assert row.price is not None
    assert (row.price.usd_per_hour, row.price.usd_per_gpu_hour) == (Decimal("0.8"), Decimal("0.2"))
    assert (row.price.source, row.price.stale) == ("SkyPilot's catalog of 2026-11-30", False)
    old = replace(T4, quote=replace(T4.quote, observed_at=NOW - timedelta(hours=25)))
    (row,) = rented(Own(), offers={"aws": old}).rows()
    assert row.price is not None
    assert row.price.stale


def test_clouds_that_only_skypilot_can_ask() -> None:
    pool = rented(Own(), enabled=["lambda", "aws"])
    aws, other = pool.rows()
    assert (aws.pool, other.pool) == ("aws", "lambda")
    assert (other.healthy, other.detail, other.price) == (True, "SkyPilot can rent there", None)
    (found,) = pool.findings(Wanted())
    assert (found.pool, found.what, found.works) == ("lambda", "SkyPilot", True)


def test_credentials_that_work_are_no_help_where_skypilot_cannot_rent() -> None:
    (row,) = rented(Own(), enabled=[]).rows()
    assert row.healthy is False
    assert row.detail == (
        "account 1 answers; SkyPilot cannot rent there; see what it wants: sky check aws"
    )


def test_without_skypilot_the_clouds_with_credentials_are_still_rows() -> None:
    missing = SetupError("SkyPilot is not installed", hint="pip install it")
    (row,) = rented(Own(), enabled=missing).rows()
    assert (row.pool, row.healthy) == ("aws", False)
    assert row.detail == "account 1 answers; SkyPilot is not installed; pip install it"


def test_a_cloud_that_does_not_answer() -> None:
    (row,) = rented(Own(error=TransientError("no way to sts"))).rows()
    assert (row.healthy, row.detail) == (False, "no way to sts")
    assert row.price is not None  # of the catalog, which is here


def test_a_catalog_that_cannot_be_read_costs_the_price_only() -> None:
    broken: dict[str, Offer | BurstError] = {
        "aws": TransientError("no catalog"),
        "lambda": replace(T4, pool="lambda"),
    }
    row, other = rented(Own(), enabled=["aws", "lambda"], offers=broken).rows()
    assert (row.healthy, row.price) == (True, None)
    assert row.detail == "account 1 answers; no price: no catalog"
    assert other.price is not None


@pytest.mark.parametrize("own", [(), (Own("alibaba"),)])
def test_rows_come_by_name(own: tuple[Own, ...]) -> None:
    rows = rented(*own, enabled=["lambda", "gcp"]).rows()
    assert [row.pool for row in rows] == sorted({"gcp", "lambda", *(one.name for one in own)})
