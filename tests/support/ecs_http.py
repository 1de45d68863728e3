"""Alibaba Cloud's front door on the loopback: signatures, dates, nonces, errors, and metadata.

Signature version 3 (ACS3-HMAC-SHA256) as "Request syntax and signature method V3" describes it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from ecs_cloud import EcsCloud, RefusedCallError
from serving import Server

KEY_ID, SECRET, TOKEN = "LTAItest", "secret-of-test", "sts-token-of-test"
SKEW_S = 900
VERSIONS = {True: "2016-04-28", False: "2014-05-26"}  # of VPC, of ECS
OF_VPC = ("CreateVpc", "DescribeVpcs", "DeleteVpc",
          "CreateVSwitch", "DescribeVSwitches", "DeleteVSwitch")  # fmt: skip
METADATA_TOKEN = "given-by-the-metadata-service"  # noqa: S105 - a stand-in's


class EcsServer(Server):
    """See serving.Server."""

    def __init__(
        self, cloud: EcsCloud, address: tuple[str, int] = ("127.0.0.1", 0), *, token: str = ""
    ) -> None:
        super().__init__(address, _Door)
        self.cloud = cloud
        self.token = token  # what a role's calls must carry
        self.lock = threading.RLock()
        self.nonces: set[str] = set()
        self.url = f"http://{address[0]}:{self.server_address[1]}"

    def who(self, address: str) -> str | None:
        """Return the id of the machine that asks for its metadata, told by its address."""
        machines = self.cloud.machines.values()
        return next((one.id for one in machines if one.ip == address), None)


class _Door(BaseHTTPRequestHandler):
    server: EcsServer
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # an answer in one packet

    def log_message(self, *_: object) -> None:
        pass

    def _say(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = str(uuid.uuid4()).upper()
        try:
            with self.server.lock:
                query = parse_qsl(urlsplit(self.path).query, keep_blank_values=True)
                self._check(query, body)
                answer: dict[str, Any] = self.server.cloud.call(self._action(), dict(query))
        except RefusedCallError as no:
            said = {"RequestId": request, "HostId": self.headers["host"], "Code": no.code,
                    "Message": no.said, "Recommend": ""}  # fmt: skip
            headers = {name.replace("_", "-"): value for name, value in no.headers.items()}
            self._say(no.status, json.dumps(said).encode(), headers)
        else:
            self._say(200, json.dumps({"RequestId": request, **answer}).encode())

    def _action(self) -> str:
        action = self.headers.get("x-acs-action", "")
        if self.headers.get("x-acs-version") != VERSIONS[action in OF_VPC]:
            raise RefusedCallError(404, "InvalidVersion")
        return action

    def _check(self, query: list[tuple[str, str]], body: bytes) -> None:
        given = re.fullmatch(
            r"ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})",
            self.headers.get("Authorization", ""),
        )
        if given is None:
            raise RefusedCallError(400, "InvalidAuthorization")
        key, signed, signature = given.groups()
        if key != KEY_ID:
            raise RefusedCallError(404, "InvalidAccessKeyId.NotFound")
        if self.server.token and self.headers.get("x-acs-security-token") != self.server.token:
            raise RefusedCallError(400, "InvalidSecurityToken.Expired")
        digest = hashlib.sha256(body).hexdigest()
        path = urlsplit(self.path).path or "/"
        text = canonical(self.command, path, query, {n: self.headers.get(n, "") for n in
                         signed.split(";")}, digest)  # fmt: skip
        needed = {"host", "x-acs-action", "x-acs-date", "x-acs-signature-nonce", "x-acs-version"}
        right = hmac.compare_digest(sign(text), signature) and needed <= set(signed.split(";"))
        if not right or self.headers.get("x-acs-content-sha256") != digest:
            raise RefusedCallError(400, "SignatureDoesNotMatch")
        self._check_time()

    def _check_time(self) -> None:
        text, nonce = self.headers["x-acs-date"], self.headers["x-acs-signature-nonce"]
        at = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        if abs((datetime.now(UTC) - at).total_seconds()) > SKEW_S:
            raise RefusedCallError(400, "InvalidTimeStamp.Expired")
        if nonce in self.server.nonces:
            raise RefusedCallError(400, "SignatureNonceUsed")
        self.server.nonces.add(nonce)

    # The metadata service of the machines ---------------------------------------------------------

    def do_PUT(self) -> None:
        wants = self.headers.get("X-aliyun-ecs-metadata-token-ttl-seconds")
        right = self.path == "/latest/api/token" and wants
        self._say(200 if right else 400, METADATA_TOKEN.encode() if right else b"")

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.cloud.tick()
            name = self.server.who(self.client_address[0])
            machine = self.server.cloud.machines.get(name or "")
        ends = machine.ends if machine is not None else None
        if self.headers.get("X-aliyun-ecs-metadata-token") != METADATA_TOKEN:
            self._say(403, b"")  # HttpTokens=required
        elif self.path != "/latest/meta-data/instance/spot/termination-time" or ends is None:
            self._say(404, b"")
        else:
            self._say(200, f"{ends:%Y-%m-%dT%H:%M:%SZ}".encode())


def canonical(
    method: str, path: str, query: list[tuple[str, str]], headers: Mapping[str, str], digest: str
) -> str:
    """Return the canonical request that is signed."""
    words = "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in sorted(query))
    lines = "".join(f"{name}:{value.strip()}\n" for name, value in headers.items())
    return "\n".join([method, path, words, lines, ";".join(headers), digest])


def sign(text: str) -> str:
    """Return the signature of a canonical request."""
    whole = f"ACS3-HMAC-SHA256\n{hashlib.sha256(text.encode()).hexdigest()}"
    return hmac.new(SECRET.encode(), whole.encode(), hashlib.sha256).hexdigest()
