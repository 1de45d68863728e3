"""ECS by our tags: what a run has there, its end, and the term that is put off again and again.

A machine of a run is born with a time at which ECS deletes it (AutoReleaseTime). While somebody
drives the run, the time is put off; when nobody does, the machine goes, whatever state it is in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from burst.errors import TransientError
from burst.provision.alibaba import machines
from burst.provision.alibaba.client import Api
from burst.provision.alibaba.errors import EcsError
from burst.provision.alibaba.machines import Instance
from burst.provision.rented import NODE_TAG, RUN_TAG, Machine, by_node

TERM = timedelta(minutes=60)  # ECS takes no less than 30
RENEW_BELOW = timedelta(minutes=45)
NOTICE = timedelta(minutes=5)  # between the lock for `Recycling` and the end, at least
FRESH_S = 30.0  # so long, what was listed for a look will do to put off terms


class Alibaba:
    """See burst.provision.rented.Cloud. ECS forgets deleted machines; here they are remembered."""

    def __init__(self, regions: Iterable[str], connect: Callable[[str], Api]) -> None:
        self._apis = tuple(connect(region) for region in sorted(set(regions)))
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, tuple[str, Machine]]] = {}  # by run and id: node, machine
        self._listed: dict[str, _Listed] = {}  # by run; used once
        self._looked: dict[str, datetime] = {}  # by run: when the last look began

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        with self._lock:
            began = self._apis[0].clock.now()
            listed = self._listed[run_id] = self._list(run_id)
            there = {one.instance_id: one for of_api in listed.there for one in of_api}
            before = self._seen.get(run_id, {})
            now = self._apis[0].clock.now()
            seen = {name: (node, machine.gone(now)) for name, (node, machine) in before.items()}
            known = {name: machine.leaves for name, (_, machine) in before.items()}
            soonest = self._looked.get(run_id, began - NOTICE) + NOTICE
            for name, one in there.items():
                leaves = (known.get(name) or soonest) if one.taken else None
                seen[name] = (one.tags[NODE_TAG], _machine(one, leaves))
            self._seen[run_id], self._looked[run_id] = seen, began
        return by_node(seen.values())

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        for api in self._apis:
            mine = [one for one in _of(api, run_id) if one.tags[NODE_TAG] in node_ids]
            with _later(api):
                machines.delete(api, [one.instance_id for one in mine])

    def keep(self, run_id: str) -> None:
        for api, there in zip(self._apis, self._lately(run_id).there, strict=True):
            soon = api.clock.now() + RENEW_BELOW
            due = [one for one in there if one.release_at and one.release_at < soon]
            with _later(api):
                machines.keep(api, due, api.clock.now() + TERM)

    def _list(self, run_id: str) -> _Listed:
        at_s = self._apis[0].clock.monotonic()
        return _Listed(at_s, tuple(_of(api, run_id) for api in self._apis))

    def _lately(self, run_id: str) -> _Listed:
        """Return what was listed a moment ago, or now."""
        with self._lock:
            listed = self._listed.pop(run_id, None)
        if listed is None or self._apis[0].clock.monotonic() - listed.at_s > FRESH_S:
            return self._list(run_id)
        return listed


@dataclass(frozen=True, slots=True)
class _Listed:
    """What each region said of a run's machines, and when."""

    at_s: float
    there: tuple[tuple[Instance, ...], ...]


def _of(api: Api, run_id: str) -> tuple[Instance, ...]:
    with _later(api):
        found = machines.observe(api, {RUN_TAG: run_id})
    return tuple(one for one in found if NODE_TAG in one.tags)


def _machine(one: Instance, leaves: datetime | None) -> Machine:
    """Return what a run is told of a machine.

    ECS does not say since when one is to be taken: perhaps since the look before, which did not
    show it.
    """
    name = f"{one} of {one.tags[RUN_TAG]} {one.tags[NODE_TAG]}"
    return Machine(name=name, since=one.since, until=None, costs=True, leaves=leaves)


@contextmanager
def _later(api: Api) -> Iterator[None]:
    """Take a refusal to look or to end for what may work later; it says nothing of machines."""
    try:
        yield
    except EcsError as error:
        raise TransientError(f"ECS in {api.region}: {error.message}") from error
