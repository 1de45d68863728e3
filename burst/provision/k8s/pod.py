"""What burst adds to the pod that SkyPilot makes, so that it can end itself and hears of its end.

SkyPilot's container runs a shell that ignores SIGTERM, as process 1, which no signal from within
its own container ends ("pid_namespaces(7)"). In a process namespace that the pod's containers
share (Kubernetes, "Share Process Namespace between Containers in a Pod"), process 1 is the pod's
own, and the shell is one that SIGKILL ends. SkyPilot's pods are never started again
(`restartPolicy: Never`), so the pod is over and holds nothing.

An agent in a pod may have no rights at Kubernetes, so the kubelet tells it of the pod's end: it
runs the `preStop` hook ("Container Lifecycle Hooks") when the pod is drained, preempted or
deleted, and gives it the pod's period of grace.
"""

from __future__ import annotations

from typing import Any

from burst.records import POD_NOTICE

GRACE_S = 120  # what EC2 gives; no pod needs it once its run has saved

TELL = f"echo $(($(date +%s) + {GRACE_S})) >{POD_NOTICE}"
CONFIG: dict[str, Any] = {  # SkyPilot's `pod_config`
    "spec": {
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [{"lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", TELL]}}}}],
    }
}

# every process whose parent is outside, but the pod's own: the containers' first ones
END = (
    "first=$(grep -lsE '^PPid:[[:space:]]+0$' /proc/[0-9]*/status | cut -d/ -f3 | grep -vx 1); "
    "kill -9 $first || sudo -n kill -9 $first"
)
