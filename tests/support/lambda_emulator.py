"""Lambda Cloud on this machine: what its OpenAPI 1.10.0 says, its rate limits, and its accidents.

Time is the test's own clock. Machines boot for `boot_s`; what happens to them otherwise is told
by `Vm.state` and `lose`. An answer can be lost on its way back, and calls can be made to fail.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from burst.ports import Clock

KEY = "secret_test_0123456789"
API = "/api/v1"
TAG_KEY = re.compile(r"[a-z][a-z0-9-:]+")
CALL_S, LAUNCH_S = 1.0, 12.0
LAUNCH, TERMINATE = "/instance-operations/launch", "/instance-operations/terminate"
REGIONS = {"us-east-1": "Virginia, USA", "us-west-1": "California, USA"}
TYPES = {  # CPUs, GiB, GPUs, cents an hour
    "cpu_4x_general": (4, 16, 0, 20),
    "gpu_1x_a10": (30, 226, 1, 129),
    "gpu_8x_h100_sxm5": (208, 1800, 8, 3192),
}
ENDED = frozenset({"terminating", "terminated", "preempted"})
_LAUNCHED = {"region_name", "instance_type_name", "ssh_key_names", "name", "tags"}


class StepClock:
    """See burst.ports.Clock: stands still unless slept on; `during` runs after every sleep."""

    def __init__(self) -> None:
        self.time_s = 1000.0
        self.during: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return datetime(2026, 12, 1, tzinfo=UTC) + timedelta(seconds=self.time_s)

    def monotonic(self) -> float:
        return self.time_s

    def elapsed(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time_s += seconds
        self.during()


class Refusal(Exception):  # noqa: N818 - an answer
    """An answer that is an error: status, code, message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class Fault:
    """What the next calls of a path meet."""

    path: str
    status: int = 0  # 0: it is carried out, and the answer is lost
    times: int = 1
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Vm:
    """A machine. `state` None: it boots, is active after a while, and ends when told to."""

    instance_id: str
    body: Mapping[str, Any]
    born_s: float
    born: datetime
    ip: str
    state: str | None = None
    ended_s: float | None = None
    ended: datetime | None = None


class LambdaEmulator:
    """Use as a context manager; `url` is what BURST_LAMBDA_URL says."""

    def __init__(self, clock: Clock, host: str = "127.0.0.1", port: int = 0) -> None:
        self.clock = clock
        self.boot_s = 60.0
        self.end_s = 20.0  # for which a machine that was told to end is still listed
        self.stock: dict[tuple[str, str], int] = {(t, r): 8 for t in TYPES for r in REGIONS}
        self.quota = 100
        self.limits = True  # of rate
        self.vms: dict[str, Vm] = {}
        self.keys: list[dict[str, str]] = []  # of SSH
        self.faults: list[Fault] = []
        self.tells_tags = True
        self.hidden_s = 0.0  # for how long a new machine is missing from lists
        self.calls: Counter[str] = Counter()  # "POST /instance-operations/launch", all
        self.limited: Counter[str] = Counter()  # those that came too soon
        self.address: Callable[[int], str] = lambda number: f"10.19.0.{number}"
        self._called_s = self._launched_s = float("-inf")
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer((host, port), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}{API}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Answer from now on."""
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # What a test says and sees -------------------------------------------------------------------

    def running(self) -> list[str]:
        """Return the ids of the machines that cost money."""
        return [vm.instance_id for vm in self.vms.values() if self.state(vm) not in ENDED]

    def named(self, name: str) -> list[Vm]:
        """Return the machines of a name, ended ones too."""
        return [vm for vm in self.vms.values() if vm.body.get("name") == name]

    def add_key(self, name: str, public_key: str = "ssh-ed25519 AAAA") -> dict[str, str]:
        """Register an SSH key."""
        self.keys.append({"id": uuid.uuid4().hex, "name": name, "public_key": public_key})
        return self.keys[-1]

    def lose(self, instance_id: str) -> None:
        """Let a machine vanish."""
        del self.vms[instance_id]

    def end(self, vm: Vm) -> None:
        """Have a machine end: it is not paid for from now on, and soon is not listed."""
        vm.ended_s, vm.ended = self.clock.monotonic(), self.clock.now()

    def state(self, vm: Vm) -> str:
        now_s = self.clock.monotonic()
        if vm.ended_s is not None:
            return "terminating" if now_s - vm.ended_s < self.end_s else "terminated"
        return vm.state or ("active" if now_s - vm.born_s >= self.boot_s else "booting")

    # The API -------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, key: str, body: dict[str, Any]) -> tuple[Any, Fault]:
        """Return the `data` of an answer, and what happens to it on its way."""
        with self.lock:
            self.calls[f"{method} {path}"] += 1
            self._keep_limits(method, path)
            fault = next((f for f in self.faults if f.path == path and f.times), Fault(path, 200))
            fault.times -= 1
            if key != f"Bearer {KEY}":
                raise Refusal(401, "global/invalid-api-key", "API key was invalid or expired.")
            if fault.status not in {0, 200}:
                return None, fault
            return self._do(method, path, body), fault

    def _keep_limits(self, method: str, path: str) -> None:
        now_s = self.clock.monotonic()
        early = now_s - self._called_s < CALL_S
        early |= path == LAUNCH and now_s - self._launched_s < LAUNCH_S
        if early and self.limits:
            self.limited[f"{method} {path}"] += 1
            raise Refusal(429, "global/rate-limited", "Too many requests.")
        self._called_s = now_s
        if path == LAUNCH:
            self._launched_s = now_s

    def _do(self, method: str, path: str, body: dict[str, Any]) -> Any:
        match method, path:
            case "GET", "/instance-types":
                return {name: self._type(name) for name in TYPES}
            case "GET", "/instances":
                return [self._told(vm) for vm in self.vms.values() if self._listed(vm)]
            case "GET", "/ssh-keys":
                return self.keys
            case "POST", "/ssh-keys":
                return self.add_key(**body)
            case "POST", "/instance-operations/launch":
                return {"instance_ids": [self.launch(body)]}
            case "POST", "/instance-operations/terminate":
                return {"terminated_instances": self._terminate(body["instance_ids"])}
            case _:
                raise Refusal(404, "global/object-does-not-exist", f"no {path}")

    def _type(self, name: str) -> dict[str, Any]:
        cpus, memory, gpus, cents = TYPES[name]
        stocked = [r for r in REGIONS if self.stock[name, r] > self._used(name, r)]
        return {
            "instance_type": {
                "name": name,
                "description": name,
                "gpu_description": name,
                "price_cents_per_hour": cents,
                "specs": {"vcpus": cpus, "memory_gib": memory, "storage_gib": 1000, "gpus": gpus},
            },
            "regions_with_capacity_available": [
                {"name": r, "description": REGIONS[r]} for r in stocked
            ],
        }

    def _used(self, kind: str, region: str) -> int:
        running = [self.vms[name].body for name in self.running()]
        return sum((b["instance_type_name"], b["region_name"]) == (kind, region) for b in running)

    def _listed(self, vm: Vm) -> bool:
        shown = self.clock.monotonic() - vm.born_s >= self.hidden_s
        return shown and self.state(vm) != "terminated"

    def _told(self, vm: Vm) -> dict[str, Any]:
        state, region = self.state(vm), vm.body["region_name"]
        address = {} if state == "booting" else {"ip": vm.ip, "private_ip": vm.ip}
        return {
            "id": vm.instance_id,
            "name": vm.body.get("name"),
            "status": state,
            **address,
            "ssh_key_names": vm.body["ssh_key_names"],
            "file_system_names": [],
            "region": {"name": region, "description": REGIONS[region]},
            "instance_type": self._type(vm.body["instance_type_name"])["instance_type"],
            **({"tags": vm.body.get("tags", [])} if self.tells_tags else {}),
            "jupyter_token": "secret-of-a-notebook",
            "actions": {},
        }

    def launch(self, body: dict[str, Any]) -> str:
        """Make a machine, or refuse; return its id."""
        known = {key["name"] for key in self.keys}
        tags = {str(tag["key"]) for tag in body.get("tags", [])}
        kind, region = body.get("instance_type_name"), body.get("region_name")
        wrong = [
            body.keys() - _LAUNCHED,
            kind not in TYPES or region not in REGIONS,
            len(body.get("ssh_key_names", ())) != 1 or not known & {*body["ssh_key_names"]},
            len(body.get("name", "")) > 64,
            not all(TAG_KEY.fullmatch(tag) for tag in tags),
        ]
        if any(wrong):
            raise Refusal(400, "global/invalid-parameters", f"Invalid request: {wrong}")
        if len(self.running()) >= self.quota:
            raise Refusal(400, "global/quota-exceeded", "Quota exceeded.")
        if self.stock[str(kind), str(region)] <= self._used(str(kind), str(region)):
            code = "instance-operations/launch/insufficient-capacity"
            raise Refusal(400, code, "Not enough capacity to fulfill launch request.")
        made = uuid.uuid4().hex
        self.vms[made] = Vm(
            instance_id=made,
            body=body,
            born_s=self.clock.monotonic(),
            born=self.clock.now(),
            ip=self.address(len(self.vms) + 1),
        )
        return made

    def _terminate(self, names: list[str]) -> list[dict[str, Any]]:
        if not names:
            raise Refusal(400, "global/invalid-parameters", "instance_ids is empty.")
        missing = [n for n in names if n not in self.vms or self.state(self.vms[n]) in ENDED]
        if missing:
            raise Refusal(404, "global/object-does-not-exist", f"no {missing[0]}")
        for name in names:
            self.end(self.vms[name])
        return [self._told(self.vms[name]) for name in names]


def _handler(cloud: LambdaEmulator) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Write no line for each call."""

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            path = self.path.removeprefix(API)
            try:
                data, fault = cloud.answer(
                    method, path, self.headers.get("Authorization", ""), body
                )
            except Refusal as no:
                told = {"code": no.code, "message": str(no), "suggestion": "See the documentation."}
                self._say(no.status, json.dumps({"error": told}).encode(), {})
                return
            if fault.status == 0:
                self.close_connection = True
            elif fault.status == 200:
                self._say(200, json.dumps({"data": data}).encode(), {})
            else:
                self._say(fault.status, fault.body, fault.headers)

        def _say(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
