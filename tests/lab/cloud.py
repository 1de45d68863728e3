"""`python -m tests.lab.cloud SOCKET`: AWS for the lab. moto's EC2, S3, IAM and STS on port 5555.

A running instance has a machine of tests.lab.hosts; ended, its machine dies. A Unix socket takes
one JSON object a line: {"do": "capacity", "table": {"us-east-1a": {"m6i.large": 0}}} (zone, region
or *, then type or *, then how many may run), {"do": "notice", "id": ..., "seconds": 60}, {"do":
"reclaim", "id": ...}, {"do": "stock", "table": ...} of Alibaba Cloud (tests.lab.alibaba) and {"do":
"lambda_stock", "table": ...} of Lambda Cloud (tests.lab.lambda_cloud), both in the same lab, {"do":
"state"}, and of machines that are not a cloud's {"do": "host", "name": ...,
"address": ..., "key": ...}, {"do": "cut", "name": ...}.

Every API call is counted by name, so that a test can hold a policy against them, and by whose
keys. Machines have a metadata service: their role's keys, which are good for an hour, and notices
of interruption.
"""

from __future__ import annotations

import base64
import collections
import io
import json
import logging
import os
import re
import socketserver
import sys
import threading
import time
import traceback
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

os.environ.setdefault("MOTO_AMIS_PATH", str(Path(__file__).with_name("amis.json")))

from moto.ec2.models import ec2_backends
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

from moto_s3 import one_write_at_a_time
from tests.lab import hosts
from tests.lab.alibaba import Alibaba, key_of
from tests.lab.lambda_cloud import NETWORK as LAMBDA
from tests.lab.lambda_cloud import Lambda
from tests.lab.market import ROLE

ACCOUNT = "123456789012"
PORT = 5555
LOOK_S = 0.2
FULL = """<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error>
<Code>InsufficientInstanceCapacity</Code><Message>There is no capacity for {kind} in {zone}
at the moment.</Message></Error></Errors><RequestID>{request}</RequestID></Response>"""


class Cloud:
    """What the tests may do to the cloud, and the thread that keeps machines as instances are."""

    def __init__(self) -> None:
        self.table: dict[str, dict[str, int]] = {}
        self.calls: collections.Counter[str] = collections.Counter()
        self.machines: set[str] = set()
        self.keys: dict[str, set[str]] = collections.defaultdict(set)  # by address
        self.notices: dict[str, str] = {}
        self.times: dict[str, dict[str, str]] = {}  # when we first saw an instance run, and end
        self.alibaba = Alibaba()
        self.lambda_cloud = Lambda()

    def instances(self) -> Iterator[tuple[str, Any]]:
        for region, backend in list(ec2_backends[ACCOUNT].items()):
            for instance in list(backend.all_instances()):
                yield region, instance

    def running(self) -> list[Any]:
        return [i for _, i in self.instances() if i.state == "running"]

    def follow(self) -> None:
        """Keep machines as instances are, for ever."""
        while True:
            try:
                self.follow_once()
            except Exception:  # noqa: BLE001 - the lab must go on; the test sees what is missing
                traceback.print_exc()
            time.sleep(LOOK_S)  # noqa: TID251

    def follow_once(self) -> None:
        running = {i.id: (i.private_ip, _key(i)) for i in self.running()}
        for name, machine in self.alibaba.running().items():
            running[name] = (machine.ip, key_of(machine, _keys))
        running |= self.lambda_cloud.running()
        now = datetime.now(UTC).isoformat()
        for name, (address, key) in running.items():
            if name not in self.machines:
                self.machines.add(name)
                self.times[name] = {"since": now}
                hosts.start(name, address, key)
        for name in self.machines - running.keys():
            self.machines.remove(name)
            self.times[name]["until"] = now
            hosts.end(name)

    def full(self, region: str, zone: str, kind: str, count: int) -> bool:
        """Whether so many more of a type are too many."""
        limits = [
            self.table[scope][name]
            for scope in (zone, region, "*")
            for name in (kind, "*")
            if name in self.table.get(scope, {})
        ]
        if not limits:
            return False
        there = sum(
            i.state == "running" and i.instance_type == kind and _zone(i) == zone
            for _, i in self.instances()
        )
        return bool(there + count > limits[0])

    def do(self, wish: dict[str, Any]) -> Any:
        if wish["do"] == "capacity":
            self.table = wish["table"]
        elif wish["do"] == "stock":
            self.alibaba.sold_out(wish["table"])
        elif wish["do"] == "lambda_stock":
            self.lambda_cloud.sold_out(wish["table"])
        elif wish["do"] == "notice" and not self.alibaba.take(wish["id"], wish["seconds"]):
            ends = datetime.now(UTC) + timedelta(seconds=wish["seconds"])
            self.notices[wish["id"]] = f"{ends:%Y-%m-%dT%H:%M:%SZ}"
        elif wish["do"] == "host":
            hosts.start(wish["name"], wish["address"], wish["key"])
        elif wish["do"] == "cut":
            hosts.end(wish["name"])
        elif wish["do"] == "reclaim":
            self.lambda_cloud.take(wish["id"])
            for region, instance in self.instances():
                if instance.id == wish["id"]:
                    ec2_backends[ACCOUNT][region].terminate_instances([instance.id])
        return {
            "calls": dict(self.calls),
            "keys": {address: sorted(keys) for address, keys in self.keys.items()},
            "machines": sorted(self.machines),
            "times": self.times | self.lambda_cloud.times(),
            "lambda": self.lambda_cloud.account(),
            "instances": [_told(region, instance) for region, instance in self.instances()]
            + self.alibaba.told()
            + self.lambda_cloud.told(),
        }


def _zone(instance: Any) -> str:
    return str(instance._placement.zone)


def _told(region: str, instance: Any) -> dict[str, Any]:
    return {
        "id": instance.id,
        "region": region,
        "zone": _zone(instance),
        "type": instance.instance_type,
        "state": instance.state,
        "ip": instance.private_ip,
        "spot": instance.lifecycle == "spot",
        "tags": {tag["key"]: tag["value"] for tag in instance.get_tags()},
    }


def _key(instance: Any) -> str:
    """Return the SSH keys that an instance's cloud-init data brings."""
    raw = instance.user_data or b""
    text = raw.decode() if isinstance(raw, bytes) else str(raw)
    if not text.lstrip().startswith("#"):
        text = base64.b64decode(text).decode()
    return _keys(text)


def _keys(text: str) -> str:
    """Return the SSH keys in cloud-init data."""
    people = (yaml.safe_load(text) or {}).get("users", [])
    keys = [
        k for person in people if isinstance(person, dict) for k in person["ssh_authorized_keys"]
    ]
    return "".join(f"{key.strip()}\n" for key in keys)


class Front:
    """WSGI in front of moto: counts calls, and says no where there is no capacity."""

    def __init__(self, moto: Any, cloud: Cloud) -> None:
        self._moto = moto
        self._cloud = cloud

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        action, query = self._action(environ)
        self._cloud.calls[action] += 1
        if action == "ec2:RunInstances":
            refused = self._refusal(environ, query)
            if refused is not None:
                size = str(len(refused))
                start("400 Bad Request", [("Content-Type", "text/xml"), ("Content-Length", size)])
                return [refused]
        found: Iterable[bytes] = self._moto(environ, start)
        return found

    def _action(self, environ: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """Return a call's name, `service:Action`, and its parameters."""
        signed = re.search(
            r"Credential=([^/]+)/\d+/[^/]+/([^/]+)/", environ.get("HTTP_AUTHORIZATION", "")
        )
        service = signed[2] if signed else "unsigned"
        if signed:
            self._cloud.keys[environ["REMOTE_ADDR"]].add(signed[1])
        if "x-www-form-urlencoded" not in environ.get("CONTENT_TYPE", ""):
            return f"{service}:{environ['REQUEST_METHOD']}", {}
        raw = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(raw)
        query = dict(urllib.parse.parse_qsl(raw.decode()))
        return f"{service}:{query.get('Action', '')}", query

    def _refusal(self, environ: dict[str, Any], query: dict[str, str]) -> bytes | None:
        signed = re.search(r"/\d{8}/([^/]+)/ec2/", environ["HTTP_AUTHORIZATION"])
        assert signed is not None
        region = signed[1]
        subnet = query.get("NetworkInterface.1.SubnetId") or query.get("SubnetId") or ""
        zone = str(ec2_backends[ACCOUNT][region].get_subnet(subnet).availability_zone)
        kind, count = query["InstanceType"], int(query.get("MaxCount", 1))
        if not self._cloud.full(region, zone, kind, count):
            return None
        return FULL.format(kind=kind, zone=zone, request=uuid.uuid4()).encode()


class Metadata(BaseHTTPRequestHandler):
    """EC2's metadata service, version 2: who asks is told by its address."""

    cloud: Cloud

    def log_message(self, *_: object) -> None:
        """Write no line for each question."""

    def do_PUT(self) -> None:
        self._say(200 if self.path == "/latest/api/token" else 404, "lab")

    def do_GET(self) -> None:
        here = self.client_address[0]
        asks = next((i.id for i in self.cloud.running() if i.private_ip == here), "")
        roles = "/latest/meta-data/iam/security-credentials/"
        if here.startswith(LAMBDA):  # which has no such service
            self._say(404, "")
        elif self.headers.get("X-aws-ec2-metadata-token") != "lab":
            self._say(401, "")
        elif self.path == roles:
            self._say(200, ROLE)
        elif self.path == roles + ROLE:
            self._say(200, json.dumps(_role_keys()))
        elif self.path == "/latest/meta-data/spot/instance-action" and asks in (
            ends := self.cloud.notices
        ):
            self._say(200, json.dumps({"action": "terminate", "time": ends[asks]}))
        else:
            self._say(404, "")

    def _say(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def _role_keys() -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "LastUpdated": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "AccessKeyId": f"ASIA{uuid.uuid4().hex[:16].upper()}",
        "SecretAccessKey": "lab",
        "Token": "lab",
        "Expiration": f"{now + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
    }


class Control(socketserver.StreamRequestHandler):
    """One wish a line, one answer a line."""

    cloud: Cloud

    def handle(self) -> None:
        for line in self.rfile:
            answer = json.dumps(self.cloud.do(json.loads(line)), default=str)
            self.wfile.write(answer.encode() + b"\n")


def main() -> None:
    cloud = Cloud()
    Control.cloud = Metadata.cloud = cloud
    metadata = ThreadingHTTPServer((hosts.METADATA, 80), Metadata)
    metadata.daemon_threads = True
    server = socketserver.ThreadingUnixStreamServer(sys.argv[1], Control)
    server.daemon_threads = True
    for work in (server.serve_forever, metadata.serve_forever, cloud.follow):
        threading.Thread(target=work, daemon=True).start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    one_write_at_a_time()
    moto = DomainDispatcherApplication(create_backend_app)
    run_simple(
        "0.0.0.0",  # noqa: S104 - of a namespace without a way out
        PORT,
        Front(moto, cloud),
        threaded=True,
        request_handler=MotoRequestHandler,
    )


if __name__ == "__main__":
    main()
