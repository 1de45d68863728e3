"""By what a rented machine ends itself: what its dead-man switch runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from burst.ports import NodeRequest
from burst.provision.k8s import pod
from burst.task_specs.infra import ENDED_BY_KEY

OFF = "sudo -n shutdown -h now"


def end_command(request: NodeRequest) -> str:
    """See burst.provision.rented.Clusters; for machines of clouds, and pods."""
    return ENDS.get(request.choice.place.pool.partition("/")[0], _by_power)(request)


def _by_power(_: NodeRequest) -> str:
    return OFF


def _by_nothing(_: NodeRequest) -> str:
    """Shut down it is billed all the same, and the account's key stays here."""
    return ""


def _by_role(request: NodeRequest) -> str:
    """Terminate it at EC2: one that is shut down may only be stopped, its disk still billed."""
    names = f"{request.run_id} {request.node_id} {request.choice.place.region}"
    return f'"$BURST_PYTHON" -m burst.provision.ec2 {names} || {OFF}'


def _by_signal(_: NodeRequest) -> str:
    return pod.END


ENDS: Mapping[str, Callable[[NodeRequest], str]] = {  # by the first part of a pool's name
    **dict.fromkeys(ENDED_BY_KEY, _by_nothing),
    "aws": _by_role,
    "k8s": _by_signal,
}
