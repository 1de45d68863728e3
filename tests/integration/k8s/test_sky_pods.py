"""What SkyPilot itself does in a cluster: one test for each thing that burst relies on.

Each runs SkyPilot 0.14.1's own code in a process with an empty home, without its API server.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from burst.provision.k8s import pod
from kube_scene import CONTEXT, IMAGES, POOL, Scene

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ASK = """
import json, sys
from pathlib import Path
from burst.cost.placement import Place
from burst.provision import skypilot
from burst.task_specs.parse import parse
skypilot._enabled = lambda named: ["kubernetes", "ssh"]  # which asks the API server
def offers(resources):
    task = parse(f"run: x\\nresources: {{{resources}}}\\n".encode(), source="task")
    return [(o.pool, o.machine_type, o.owned, o.spot) for o in skypilot.offers(task)]
"""
LAUNCH = (
    ASK
    + """
from sky import core, execution
labels = {"burst-run": "toy-abcdef", "burst-node": "n001"}
def launch(place, **wanted):
    task = skypilot.task_of("burst-toy-abcdef-n001", place, wanted, labels)
    try:
        execution.launch(task, cluster_name="burst-toy-abcdef-n001", fast=True)
    except Exception as error:
        from burst.provision import refusals
        said = skypilot._whole(error)
        print("\\nSAID", json.dumps([refusals.reason_of(said), refusals.gist(said)]))
def down():
    from sky.exceptions import ClusterDoesNotExist
    try:
        core.down("burst-toy-abcdef-n001")
    except ClusterDoesNotExist:
        pass
GPUS = Place(pool="k8s/lab", machine_type="4CPU--16GB--H100:2", owned=True)
"""
)


def made(scene: Scene) -> Any:
    (found,) = scene.cluster.all("pods")
    return found


def test_sky_check_accepts_a_context_and_says_what_is_wrong_with_one(scene: Scene) -> None:
    check = """
from sky import check, clouds
said = check.check_capability(clouds.CloudCapability.COMPUTE, clouds=("kubernetes", "ssh"))
print("ENABLED", sorted(said["default"]))
"""
    assert "ENABLED ['Kubernetes', 'SSH']" in scene.ask(check)
    scene.cluster.forbidden |= {"list pods"}
    refused = scene.run("python", "-c", check, check=False)
    assert 'cannot list resource \\"pods\\"' in refused.stdout


def test_offers_are_by_context_and_sky_s_ssh_pools_are_contexts(scene: Scene) -> None:
    code = "print(json.dumps([offers(text) for text in sys.stdin.read().splitlines()]))"
    asked = [
        "infra: k8s, cpus: 2+",
        "infra: k8s/lab, accelerators: 'H100:2'",
        "infra: k8s/ssh-attic, cpus: 2",
        "infra: k8s/lab, accelerators: 'A100:1'",
        "infra: k8s/lab, cpus: 999",
        "cpus: 2",
    ]
    found = scene.ask(
        ASK.replace("sys.stdin.read().splitlines()", "ASKED")
        + f"ASKED = {asked!r}\n"
        + code.replace("sys.stdin.read().splitlines()", "ASKED")
    )
    here, attic = [f"k8s/{CONTEXT}"], [f"k8s/{POOL}"]
    cpus = ["2CPU--2GB", True, False]
    assert json.loads(found.splitlines()[-1]) == [
        [[*here, *cpus]],
        [[*here, "8CPU--32GB--H100:2", True, False]],
        [[*attic, *cpus]],
        [],
        [],
        [[*here, *cpus], [*attic, *cpus]],
    ]


def test_a_context_that_is_not_there_is_the_person_s_mistake(scene: Scene) -> None:
    told = scene.ask(
        ASK
        + """
from burst.errors import UsageError
try:
    offers("infra: k8s/typo")
except UsageError as error:
    print(error.message)
"""
    )
    assert "infra k8s/typo: Context typo not found in kubeconfig" in told
    assert CONTEXT in told


def test_the_pod_of_a_node_is_what_burst_relies_on(scene: Scene) -> None:
    """And of a launch that fails in the middle, nothing is left after `down`."""
    told = scene.ask(
        LAUNCH
        + """
launch(GPUS, disk_size=20)
"""
    )
    it = made(scene)
    labels, spec = it["metadata"]["labels"], it["spec"]
    assert (labels["burst-run"], labels["burst-node"]) == ("toy-abcdef", "n001")
    assert len(it["metadata"]["name"]) <= 63
    assert labels["skypilot-cluster-name"] in it["metadata"]["name"]
    (container,) = spec["containers"]
    wants = container["resources"]
    assert wants["requests"] == {"cpu": 4.0, "memory": "16.0G", "nvidia.com/gpu": 2,
                                 "ephemeral-storage": "20G"}  # fmt: skip
    assert wants["limits"]["nvidia.com/gpu"] == 2
    assert container["image"] == IMAGES["gpu"]
    assert spec["restartPolicy"] == "Never"
    assert spec["serviceAccountName"] == "skypilot-service-account"
    tolerated = {one["key"] for one in spec["tolerations"]}
    assert tolerated == {"nvidia.com/gpu"}
    assert spec["shareProcessNamespace"] is True
    assert spec["terminationGracePeriodSeconds"] == pod.GRACE_S
    assert container["lifecycle"]["preStop"]["exec"]["command"][-1] == pod.TELL
    assert spec["nodeName"] == "big"
    assert "SAID" in told  # nobody can run a command in this pod
    scene.ask(LAUNCH + "down()")
    assert scene.cluster.all("pods") == []
    assert scene.cluster.all("services") == []


VACANT = (
    ASK
    + """
def room(kind):
    place = Place(pool="k8s/lab", machine_type=kind, owned=True)
    return skypilot.vacant(place)
print("ROOM", room("4CPU--16GB--H100:2"), room("4CPU--16GB--h100:1"), room("8CPU--32GB"))
print("OTHER", room("4CPU--16GB--A100:1"), skypilot.vacant(Place(pool="aws", region="lab")))
"""
)


def test_vacant_is_what_pods_of_others_leave(scene: Scene) -> None:
    found = scene.ask(VACANT)
    assert "ROOM 2 4 9" in found  # 8 on the big node, 1 on the small one
    assert "OTHER 0 0" in found
    scene.take("theirs", "big", gpus=1)
    assert "ROOM 1 3 " in scene.ask(VACANT)
    scene.cluster.objects["api/v1/nodes"]["", "big"]["spec"]["unschedulable"] = True
    assert "ROOM 0 0 1" in scene.ask(VACANT)


def test_without_rights_to_see_all_pods_nothing_is_said_of_room(scene: Scene) -> None:
    scene.cluster.forbidden.add("list pods")
    assert "ROOM 0 0 0" in scene.ask(VACANT)
