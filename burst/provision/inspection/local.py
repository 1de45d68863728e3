"""The machine that one is at: what it has, how much of it runs are using, and its driver."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from burst.cost.quotes import Quote
from burst.provision.inspection import cuda
from burst.provision.inspection.cuda import Torch
from burst.provision.inspection.port import Finding, Row, Wanted, price
from burst.provision.local import LocalMachine

ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPool:
    """See burst.provision.inspection.port.Inspected."""

    name: str = "local"
    look: Callable[[], LocalMachine]
    quote: Callable[[LocalMachine], Quote]
    nodes: Callable[[], int]  # of runs, that are processes here now
    driver: Callable[[], str | None]  # None: no GPU of NVIDIA's, as far as can be seen
    torch: Torch | None  # that is installed here, which nodes of this machine use
    now: Callable[[], datetime]

    def rows(self) -> tuple[Row, ...]:
        """Return this machine. All of a run's nodes share it, and so do several runs."""
        found, nodes = self.look(), self.nodes()
        gpus = found.accelerators.count if found.accelerators else 0
        kind = f"{gpus}x{found.accelerators.kind}" if found.accelerators else ""
        return (
            Row(
                pool=self.name,
                machine=kind or f"{found.cpus}-cpu",
                free=0 if nodes else 1,
                whole=1,
                gpus_free=0 if nodes else gpus,
                gpus=gpus,
                price=price(self.quote(found), gpus, self.now(), ages=False),
                healthy=True,
                detail=f"{nodes} nodes of runs are here" if nodes else "",
            ),
        )

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        del wanted  # of machines that are not this one
        found, quote = self.look(), self.quote
        gpus = found.accelerators.count if found.accelerators else 0
        offered = quote(found)
        detail = f"{found.cpus} CPUs, {gpus} GPUs, ${offered.usd_per_hour} per node-hour"
        here = Finding(
            pool=self.name, what="machine", works=True, detail=f"{detail} ({offered.source})"
        )
        driver = self.driver()
        if driver is None:
            return (here,)
        works, words, fix = cuda.verdict(driver, self.torch)
        fitting = Finding(pool=self.name, what="driver", works=works, detail=words, fix=fix)
        return (here, fitting)


def driver_here() -> str | None:
    """Ask nvidia-smi for the driver's version; what it complains of if it cannot say."""
    if shutil.which(ASK_DRIVER[0]) is None:
        return None
    try:
        done = subprocess.run(ASK_DRIVER, capture_output=True, text=True, check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return "no answer within 20 s"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if lines else f"exit code {done.returncode}"
