"""An HTTP server of a test's own, for as long as a `with` lasts."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from typing import Self


class Server(ThreadingHTTPServer):
    """Use as a context manager."""

    daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
