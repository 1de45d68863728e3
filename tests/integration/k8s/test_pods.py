"""What a run has in a cluster, by its labels, through the real client of Kubernetes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from burst.errors import SetupError, TransientError
from burst.provision.k8s.client import Client
from burst.provision.k8s.cloud import Kubernetes
from kube_scene import CONTEXT, Scene

pytestmark = pytest.mark.integration
RUN = "toy-abcdef"


class Time:
    """A clock that a test turns."""

    def __init__(self, scene: Scene) -> None:
        self.at = datetime(2026, 12, 2, 10, tzinfo=UTC)
        scene.cluster.now = self.now

    def now(self) -> datetime:
        return self.at

    def turn(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def time(scene: Scene) -> Time:
    return Time(scene)


@pytest.fixture
def cloud(scene: Scene, time: Time) -> Kubernetes:
    return Kubernetes([Client(CONTEXT, "default")], time.now)


def node(scene: Scene, node_id: str, run: str = RUN, cpu: str = "1", **labels: str) -> str:
    """Make a node's pod and its service, as SkyPilot does."""
    name = f"burst-{run}-{node_id}-head"
    theirs = {"skypilot-cluster-name": name.removesuffix("-head")}
    mine = {"burst-run": run, "burst-node": node_id, **theirs, **labels}
    container = {"name": "ray-node", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 120}
    call = scene.cluster.answer
    auth = "Bearer token-of-a-person"
    path = "/api/v1/namespaces/default"
    made = {"apiVersion": "v1", "metadata": {"name": name, "labels": mine}}
    call(auth, "POST", f"{path}/pods", {**made, "kind": "Pod", "spec": spec})
    made["metadata"] = {"name": name, "labels": theirs}
    call(auth, "POST", f"{path}/services", {**made, "kind": "Service"})
    return name


def test_a_pod_is_there_and_then_it_is_not(scene: Scene, cloud: Kubernetes, time: Time) -> None:
    name, began = node(scene, "n001"), time.at
    found = cloud.machines(RUN)["n001"]
    assert (found.since, found.until, found.costs) == (began, None, True)
    assert str(found) == f"pod {name} in {CONTEXT} of {RUN} n001"
    time.turn(60)
    scene.cluster.lose(name)
    gone = cloud.machines(RUN)["n001"]
    assert (gone.since, gone.until, gone.costs) == (began, time.at, False)
    time.turn(60)
    assert cloud.machines(RUN)["n001"] == gone


def test_an_evicted_pod_cost_until_its_containers_ended(
    scene: Scene, cloud: Kubernetes, time: Time
) -> None:
    name = node(scene, "n001")
    time.turn(90)
    scene.cluster.fail(name, "Evicted", "The node was low on resource: memory.")
    ended = time.at
    time.turn(3600)  # nobody looks for an hour
    found = cloud.machines(RUN)["n001"]
    assert (found.until, found.costs) == (ended, False)


def test_a_pod_that_waits_for_room_is_there(scene: Scene, cloud: Kubernetes, time: Time) -> None:
    node(scene, "n001", cpu="500")
    found = cloud.machines(RUN)["n001"]
    assert (found.since, found.costs) == (time.at, True)


def test_some_nodes_are_ended_at_once_and_with_their_services(
    scene: Scene, cloud: Kubernetes
) -> None:
    kept = [node(scene, "n002"), node(scene, "n001", run="other-abcdef")]
    for name in ("n001", "n003"):
        node(scene, name)
    cloud.end(RUN, ["n001", "n003", "n009"])
    for kind in ("pods", "services"):
        assert sorted(one["metadata"]["name"] for one in scene.cluster.all(kind)) == sorted(kept)
    assert [name for name, one in cloud.machines(RUN).items() if one.costs] == ["n002"]
    cloud.keep(RUN)
    cloud.end(RUN, [])


def test_what_a_cluster_will_not_do_may_work_later(scene: Scene, cloud: Kubernetes) -> None:
    node(scene, "n001")
    scene.cluster.forbidden.add("delete pods")
    with pytest.raises(TransientError, match="Kubernetes lab: 403 Forbidden"):
        cloud.end(RUN, ["n001"])
    scene.cluster.forbidden.add("list pods")
    with pytest.raises(TransientError, match="Kubernetes lab: 403 Forbidden"):
        cloud.machines(RUN)


def test_a_context_that_is_not_there_is_named(scene: Scene) -> None:
    with pytest.raises(SetupError, match="typo"):
        Client("typo", "default")


def test_kubectl_sees_the_pods_too(scene: Scene) -> None:
    """The stand-in is as true as the real client of Kubernetes asks for."""
    name = node(scene, "n001")
    command = ("kubectl", "get", "pods", "-l", f"burst-run={RUN}", "-o", "name")
    assert scene.run(*command).stdout == f"pod/{name}\n"
    scene.run("kubectl", "delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
    assert scene.run(*command).stdout == ""
