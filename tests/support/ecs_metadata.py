"""The metadata service of a machine of Alibaba Cloud, in its strict mode, on this machine."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class EcsMetadata:
    """Serves until `close`. `facts` has what is known, by path; text, or what makes it."""

    def __init__(self) -> None:
        self.facts: dict[str, str | Callable[[], str]] = {}
        self.tokens: set[str] = set()
        self.asked: list[str] = []
        handler = type("Served", (_Handler,), {"service": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def give_role(self, name: str, keys: Callable[[], dict[str, str]]) -> None:
        """Attach a role; `keys` makes its keys anew each time they are asked for."""
        root = "/latest/meta-data/ram/security-credentials/"
        self.facts[root] = name
        self.facts[root + name] = lambda: json.dumps({"Code": "Success", **keys()})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    service: EcsMetadata

    def do_PUT(self) -> None:
        ttl = self.headers.get("X-aliyun-ecs-metadata-token-ttl-seconds", "")
        if self.path != "/latest/api/token" or not ttl.isdecimal():
            self._send(400, "")
            return
        token = secrets.token_hex(8)
        self.service.tokens.add(token)
        self._send(200, token)

    def do_GET(self) -> None:
        self.service.asked.append(self.path)
        if self.headers.get("X-aliyun-ecs-metadata-token") not in self.service.tokens:
            self._send(403, "")
            return
        fact = self.service.facts.get(self.path)
        if fact is None:
            self._send(404, "")
        else:
            self._send(200, fact if isinstance(fact, str) else fact())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay quiet."""

    def _send(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
