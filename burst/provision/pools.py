"""Several kinds of pools behind one provisioner: each node is the business of its own kind."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from burst.cost.placement import Place
from burst.errors import TransientError
from burst.ports import NodeRequest, NodeView, Provisioner
from burst.task_specs.infra import AS_THEY_ARE

log = logging.getLogger(__name__)


def kind_of(pool: str) -> str:
    """Return the kind of a pool: local, ssh, slurm, or cloud (SkyPilot's)."""
    first = pool.partition("/")[0]
    return first if first in AS_THEY_ARE else "cloud"


@dataclass(slots=True)
class Pools:
    """See burst.ports.Provisioner."""

    pools: Mapping[str, Provisioner]  # by kind
    kinds: dict[str, str] = field(default_factory=dict)  # of the nodes that there may be
    _last: dict[str, tuple[NodeView, ...]] = field(default_factory=dict)
    outlives: bool = True
    _silent: set[str] = field(default_factory=set)

    def launch(self, request: NodeRequest) -> None:
        kind = kind_of(request.choice.place.pool)
        self.kinds[request.node_id] = kind
        self.pools[kind].launch(request)

    def observe(self, run_id: str, doubted: Collection[str] = ()) -> tuple[NodeView, ...]:
        """Ask each kind; for one that does not answer, its last answer stands.

        TransientError only if there is none and nodes of it are known: nothing may be taken for
        gone that was never seen.
        """
        return tuple(
            view for kind in self.pools for view in self._observe(kind, run_id, doubted)
        )  # fmt: skip

    def _observe(self, kind: str, run_id: str, doubted: Collection[str]) -> tuple[NodeView, ...]:
        mine = [name for name in doubted if self.kinds.get(name, kind) == kind]
        try:
            views = self.pools[kind].observe(run_id, mine)
        except TransientError as error:
            if kind not in self._last and self._has_nodes(kind):
                raise
            self._last.setdefault(kind, ())
            if kind not in self._silent:
                log.warning("%s does not answer: %s", kind, error)
            self._silent.add(kind)
            return (*self._last[kind], *self._unseen(kind))
        self._silent.discard(kind)
        self._last[kind] = views
        self.kinds |= {view.node_id: kind for view in views}
        return views

    def _has_nodes(self, kind: str) -> bool:
        return kind in self.kinds.values()

    def _unseen(self, kind: str) -> tuple[NodeView, ...]:
        """Return the nodes that were asked for after a kind's last answer."""
        seen = {view.node_id for view in self._last[kind]}
        names = [name for name, its in self.kinds.items() if its == kind and name not in seen]
        return tuple(NodeView(node_id=name, state="asked") for name in names)

    def vacant(self, places: Collection[Place]) -> tuple[Place, ...]:
        return tuple(
            place
            for kind, pool in self.pools.items()
            for place in pool.vacant([p for p in places if kind_of(p.pool) == kind])
        )

    def end(self, run_id: str, node_id: str) -> bool:
        kind = self.kinds.get(node_id)
        pools = self.pools.values() if kind is None else [self.pools[kind]]
        gone = [pool.end(run_id, node_id) for pool in pools]  # all of them are asked
        return all(gone)

    def sweep(self, run_id: str, but: Collection[str] = ()) -> tuple[str, ...]:
        """Sweep every kind; TransientError, after all others were, if one with nodes is silent."""
        found: list[str] = []
        failed: TransientError | None = None
        for kind, pool in self.pools.items():
            try:
                found += pool.sweep(run_id, but)
            except TransientError as error:
                failed = error if self._has_nodes(kind) else failed
        if failed is not None:
            raise failed
        return tuple(found)
