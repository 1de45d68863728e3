"""Kubernetes pools by name: `k8s/CONTEXT`, a context of the kubeconfig, which may hold slashes.

SkyPilot's SSH node pools are Kubernetes clusters too, under contexts named `ssh-NAME`; SkyPilot
has a cloud of its own for them.
"""

from __future__ import annotations

POOL = "k8s"
SKY_CLOUDS = ("kubernetes", "ssh")
SSH_CONTEXT = "ssh-"


def pool_of(context: str) -> str:
    """Return the pool of a context."""
    return f"{POOL}/{context}"


def context_of(pool: str) -> str:
    """Return the context of a pool; "" for one that is not Kubernetes.

    >>> context_of("k8s/arn:aws:eks:eu-west-1:1:cluster/a"), context_of("aws")
    ('arn:aws:eks:eu-west-1:1:cluster/a', '')
    """
    first, _, context = pool.partition("/")
    return context if first == POOL else ""


def sky_cloud(context: str) -> str:
    """Return SkyPilot's name of the cloud that has a context."""
    return "ssh" if context.startswith(SSH_CONTEXT) else "kubernetes"


def sky_infra(context: str) -> str:
    """Return a context as SkyPilot writes it in `infra`.

    >>> sky_infra("lab"), sky_infra("ssh-attic")
    ('kubernetes/lab', 'ssh/attic')
    """
    return f"{sky_cloud(context)}/{context.removeprefix(SSH_CONTEXT)}"
