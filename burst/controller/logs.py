"""Reading the logs that the nodes' agents shipped into the run's store."""

from __future__ import annotations

from collections.abc import Iterator

from burst.storage.port import Readable


class LogReader:
    """Yields pieces of log, each once, in the order of their keys per stream.

    Keys are `logs/<node>/<stream>/<number>.log`.
    """

    def __init__(self, store: Readable, node: str | None = None) -> None:
        self._store = store
        self._prefix = f"logs/{node}/" if node else "logs/"
        self._seen: set[str] = set()

    def new(self) -> Iterator[tuple[str, str]]:
        """Yield (`node/stream`, text) for what arrived since the last call."""
        for key in self._store.keys(self._prefix):
            if key in self._seen:
                continue
            self._seen.add(key)
            source = "/".join(key.split("/")[1:-1])
            yield source, self._store.get(key).decode(errors="replace")
