"""Which place of a pool refused a node last, as the journals of runs tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from burst.controller.book import entries
from burst.controller.runs import Run
from burst.cost.placement import Place
from burst.records import moment
from burst.storage.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRefusal:
    """That a place gave no node, why, when, and to which run."""

    place: Place
    reason: str
    detail: str
    at: datetime
    run_id: str


def last_refusals(runs: Iterable[Run]) -> Mapping[str, LastRefusal]:
    """Return the newest refusal of each pool; reads every journal from its beginning.

    StorageError when a journal cannot be read.
    """
    found: dict[str, LastRefusal] = {}
    for run in runs:
        for _, entry in entries(Journal(run.store)):
            for one in _refusals(entry, run.record.run_id):
                pool = one.place.pool
                found[pool] = max(found.get(pool, one), one, key=lambda refusal: refusal.at)
    return found


def _refusals(entry: Mapping[str, Any], run_id: str) -> Iterator[LastRefusal]:
    event = entry.get("event") or {}
    if entry["kind"] != "decision" or event.get("type") != "LaunchRefused":
        return
    for said in event["refusals"]:
        yield LastRefusal(
            place=Place(**said["place"]),
            reason=said["reason"],
            detail=said["detail"],
            at=moment(entry["time"]),
            run_id=run_id,
        )
