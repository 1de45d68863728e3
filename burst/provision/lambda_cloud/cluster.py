"""The machines of one SkyPilot cluster at Lambda: made, waited for with a limit, ended.

They are told by their names, `<cluster>-head` and `<cluster>-worker`, as SkyPilot does. Whatever
goes wrong ends in an error with a code that burst.provision.refusals knows, and what was launched
for nothing is ended.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from burst.errors import BurstError, TransientError
from burst.ports import Clock
from burst.provision.lambda_cloud.api import (
    GONE,
    Instance,
    LambdaApi,
    LambdaError,
    Launch,
    LostAnswerError,
)

log = logging.getLogger(__name__)

POLL_S = 10.0  # eight launches at a time stay within one call a second
BOOT_S = 1500.0  # how long a machine may boot; big ones take a quarter of an hour
SICK_S = 180.0  # how long it may be unhealthy
APPEAR_S = 120.0  # how long a machine that was launched may be missing from the list
MISSED_S = 30.0  # and one that was seen there
END_LOOKS = 3
HEAD, WORKER = "head", "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A cluster. `like` is one of its machines; its name is not used."""

    cluster: str
    count: int
    like: Launch


@dataclass(frozen=True, slots=True)
class Made:
    """The machines of a cluster, the head first, and the ids of those that are new."""

    machines: tuple[Instance, ...]
    new: tuple[str, ...]


def members(api: LambdaApi, cluster: str) -> tuple[Instance, ...]:
    """Return a cluster's machines, the head first, in whatever state."""
    names = [f"{cluster}-{HEAD}", f"{cluster}-{WORKER}"]
    mine = [one for one in api.instances() if one.name in names]
    return tuple(sorted(mine, key=lambda one: (names.index(one.name), one.instance_id)))


def bring_up(api: LambdaApi, clock: Clock, wanted: Wanted) -> Made:
    """Make what is missing of a cluster and return it when all machines are active.

    LambdaError when Lambda refuses or a machine comes to nothing, TransientError when Lambda does
    not answer; machines that were launched here are ended then. Safe to call again.
    """
    there = [one for one in members(api, wanted.cluster) if one.costs]
    heads = [one for one in there if one.works and one.name.endswith(HEAD)]
    heads.sort(key=lambda one: one.state != "active")
    workers = [one for one in there if one.works and one.name.endswith(WORKER)]
    if len(workers) >= wanted.count:
        raise LambdaError(
            "burst/too-many", f"{wanted.cluster} has {len(workers)} workers of {wanted.count - 1}"
        )
    keep = heads[:1] + workers
    end(api, [one for one in there if one not in keep])  # unhealthy, or a head too many
    parts = [HEAD] * (not heads) + [WORKER] * (wanted.count - 1 - len(workers))
    new: list[str] = []
    try:
        if parts:
            _check_stock(api, wanted.like)
        for part in parts:
            launch = replace(wanted.like, name=f"{wanted.cluster}-{part}")
            new.append(_launch(api, clock, launch, {one.instance_id for one in there} | {*new}))
        mine = {*new, *(one.instance_id for one in keep)}
        _wait(api, clock, mine)
        there = list(members(api, wanted.cluster))
        end(api, [one for one in there if one.instance_id not in mine])  # of a lost answer
    except BurstError:
        _end_what_was_launched(api, wanted.cluster, new)
        raise
    return Made(tuple(one for one in there if one.instance_id in mine), tuple(new))


def _check_stock(api: LambdaApi, launch: Launch) -> None:
    """Ask for stock before launching, which may be done less often."""
    kind = api.machine_types().get(launch.machine_type)
    if kind is None:
        raise LambdaError("burst/no-capacity", f"Lambda has no type {launch.machine_type}")
    if launch.region not in kind.regions:
        where = ", ".join(kind.regions) or "no region"
        raise LambdaError(
            "instance-operations/launch/insufficient-capacity",
            f"no {launch.machine_type} in {launch.region}; regions with capacity: {where}",
        )


def _launch(api: LambdaApi, clock: Clock, launch: Launch, known: Collection[str]) -> str:
    """Launch a machine; if the answer is lost, take the one that appeared under its name."""
    try:
        return api.launch(launch)
    except LostAnswerError as error:
        log.warning("%s may have been launched: %s", launch.name, error)
        until_s = clock.monotonic() + APPEAR_S
        while clock.monotonic() < until_s:
            clock.sleep(POLL_S)
            for one in (_look(api, give_up=False) or {}).values():
                if one.name == launch.name and one.costs and one.instance_id not in known:
                    return one.instance_id
        raise


@dataclass(slots=True)
class _Watch:
    """What a wait knows of its machines."""

    began_s: float
    seen_s: dict[str, float] = field(default_factory=dict)  # when last in the list
    sick_s: dict[str, float] = field(default_factory=dict)  # unhealthy since

    def verdict(self, name: str, one: Instance | None, now_s: float) -> LambdaError | None:
        """Return why a machine has to be given up, or None."""
        if one is None:
            since_s = self.seen_s.get(name)
            limit_s = APPEAR_S if since_s is None else MISSED_S
            if now_s - (self.began_s if since_s is None else since_s) < limit_s:
                return None
            return LambdaError("burst/machine-lost", f"{name} is not in Lambda's list any more")
        self.seen_s[name] = now_s
        if not one.costs:
            return LambdaError("burst/machine-lost", f"{one} ended before it was of use")
        if one.works:
            self.sick_s.pop(name, None)
        sick_s = now_s - self.sick_s.setdefault(name, now_s) if not one.works else 0.0
        booting_s = now_s - self.began_s if not _ready(one) else 0.0
        if sick_s >= SICK_S or booting_s >= BOOT_S:
            return LambdaError("burst/never-ready", f"{one} is not ready after {booting_s:.0f} s")
        return None


def _ready(one: Instance | None) -> bool:
    return one is not None and one.state == "active" and bool(one.ip)


def _wait(api: LambdaApi, clock: Clock, instance_ids: Collection[str]) -> None:
    """Return when all are active; LambdaError as soon as one cannot be, or takes too long."""
    watch = _Watch(began_s=clock.monotonic())
    while True:
        found = _look(api, give_up=clock.monotonic() - watch.began_s >= BOOT_S)
        if found is not None:
            for name in instance_ids:
                why = watch.verdict(name, found.get(name), clock.monotonic())
                if why is not None:
                    raise why
            if all(_ready(found.get(name)) for name in instance_ids):
                return
        clock.sleep(POLL_S)


def _look(api: LambdaApi, *, give_up: bool) -> Mapping[str, Instance] | None:
    """Return the account's machines, None while Lambda does not answer."""
    try:
        return {one.instance_id: one for one in api.instances()}
    except TransientError as error:
        if give_up:
            raise
        log.warning("what became of the machines is not known: %s", error)
        return None


def _end_what_was_launched(api: LambdaApi, cluster: str, instance_ids: Collection[str]) -> None:
    """End them if Lambda answers; if not, whoever ends the cluster or the run finds them."""
    try:
        end(api, [one for one in members(api, cluster) if one.instance_id in instance_ids])
    except (TransientError, LambdaError) as error:
        log.warning("%s may have machines left: %s", cluster, error)


def end(api: LambdaApi, machines: Collection[Instance]) -> None:
    """End machines; no error for those that have ended by themselves.

    TransientError when Lambda does not answer.
    """
    left = {one.instance_id for one in machines if one.state not in {"terminated", "terminating"}}
    for look in range(END_LOOKS):
        try:
            api.terminate(left)
        except LambdaError as error:
            if not error.code.endswith(GONE) or look == END_LOOKS - 1:
                raise
            left &= {one.instance_id for one in api.instances() if one.costs}
        else:
            return
