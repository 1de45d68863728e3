"""Sending what happens in training to the run's store, in pieces, from a thread of rank 0."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from burst.errors import StorageError
from burst.records import ORDER, Order, chunk_key, read_order
from burst.storage.port import ObjectStore

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.4
LONGEST_WAIT_S = 10.0


class FactSender:
    """Writes facts as numbered chunks and fetches the controller's orders.

    The wait between chunks grows with the attempt's age (1 % of it, 0.4 s to 10 s), so that a
    person sees the first steps at once and four days of training stay some ten thousand objects.
    A store that fails for a while loses nothing: facts wait here and are sent later.
    """

    def __init__(self, store: ObjectStore, attempt: int) -> None:
        self._store = store
        self._attempt = attempt
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: list[str] = []
        self._chunk = 0
        self._order: Order | None = None
        self.last_step = 0
        self._done = threading.Event()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._loop, name="burst-facts", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def tell(self, fact: Mapping[str, Any]) -> None:
        """Queue a fact; never blocks."""
        self.last_step = int(fact.get("step", self.last_step))
        line = json.dumps(fact, sort_keys=True, separators=(",", ":"), default=str)
        with self._lock:
            self._waiting.append(line)

    def order(self) -> Order | None:
        """Return the latest order seen, if any."""
        return self._order

    def flush(self) -> None:
        """Send what is queued, so that it is there before what follows; a failure waits."""
        try:
            self._send()
        except StorageError as error:
            log.warning("facts wait for the store: %s", error)

    def close(self) -> None:
        """Send what is left; StorageError if that fails."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        self._send()

    def _loop(self) -> None:
        while not self._done.wait(self._wait_s()):
            self.flush()
            try:
                self._fetch()
            except StorageError as error:
                log.warning("orders cannot be read: %s", error)

    def _wait_s(self) -> float:
        age = time.monotonic() - self._started
        return min(LONGEST_WAIT_S, FIRST_WAIT_S + age / 100)

    def _send(self) -> None:
        with self._sending:
            self._send_chunk()

    def _send_chunk(self) -> None:
        with self._lock:
            lines = list(self._waiting)
        if not lines:
            return
        data = ("\n".join(lines) + "\n").encode()
        self._store.put(chunk_key(self._attempt, self._chunk + 1), data)
        self._chunk += 1
        with self._lock:
            del self._waiting[: len(lines)]

    def _fetch(self) -> None:
        try:
            self._order = read_order(self._store.get(ORDER))
        except FileNotFoundError:
            return
