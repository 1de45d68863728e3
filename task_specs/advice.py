"""Warnings about a whole task: it is good, but may cost time, money or a key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from burst.task_specs.accelerators import advice_on
from burst.task_specs.infra import (
    AS_THEY_ARE,
    ENDED_BY_KEY,
    NAMED,
    ON_DEMAND_ONLY,
    SEES_FILES,
    parse_infra,
)
from burst.task_specs.model import Infra, Mount, Resources, Task
from burst.task_specs.skypilot import MACHINE, machine_keys

_KEY_NAME = re.compile(r"id_(rsa|dsa|ecdsa|ed25519)|.*\.(pem|key|ppk)", re.IGNORECASE)
_OTHERS = {  # what is said of keys at top level that burst does not know itself
    "service": "service: burst runs the task once and serves nothing",
    "pool": "pool: burst runs the task once and serves nothing",
    "managed_secrets": "managed secrets are known to a SkyPilot server alone",
    "workdir": "workdir: burst fetches no git repository; clone it and name its folder",
}
_PUBLIC = ("config", "known_hosts", "authorized_keys")


def advise(task: Task) -> Iterator[str]:
    """Yield what the person should know before machines are paid for."""
    yield from _on_machines(task)
    yield from _on_preferred(task)
    yield from _on_mounts(task)
    clouds = {one.infra.cloud for one in task.candidates if one.infra.cloud} - SEES_FILES
    if clouds and (task.burst.run_uri or "").startswith("file:"):
        where = ", ".join(sorted(clouds))
        yield f"burst.run_uri is a folder of this machine, which machines on {where} cannot reach"
    for key in task.other:
        yield _OTHERS.get(key, f"{key} has no effect: burst does not hand it on")


def _on_machines(task: Task) -> Iterator[str]:
    zones = {one.infra.zone for one in task.candidates}
    zone = next(iter(zones))
    if task.burst.spot == "spot" and len(zones) == 1 and zone is not None:
        yield (
            f"spot machines in zone {zone} alone: when it has none left, recovery has nowhere else "
            "to go"
        )
    spot = task.burst.spot == "spot"
    wanted = (one for one in task.candidates if one.use_spot or (spot and one.use_spot is None))
    never = {one.infra.cloud or "" for one in wanted} & ON_DEMAND_ONLY
    if never:
        yield f"{', '.join(sorted(never))} rents no spot machines, so none is taken there"
    stay = {one.infra.cloud or "" for one in task.candidates} & ENDED_BY_KEY
    if stay:
        yield (
            f"machines of {', '.join(sorted(stay))} cannot end themselves: if no controller is "
            "left, only `burst doctor --reap` ends the bill"
        )
    yield from dict.fromkeys(line for one in task.candidates for line in _without_effect(one))
    for one in task.candidates:
        if one.autostop is not None and one.autostop.idle_minutes == 0:
            yield "autostop 0 stops a machine as soon as it is idle"
        unknown = one.accelerators and advice_on(one.accelerators.kind)
        if unknown:
            yield unknown


def _without_effect(one: Resources) -> Iterator[str]:
    for key in one.other:
        if key not in {*MACHINE, "job_recovery"}:
            yield f"resources.{key} has no effect: burst does not hand it on"
    if one.infra.cloud in AS_THEY_ARE:
        for key in machine_keys(one):
            yield f"resources.{key} has no effect on {one.infra}: those machines stay as they are"


def _on_preferred(task: Task) -> Iterator[str]:
    """Yield what `pools.prefer` names in vain: pools are compared by their names, and whole."""
    for name in task.burst.pools.prefer:
        infra = parse_infra(name)
        pool = Infra(cloud=infra.cloud, region=infra.region if infra.cloud in NAMED else None)
        if infra != pool:
            yield f"burst.pools.prefer: {name} has no effect; a pool is preferred whole: {pool}"
        elif not any(_may_be(one.infra, pool) for one in task.candidates):
            yield f"burst.pools.prefer: {name} has no effect: resources name other places"


def _may_be(wanted: Infra, pool: Infra) -> bool:
    same = wanted.cloud in {None, pool.cloud}
    return same and (pool.region is None or wanted.region in {None, pool.region})


def _on_mounts(task: Task) -> Iterator[str]:
    for mount in task.mounts:
        if _is_private_key(mount):
            yield f"file_mounts: {mount.source} looks like a private key and goes to every node"
        if task.burst.spot != "on-demand" and mount.mode == "MOUNT_CACHED":
            yield (
                f"file_mounts: {mount.target} is MOUNT_CACHED: on spot machines the newest files "
                "may not have reached the bucket when one is taken; checkpoints under "
                "burst.checkpoint.dir are committed whole"
            )
        for outer in task.mounts:
            if outer is not mount and mount.target.startswith(outer.target.rstrip("/") + "/"):
                yield f"file_mounts: {mount.target} lies inside {outer.target}, which may hide it"


def _is_private_key(mount: Mount) -> bool:
    if mount.remote or mount.source is None:
        return False
    path = PurePosixPath(mount.source)
    if path.suffix == ".pub" or path.name in _PUBLIC:
        return False
    return _KEY_NAME.fullmatch(path.name) is not None or path.parent.name == ".ssh"
