"""The run's journal: what is written before every act, and what a new controller reads from it.

Entry kinds:
  controller  somebody takes over (token, owner)
  decision    event, actions and the state after them; written before the actions are carried out
  launched    a node was asked for and the request is in (its price, and since when it counts)
  billed      from when to when the pool itself says that the machine was there
  ended       a node is gone, since when, and how that is known
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar, get_args

from burst.cost.events import Action, Event
from burst.cost.network import Bridge, Link
from burst.cost.placement import Choice, Place, Refusal
from burst.cost.state import Active, Done, Node, Slot, State, Stopping
from burst.records import choice_json, moment, read_choice, stamp
from burst.storage.journal import Journal

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpan:
    """From when to when a node was paid for, and at what price."""

    node_id: str
    index: int
    choice: Choice
    launched: datetime
    ended: datetime | None = None
    note: str = ""
    refused: bool = False  # no machine came of it, and no cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A launch that was decided; whether it became a machine is not written down."""

    node_id: str
    index: int
    choice: Choice
    decided: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the journal says: the truth a new controller starts from."""

    state: State = field(default_factory=Active)
    spans: tuple[NodeSpan, ...] = ()
    intents: tuple[Intent, ...] = ()
    controllers: int = 0
    stopped_at: datetime | None = None  # when the last Done was decided
    last_entry: datetime | None = None
    number: int = 0  # of the last entry


class Book:
    """Writes entries; each write is durable, and fails when another controller has taken over."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def controller(self, token: int, owner: Mapping[str, Any], at: datetime) -> None:
        """Write that somebody takes over."""
        self._write("controller", at, token=token, owner=dict(owner))

    def decision(
        self, event: Event, actions: tuple[Action, ...], state: State, at: datetime
    ) -> None:
        """Write what is about to be done, and why."""
        self._write(
            "decision",
            at,
            event=_tagged(event),
            actions=[_tagged(action) for action in actions],
            state=_tagged(state),
        )

    def launched(self, span: NodeSpan) -> None:
        """Write that a node counts from now on."""
        self._write(
            "launched",
            span.launched,
            node_id=span.node_id,
            index=span.index,
            choice=choice_json(span.choice),
        )

    def billed(
        self, node_id: str, since: datetime | None, until: datetime | None, at: datetime
    ) -> None:
        """Write what the pool says of a machine's time."""
        times = {"since": since and stamp(since), "until": until and stamp(until)}
        self._write("billed", at, node_id=node_id, **times)

    def ended(
        self, node_id: str, ended: datetime, note: str, at: datetime, *, refused: bool = False
    ) -> None:
        """Write that a node does not count any more, or never did."""
        self._write("ended", at, node_id=node_id, ended=stamp(ended), note=note, refused=refused)

    def _write(self, kind: str, at: datetime, **entry: Any) -> None:  # noqa: ANN401 - JSON
        self._journal.append({"kind": kind, "time": stamp(at), **entry})


def read_history(journal: Journal) -> History:
    """Fold the journal into what is known."""
    history = History()
    for number, entry in journal.read():
        when = moment(entry["time"])
        history = replace(_fold(history, entry, when), last_entry=when, number=number)
    return history


def entries(journal: Journal) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the entries as they lie there, oldest first."""
    yield from journal.read()


def _fold(history: History, entry: Mapping[str, Any], when: datetime) -> History:
    match entry["kind"]:
        case "controller":
            return replace(history, controllers=history.controllers + 1)
        case "decision":
            state = read_state(entry["state"])
            stopped = when if isinstance(state, Done) else None
            wanted = tuple(
                Intent(
                    node_id=action["node_id"],
                    index=action["index"],
                    choice=read_choice(action["choice"]),
                    decided=when,
                )
                for action in entry["actions"]
                if action["type"] == "Launch"
            )
            intents = (*history.intents, *wanted)
            return replace(history, state=state, stopped_at=stopped, intents=intents)
        case "launched":
            span = NodeSpan(
                node_id=entry["node_id"],
                index=int(entry["index"]),
                choice=read_choice(entry["choice"]),
                launched=when,
            )
            left = tuple(i for i in history.intents if i.node_id != span.node_id)
            return replace(history, spans=(*history.spans, span), intents=left)
        case "ended":
            ended = moment(entry["ended"])
            refused = bool(entry.get("refused"))
            spans = close(history.spans, entry["node_id"], ended, entry["note"], refused=refused)
            return replace(history, spans=spans)
        case "billed":
            since, until = (entry[k] and moment(entry[k]) for k in ("since", "until"))
            return replace(history, spans=bill(history.spans, entry["node_id"], since, until))
        case _:
            return history  # of a later version


def bill(
    spans: tuple[NodeSpan, ...], node_id: str, since: datetime | None, until: datetime | None
) -> tuple[NodeSpan, ...]:
    """Put the pool's own times for ours; what it has times of was a machine, refused or not."""
    return tuple(
        replace(span, launched=since or span.launched, ended=until or span.ended, refused=False)
        if span.node_id == node_id
        else span
        for span in spans
    )


def close(
    spans: tuple[NodeSpan, ...],
    node_id: str,
    ended: datetime,
    note: str,
    *,
    refused: bool = False,
) -> tuple[NodeSpan, ...]:
    """End a node's span; the first end written counts, and never lies before the launch."""
    return tuple(
        replace(span, ended=max(ended, span.launched), note=note, refused=refused)
        if span.node_id == node_id and span.ended is None
        else span
        for span in spans
    )


def _tagged(value: Event | Action | State) -> dict[str, Any]:
    raw = asdict(value)
    return {"type": type(value).__name__, **_plain(raw)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


_STATES = {kind.__name__: kind for kind in get_args(State)}


def read_state(raw: Mapping[str, Any]) -> State:
    """Read a state back from its entry; fields of a later version are left out."""
    kind = _STATES[raw["type"]]
    values = {k: v for k, v in raw.items() if k in kind.__dataclass_fields__}
    if kind is Done:
        return Done(**values)
    values["nodes"] = tuple(_placed(Node, node) for node in values.get("nodes", ()))
    values["refusals"] = tuple(_placed(Refusal, one) for one in values.get("refusals", ()))
    values["waiting"] = tuple(Slot(**slot) for slot in values.get("waiting", ()))
    values["bridges"] = tuple(_bridge(one) for one in values.get("bridges", ()))
    if values.get("stopping"):
        values["stopping"] = Stopping(**values["stopping"])
    return Active(**values)


def _placed(kind: Callable[..., T], raw: Mapping[str, Any]) -> T:
    lists = {key: tuple(value) for key, value in raw.items() if isinstance(value, list)}
    return kind(**{**raw, **lists, "place": Place(**raw["place"])})


def _bridge(raw: Mapping[str, Any]) -> Bridge:
    one, other = raw["islands"]
    return Bridge(islands=(one, other), link=Link(**raw["link"]), apart=raw["apart"])
