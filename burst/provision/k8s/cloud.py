"""A run's pods by their labels, as Kubernetes itself knows them.

A pod that is deleted is forgotten there at once; here it is remembered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from burst.provision.k8s.client import Client, Pod
from burst.provision.rented import NODE_TAG, RUN_TAG, Machine, by_node

CLUSTER_LABEL = "skypilot-cluster-name"  # SkyPilot's, on a pod and on its services


class Kubernetes:
    """See burst.provision.rented.Cloud: the contexts that a run's pods may be in."""

    def __init__(self, clients: Iterable[Client], now: Callable[[], datetime]) -> None:
        self._clients = tuple(clients)
        self._now = now
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, tuple[str, Machine]]] = {}  # by run and uid: node, machine

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        with self._lock:
            now = self._now()
            there = {
                pod.uid: (pod.labels[NODE_TAG], _machine(pod, client.context, now))
                for client in self._clients
                for pod in _pods(client, run_id)
            }
            before = self._seen.get(run_id, {})
            gone = {uid: (node, one.gone(now)) for uid, (node, one) in before.items()}
            self._seen[run_id] = gone | there
        return by_node(self._seen[run_id].values())

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        for client in self._clients:
            for pod in _pods(client, run_id):
                if pod.labels[NODE_TAG] in node_ids:
                    _delete(client, pod)

    def keep(self, run_id: str) -> None:
        """Do nothing: pods have no term that could be put off."""


def _pods(client: Client, run_id: str) -> list[Pod]:
    return client.pods(f"{RUN_TAG}={run_id},{NODE_TAG}")


def _delete(client: Client, pod: Pod) -> None:
    """Delete a pod at once, after the services that SkyPilot made for it."""
    cluster = pod.labels.get(CLUSTER_LABEL)
    for service in client.services(f"{CLUSTER_LABEL}={cluster}") if cluster else ():
        client.delete_service(service)
    client.delete_pod(pod.name)


def _machine(pod: Pod, context: str, now: datetime) -> Machine:
    return Machine(
        name=f"pod {pod.name} in {context} of {pod.labels[RUN_TAG]} {pod.labels[NODE_TAG]}",
        since=pod.since,
        until=(pod.ended or now) if pod.over else None,
        costs=not pod.over,
    )
