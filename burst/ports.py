"""What the controller needs of the outside world."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from burst.cost.events import Refused
from burst.cost.placement import Choice, Place


class Clock(Protocol):
    """Time, as an argument. `now` may jump; only differences of the others measure."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back and stand still while the machine sleeps."""
        ...

    def elapsed(self) -> float:
        """Return seconds that never go back and go on while the machine sleeps."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """A node to be launched. `node_id` is unique for ever and makes the launch idempotent."""

    run_id: str
    node_id: str
    run_uri: str  # the run's own folder in the object store
    index: int
    choice: Choice  # where, and what it costs there
    wait_s: float | None = None  # how long it may be queued there; None: as its pool sees fit
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # secrets among it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What a provisioner sees of a node it was asked for."""

    node_id: str
    state: Literal["asked", "running", "refused", "gone"]
    detail: str = ""
    refusals: tuple[Refused, ...] = ()  # of a launch that came to nothing
    since: datetime | None = None  # from when on the machine is paid for, if its pool tells
    until: datetime | None = None  # until when
    leaves: datetime | None = None  # its cloud said that it takes it back, not before this


class Provisioner(Protocol):
    """Gets machines of one kind of pool and gives them back."""

    outlives: bool  # whether nodes live on when their controller is gone

    def launch(self, request: NodeRequest) -> None:
        """Ask for a node; return as soon as the request is in, which may be before it is granted.

        Idempotent by node id. SetupError when it can never work here, TransientError when the
        same call may work later.
        """
        ...

    def observe(self, run_id: str, doubted: Collection[str] = ()) -> tuple[NodeView, ...]:
        """Return every node of the run that was ever asked for here. Never launches or ends.

        What is known may be some time old, except of the nodes that are `doubted`.
        TransientError when the pool does not answer, which says nothing about its machines.
        """
        ...

    def vacant(self, places: Collection[Place]) -> tuple[Place, ...]:
        """Return which places could give nodes at once, as last seen, one entry for each node.

        Pools that cannot tell are left out, as are those that do not answer.
        """
        ...

    def end(self, run_id: str, node_id: str) -> bool:
        """Give the node back; return whether nothing of it is left by now.

        If not, `observe` shows it gone later. LeftoverError when it cannot be ended. Safe to call
        twice, and on what is already gone.
        """
        ...

    def sweep(self, run_id: str, but: Collection[str] = ()) -> tuple[str, ...]:
        """End everything that carries the run's tags, but some nodes; say what was found."""
        ...
