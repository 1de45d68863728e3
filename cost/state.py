"""What is known of a run, and what its task allows: all that `decide` decides by.

The state is written to the run's journal with every decision. A new controller reads it from there,
so nothing that a decision depends on may be kept anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from burst.cost.network import Bridge
from burst.cost.placement import Choice, Place, Refusal

NodeState = Literal["asked", "ready", "up"]
Reason = Literal["finished", "stopped", "failed", "budget", "deadline", "stuck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the task allows, and where its nodes may be."""

    nodes: int
    least_nodes: int  # training starts with fewer than `nodes` only after `patience_s`
    choices: tuple[Choice, ...]  # best first
    head_apart: bool = False  # the head is a node of its own, index 0, without workers
    max_failures: int = 0  # restarts after the user's own code failed
    max_idle_losses: int = 6  # losses in a row without a new step between them
    patience_s: float = 60.0
    stop_grace_s: float = 60.0  # how long saving may take once a stop was asked for
    budget_usd: Decimal | None = None
    deadline_s: float | None = None
    reserve_usd: Decimal = Decimal(0)  # kept for the last save and the release
    reserve_s: float = 30.0
    return_after_s: float = 120.0  # how long a better place must be vacant before nodes move there


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that was asked for.

    asked: no sign of life yet; ready: its agent answers; up: in the present Ray cluster.
    """

    node_id: str
    index: int
    state: NodeState
    since_s: float
    place: Place
    wanted_s: float = 0.0  # since when a node with its index is wanted
    taken_s: float | None = None  # a notice said that it goes at this moment
    moving: bool = False  # a successor at a better place was asked for
    met: tuple[str, ...] = ()  # other islands, of which it measured a node and may train with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A node that is wanted and cannot be asked for before a moment."""

    index: int
    until_s: float
    wanted_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Why and since when training is being stopped."""

    reason: Reason
    detail: str
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """The run is on."""

    nodes: tuple[Node, ...] = ()
    waiting: tuple[Slot, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    refusal: str = ""  # the last one, in words
    launched: int = 0  # nodes ever asked for; makes ids unique
    head: str = ""  # the node that leads the present Ray cluster
    driver: int = 0  # clusters ever formed, each with a driver of its own
    driving: bool = False
    attempt: int = 0  # the newest start of the worker group
    world_size: int = 0
    step: int = 0  # the highest step reached
    saved_step: int = 0
    failures: int = 0
    failed_attempt: int = 0  # the newest whose failure is counted
    idle_losses: int = 0
    preemptions: int = 0  # nodes lost, in all
    restarts: int = 0  # starts of the worker group after the first, and of the driver
    stopping: Stopping | None = None
    late: bool = False  # at its present pace it ends after its deadline
    vacant_s: float | None = None  # since when a better place is vacant without a break
    parting_s: float | None = None  # when the save before the end of moving nodes was ordered
    bridges: tuple[Bridge, ...] = ()  # what was measured between islands
    changes: int = 0  # of the side, because two islands must be apart

    def node(self, node_id: str) -> Node | None:
        """Return a node that was not ended yet."""
        return next((n for n in self.nodes if n.node_id == node_id), None)

    def with_node(self, changed: Node) -> Active:
        """Return the state with a node as it is now."""
        nodes = tuple(changed if n.node_id == changed.node_id else n for n in self.nodes)
        return replace(self, nodes=nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Nothing more will happen."""

    reason: Reason
    detail: str = ""
    step: int = 0
    saved_step: int = 0
    preemptions: int = 0
    restarts: int = 0
    launched: int = 0  # as in Active, for a resume
    driver: int = 0


State = Active | Done
