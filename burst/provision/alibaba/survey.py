"""What a region sells, as SkyPilot's catalogs write it: one row for each machine type and zone."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from burst.cost.quotes import Quote, Rate
from burst.errors import TransientError
from burst.provision.alibaba import prices
from burst.provision.alibaba.client import Api, pages
from burst.provision.alibaba.errors import EcsError
from burst.provision.alibaba.gpus import MachineType, machine_type

log = logging.getLogger(__name__)

CPU_FAMILIES = ("ecs.g7", "ecs.g8i")  # of those without GPUs; there are a thousand types
MOST_CPUS = 32
COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo",
           "Price", "SpotPrice", "Region", "AvailabilityZone", "Arch", "UsdRate")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """A machine type in a zone, with its prices."""

    machine: MachineType
    region: str
    zone: str
    on_demand: Quote
    spot: Quote | None  # None: the zone has none now


def survey(api: Api, rates: Iterable[Rate]) -> tuple[Sale, ...]:
    """Return what a region has now. BurstError if it bills in a currency without a rate.

    Two calls for each machine type that is known and in stock, and a handful besides.
    """
    rates = tuple(rates)
    spot = prices.stock(api, spot=True)
    steady = prices.stock(api, spot=False)
    there = frozenset().union(*spot.values(), *steady.values())
    return tuple(
        sale
        for machine in _types(api)
        if machine.name in there
        for sale in _sales(api, machine, spot, steady, rates)
    )


def _types(api: Api) -> Iterator[MachineType]:
    gpus = {"MinimumGPUAmount": 1}
    cpus = {"InstanceTypeFamilies": list(CPU_FAMILIES), "MaximumCpuCoreCount": MOST_CPUS}
    for wanted in (gpus, cpus):
        for page in pages(api, "DescribeInstanceTypes", **wanted):
            for raw in page["InstanceTypes"]["InstanceType"]:
                if (known := machine_type(raw)) is not None:
                    yield known


def _sales(
    api: Api,
    machine: MachineType,
    spot: dict[str, frozenset[str]],
    steady: dict[str, frozenset[str]],
    rates: tuple[Rate, ...],
) -> Iterator[Sale]:
    zones = sorted(z for z in {**spot, **steady} if machine.name in spot.get(z, ()) or
                   machine.name in steady.get(z, ()))  # fmt: skip
    try:
        full = prices.quote(prices.on_demand(api, machine.name, zones[0]), rates)
        by_zone = prices.spot(api, machine.name)
    except TransientError:
        raise
    except EcsError as error:  # one type that cannot be priced does not hide the others
        log.warning("%s is left out: %s", machine.name, error)
        return
    for zone in zones:
        has_spot = machine.name in spot.get(zone, ()) and zone in by_zone
        yield Sale(
            machine=machine,
            region=api.region,
            zone=zone,
            on_demand=full,
            spot=prices.quote(by_zone[zone], rates) if has_spot else None,
        )


def write(path: Path, sales: Sequence[Sale], at: datetime) -> None:
    """Write a catalog in one go; the time of its file is the time of its prices."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with new.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        out.writerows(_row(sale) for sale in sales)
    os.utime(new, (at.timestamp(), at.timestamp()))
    new.replace(path)


def _row(sale: Sale) -> list[object]:
    machine = sale.machine
    gpus = machine.accelerators
    return [
        machine.name,
        gpus.kind if gpus else "",
        gpus.count if gpus else "",
        machine.cpus,
        machine.memory_gb,
        _gpu_info(machine),
        sale.on_demand.usd_per_hour,
        sale.spot.usd_per_hour if sale.spot else "",
        sale.region,
        sale.zone,
        machine.arch,
        sale.on_demand.rate.usd if sale.on_demand.rate else 1,  # of what the account is billed in
    ]


def _gpu_info(machine: MachineType) -> str:
    """Return a catalog's column on GPUs: a dictionary as Python writes it."""
    gpus = machine.accelerators
    if gpus is None:
        return ""
    one = {
        "Name": gpus.kind,
        "Manufacturer": "NVIDIA",
        "Count": gpus.count,
        "MemoryInfo": {"SizeInMiB": machine.gpu_gb * 1024},
    }
    return str({"Gpus": [one], "TotalGpuMemoryInMiB": machine.gpu_gb * 1024 * gpus.count})
