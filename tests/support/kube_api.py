"""A stand-in for a Kubernetes cluster's API server, its scheduler and its kubelets.

What it is true to ("Kubernetes API Concepts", "Scheduling Framework", "Pod Lifecycle"): objects by
REST with label and field selectors, patches, grace periods, `Status` for errors; a pod is bound to
the first node that has what it requests left, else an event says what is insufficient; a quota
refuses with 403. It runs nothing: no `exec`, no `port-forward`, no log.
"""

from __future__ import annotations

import copy
import json
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from serving import Server

TOKEN = "token-of-a-person"  # noqa: S105 - a stand-in's
GPU = "nvidia.com/gpu"
GPU_LABEL = "skypilot.co/accelerator"
_PATH = re.compile(r"/(api/v1|apis/[^/]+/[^/]+)((?:/[^/]+)+)")
_UNITS = {"": "1", "m": "0.001", "k": "1e3", "M": "1e6", "G": "1e9",
          "Ki": "1024", "Mi": "1048576", "Gi": "1073741824"}  # fmt: skip
_QUANTITY = re.compile(r"([0-9.]+)([A-Za-z]*)")
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
GRACE_S = 30  # of a pod that says none
Object = dict[str, Any]


class StatusError(Exception):
    """What Kubernetes answers instead of an object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


@dataclass(slots=True)
class Cluster:
    """What there is: objects by collection (`api/v1/pods`) and by namespace and name."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    objects: dict[str, dict[tuple[str, str], Object]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    # what this person may not: "create pods", or "list pods everywhere" for all namespaces only
    forbidden: set[str] = field(default_factory=set)
    token: str = TOKEN
    quota: int | None = None  # so many pods, in each namespace
    bad_images: dict[str, str] = field(default_factory=dict)  # image: what the kubelet says of it
    lock: threading.RLock = field(default_factory=threading.RLock)
    _ips: int = 1

    def node(self, name: str, gpu: str = "", gpus: int = 0, cpus: int = 8, gib: int = 32) -> None:
        """Add a node that is ready."""
        size = {"cpu": str(cpus), "memory": f"{gib}Gi", "ephemeral-storage": "100Gi"}
        size |= {GPU: str(gpus)} if gpus else {}
        labels = {"kubernetes.io/hostname": name} | ({GPU_LABEL: gpu.lower()} if gpu else {})
        status = {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}],
        }
        self._put("api/v1/nodes", "", {"metadata": {"name": name, "labels": labels},
                                       "spec": {}, "status": status})  # fmt: skip

    def cordon(self, node: str) -> None:
        """Have a node take no further pod."""
        self.objects["api/v1/nodes"]["", node]["spec"]["unschedulable"] = True

    def label(self, node: str, name: str, value: str) -> None:
        """Put a label on a node."""
        self.objects["api/v1/nodes"]["", node]["metadata"]["labels"][name] = value

    def all(self, collection: str) -> list[Object]:
        """Return what there is of a kind, in any namespace."""
        return [copy.deepcopy(one) for one in self.objects.get(f"api/v1/{collection}", {}).values()]

    def pod(self, name: str) -> Object:
        """Return the pod of a name."""
        (found,) = (one for one in self.objects["api/v1/pods"].values()
                    if one["metadata"]["name"] == name)  # fmt: skip
        return found

    def fail(self, name: str, reason: str, message: str = "") -> None:
        """Have a pod end by itself: evicted by its kubelet, say. Its object stays."""
        status = self.pod(name)["status"]
        ended = {"exitCode": 137, "reason": reason, "finishedAt": self._stamp()}
        status.update(phase="Failed", reason=reason, message=message)
        for container in status["containerStatuses"]:
            container["state"] = {"terminated": ended}

    def lose(self, name: str) -> None:
        """Take a pod away with its object, as an eviction through the API ends."""
        pods = self.objects["api/v1/pods"]
        (key,) = (key for key in pods if key[1] == name)
        del pods[key]

    # REST -----------------------------------------------------------------------------------------

    def answer(self, who: str, method: str, url: str, body: Object | None) -> Object:
        """Answer one request of somebody with a header `Authorization`; StatusError."""
        if who != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized", "Unauthorized")
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        ask = {name: values[0] for name, values in query.items()}
        self.calls.append((method, path))
        if (said := _discovery(path)) is not None:
            return said
        if path == REVIEW:
            assert body is not None
            return self._review(body)
        collection, namespace, name, sub = _parts(path)
        kind = collection.rpartition("/")[2]
        verb = {"GET": "get" if name else "list", "POST": "create", "DELETE": "delete"}
        does = f"{verb.get(method, 'patch')} {kind}"
        where = "" if namespace else " everywhere"
        if not self.forbidden.isdisjoint({does, does + where}):
            what = f'{kind} is forbidden: User "me" cannot {verb.get(method, "patch")} resource'
            raise StatusError(403, "Forbidden", f'{what} "{kind}" in API group "" {namespace}')
        if sub not in {"", "status"}:
            raise StatusError(501, "NotImplemented", f"{sub} of a pod is not emulated")
        match method:
            case "GET":
                return self._get(collection, namespace, name) if name else (
                    self._list(collection, namespace, ask))  # fmt: skip
            case "POST":
                assert body is not None
                return self._create(collection, namespace, body)
            case "DELETE":
                return self._delete(collection, namespace, name, {**ask, **(body or {})})
            case _:
                assert body is not None
                return _merge(self._get(collection, namespace, name), body)

    def _review(self, body: Object) -> Object:
        """Say whether somebody may do what `forbidden` does not name."""
        asked = body["spec"]["resourceAttributes"]
        part = f"/{asked['subresource']}" if asked.get("subresource") else ""
        where = "" if asked.get("namespace") else " everywhere"
        what = f"{asked['verb']} {asked['resource']}{part}"
        allowed = self.forbidden.isdisjoint({what, what + where})
        return {**body, "status": {"allowed": allowed}}

    def _get(self, collection: str, namespace: str, name: str) -> Object:
        try:
            return self.objects[collection][namespace, name]
        except KeyError:
            kind = collection.rpartition("/")[2]
            raise StatusError(404, "NotFound", f'{kind} "{name}" not found') from None

    def _list(self, collection: str, namespace: str, ask: Mapping[str, str]) -> Object:
        found = [
            one
            for (where, _), one in self.objects.get(collection, {}).items()
            if namespace in {"", where} and _selected(one, ask)
        ]
        return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                "items": found}  # fmt: skip

    def _create(self, collection: str, namespace: str, body: Object) -> Object:
        kind, name = collection.rpartition("/")[2], body["metadata"]["name"]
        if (namespace, name) in self.objects.get(collection, {}):
            raise StatusError(409, "AlreadyExists", f'{kind} "{name}" already exists')
        if collection != "api/v1/pods":
            return self._put(collection, namespace, body)
        there = sum(where == namespace for where, _ in self.objects.get(collection, {}))
        if self.quota is not None and there >= self.quota:
            said = f"requested: pods=1, used: pods={there}, limited: pods={self.quota}"
            raise StatusError(
                403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: team, {said}'
            )
        pod = self._put(collection, namespace, body)
        self._schedule(pod)
        return pod

    def _put(self, collection: str, namespace: str, body: Object) -> Object:
        meta = {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": self._stamp(),
            "resourceVersion": "1",
        }
        body = {**body, "metadata": {**body["metadata"], **meta}}
        if namespace:
            body["metadata"]["namespace"] = namespace
        self.objects.setdefault(collection, {})[namespace, body["metadata"]["name"]] = body
        return body

    def _delete(self, collection: str, namespace: str, name: str, ask: Mapping[str, Any]) -> Object:
        one = self._get(collection, namespace, name)
        grace = ask.get("gracePeriodSeconds")
        if collection == "api/v1/pods" and grace is None:
            grace = one["spec"].get("terminationGracePeriodSeconds", GRACE_S)
        seconds = int(grace or 0)
        if seconds > 0:  # its object stays until the kubelet has ended it
            one["metadata"]["deletionTimestamp"] = self._stamp()
            one["metadata"]["deletionGracePeriodSeconds"] = seconds
            return one
        del self.objects[collection][namespace, name]
        return one

    # Scheduler and kubelet ------------------------------------------------------------------------

    def _schedule(self, pod: Object) -> None:
        wanted, short = _requests(pod), []
        for node in self.objects.get("api/v1/nodes", {}).values():
            lacks = self._lacks(node, wanted)
            if node["spec"].get("unschedulable"):
                lacks = ["node(s) were unschedulable"]
            if not lacks and _may_be_on(pod, node):
                self._start(pod, node["metadata"]["name"])
                return
            short += lacks or ["node(s) didn't match Pod's node affinity/selector"]
        counts = {what: short.count(what) for what in dict.fromkeys(short)}
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        nodes = len(self.objects.get("api/v1/nodes", {}))
        pod["status"] = {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}  # fmt: skip
        self._event(pod, "FailedScheduling", f"0/{nodes} nodes are available: {told}.")

    def _lacks(self, node: Object, wanted: Mapping[str, Decimal]) -> list[str]:
        there = {what: _number(text) for what, text in node["status"]["allocatable"].items()}
        for pod in self.objects.get("api/v1/pods", {}).values():
            running = pod["status"].get("phase") in {"Pending", "Running"} if "status" in pod else 0
            if running and pod["spec"].get("nodeName") == node["metadata"]["name"]:
                for what, much in _requests(pod).items():
                    there[what] = there.get(what, Decimal(0)) - much
        return [
            f"Insufficient {what}" for what, much in wanted.items() if there.get(what, 0) < much
        ]

    def _start(self, pod: Object, node: str) -> None:
        pod["spec"]["nodeName"] = node
        self._ips += 1
        bad = self.bad_images.get(pod["spec"]["containers"][0]["image"])
        reason, _, message = (bad or "").partition(": ")
        waits = {"waiting": {"reason": reason, "message": message}}
        runs = {"running": {"startedAt": self._stamp()}}
        pod["status"] = {
            "phase": "Pending" if bad else "Running",
            "podIP": f"10.2.0.{self._ips}",
            "startTime": self._stamp(),
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [
                {"name": one["name"], "image": one["image"], "imageID": "", "ready": not bad,
                 "restartCount": 0, "state": waits if bad else runs}
                for one in pod["spec"]["containers"]
            ],
        }  # fmt: skip

    def _event(self, pod: Object, reason: str, message: str) -> None:
        meta = pod["metadata"]
        about = {"kind": "Pod", "name": meta["name"], "namespace": meta["namespace"]}
        self._put("api/v1/events", meta["namespace"], {
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:8]}"},
            "involvedObject": about, "reason": reason, "message": message, "type": "Warning",
            "firstTimestamp": self._stamp(), "lastTimestamp": self._stamp()})  # fmt: skip

    def _stamp(self) -> str:
        return self.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _discovery(path: str) -> Object | None:
    """Answer what kubectl asks before anything else."""
    pods = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod",
            "verbs": ["get", "list", "delete"]}  # fmt: skip
    answers: dict[str, Object] = {
        "/version": {
            "major": "1",
            "minor": "32",
            "gitVersion": "v1.32.0",
            "gitCommit": "70d3cc9",
            "gitTreeState": "clean",
            "buildDate": "2024-12-11T17:59:15Z",
            "goVersion": "go1.23.3",
            "compiler": "gc",
            "platform": "linux/amd64",
        },
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]},
    }
    return answers.get(path.rstrip("/"))


def _parts(path: str) -> tuple[str, str, str, str]:
    """Return a path's collection, namespace, name, and what of it; "" for what it has not."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    group, parts = match[1], match[2].strip("/").split("/")
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    kind, name, sub = [*parts, "", ""][:3]
    return f"{group}/{kind}", namespace, name, sub


def _selected(one: Object, ask: Mapping[str, str]) -> bool:
    labels = one["metadata"].get("labels", {})
    terms = [(labels.get, term) for term in ask.get("labelSelector", "").split(",") if term]
    terms += [(lambda path: _field(one, path), term)
              for term in ask.get("fieldSelector", "").split(",") if term]  # fmt: skip
    return all(_holds(get, term) for get, term in terms)


def _holds(get: Callable[[str], Any], term: str) -> bool:
    name, sign, value = re.fullmatch(r"([^=!]+)(==?|!=)?(.*)", term).groups()  # type: ignore[union-attr]
    if not sign:
        return get(name) is not None
    same: bool = get(name) == value
    return same != (sign == "!=")


def _field(one: Object, path: str) -> Any:
    found: Any = one
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _merge(into: Object, patch: Object) -> Object:
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value
    return into


def _number(text: object) -> Decimal:
    match = _QUANTITY.fullmatch(str(text))
    assert match, text
    return Decimal(match[1]) * Decimal(_UNITS[match[2]])


def _requests(pod: Object) -> dict[str, Decimal]:
    wanted: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        for what, much in container.get("resources", {}).get("requests", {}).items():
            wanted[what] = wanted.get(what, Decimal(0)) + _number(much)
    return wanted


def _may_be_on(pod: Object, node: Object) -> bool:
    """Whether a pod's required node affinity holds; the only operators here are SkyPilot's."""
    rules = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = rules.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    wanted = terms.get("nodeSelectorTerms")
    labels = node["metadata"]["labels"]
    return not wanted or any(
        all(_matches(rule, labels) for rule in term.get("matchExpressions", ())) for term in wanted
    )


def _matches(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    there = labels.get(rule["key"])
    match rule["operator"]:
        case "In":
            return there in rule["values"]
        case "Exists":
            return there is not None
        case "DoesNotExist":
            return there is None
        case other:
            raise StatusError(422, "Invalid", f"operator {other}")


class KubeServer(Server):
    """See serving.Server."""

    def __init__(self, cluster: Cluster, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Door)
        self.cluster = cluster
        self.url = f"https://127.0.0.1:{self.server_address[1]}"
        self._certificate = certificate  # kubectl shows no token without TLS
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def kubeconfig(self, *contexts: str, token: str = TOKEN) -> Object:
        """Return a kubeconfig whose contexts, the first one the current, all lead here."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": contexts[0],
            "clusters": [{"name": "here", "cluster": {
                "server": self.url, "certificate-authority": str(self._certificate)}}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [
                {"name": name, "context": {"cluster": "here", "user": "me"}} for name in contexts
            ],
        }  # fmt: skip


class _Door(BaseHTTPRequestHandler):
    server: KubeServer
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # an answer in one packet

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        code = 200
        try:
            body = json.loads(raw) if raw.strip() else None
            who = self.headers.get("Authorization", "")
            with self.server.cluster.lock:
                said = json.dumps(self.server.cluster.answer(who, self.command, self.path, body))
        except StatusError as error:
            code, said = error.code, json.dumps(error.body)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - its names
