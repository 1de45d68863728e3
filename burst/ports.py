"""What the controller needs of the outside world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol


class Clock(Protocol):
    """Time, as an argument. `now` may jump; only differences of `monotonic` measure."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back and stand still while the machine sleeps."""
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
    index: int  # 0 is the head; gives the node its address
    env: Mapping[str, str] = field(default_factory=dict)
    lease_ttl_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What a provisioner sees of a node it was asked for."""

    node_id: str
    state: Literal["running", "gone"]
    ip: str | None = None
    detail: str = ""


class Provisioner(Protocol):
    """Gets machines of one pool and gives them back."""

    def launch(self, request: NodeRequest) -> None:
        """Ask for a node; return as soon as the request is in.

        Idempotent by node id. SetupError when it can never work here, TransientError when the
        same call may work later.
        """
        ...

    def observe(self, run_id: str) -> tuple[NodeView, ...]:
        """Return every node of the run that was ever asked for here. Never launches or ends."""
        ...

    def end(self, run_id: str, node_id: str) -> None:
        """Give the node back; return when nothing of it is left, or raise LeftoverError.

        Safe to call twice, and on what is already gone.
        """
        ...

    def sweep(self, run_id: str) -> tuple[str, ...]:
        """End everything that carries the run's tags; return what was found, in words."""
        ...
