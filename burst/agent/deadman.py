"""The dead-man switch: a node whose controller is gone ends itself.

Two signs. On the controller's own machine, a pipe whose other end only the controller holds: the
kernel closes it whatever the controller dies of. Anywhere, the run's lease: a controller that
lives renews it. Standing still is measured by this machine's monotonic clock, which sleeps with
the machine; no two clocks are compared.
"""

from __future__ import annotations

import os
import select

from burst.errors import StorageError
from burst.records import LEASE
from burst.storage.port import Readable


class DeadMan:
    """Says when the controller has to be taken for gone."""

    def __init__(self, store: Readable, *, ttl_s: float, watch_fd: int | None) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._fd = watch_fd
        self._version: str | None = None
        self._since: float | None = None

    def gone(self, now_s: float) -> str | None:
        """Return why the controller is taken for gone, or None. `now_s` is monotonic."""
        if self._fd is not None and _closed(self._fd):
            return "its controller's process is gone"
        return self._stale(now_s)

    def _stale(self, now_s: float) -> str | None:
        version = self._look()
        if self._since is None or (version is not None and version != self._version):
            self._version, self._since = version, now_s
        silent_s = now_s - self._since
        if silent_s >= self._ttl_s:
            return f"the run's lease has not been renewed for {silent_s:.0f} s"
        return None

    def _look(self) -> str | None:
        """Return the lease's version; None when the store does not say, which proves nothing."""
        try:
            return self._store.stat(LEASE).version
        except (FileNotFoundError, StorageError):
            return None


def _closed(fd: int) -> bool:
    ready, _, _ = select.select([fd], [], [], 0)
    return bool(ready) and os.read(fd, 1) == b""
