"""Reading the logs that the nodes' agents shipped into the run's store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from burst.storage.port import Readable

# How Ray passes on a worker's line in the driver's output.
_WORKER_LINE = re.compile(r"\(RayTrainWorker pid=(\d+)(?:, ip=[\d.]+)?\) (.*)")


class LogReader:
    """Yields lines of log, each once, in the order of their keys per stream.

    Keys are `logs/<node>/<stream>/<number>.log`; a piece may end in the middle of a line.
    """

    def __init__(self, store: Readable, node: str | None = None) -> None:
        self._store = store
        self._prefix = f"logs/{node}/" if node else "logs/"
        self._seen: set[str] = set()
        self._rests: dict[str, str] = {}

    def new(self) -> Iterator[tuple[str, str]]:
        """Yield (`node/stream`, line) for what arrived since the last call."""
        for key in self._store.keys(self._prefix):
            if key in self._seen:
                continue
            self._seen.add(key)
            source = "/".join(key.split("/")[1:-1])
            text = self._rests.pop(source, "") + self._store.get(key).decode(errors="replace")
            *lines, self._rests[source] = text.split("\n")
            for line in lines:
                yield source, line

    def rest(self) -> Iterator[tuple[str, str]]:
        """Yield the last lines that no line break ended."""
        for source, line in self._rests.items():
            if line:
                yield source, line


def of_worker(line: str, workers: Mapping[int, str]) -> tuple[str, str] | None:
    """Return which worker wrote a line, and the line as it wrote it; None if none did.

    `workers` has a name for each process id.

    >>> of_worker("(RayTrainWorker pid=7, ip=127.1.2.3) hello", {7: "n002 rank 0"})
    ('n002 rank 0', 'hello')
    """
    found = _WORKER_LINE.fullmatch(line)
    if found is None:
        return None
    pid = int(found[1])
    return workers.get(pid, f"worker {pid}"), found[2]
