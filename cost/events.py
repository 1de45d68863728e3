"""What happens to a run, and what the controller does about it: the words of `decide`.

`at_s` is the age of the run in seconds, over all its controllers.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from burst.cost.network import Link, Work
from burst.cost.placement import Choice, Place, Reason

# Events ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A controller takes over: a new run, or one whose controller is gone with its nodes."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """A controller takes over a run whose nodes outlive their controller."""

    found: tuple[str, ...]  # the nodes that are still there
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What a place said to a launch, and in whose words."""

    place: Place
    reason: Reason
    detail: str = ""
    again_s: float | None = None  # in how many seconds it expects to have a machine, if it says

    def __str__(self) -> str:
        said = f" ({self.detail})" if self.detail and self.reason == "unknown" else ""
        return f"{self.place}: {self.reason}{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """A launch came to nothing; no machine is left of it."""

    node_id: str
    refusals: tuple[Refused, ...]
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUp:
    """A node's agent answers: the machine is there and set up."""

    node_id: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUp:
    """A node is part of the Ray cluster of a driver, ready for workers."""

    node_id: str
    driver: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A node measured the network to another one, of another island."""

    node_id: str
    peer_id: str
    link: Link
    work: Work | None  # of the group as it trains now, if it does
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFailed:
    """The task's own set-up failed on a node."""

    node_id: str
    error: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost:
    """A node is gone or broken."""

    node_id: str
    why: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLost:
    """The driver ended although training is not over."""

    driver: int
    why: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersStarted:
    """A new attempt: the worker group was started, for the first time or again."""

    attempt: int
    world_size: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The workers reached a step."""

    step: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint was committed."""

    step: int
    at_s: float
    work: Work | None = None  # of the steps before, if they tell


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFailed:
    """The user's own code raised, or its command failed."""

    attempt: int
    error: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Training is over and its last checkpoint committed."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The workers saved and stopped, as they were told."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """A person wants the run saved and stopped; `now` forgoes the saving."""

    who: str
    now: bool
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeGiven:
    """A node will be taken at a deadline."""

    node_id: str
    deadline_s: float  # seconds from now
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time and money passed."""

    at_s: float
    spent_usd: Decimal
    left_s: float | None = None  # until the last step, at the present pace; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacant:
    """What pools say they could give at once: places, one entry for each node, best first."""

    places: tuple[Place, ...]
    left_s: float | None  # as in Tick
    at_s: float


Event = (
    Started
    | TakenOver
    | LaunchRefused
    | AgentUp
    | NodeUp
    | Measured
    | SetupFailed
    | NodeLost
    | DriverLost
    | WorkersStarted
    | Progressed
    | Saved
    | UserFailed
    | Finished
    | Stopped
    | StopAsked
    | NoticeGiven
    | Tick
    | Vacant
)

# Actions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Ask for a node at a place."""

    node_id: str
    index: int
    choice: Choice
    wait_s: float | None = None  # how long it may be queued: then another place is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Give a node back, or clear away what is left of a lost one."""

    node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Form a new Ray cluster, for the next driver, around a head; the other nodes join it."""

    node_id: str
    driver: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """Start training on the nodes that are up."""

    driver: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Tell the workers to save at the next step."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAndStop:
    """Tell the workers to save at the next step and to end."""

    reason: str


Action = Launch | End | Lead | Drive | Save | SaveAndStop
