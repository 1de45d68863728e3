"""The catalog of Alibaba Cloud for SkyPilot: what `sky.catalog.<cloud>_catalog` modules have.

SkyPilot's own tables are read once in a process's life; this one is read again when its file
changed, so that prices that burst wrote count in the API server's long-lived processes too.
"""

from __future__ import annotations

import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
from sky.catalog import common

from burst.errors import SetupError, TransientError
from burst.ports import Clock
from burst.provision.alibaba.client import connect
from burst.provision.alibaba.settings import Settings
from burst.provision.alibaba.survey import COLUMNS, survey, write

log = logging.getLogger(__name__)

FRESH_S = 1800.0
FILE = "alibaba/vms.csv"
_TEXT = ("InstanceType", "AcceleratorName", "GpuInfo", "Region", "AvailabilityZone", "Arch")
_TYPES = {column: str if column in _TEXT else float for column in COLUMNS}


class Table:
    """A data frame that is as new as its file; empty as long as there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._frame = pd.DataFrame({c: pd.Series(dtype=_TYPES[c]) for c in COLUMNS})

    def _newest(self) -> Any:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return self._frame
        version = (stat.st_mtime_ns, stat.st_ino)
        if version != self._version:
            self._frame = pd.read_csv(self._path, dtype=_TYPES)
            self._version = version
        return self._frame

    def __getattr__(self, name: str) -> Any:
        return getattr(self._newest(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._newest()[key]


def refresh(settings: Settings, clock: Clock) -> None:
    """Ask for the prices of some regions and write them down, unless they are fresh.

    When Alibaba Cloud does not answer, what was written before stays, with its date. BurstError
    when there is nothing before, or an account bills in a currency without a rate.
    """
    if _fresh(settings, clock):
        return
    try:
        sales = [
            sale
            for region in settings.regions
            for sale in survey(connect(region, clock), settings.rates)
        ]
    except TransientError as error:
        if not path().exists():
            raise
        log.warning("the prices of Alibaba Cloud are older ones: %s", error)
        return
    write(path(), sales, clock.now())


def _fresh(settings: Settings, clock: Clock) -> bool:
    if not path().exists():
        return False
    age_s = clock.now().timestamp() - path().stat().st_mtime
    whole = set(COLUMNS) <= set(_df.columns)  # an older burst wrote fewer
    return age_s < FRESH_S and whole and set(settings.regions) <= set(_df["Region"])


def path() -> Path:
    """Return where the table is."""
    return Path(common.get_catalog_path(FILE)).expanduser()


_df: Any = Table(path())


def instance_type_exists(instance_type: str) -> Any:
    return common.instance_type_exists_impl(_df, instance_type)


def validate_region_zone(region: str | None, zone: str | None) -> Any:
    return common.validate_region_zone_impl("alibaba", _df, region, zone)


def get_hourly_cost(
    instance_type: str,
    use_spot: bool = False,
    region: str | None = None,
    zone: str | None = None,
) -> Any:
    return common.get_hourly_cost_impl(_df, instance_type, use_spot, region, zone)


def as_billed(usd: float, region: str) -> Decimal:
    """Return dollars in the currency that the account is billed in, by the rate of the prices.

    SetupError where no price of the region is known with its rate.
    """
    known = _df[_df["Region"] == region].get("UsdRate")
    if known is None or known.empty:
        raise SetupError(
            f"no rate is known for prices of Alibaba Cloud in {region}",
            hint="burst plan FILE asks for new prices",
        )
    return Decimal(str(usd)) / Decimal(str(known.iloc[0]))


def get_vcpus_mem_from_instance_type(instance_type: str) -> Any:
    return common.get_vcpus_mem_from_instance_type_impl(_df, instance_type)


def get_default_instance_type(
    cpus: str | None = None,
    memory: str | None = None,
    disk_tier: Any = None,
    local_disk: str | None = None,
    region: str | None = None,
    zone: str | None = None,
    use_spot: bool = False,
    max_hourly_cost: float | None = None,
) -> Any:
    del disk_tier, local_disk
    return common.get_instance_type_for_cpus_mem_impl(
        _df, cpus or "4+", memory, region, zone, use_spot, max_hourly_cost
    )


def get_accelerators_from_instance_type(instance_type: str) -> Any:
    return common.get_accelerators_from_instance_type_impl(_df, instance_type)


def get_arch_from_instance_type(instance_type: str) -> Any:
    return common.get_arch_from_instance_type_impl(_df, instance_type)


def get_local_disk_from_instance_type(instance_type: str) -> None:
    del instance_type


def get_instance_type_for_accelerator(
    acc_name: str,
    acc_count: float,
    cpus: str | None = None,
    memory: str | None = None,
    use_spot: bool = False,
    local_disk: str | None = None,
    region: str | None = None,
    zone: str | None = None,
    max_hourly_cost: float | None = None,
) -> Any:
    del local_disk
    return common.get_instance_type_for_accelerator_impl(
        _df, acc_name, acc_count, cpus, memory, use_spot, region, zone, max_hourly_cost
    )


def regions() -> Any:
    return common.get_region_zones(_df, use_spot=False)


def get_region_zones_for_instance_type(instance_type: str, use_spot: bool) -> Any:
    return common.get_region_zones(_df[_df["InstanceType"] == instance_type], use_spot)


def list_accelerators(
    gpus_only: bool,
    name_filter: str | None,
    region_filter: str | None,
    quantity_filter: int | None,
    case_sensitive: bool = True,
    all_regions: bool = False,
    require_price: bool = True,
) -> Any:
    del require_price  # every row has one
    with_gpus = _df[_df["AcceleratorName"].notna()]
    if with_gpus.empty:  # which SkyPilot's function cannot read
        return {}
    return common.list_accelerators_impl(
        "Alibaba",
        with_gpus,
        gpus_only,
        name_filter,
        region_filter,
        quantity_filter,
        case_sensitive,
        all_regions,
    )
