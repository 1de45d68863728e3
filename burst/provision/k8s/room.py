"""How many pods of a size a cluster's machines have room for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSize:
    """What a pod takes, or a machine has: CPUs, GB (1e9 bytes) of memory, GPUs of a kind."""

    cpus: float
    memory_gb: float
    gpu: str = ""
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNode:
    """A machine of a Kubernetes cluster."""

    usable: bool  # it is ready, and takes pods like ours
    whole: PodSize
    free: PodSize | None  # None: pods of others may not be listed, so that nobody knows


def room(node: PodNode, size: PodSize) -> int:
    """Return how many pods of a size a machine has room for; 0 if it is not known.

    >>> free = PodSize(cpus=8, memory_gb=32, gpu="H100", gpus=3)
    >>> node = PodNode(usable=True, whole=free, free=free)
    >>> room(node, PodSize(cpus=2, memory_gb=4, gpu="h100", gpus=1))
    3
    >>> room(node, PodSize(cpus=2, memory_gb=4, gpu="A100", gpus=1))
    0
    """
    if not node.usable or node.free is None:
        return 0
    times = [node.free.cpus // size.cpus, node.free.memory_gb // size.memory_gb]
    if size.gpus:
        alike = size.gpu.casefold() == node.free.gpu.casefold()
        times.append(node.free.gpus // size.gpus if alike else 0)
    return int(min(times))
