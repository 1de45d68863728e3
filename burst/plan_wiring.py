"""The composition root of plans: which module tells what a pool can give a task, and at what price.

A further kind of pool of one's own is one more entry in `OWN`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burst import wiring

if TYPE_CHECKING:
    from burst.controller.runs import Machine
    from burst.cost.offers import Offer, Plan
    from burst.cost.quotes import Quote
    from burst.errors import BurstError
    from burst.provision.local import LocalMachine
    from burst.task_specs.model import Task

log = logging.getLogger(__name__)


def offers(task: Task) -> tuple[Offer, ...]:
    """Return what every pool can give.

    SSH hosts and Slurm clusters are asked when the task names them or this machine does not fit;
    the clouds when the task names one, or leaves the place open and none of one's own machines
    fits: asking starts SkyPilot's server, and takes seconds. Clouds that cannot be used are told
    and left out; SetupError if the task names some and nothing else fits it. UsageError when the
    task names Kubernetes and something it needs is not here, or pools.yaml is wrong.
    """
    from burst.cost.offers import candidates
    from burst.errors import together

    wiring.pools()  # what is wrong there is told before anything is asked
    for cloud, check in NEEDS.items():
        check(str(c.infra.region or "") for c in task.candidates if c.infra.cloud == cloud)
    here: tuple[Offer, ...] = (local_offer(),)
    named = {c.infra.cloud for c in task.candidates}
    if named <= {None, "local"} and (None not in named or candidates(task, here)):
        return here
    for kind, ask in OWN.items():
        here = (*here, *(ask(task) if named & {None, kind} else ()))
    own = named <= {None, "local", *OWN}
    stays = named & OWN.keys() or task.burst.pools.overflow_after_s is None
    if own and (None not in named or (stays and candidates(task, here))):
        return here
    rented, unusable = _rented_offers(task)
    found = (*here, *rented)
    if unusable and not own and not candidates(task, found):
        raise together(unusable)
    for error in unusable:
        log.warning("left out: %s (%s)", error.message, error.hint)
    return found


def _needs_of_pods(contexts: Iterable[str]) -> None:
    from burst.provision.k8s import needs

    needs.check(contexts)


# what a pool needs of this machine, by the cloud of `infra`; asked with the regions that are named
NEEDS: Mapping[str, Callable[[Iterable[str]], None]] = {"k8s": _needs_of_pods}


def _rented_offers(task: Task) -> tuple[tuple[Offer, ...], list[BurstError]]:
    """Return what clouds, and Kubernetes, can give, and why some of them can give nothing."""
    from burst.errors import SetupError, UsageError
    from burst.provision import skypilot
    from burst.provision.k8s.rates import priced, read_rates
    from burst.provision.pools import kind_of

    unusable: dict[str, BurstError] = {}  # by cloud, or by one of Kubernetes' contexts
    try:
        _refresh_alibaba(task)
    except SetupError as error:
        unusable["alibaba"] = error
    asked = {n: c for n, c in enumerate(task.candidates) if c.infra.cloud not in unusable}
    found: tuple[Offer, ...] = ()
    if any(kind_of(one.infra.cloud or "") == "cloud" for one in asked.values()):
        try:
            skypilot.prepare(wiring.home())
            found = skypilot.offers(replace(task, candidates=tuple(asked.values())))
        except SetupError as error:
            unusable[""] = error
    found = _renumbered(found, tuple(asked))
    try:
        found = _at_todays_price(found)
    except SetupError as error:  # SkyPilot's server, elsewhere, has a key; burst looks for itself
        unusable["lambda"] = error
    for pool in dict.fromkeys(offer.pool for offer in found):
        cloud, _, part = pool.partition("/")
        try:
            if cloud in NEEDS:
                NEEDS[cloud]([part])
        except (SetupError, UsageError) as error:
            unusable[pool] = error
    found = tuple(offer for offer in found if offer.pool not in unusable)
    why = {error.message: error for error in unusable.values()}  # one may be that of both
    return priced(found, read_rates(wiring.pools()), wiring.clock().now()), list(why.values())


def _renumbered(offers: Iterable[Offer], numbers: Sequence[int]) -> tuple[Offer, ...]:
    """Return offers made for some of a task's candidates, by their numbers in the whole task."""
    return tuple(
        replace(
            one, made_for=None if one.made_for is None else tuple(numbers[n] for n in one.made_for)
        )
        for one in offers
    )


def _refresh_alibaba(task: Task) -> None:
    """Have the prices be of now where the task may run at Alibaba Cloud and somebody can pay."""
    from burst.errors import SetupError
    from burst.provision import skypilot
    from burst.provision.alibaba import credentials
    from burst.provision.alibaba.settings import read_settings

    named = {c.infra.cloud for c in task.candidates}
    said = wiring.pools().get("alibaba") or {}
    if "alibaba" not in named and not (None in named and said):
        return
    found = credentials.find(os.environ, Path.home())
    if found is None:
        raise SetupError("no credentials for Alibaba Cloud", hint=credentials.HINT)
    regions = sorted({str(c.infra.region) for c in task.candidates if c.infra.cloud == "alibaba"
                      and c.infra.region})  # fmt: skip
    usual = {"regions": regions} if regions and "regions" not in said else {}
    skypilot.refresh_alibaba(read_settings({**usual, **said}, found.region), wiring.clock())


def _at_todays_price(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """Put Lambda's own price for that of SkyPilot's catalog, which may be of long ago.

    SetupError without a key for it.
    """
    if not any(offer.pool == "lambda" for offer in offers):
        return offers
    from burst.provision.lambda_cloud.api import connect
    from burst.provision.lambda_cloud.cloud import at_todays_price

    return at_todays_price(offers, connect(os.environ, wiring.clock()), wiring.clock().now())


def _ssh_offers(task: Task) -> tuple[Offer, ...]:
    from burst.provision import hosts

    known = wiring.ssh_hosts()
    _warn_of_unknown(task, "ssh", {host.pool for host in known}, wiring.home() / "pools.yaml")
    return hosts.offers(known, wiring.home(), wiring.clock().now())


def _slurm_offers(task: Task) -> tuple[Offer, ...]:
    from burst.provision import slurm

    known = wiring.slurm_clusters()
    _warn_of_unknown(task, "slurm", {cluster.pool for cluster in known}, wiring.slurm_config())
    return slurm.offers(task, known, wiring.home(), wiring.clock().now())


OWN: Mapping[str, Callable[[Task], tuple[Offer, ...]]] = {
    "ssh": _ssh_offers,
    "slurm": _slurm_offers,
}


def _warn_of_unknown(task: Task, kind: str, known: set[str], where: Path) -> None:
    """Say which pools of a kind the task names and that file does not."""
    for infra in {candidate.infra for candidate in task.candidates}:
        pool = "/".join(part for part in (infra.cloud, infra.region) if part)
        if infra.cloud == kind and not any(f"{name}/".startswith(f"{pool}/") for name in known):
            there = ", ".join(sorted(known)) or f"no {kind} pool"
            log.warning("the task names %s; %s has %s", pool, where, there)


def local_offer() -> Offer:
    """Return what this machine can give."""
    from burst.cost.offers import Offer

    found = wiring.this_machine()
    return Offer(
        pool="local",
        region="",
        zone="",
        machine_type=socket.gethostname(),
        cpus=float(found.cpus),
        memory_gb=found.memory_gb,
        accelerators=found.accelerators,
        spot=False,
        quote=local_quote(found),
    )


def local_quote(machine: LocalMachine) -> Quote:
    """Return the price of a node on this machine."""
    from burst.provision.own import quote

    return quote(machine.usd_per_node_hour, machine.price_source, wiring.clock().now())


def machine(task: Task, plan: Plan) -> Machine:
    """Return what the nodes of a plan's best candidate are, and where else they may be.

    A run on this machine stays on it; all others may go from one's own machines to rented ones.
    """
    from burst.controller.runs import Machine
    from burst.cost.offers import alike, choices_of
    from burst.task_specs.skypilot import machine_keys

    best, found = plan.candidates[0].offer, alike(plan.candidates)
    shared = best.pool == "local"
    return Machine(
        cpus=int(best.cpus),
        gpus=best.accelerators.count if best.accelerators else 0,
        wanted=plan.candidates[0].accelerators,
        choices=choices_of(task, found),
        shared=shared,
        own=any(candidate.offer.owned for candidate in found),
        same_files=all(wiring.sees_files(candidate.offer.pool) for candidate in found),
        wish={} if shared else _wish(task),
        wishes=() if shared else tuple(map(machine_keys, task.candidates)),
    )


def _wish(task: Task) -> Mapping[str, Any]:
    """Return what the task says of all its machines besides their kind and place."""
    from burst.controller.runs import packed_mounts
    from burst.task_specs.skypilot import mount_keys

    packed = packed_mounts(task)
    mounts = mount_keys(mount for mount in task.mounts if mount not in packed)
    return {"file_mounts": mounts} if mounts else {}
