"""What SkyPilot itself does in a cluster: one test for each thing that burst relies on.

Each runs SkyPilot 0.14.1's own code in a process, without its API server.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from burst.provision import refusals
from burst.provision.k8s import pod
from burst.provision.k8s.client import DRIVER_LABEL
from burst.provision.own import NO_PRICE
from kube_scene import CONTEXT, IMAGES, POOL, Scene

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ASK = """
import json, sys
from pathlib import Path
from burst.cost.placement import Place
from burst.provision import skypilot
from burst.provision.rented import MachineRequest
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
def task_of(place, wanted, wait_s=None):
    return skypilot.task_of(MachineRequest(name="burst-toy-abcdef-n001", place=place,
        wanted=wanted, labels=labels, log=Path("unused"), wait_s=wait_s))
def launch(place, **wanted):
    task = task_of(place, wanted)
    try:
        execution.launch(task, cluster_name="burst-toy-abcdef-n001", fast=True)
    except Exception as error:
        print("REFUSED", skypilot._whole(error))
def down():
    from sky.exceptions import ClusterDoesNotExist
    try:
        core.down("burst-toy-abcdef-n001")
    except ClusterDoesNotExist:
        pass
GPUS = Place(pool="k8s/lab", machine_type="4CPU--16GB--H100:2", owned=True)
"""
)


def said(text: str) -> tuple[str, str]:
    """Return how burst reads what its launch gets: what SkyPilot prints, and the error."""
    assert "REFUSED" in text
    return refusals.reason_of(text), refusals.gist(text)


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
    assert 'cannot list resource \\"pods\\"' in scene.ask(check)


def test_offers_are_by_context_and_sky_s_ssh_pools_are_contexts(scene: Scene) -> None:
    asked = [
        "infra: k8s, cpus: 2+",
        "infra: k8s/lab, accelerators: 'H100:2'",
        "infra: k8s/ssh-attic, cpus: 2",
        "infra: k8s/lab, accelerators: 'A100:1'",
        "infra: k8s/lab, cpus: 999",
        "cpus: 2",
    ]
    found = scene.ask(ASK + f"print(json.dumps([offers(text) for text in {asked!r}]))")
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


def test_where_a_cloud_lacks_what_the_task_wants_it_is_left_out_and_told(scene: Scene) -> None:
    found = scene.ask(
        ASK
        + f"""
skypilot.log.warning = lambda words, *of: print(words % of)
print(json.dumps([offers("infra: k8s/{CONTEXT}, disk_tier: high"),
                  offers("infra: k8s/{CONTEXT}, labels: {{Team A: nlp, b: c/d}}"),
                  offers("infra: k8s/{CONTEXT}, disk_size: 100, ports: 8080")]))
"""
    )
    assert "left out: kubernetes has not what the task wants" in found
    assert "Invalid label key Team A for Kubernetes" in found
    assert "Invalid label value c/d for Kubernetes" in found
    lacking, mislabelled, having = json.loads(found.splitlines()[-1])
    assert (lacking, mislabelled, bool(having)) == ([], [], True)


def test_labels_of_the_task_are_those_of_its_pods_too(scene: Scene) -> None:
    found = scene.ask(
        LAUNCH
        + """
for mine in ({}, {"labels": {"team": "nlp", "burst-run": "mine"}}):
    (one,) = task_of(GPUS, mine).resources
    print("LABELS", json.dumps(one.labels, sort_keys=True))
"""
    )
    burst = '"burst-node": "n001", "burst-run": "toy-abcdef"'
    told = [line for line in found.splitlines() if line.startswith("LABELS")]
    assert told == [f"LABELS {{{burst}}}", f'LABELS {{{burst}, "team": "nlp"}}']


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
    assert "REFUSED" in told  # nobody can run a command in this pod
    scene.ask(LAUNCH + "down()")
    assert scene.cluster.all("pods") == []
    assert scene.cluster.all("services") == []


def test_what_a_cluster_lacks_is_told_and_leaves_no_pod(scene: Scene) -> None:
    """What others have, SkyPilot does not count before; the scheduler does."""
    scene.take("theirs", "big", gpus=3)
    reason, gist = said(scene.ask(LAUNCH + "launch(GPUS); down()"))
    assert reason == "capacity"
    assert "Insufficient nvidia.com/gpu" in gist
    assert [one["metadata"]["name"] for one in scene.cluster.all("pods")] == ["theirs"]


@pytest.mark.parametrize(
    ("spoil", "reason", "words"),
    [
        ("quota", "quota", "exceeded quota: team"),
        ("rights", "rights", "cannot create resource"),
        ("image", "rights", "pull access denied"),
    ],
)
def test_refusals_are_told_and_leave_no_pod(
    scene: Scene, spoil: str, reason: str, words: str
) -> None:
    if spoil == "quota":
        scene.cluster.quota = 0
    elif spoil == "rights":
        scene.cluster.forbidden.add("create pods")
    else:
        why = "ErrImagePull: failed to pull image: pull access denied, repository does not exist"
        scene.cluster.bad_images[IMAGES["gpu"]] = why
    found, gist = said(scene.ask(LAUNCH + "launch(GPUS); down()"))
    assert (found, words in gist) == (reason, True), gist
    assert scene.cluster.all("pods") == []


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
    scene.cluster.cordon("big")
    assert "ROOM 0 0 1" in scene.ask(VACANT)


def test_without_rights_to_see_all_pods_nothing_is_said_of_room(scene: Scene) -> None:
    scene.cluster.forbidden.add("list pods")
    assert "ROOM 0 0 0" in scene.ask(VACANT)


def test_a_pod_waits_for_room_as_long_as_its_launch_may(scene: Scene) -> None:
    """Else as long as the person's settings say: here a second."""
    found = scene.ask(
        LAUNCH
        + """
from sky import skypilot_config
for wait_s in (None, 3.2):
    (wanted,) = task_of(GPUS, {}, wait_s).resources
    print("WAITS", skypilot_config.get_effective_region_config(
        cloud="kubernetes", region="lab", keys=("provision_timeout",),
        override_configs=wanted.cluster_config_overrides))
"""
    )
    assert [line for line in found.splitlines() if line.startswith("WAITS")] == [
        "WAITS 1",
        "WAITS 4",
    ]


LOOKED = """
import json
from burst import pool_wiring
from burst.cli.output import plain
print(json.dumps([plain(pool_wiring.pool_rows("k8s")), plain(pool_wiring.findings(None, "k8s"))]))
"""


def looked(scene: Scene) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return rows by machine, and findings by what was looked at, of what burst tells."""
    rows, findings = json.loads(scene.ask(LOOKED).splitlines()[-1])
    return {row["machine"]: row for row in rows}, {one["what"]: one for one in findings}


def test_pools_and_doctor_look_at_the_current_context(scene: Scene) -> None:
    scene.take("theirs", "big", gpus=1)
    scene.cluster.label("big", DRIVER_LABEL, "580.95.05")
    rows, findings = looked(scene)
    assert {row["pool"] for row in rows.values()} == {f"k8s/{CONTEXT}"}
    big, small = rows["4xH100"], rows["8-cpu"]
    assert (big["gpus_free"], big["gpus"], big["healthy"]) == (3, 4, True)
    assert (small["detail"], small["price"]["source"]) == ("8 of 8 CPUs free", NO_PRICE)
    assert {what: one["works"] for what, one in findings.items()} == {
        "answers": True, "clock": True, "rights": True, "capacity": True, "driver": True
    }  # fmt: skip
    assert "driver 580.95.05; torch" in findings["driver"]["detail"]


def test_missing_rights_are_named_one_by_one(scene: Scene) -> None:
    scene.cluster.forbidden |= {"create pods", "create pods/exec", "list pods everywhere"}
    rows, findings = looked(scene)
    assert list(rows) == [""]
    assert findings["rights"]["detail"].endswith(": create pods, create pods/exec")
    assert (findings["rights"]["works"], findings["capacity"]["works"]) == (False, None)


def test_a_cluster_that_knows_nobody_says_so(scene: Scene) -> None:
    scene.cluster.token = "another"  # noqa: S105 - a stand-in's
    rows, findings = looked(scene)
    assert (rows[""]["healthy"], list(findings)) == (False, ["answers"])
    assert findings["answers"]["detail"] == f"Kubernetes {CONTEXT}: 401 Unauthorized"


def test_a_run_s_pods_are_looked_for_in_each_of_its_contexts_and_end_themselves(
    scene: Scene,
) -> None:
    told = scene.ask(
        ASK
        + """
from types import SimpleNamespace
from burst import wiring
from burst.provision.k8s import pod
places = [Place(pool=f"k8s/{name}", owned=True) for name in ("lab", "other")]
choices = [SimpleNamespace(place=place) for place in places]
print("THERE", dict(wiring.cloud_of(SimpleNamespace(record=SimpleNamespace(choices=choices)))
                    .machines("toy-abcdef")))
request = SimpleNamespace(choice=choices[0])
print("ENDS", wiring.clusters_of("cloud").end_command(request) == pod.END)
"""
    )
    assert "THERE {}" in told
    assert "ENDS True" in told
    asked = [path for method, path in scene.cluster.calls if method == "GET"]
    assert asked == ["/api/v1/namespaces/default/pods"] * 2
