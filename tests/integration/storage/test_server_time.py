"""A server's clock, as its answers tell it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from burst.errors import TransientError
from burst.storage.server_time import address_of, ahead_s
from burst.storage.settings import StoreSettings

pytestmark = pytest.mark.integration
NOW = datetime(2026, 12, 1, 10, 0, 0, tzinfo=UTC)


class Answers(BaseHTTPRequestHandler):
    """Say what time it is by the path: /403 refuses, /silent gives no date, /moved is elsewhere."""

    def do_HEAD(self) -> None:
        code = {"/403": 403, "/moved": 307}.get(self.path, 200)
        self.send_response_only(code)
        if self.path != "/silent":
            self.send_header("Date", "Tue, 01 Dec 2026 10:16:40 GMT")
        if code == 307:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "ahead"), [("/", 1000.0), ("/403", 1000.0), ("/moved", 1000.0), ("/silent", None)]
)
def test_every_answer_has_a_date(url: str, path: str, ahead: float | None) -> None:
    assert ahead_s(url + path, lambda: NOW) == ahead


def test_nobody_there() -> None:
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:1 does not answer"):
        ahead_s("http://127.0.0.1:1", lambda: NOW)
    with pytest.raises(TransientError, match="no address"):
        ahead_s("ftp://127.0.0.1", lambda: NOW)


def test_which_server_holds_a_store() -> None:
    assert address_of("s3://bucket/x", StoreSettings()) == "https://s3.us-east-1.amazonaws.com"
    assert (
        address_of("s3://bucket", StoreSettings(endpoint="http://minio:9000"))
        == "http://minio:9000"
    )
    assert address_of("file:///x", StoreSettings(endpoint="http://minio:9000")) is None
