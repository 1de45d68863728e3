"""Calls to Kubernetes through its own client; the only place that imports it.

Nothing of the client's gets out: pods are `Pod`s, and whatever it raises becomes one of ours. The
client makes a second to load, and loads when the first call is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from burst.errors import SetupError, TransientError, installing

ANSWER_S = 10.0
USUAL_CONFIG = "~/.kube/config"
GONE = 404  # Not Found
OVER = frozenset({"Succeeded", "Failed"})  # "Pod Lifecycle", Pod phase
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"  # NVIDIA GPU feature discovery, if it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod. One whose containers have ended holds nothing; its object may stay."""

    uid: str
    name: str
    labels: Mapping[str, str]
    since: datetime
    over: bool
    ended: datetime | None  # when its last container did, if it had one


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An API server: its version, and what its clock says."""

    version: str
    time: datetime | None


class Client:
    """One namespace of the cluster of a context.

    SetupError without the package or such a context. What a cluster refuses, or does not answer,
    is a TransientError: it says nothing of pods, and may work later.
    """

    def __init__(self, context: str, namespace: str) -> None:
        self.context = context
        self.namespace = namespace
        with _config(f"see: kubectl config get-contexts {context}") as config:
            self._api = config.new_client_from_config(config_path(), context)

    def pods(self, selector: str) -> list[Pod]:
        """Return the pods with some labels."""
        found = self._call("list_namespaced_pod", self.namespace, label_selector=selector)
        return [_pod(one) for one in found.items]

    def services(self, selector: str) -> list[str]:
        """Return the names of the services with some labels."""
        found = self._call("list_namespaced_service", self.namespace, label_selector=selector)
        return [one.metadata.name for one in found.items]

    def delete_pod(self, name: str) -> None:
        """Delete a pod at once; one that is gone already is well."""
        self._call(
            "delete_namespaced_pod", name, self.namespace, grace_period_seconds=0, gone_is_well=True
        )

    def delete_service(self, name: str) -> None:
        """Delete a service; one that is gone already is well."""
        self._call("delete_namespaced_service", name, self.namespace, gone_is_well=True)

    def drivers(self) -> frozenset[str]:
        """Return the versions of NVIDIA's driver that labels of nodes tell."""
        nodes = self._call("list_node", label_selector=DRIVER_LABEL).items
        return frozenset(node.metadata.labels[DRIVER_LABEL] for node in nodes)

    def server(self) -> Server:
        """Ask the API server who it is."""
        version, _, headers = self._call("get_code_with_http_info", api="VersionApi")
        said = headers.get("Date")
        time = parsedate_to_datetime(said).astimezone(UTC) if said else None
        return Server(version=version.git_version, time=time)

    def may(self, verb: str, what: str, *, everywhere: bool = False) -> bool:
        """Return whether this person may, in the namespace or in all ("SelfSubjectAccessReview").

        `what` is a resource, "pods", or a part of one, "pods/exec".
        """
        from kubernetes import client

        resource, _, part = what.partition("/")
        asked = client.V1ResourceAttributes(
            namespace=None if everywhere else self.namespace,
            verb=verb,
            resource=resource,
            subresource=part or None,
        )
        spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
        body = client.V1SelfSubjectAccessReview(spec=spec)
        said = self._call("create_self_subject_access_review", body, api="AuthorizationV1Api")
        return bool(said.status.allowed)

    def _call(
        self,
        name: str,
        *given: Any,  # noqa: ANN401 - the client's
        api: str = "CoreV1Api",
        gone_is_well: bool = False,
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        from kubernetes import client
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        call: Callable[..., Any] = getattr(getattr(client, api)(self._api), name)
        try:
            return call(*given, _request_timeout=ANSWER_S, **named)
        except ApiException as error:
            if gone_is_well and error.status == GONE:
                return None
            told = f"Kubernetes {self.context}: {error.status} {error.reason}"
            raise TransientError(told) from error
        except HTTPError as error:
            raise TransientError(f"Kubernetes {self.context} does not answer: {error}") from error


def _pod(pod: Any) -> Pod:  # noqa: ANN401
    states = [one.state.terminated for one in pod.status.container_statuses or ()]
    times = [state.finished_at for state in states if state is not None and state.finished_at]
    return Pod(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        labels=pod.metadata.labels or {},
        since=(pod.status.start_time or pod.metadata.creation_timestamp).astimezone(UTC),
        over=pod.status.phase in OVER,
        ended=max(times).astimezone(UTC) if times else None,
    )


def config_path() -> str:
    """Return where the kubeconfig is; like kubectl's, it may be several files."""
    return os.environ.get("KUBECONFIG") or USUAL_CONFIG  # the client looks at it only once


def config_files() -> tuple[Path, ...]:
    """Return the files of the kubeconfig that are there."""
    paths = [Path(part).expanduser() for part in config_path().split(os.pathsep) if part]
    return tuple(path for path in paths if path.is_file())


def known_contexts() -> tuple[tuple[str, ...], str]:
    """Return the kubeconfig's contexts and the current one, "" for none. SetupError."""
    with _config("see: kubectl config view") as config:
        said = config.kube_config.KubeConfigMerger(config_path()).config.value
        names = tuple(one["name"] for one in said["contexts"])
    return names, said.get("current-context") or ""


@contextmanager
def _config(hint: str) -> Iterator[Any]:
    try:
        from kubernetes import config
    except ImportError as error:
        raise SetupError(
            f"Kubernetes needs its client, which is not installed ({error.name})",
            hint=installing("kubernetes"),
        ) from error
    try:
        yield config
    except Exception as error:  # its own, and what YAML, TLS and files say
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, AttributeError | LookupError | TypeError):
            said = f"{config_path()} has not the form of one"
        raise SetupError(f"kubeconfig: {said}", hint=hint) from error
