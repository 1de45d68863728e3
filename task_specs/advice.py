"""Warnings about a whole task: good, but likely to cost time or money."""

from __future__ import annotations

from burst.task_specs.model import Task
from burst.task_specs.problems import Report

_HERE = (None, "local", "slurm", "ssh")


def advise(task: Task, report: Report) -> None:
    """Add what the person should know before machines are paid for."""
    spot = task.burst.spot != "on-demand"
    for mount in task.mounts:
        if spot and mount.mode == "MOUNT_CACHED":
            report.warn(
                f"file_mounts: {mount.target} is MOUNT_CACHED: on spot machines the newest files "
                "may not have reached the bucket when one is taken; checkpoints under "
                "burst.checkpoint.dir are committed whole"
            )
    clouds = {one.infra.cloud for one in task.candidates} - set(_HERE)
    if clouds and (task.burst.run_uri or "").startswith("file:"):
        report.warn(
            "burst.run_uri is a folder of this machine, which machines on "
            f"{', '.join(sorted(map(str, clouds)))} cannot reach"
        )
    for key in ("service", "pool"):
        if key in task.other:
            report.warn(f"{key}: burst runs the task once and serves nothing")
