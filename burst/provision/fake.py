"""A pool whose machines are entries in a dict: for tests, and for policies without machines."""

from __future__ import annotations

from burst.errors import TransientError
from burst.ports import NodeRequest, NodeView
from burst.records import encode, status_key
from burst.storage.port import Writable


class FakeProvisioner:
    """See burst.ports.Provisioner. A launched node is up at once and says so in the run's store.

    `outages` makes that many of the next launches fail with a TransientError, before anything is
    made; `lose` takes a node away, as a cloud would.
    """

    def __init__(self, store: Writable, *, outages: int = 0) -> None:
        self.outages = outages
        self.alive: dict[str, NodeRequest] = {}
        self.ever: list[str] = []  # every node made, in order
        self._gone: set[str] = set()
        self._store = store

    def launch(self, request: NodeRequest) -> None:
        if request.node_id in self.alive or request.node_id in self._gone:
            return
        if self.outages:
            self.outages -= 1
            raise TransientError(f"no machine for {request.node_id} at the moment")
        self.alive[request.node_id] = request
        self.ever.append(request.node_id)
        status = {"ray": "up", "address": "127.0.0.2:6379", "time": "2026-01-01T00:00:00Z"}
        self._store.put(status_key(request.node_id), encode(status))

    def observe(self, run_id: str) -> tuple[NodeView, ...]:
        found = [(name, "running") for name, r in self.alive.items() if r.run_id == run_id]
        found += [(name, "gone") for name in self._gone]
        return tuple(
            NodeView(node_id=name, state="running" if state == "running" else "gone")
            for name, state in sorted(found)
        )

    def end(self, run_id: str, node_id: str) -> None:
        del run_id
        if self.alive.pop(node_id, None) is not None:
            self._gone.add(node_id)

    def sweep(self, run_id: str) -> tuple[str, ...]:
        found = tuple(name for name, r in self.alive.items() if r.run_id == run_id)
        for name in found:
            self.end(run_id, name)
        return found

    def lose(self, node_id: str) -> None:
        """Take a machine away without a word."""
        self.end("", node_id)
