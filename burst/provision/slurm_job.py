"""A node's job on a Slurm cluster: what sbatch is asked for, and what runs as its first process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from burst.cost.placement import Place
from burst.provision.rented import folder_of
from burst.provision.slurm_look import Shape
from burst.provision.slurm_site import Cluster

WARN_S = 120  # before its time limit a job's first process gets SIGUSR1
HOLD_S = 3600  # how long a job waits for its agent
# What the pipe brings is one line, the supervisor's command, and one that is its input.
HOLD = """#!/bin/bash
trap '' USR1
umask 077
d={scratch}
mkdir -p "$d" && rm -f "$d/hold" && mkfifo "$d/hold" && exec 3<>"$d/hold" || exit 1
echo $$ >"$d/holder"
read -r -t {limit} -u 3 command || exit 1
rm -f "$d/hold"
eval "exec $command" <&3
"""
RELEASE = 'scancel "$SLURM_JOB_ID" || kill -9 "$PPID"'


def hold(name: str) -> str:
    """Return the script of a node's job: it waits for the node's agent, and becomes that."""
    return HOLD.format(scratch=folder_of(name), limit=HOLD_S)


def options(cluster: Cluster, name: str, place: Place, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield sbatch's options for a node's job."""
    shape = Shape.parse(place.machine_type)
    known: dict[str, object] = {
        "job-name": name,
        "partition": place.zone,
        "comment": " ".join(f"{key}={value}" for key, value in labels.items()),
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": shape.cpus,
        "signal": f"B:USR1@{WARN_S}",
        "chdir": "/",
        "output": "/dev/null",
        "account": cluster.account,
        "qos": cluster.qos,
    }
    if shape.memory_gb:
        known["mem"] = f"{shape.memory_gb}G"
    if shape.gpus:
        kind = "" if shape.gpus.kind == "gpu" else f"{shape.gpus.kind}:"
        known["gres"] = f"gpu:{kind}{shape.gpus.count}"
    if cluster.time_s is not None:
        known["time"] = int(-(-cluster.time_s // 60))  # in minutes, as sbatch rounds seconds
    yield from ("--parsable", "--no-requeue")
    yield from (f"--{option}={value}" for option, value in known.items() if value != "")
