"""A task in SkyPilot's own format: what is handed to SkyPilot, and, with ours added, to a file.

`x-` keys, `train` and `burst` are gone, durations are whole minutes, types have the catalog's
spelling, and every env is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from burst.task_specs.infra import infra_text
from burst.task_specs.model import Autostop, Mount, Resources, Task
from burst.task_specs.units import amount_text

MACHINE = (  # what of a candidate is neither kind, place nor price of its machine
    "disk_size", "disk_tier", "local_disk", "volumes", "network_tier", "ports", "labels",
    "image_id", "accelerator_args",
)  # fmt: skip


def to_skypilot(task: Task) -> dict[str, Any]:
    """Return the task as SkyPilot 0.14.1 reads it. It holds secrets: write it nowhere.

    Private envs go under `secrets`, which SkyPilot keeps out of its own records.
    """
    public = {name: value for name, value in task.envs.items() if name not in task.private_envs}
    private = {name: value for name, value in task.envs.items() if name in task.private_envs}
    return skypilot_keys(task, envs=public, secrets={**task.secrets, **private})


def skypilot_keys(
    task: Task, *, envs: Mapping[str, str | None], secrets: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return all keys of SkyPilot's format that the task uses, with the given variables."""
    keys = {
        "name": task.name,
        "workdir": task.workdir,
        "num_nodes": task.num_nodes,
        "resources": _resources(task),
        "envs": dict(envs),
        "secrets": dict(secrets),
        "file_mounts": mount_keys(task.mounts),
        "setup": task.setup,
        "run": task.run,
    }
    used = {key: value for key, value in keys.items() if value is not None and value != {}}
    return {**used, **task.other}


def _resources(task: Task) -> dict[str, Any]:
    if len(task.candidates) == 1:
        return _candidate(task.candidates[0])
    key = "ordered" if task.ordered else "any_of"
    return {key: [_candidate(one) for one in task.candidates]}


def _candidate(one: Resources) -> dict[str, Any]:
    accelerators = one.accelerators
    keys = {
        "infra": infra_text(one.infra),
        "accelerators": accelerators and f"{accelerators.kind}:{accelerators.count}",
        "instance_type": one.instance_type,
        "cpus": one.cpus and amount_text(one.cpus),
        "memory": one.memory_gb and amount_text(one.memory_gb),
        "disk_size": one.disk_size_gb,
        "use_spot": one.use_spot,
        "image_id": one.image_id,
        "max_hourly_cost": one.max_hourly_usd,
        "autostop": one.autostop and _autostop(one.autostop),
        "ports": list(one.ports) or None,
        "labels": dict(one.labels) or None,
    }
    return {**{key: value for key, value in keys.items() if value is not None}, **one.other}


def _autostop(autostop: Autostop) -> Any:  # noqa: ANN401 - SkyPilot takes false or a mapping
    if autostop.idle_minutes is None:
        return False
    return {"idle_minutes": autostop.idle_minutes, "down": autostop.down, **autostop.other}


def machine_keys(one: Resources) -> dict[str, Any]:
    """Return what a candidate says of a machine besides its kind, place and price."""
    keys = _candidate(one)
    return {key: keys[key] for key in MACHINE if key in keys}


def mount_keys(mounts: Iterable[Mount]) -> dict[str, Any]:
    """Return mounts as SkyPilot's `file_mounts`."""
    return {mount.target: _mount(mount) for mount in mounts}


def _mount(mount: Mount) -> Any:  # noqa: ANN401 - SkyPilot takes text or a mapping
    if mount.mode == "COPY" and mount.name is None and not mount.other:
        return mount.source
    keys = {"name": mount.name, "source": mount.source, "mode": mount.mode}
    return {**{key: value for key, value in keys.items() if value is not None}, **mount.other}
