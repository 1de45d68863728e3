"""A run's pods by their labels, as Kubernetes itself knows them: the only `import kubernetes`.

A pod whose containers have ended holds nothing any more; its object may stay and says when that
was. One that is deleted is forgotten at once; here it is remembered.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from burst.errors import SetupError, TransientError
from burst.provision.rented import NODE_TAG, RUN_TAG, Machine, by_node

ANSWER_S = 10.0
USUAL_CONFIG = "~/.kube/config"
GONE = 404  # Not Found
OVER = frozenset({"Succeeded", "Failed"})  # "Pod Lifecycle", Pod phase
CLUSTER_LABEL = "skypilot-cluster-name"  # SkyPilot's, on a pod and on its services


class Kubernetes:
    """See burst.provision.rented.Cloud. `namespaces` are those of SkyPilot's pods, by context."""

    def __init__(self, namespaces: Mapping[str, str], now: Callable[[], datetime]) -> None:
        self._clusters = {context: (_core(context), name) for context, name in namespaces.items()}
        self._now = now
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, tuple[str, Machine]]] = {}  # by run and uid: node, machine

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        with self._lock:
            now = self._now()
            there = {
                pod.metadata.uid: (pod.metadata.labels[NODE_TAG], _machine(pod, context, now))
                for context in self._clusters
                for pod in self._pods(context, run_id)
            }
            before = self._seen.get(run_id, {})
            gone = {uid: (node, _gone(one, now)) for uid, (node, one) in before.items()}
            self._seen[run_id] = gone | there
        return by_node(self._seen[run_id].values())

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        for context, (api, namespace) in self._clusters.items():
            for pod in self._pods(context, run_id):
                if pod.metadata.labels[NODE_TAG] in node_ids:
                    with _later(context):
                        _delete(api, pod, namespace)

    def keep(self, run_id: str) -> None:
        """Do nothing: pods have no term that could be put off."""

    def _pods(self, context: str, run_id: str) -> list[Any]:
        api, namespace = self._clusters[context]
        with _later(context):
            found = api.list_namespaced_pod(
                namespace,
                label_selector=f"{RUN_TAG}={run_id},{NODE_TAG}",
                _request_timeout=ANSWER_S,
            )
        return list(found.items)


def config_path() -> str:
    """Return where the kubeconfig is; like kubectl's, it may be several files."""
    return os.environ.get("KUBECONFIG") or USUAL_CONFIG  # the client looks at it only once


def config_files() -> tuple[Path, ...]:
    """Return the files of the kubeconfig that are there."""
    paths = [Path(part).expanduser() for part in config_path().split(os.pathsep) if part]
    return tuple(path for path in paths if path.is_file())


def known_contexts() -> tuple[tuple[str, ...], str]:
    """Return the kubeconfig's contexts and the current one, "" for none. SetupError."""
    with _config() as config:
        there, current = config.list_kube_config_contexts(config_path())
    return tuple(one["name"] for one in there), str((current or {}).get("name", ""))


def connect(context: str) -> Any:  # noqa: ANN401 - the client's
    """Return the client for a context; SetupError without the package or such a context."""
    with _config(f"see: kubectl config get-contexts {context}") as config:
        return config.new_client_from_config(config_path(), context)


def _core(context: str) -> Any:  # noqa: ANN401
    api = connect(context)
    from kubernetes import client

    return client.CoreV1Api(api)


@contextmanager
def _config(hint: str = "see: kubectl config view") -> Iterator[Any]:
    try:
        from kubernetes import config
    except ImportError as error:
        raise SetupError(
            f"Kubernetes needs its client, which is not installed ({error.name})",
            hint="pip install 'burst-trainer[kubernetes]'",
        ) from error
    try:
        yield config
    except config.ConfigException as error:
        raise SetupError(f"kubeconfig: {error}", hint=hint) from error


def _delete(api: Any, pod: Any, namespace: str) -> None:  # noqa: ANN401
    """Delete a pod at once, after the services that SkyPilot made for it."""
    cluster = pod.metadata.labels.get(CLUSTER_LABEL)
    wish = {"namespace": namespace, "_request_timeout": ANSWER_S}
    found = api.list_namespaced_service(label_selector=f"{CLUSTER_LABEL}={cluster}", **wish)
    for service in found.items:
        with _gone_is_well():
            api.delete_namespaced_service(service.metadata.name, **wish)
    with _gone_is_well():
        api.delete_namespaced_pod(pod.metadata.name, grace_period_seconds=0, **wish)


def _machine(pod: Any, context: str, now: datetime) -> Machine:  # noqa: ANN401
    meta, over = pod.metadata, pod.status.phase in OVER
    labels = meta.labels
    return Machine(
        name=f"pod {meta.name} in {context} of {labels[RUN_TAG]} {labels[NODE_TAG]}",
        since=(pod.status.start_time or meta.creation_timestamp).astimezone(UTC),
        until=_ended(pod, now) if over else None,
        costs=not over,
    )


def _ended(pod: Any, now: datetime) -> datetime:  # noqa: ANN401
    """Return when the last container ended; now, for a pod that never had one."""
    states = [one.state.terminated for one in pod.status.container_statuses or ()]
    times = [state.finished_at for state in states if state is not None and state.finished_at]
    return max(times).astimezone(UTC) if times else now


def _gone(machine: Machine, now: datetime) -> Machine:
    return replace(machine, until=now, costs=False) if machine.costs else machine


@contextmanager
def _gone_is_well() -> Iterator[None]:
    from kubernetes.client.exceptions import ApiException

    try:
        yield
    except ApiException as error:
        if error.status != GONE:
            raise


@contextmanager
def _later(context: str) -> Iterator[None]:
    """Take a refusal to look or to end for what may work later; it says nothing of pods."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        raise TransientError(f"Kubernetes {context}: {error.status} {error.reason}") from error
    except HTTPError as error:
        raise TransientError(f"Kubernetes {context} does not answer: {error}") from error
