"""What a person may ask of a pool before they trust it: what it has, and what is wrong with it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol, TypeVar

from burst.cost.offers import Offer
from burst.cost.quotes import Quote
from burst.errors import BurstError
from burst.provision.inspection.cuda import Torch

log = logging.getLogger(__name__)

GIB = 1024**3
MOST_SKEW_S = 900.0  # S3 and EC2 refuse a request that is signed 15 min off (RequestTimeTooSkewed)
NOTED_SKEW_S = 5.0
STALE_S = 86_400.0
SET_CLOCK = "set the clock: sudo timedatectl set-ntp true, or start chronyd"
LIMIT_S = 120.0  # SkyPilot's server takes most of a minute to start on a small machine
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    pool: str = ""  # "ssh/lab"; "": what burst needs wherever it runs
    what: str
    works: bool | None  # None: it could not be told, or does no harm yet
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars for an hour of one machine, and of one of its GPUs if it has any."""

    usd_per_hour: Decimal
    usd_per_gpu_hour: Decimal | None
    source: str
    observed_at: datetime
    stale: bool  # older than a day


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one kind of machine of a pool is like now. None: the pool does not say."""

    pool: str
    machine: str = ""
    free: int | None = None  # machines that nobody has
    whole: int | None = None
    gpus_free: int | None = None
    gpus: int | None = None
    price: Price | None = None
    waiting: int | None = None  # jobs in the queue
    healthy: bool
    detail: str  # why not, or what there is to know


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a task needs of machines, as far as it can be looked for; the default: no task."""

    torch: Torch | None = None  # that nodes other than this machine get
    gpus: bool = False
    disk_bytes: int = 0  # for code, packages and workdir on a node
    nodes: int = 1
    machines: tuple[Offer, ...] = ()  # what pools offer for it, best first


class Inspected(Protocol):
    """A pool, or several that are asked together. Both calls may block for as long as they like.

    BurstError when the pool cannot be asked at all; what is wrong with a part of it is told.
    """

    @property
    def name(self) -> str:
        """What it is called: ssh/lab, aws."""
        ...

    def rows(self) -> Sequence[Row]:
        """Return what there is."""
        ...

    def findings(self, wanted: Wanted, /) -> Sequence[Finding]:
        """Return everything that was looked at, works or not; touches nothing."""
        ...


def rows(pools: Sequence[Inspected], limit_s: float = LIMIT_S) -> tuple[Row, ...]:
    """Ask all pools at once; one that fails, or is silent for `limit_s`, is a row that says so."""

    def failed(pool: str, why: str, fix: str) -> list[Row]:
        return [Row(pool=pool, healthy=False, detail="; ".join(filter(None, (why, fix))))]

    return tuple(_together(pools, lambda pool: pool.rows(), failed, limit_s))


def findings(
    pools: Sequence[Inspected], wanted: Wanted, limit_s: float = LIMIT_S
) -> tuple[Finding, ...]:
    """Look at all pools at once; one that fails, or is silent for `limit_s`, is a finding."""

    def failed(pool: str, why: str, fix: str) -> list[Finding]:
        return [Finding(pool=pool, what="answers", works=False, detail=why, fix=fix)]

    return tuple(_together(pools, lambda pool: pool.findings(wanted), failed, limit_s))


def _together(
    pools: Sequence[Inspected],
    ask: Callable[[Inspected], Sequence[T]],
    failed: Callable[[str, str, str], list[T]],
    limit_s: float,
) -> Iterator[T]:
    """Ask in threads that nobody waits for at the end: a pool that hangs holds up nothing."""
    answers = [queue.SimpleQueue[Sequence[T]]() for _ in pools]

    def run(pool: Inspected, answer: queue.SimpleQueue[Sequence[T]]) -> None:
        try:
            answer.put(ask(pool))
        except BurstError as error:
            answer.put(failed(pool.name, error.message, error.hint or ""))
        except Exception as error:  # a thread's end: one pool hides no other
            log.debug("%s", pool.name, exc_info=True)
            said = f"cannot be read: {type(error).__name__}: {error}"
            answer.put(failed(pool.name, said, "a defect in burst, or an unknown answer"))

    for pool, answer in zip(pools, answers, strict=True):
        threading.Thread(target=run, args=(pool, answer), daemon=True).start()
    until_s = time.monotonic() + limit_s
    for pool, answer in zip(pools, answers, strict=True):
        try:
            yield from answer.get(timeout=max(until_s - time.monotonic(), 0))
        except queue.Empty:
            why = f"no answer within {limit_s:g} s"
            yield from failed(pool.name, why, "see whether it is reachable from here")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """See Inspected: pools of which it is not known what they are."""

    name: str
    error: BurstError

    def rows(self) -> tuple[Row, ...]:
        raise self.error

    def findings(self, _: Wanted) -> tuple[Finding, ...]:
        raise self.error


def meant(pool: str, name: str | None) -> bool:
    """Whether a name, as typed, means a pool: itself, its group, or a part of it; None: any.

    >>> meant("ssh/lab", "ssh"), meant("ssh/lab", "ssh/la"), meant("aws", "aws/us-east-1")
    (True, False, True)
    """
    short, long = sorted((pool, name or pool), key=len)
    return f"{long}/".startswith(f"{short}/")


def price(offered: Quote, gpus: int, now: datetime, *, ages: bool) -> Price:
    """Return a machine's price; `ages`: it is of the day it was observed on, as a cloud's is."""
    return Price(
        usd_per_hour=offered.usd_per_hour,
        usd_per_gpu_hour=offered.usd_per_hour / gpus if gpus else None,
        source=offered.source,
        observed_at=offered.observed_at,
        stale=ages and offered.stale(now, STALE_S),
    )


def disk_finding(pool: str, what: str, free_bytes: int, needed_bytes: int) -> Finding:
    """Return whether a node's files have room on a disk of one's own machines."""
    return Finding(
        pool=pool,
        what=what,
        works=free_bytes >= needed_bytes,
        detail=f"{free_bytes / GIB:.1f} GiB free, a node needs about {needed_bytes / GIB:.1f} GiB",
        fix="free some space there; old packages of burst lie in ~/.burst/env-*",
    )


def clock_finding(pool: str, what: str, ahead_s: float) -> Finding:
    """Return what a clock's distance from this machine's means; `ahead_s` is below 0 if behind."""
    off = abs(ahead_s)
    if off <= NOTED_SKEW_S:
        return Finding(pool=pool, what=what, works=True, detail="as here")
    told = f"{ahead_s:+.0f} s from this machine's"
    works = None if off < MOST_SKEW_S else False
    why = "" if works is None else "; at 15 min S3 and AWS refuse what is signed"
    return Finding(pool=pool, what=what, works=works, detail=told + why, fix=SET_CLOCK)
