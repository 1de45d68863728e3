"""What Lambda says of a run's machines; see burst.provision.rented.Cloud.

Lambda lists no times, and ended machines for a while at most. When a machine was launched is in a
tag of ours; when it ended is when this process first saw it ended, or told it to end.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from burst.cost.offers import Offer
from burst.cost.quotes import Quote
from burst.errors import TransientError
from burst.ports import Clock
from burst.provision.lambda_cloud import cluster
from burst.provision.lambda_cloud.api import Instance, LambdaApi, LambdaError, MachineType
from burst.provision.rented import NODE_ID, NODE_TAG, RUN_TAG, Machine, by_node, cluster_name

log = logging.getLogger(__name__)


class LambdaCloud:
    """See burst.provision.rented.Cloud. Lambda forgets ended machines; here they are remembered."""

    def __init__(self, api: LambdaApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, tuple[str, Machine]]] = {}  # by run and id: node, machine

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        with self._lock:
            there = self._of(run_id)
            self._remember(run_id, there)
            return by_node(self._seen[run_id].values())

    def _of(self, run_id: str) -> tuple[tuple[str, Instance], ...]:
        with _later("say what is there"):
            found = self._api.instances()
        named = ((_node(one, run_id), one) for one in found)
        return tuple((node_id, one) for node_id, one in named if node_id)

    def _remember(self, run_id: str, there: Iterable[tuple[str, Instance]]) -> None:
        """Note what is there; what is listed no more, or as ended, ended now at the latest."""
        now = self._clock.now()
        before = self._seen.get(run_id, {})
        seen = {name: (node, _gone(machine, now)) for name, (node, machine) in before.items()}
        for node_id, one in there:
            machine = _machine(one, f"{run_id} {node_id}", now)
            _, known = before.get(one.instance_id, ("", machine))
            machine = replace(machine, since=known.since)
            if not one.costs:
                machine = _gone(replace(machine, until=known.until), now)
            seen[one.instance_id] = (node_id, machine)
        self._seen[run_id] = seen

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        """End every machine of some nodes, also one that was launched twice."""
        with self._lock:
            there = self._of(run_id)
            with _later("end machines"):
                cluster.end(self._api, [one for node_id, one in there if node_id in node_ids])

    def keep(self, run_id: str) -> None:
        """Do nothing: Lambda ends no machine by itself."""


def _node(one: Instance, run_id: str) -> str:
    """Return which node of a run a machine is, by its tags, else its cluster's name; "" if none.

    An answer of Lambda's need not have tags (OpenAPI 1.10.0).
    """
    if RUN_TAG in one.tags:
        return one.tags.get(NODE_TAG, "") if one.tags[RUN_TAG] == run_id else ""
    named = re.match(f"{re.escape(cluster_name(run_id, ''))}({NODE_ID.pattern})-", one.name)
    return named[1] if named else ""


def _machine(one: Instance, whose: str, now: datetime) -> Machine:
    return Machine(
        name=f"{one} of {whose}",
        since=one.since or now,
        until=None,
        costs=one.costs,
        works=one.works,
    )


def _gone(machine: Machine, now: datetime) -> Machine:
    return replace(machine.gone(now), works=False)


@contextmanager
def _later(what: str) -> Iterator[None]:
    """Take a refusal to look or to end for what may work later; it says nothing of machines."""
    try:
        yield
    except LambdaError as error:
        raise TransientError(f"Lambda Cloud did not {what}: {error}") from error


def at_todays_price(offers: tuple[Offer, ...], api: LambdaApi, now: datetime) -> tuple[Offer, ...]:
    """Return offers with Lambda's own price now in those of Lambda; as they are if it is silent."""
    try:
        types = api.machine_types()
    except (LambdaError, TransientError) as error:
        log.warning("prices at Lambda are those of SkyPilot's catalog: %s", error)
        return offers
    return tuple(
        replace(offer, quote=_quote(offer.quote, types[offer.machine_type], now))
        if offer.pool == "lambda" and offer.machine_type in types
        else offer
        for offer in offers
    )


def _quote(quote: Quote, kind: MachineType, now: datetime) -> Quote:
    source = "Lambda Cloud's API"
    return replace(quote, usd_per_hour=kind.usd_per_hour, source=source, observed_at=now)
