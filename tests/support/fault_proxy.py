"""An HTTP proxy on this machine, in front of a stand-in for S3, that fails by rules."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, TypeAlias
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "date", "server", "keep-alive"}


@dataclass(frozen=True, slots=True)
class Request:
    verb: str
    path: str  # with the query
    headers: Mapping[str, str]  # names in lower case


@dataclass(frozen=True, slots=True)
class Answer:
    """Refuse with an S3 error, without asking the store."""

    status: int
    code: str
    date_ahead_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection: before the store is asked, or after."""

    after: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Pass only the first bytes of the body on."""

    size_bytes: int
    chunked: bool = False  # without a length, and with a clean end


@dataclass(frozen=True, slots=True)
class Delay:
    seconds: float


Fault: TypeAlias = Answer | Drop | Cut | Delay


@dataclass(slots=True)
class Rule:
    fault: Fault
    when: Callable[[Request], bool]
    first: int = 1  # counting the requests that match
    times: int | None = None  # None: for ever
    seen: int = 0

    def is_due(self, request: Request) -> bool:
        if not self.when(request):
            return False
        self.seen += 1
        return self.seen >= self.first and (
            self.times is None or self.seen < self.first + self.times
        )


class FaultProxy:
    """Serves until `close`. The first rule that is due decides; delays add up."""

    handler: ClassVar[type[Handler]]

    def __init__(self, upstream: str, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.rules: list[Rule] = []
        self.requests: list[Request] = []
        self.open_now = 0
        self.open_at_most = 0
        self.busy_now = 0
        self.busy_at_most = 0
        self.forgotten_headers: set[str] = set()
        self.lock = threading.Lock()
        handler = type("Served", (self.handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def rule(
        self,
        fault: Fault,
        when: Callable[[Request], bool] = lambda _: True,
        *,
        first: int = 1,
        times: int | None = None,
    ) -> Rule:
        """Add a rule."""
        rule = Rule(fault, when, first, times)
        self.rules.append(rule)
        return rule

    def asked(self, verb: str, part: str = "") -> list[Request]:
        """Return the requests of that verb whose path holds `part`."""
        return [r for r in self.requests if r.verb == verb and part in r.path]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay quiet: clients that go away, or do not trust us, are what is tested."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def setup(self) -> None:
        super().setup()
        with self.proxy.lock:
            self.proxy.open_now += 1
            self.proxy.open_at_most = max(self.proxy.open_at_most, self.proxy.open_now)

    def finish(self) -> None:
        with self.proxy.lock:
            self.proxy.open_now -= 1
        super().finish()

    def _handle(self) -> None:
        body = self._body()
        with self.proxy.lock:
            self.proxy.busy_now += 1
            self.proxy.busy_at_most = max(self.proxy.busy_at_most, self.proxy.busy_now)
        try:
            self._answer(self.request_of(), body)
        finally:
            with self.proxy.lock:
                self.proxy.busy_now -= 1

    def _answer(self, request: Request, body: bytes) -> None:
        for fault in self._due(request):
            match fault:
                case Delay(seconds=seconds):
                    time.sleep(seconds)  # noqa: TID251 - a slow network
                case Answer():
                    self._refuse(fault)
                    return
                case Drop(after=after):
                    if after:
                        self.forward(request, body)
                    self.close_connection = True
                    return
                case Cut():
                    self._cut(self.forward(request, body), fault)
                    return
        status, headers, data = self.forward(request, body)
        self._send(status, headers, data, len(data))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay quiet."""

    def request_of(self) -> Request:
        path, host = self.path, self.headers.get("host", "")
        bucket, dot, _ = host.partition(".localhost")
        if dot:
            path = f"/{bucket}{path}"
        return Request(
            self.command, path, {name.lower(): value for name, value in self.headers.items()}
        )

    def _due(self, request: Request) -> list[Fault]:
        with self.proxy.lock:
            self.proxy.requests.append(request)
            return [rule.fault for rule in self.proxy.rules if rule.is_due(request)]

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return data

    def forward(self, request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=20)
        headers = {k: v for k, v in request.headers.items() if k not in {"host", *HOP_BY_HOP}}
        for name in ("expect", *self.proxy.forgotten_headers):
            headers.pop(name, None)
        try:
            connection.request(request.verb, request.path, body, headers)
            answer = connection.getresponse()
            kept = [h for h in answer.getheaders() if h[0].lower() not in HOP_BY_HOP]
            if request.verb == "HEAD":
                kept.append(("Content-Length", answer.getheader("content-length") or "0"))
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    def _send(
        self, status: int, headers: list[tuple[str, str]], data: bytes, length: int | None
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
            data = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)
        elif self.command != "HEAD":
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(data)

    def _cut(self, answer: tuple[int, list[tuple[str, str]], bytes], cut: Cut) -> None:
        status, headers, data = answer
        self._send(status, headers, data[: cut.size_bytes], None if cut.chunked else len(data))
        self.close_connection = True

    def _refuse(self, answer: Answer) -> None:
        data = (
            f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{answer.code}</Code>'
            f"<Message>on purpose</Message></Error>"
        ).encode()
        if self.command == "HEAD":
            data = b""
        self.send_response_only(answer.status)
        self.send_header("Date", formatdate(time.time() + answer.date_ahead_s, usegmt=True))
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


FaultProxy.handler = Handler
