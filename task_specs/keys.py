"""Every name a task file may use and where, and what a wrong one was meant to be."""

from __future__ import annotations

from collections.abc import Container

from burst.task_specs.problems import nearest

# SkyPilot 0.14.1; the second group is handed on as it is read
TOP = (
    "name", "workdir", "num_nodes", "resources", "envs", "secrets", "file_mounts", "setup", "run",
    "burst", "train",
)  # fmt: skip
TOP_HANDED_ON = (
    "event_callback", "service", "pool", "managed_secrets", "inputs", "outputs",
    "file_mounts_mapping", "config", "volumes", "volume_mounts", "api_server_access",
)  # fmt: skip
RESOURCES = (
    "infra", "cloud", "region", "zone", "accelerators", "instance_type", "cpus", "memory",
    "disk_size", "use_spot", "image_id", "max_hourly_cost", "autostop", "ports", "labels",
)  # fmt: skip
RESOURCES_HANDED_ON = (
    "job_recovery", "volumes", "ephemeral_storage", "disk_tier", "network_tier", "local_disk",
    "accelerator_args", "priority", "priority_class",
)  # fmt: skip
AUTOSTOP = ("idle_minutes", "down", "wait_for", "hook", "hook_timeout")
RECOVERY = ("strategy", "max_restarts_on_errors", "recover_on_exit_codes")
MOUNT = ("name", "source", "store", "persistent", "mode", "type", "config")
BURST = (
    "train", "params", "workers", "strategy", "precision", "global_batch", "micro_batch", "epochs",
    "steps", "seed", "clip_norm", "reduction", "run_uri", "checkpoint", "spot", "spot_policy",
    "max_price", "budget_usd", "deadline", "max_failures", "pools",
)  # fmt: skip
CHECKPOINT = ("every", "keep", "dir")
POOLS = ("prefer", "overflow_after", "return_after")

PLACES: dict[str, tuple[str, ...]] = {
    "": TOP + TOP_HANDED_ON,
    "resources": (*RESOURCES, *RESOURCES_HANDED_ON, "any_of", "ordered"),
    "candidate": RESOURCES + RESOURCES_HANDED_ON,
    "burst": BURST,
    "burst.checkpoint": CHECKPOINT,
    "burst.pools": POOLS,
    "autostop": AUTOSTOP,
    "mount": MOUNT,
}
_TITLES = {"": "top level", "candidate": "a candidate", "mount": "a mount"}
_HOMES = ("", "resources", "burst", "burst.checkpoint", "burst.pools")

# names people bring from elsewhere, by place
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "": {
        "num_workers": "num_nodes", "nodes": "num_nodes", "replicas": "num_nodes",
        "command": "run", "commands": "run", "cmd": "run", "script": "run", "entrypoint": "run",
        "env": "envs", "environment": "envs", "env_vars": "envs", "secret": "secrets",
        "mounts": "file_mounts", "working_dir": "workdir", "init": "setup", "title": "name",
    },
    "resources": {
        "gpu": "accelerators", "gpus": "accelerators", "accelerator_type": "accelerators",
        "cpu": "cpus", "vcpus": "cpus", "mem": "memory", "ram": "memory", "disk": "disk_size",
        "spot": "use_spot", "spot_policy": "use_spot", "preemptible": "use_spot",
        "image": "image_id", "instance": "instance_type", "max_price": "max_hourly_cost",
        "provider": "infra", "backend": "infra", "tags": "labels", "port": "ports",
        "idle_minutes_to_autostop": "autostop", "spot_recovery": "job_recovery",
    },
    "burst": {
        "budget": "budget_usd", "max_cost": "budget_usd", "batch_size": "global_batch",
        "checkpoints": "checkpoint", "num_workers": "workers", "num_epochs": "epochs",
        "max_steps": "steps", "mixed_precision": "precision", "gradient_clipping": "clip_norm",
        "max_grad_norm": "clip_norm", "time_limit": "deadline", "timeout": "deadline",
        "hyperparameters": "params", "storage": "run_uri", "use_spot": "spot",
    },
    "mount": {"src": "source", "bucket": "name", "path": "source"},
    "burst.checkpoint": {
        "interval": "every", "keep_last": "keep", "save_total_limit": "keep", "path": "dir",
    },
}  # fmt: skip


def unknown_key(key: str, place: str, *, present: Container[str]) -> str:
    """Return what to say about a key that is not known in a place."""
    known = PLACES[place]
    here = _OTHER_NAMES.get("resources" if place == "candidate" else place, {})
    meant = here.get(key.casefold())
    elsewhere = _elsewhere(key, place)
    if meant is None and elsewhere is not None:
        return elsewhere
    meant = meant or nearest(key, known)
    if meant is not None:
        again = ", which is given already" if meant in present else ""
        return f"unknown field; did you mean {meant}{again}?"
    return f"unknown field; {_title(place)} takes {', '.join(known)}"


def _elsewhere(key: str, place: str) -> str | None:
    """Return what to say about a key that another place knows."""
    if key == "hooks" and place in {"resources", "candidate"}:
        return "`hooks` belongs under `config` at top level"
    if key in {"any_of", "ordered"} and place == "candidate":
        return f"`{key}` inside a candidate; write all candidates in one list"
    for home in _HOMES:
        if home != place and key in PLACES[home]:
            belongs = f"under `{home}`" if home else "at top level"
            return f"`{key}` at {_title(place)}; it belongs {belongs}"
    for home in _HOMES:
        meant = _OTHER_NAMES.get(home, {}).get(key.casefold())
        if meant is not None and home != place:
            belongs = f"under `{home}`" if home else "at top level"
            return f"unknown field; did you mean {meant} {belongs}?"
    return None


def _title(place: str) -> str:
    return _TITLES.get(place, f"`{place}`")
