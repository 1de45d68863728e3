"""Pods under test: burst's own calls to Kubernetes, over a stand-in of its API server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from burst.cost.placement import Place
from burst.provision.k8s.client import Client
from burst.provision.k8s.cloud import CLUSTER_LABEL, Kubernetes
from burst.provision.refusals import RefusedError
from burst.provision.rented import NODE_TAG, RUN_TAG, Clusters, cluster_name
from kube_api import Cluster, StatusError
from kube_scene import CONTEXT, Scene
from pool_bench import RUN, Calls
from rented_bench import ClustersOf, RentedBench

NAMESPACE = "default"


class Pods:
    """Pods with their services, as SkyPilot makes them, and what Kubernetes tells of them."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        self.cloud = Kubernetes([Client(CONTEXT, NAMESPACE)], lambda: datetime.now(UTC))

    def make(self, place: Place, labels: Mapping[str, str]) -> None:
        del place
        cluster = cluster_name(labels[RUN_TAG], labels[NODE_TAG])
        theirs = {CLUSTER_LABEL: cluster}
        container = {"name": "ray-node", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        pod = {"metadata": {"name": f"{cluster}-head", "labels": {**labels, **theirs}},
               "spec": {"containers": [container]}}  # fmt: skip
        service = {"metadata": {"name": f"{cluster}-head-ssh", "labels": theirs}}
        with suppress(StatusError):  # a launch that is made again finds it there
            self._calls.make(lambda: self._post("services", service))
        with suppress(StatusError):
            self._calls.make(lambda: self._post("pods", pod))
        if self._cluster.pod(f"{cluster}-head")["status"]["phase"] == "Pending":
            (told,) = (one["message"] for one in self._cluster.all("events"))
            self.cloud.end(labels[RUN_TAG], [labels[NODE_TAG]])  # as SkyPilot, in the end
            raise RefusedError("no", told)

    def _post(self, kind: str, body: Mapping[str, Any]) -> None:
        url = f"/api/v1/namespaces/{NAMESPACE}/{kind}"
        self._cluster.answer(f"Bearer {self._cluster.token}", "POST", url, dict(body))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cloud, name)


class PodClusters(ClustersOf):
    """Like SkyPilot, ends a cluster's pods by their label, whether its launch came to an end."""

    def down(self, name: str) -> None:
        run_id, _, node_id = name.removeprefix("burst-").rpartition("-")
        self._cloud.end(run_id, [node_id])
        super().down(name)


class KubernetesBench(RentedBench):
    """RentedProvisioner over pods."""

    place = Place(pool=f"k8s/{CONTEXT}", machine_type="1CPU--1GB", owned=True)

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, scene: Scene) -> None:
        super().__init__(home, patch)
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.delenv(name, raising=False)
        patch.setenv("KUBECONFIG", str(scene.home / ".kube/config"))
        self._cluster = scene.cluster
        self.cloud = Pods(scene.cluster, self.calls)

    def clusters(self) -> Clusters:
        return PodClusters(self.cloud, self._known, self.calls)

    def _pods(self, run_id: str) -> dict[str, str]:
        """Return the names of a run's pods by node."""
        there = (one["metadata"] for one in self._cluster.all("pods"))
        mine = (meta for meta in there if meta["labels"].get(RUN_TAG) == run_id)
        return {meta["labels"][NODE_TAG]: meta["name"] for meta in mine}

    def there(self, run_id: str = RUN) -> set[str]:
        return set(self._pods(run_id))

    def lose(self, node_id: str) -> None:
        self._cluster.lose(self._pods(RUN)[node_id])

    def fill(self) -> None:
        for node in self._cluster.all("nodes"):
            self._cluster.cordon(node["metadata"]["name"])

    @contextmanager
    def silent(self) -> Iterator[None]:
        self._cluster.forbidden.add("list pods")
        yield
        self._cluster.forbidden.clear()
