"""Saying what happened, in one line per change: time, the state's name, the facts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from burst.controller.account import Progress
from burst.cost.events import (
    DriverLost,
    Event,
    LaunchRefused,
    Measured,
    NodeLost,
    NodeUp,
    NoticeGiven,
    Saved,
    SetupFailed,
    Started,
    StopAsked,
    TakenOver,
    Tick,
    UserFailed,
    Vacant,
    WorkersStarted,
)
from burst.cost.network import Bridge
from burst.cost.state import Active, Done, Node, State
from burst.records import moment

KIB = 1024


def line(at: datetime, word: str, text: str) -> str:
    """Return one line of the log a person reads; times are UTC."""
    return f"{at:%H:%M:%S}  {word:<9} {text}".rstrip()


def change(  # noqa: C901, PLR0911, PLR0912 - a line per kind
    state: State, event: Event
) -> tuple[str, str] | None:
    """Return the word and the text for a change of state, or None if nobody needs to see it."""
    if isinstance(state, Done):
        return _done(state)
    match event:
        case Started():
            return "launching", _places(state)
        case SetupFailed(node_id=node_id, error=error):
            return "failed", f"set-up on {node_id}: {first_line(error)}; another tries"
        case TakenOver():
            return "taken over", f"{plural(len(state.nodes), 'node')}; from step {state.step}"
        case LaunchRefused(node_id=node_id):
            return "refused", f"{node_id} by {state.refusal}; {_next_try(state, event.at_s)}"
        case NodeUp() if state.driving and all(node.state == "up" for node in state.nodes):
            return "ready", f"{plural(_carriers(state), 'node')}; starting the workers"
        case Measured(node_id=node_id, peer_id=peer_id):
            return "network", f"{node_id} and {peer_id}: {network(state.bridges[-1])}"
        case Saved(work=work) if work is not None and _has_parted(state, work.nodes):
            return "network", network(state.bridges[-1])
        case NodeLost(node_id=node_id, why=why):
            return "lost", f"{node_id} ({first_line(why)}); {_replacement(state, event)}"
        case DriverLost(why=why):
            return "lost", f"the driver ({why}); starting over from the last checkpoint"
        case WorkersStarted(world_size=world, attempt=attempt):
            again = f" (attempt {attempt})" if attempt > 1 else ""
            return "starting", f"{plural(world, 'worker')}{again}"
        case UserFailed(error=error):
            return "failed", f"{first_line(error)}; starting the workers again"
        case NoticeGiven(node_id=node_id, deadline_s=seconds):
            return "notice", f"{node_id} leaves in {seconds:.0f} s; saving"
        case StopAsked(who=who):
            return "stopping", f"asked by {who}; saving first, once more stops at once"
        case Vacant() if moves := _moves(state, event.at_s):
            return "moving", moves
        case Tick() if state.stopping:
            return "stopping", f"{state.stopping.detail}; saving first"
        case Tick() if moves := _moves(state, event.at_s):
            return "moving", f"{moves}; {'the run is late' if state.late else 'too few nodes'}"
        case Tick() if rented := _rented(state, event.at_s):
            return "launching", rented
        case _:
            return None


def network(bridge: Bridge) -> str:
    """Say what was measured between two islands, and what follows."""
    if bridge.apart:
        return f"{bridge.apart}; {' and '.join(bridge.islands)} are kept apart"
    return f"{bridge.link}"


def _has_parted(state: Active, trained: Collection[str]) -> bool:
    """Whether nodes that trained were just given back because their network is too slow."""
    there = {node.node_id for node in state.nodes}
    return bool(state.bridges and state.bridges[-1].apart and not there.issuperset(trained))


def _carriers(state: Active) -> int:
    """Count the nodes; one of the local pool carries no workers, only Ray's head."""
    return len(state.nodes) - any(n.index == 0 and n.place.pool == "local" for n in state.nodes)


def _asked(state: Active, at_s: float) -> list[Node]:
    """Return the nodes that were asked for at a moment and are not there yet."""
    return [node for node in state.nodes if node.since_s == at_s and node.state == "asked"]


def _moves(state: Active, at_s: float) -> str:
    """Say which nodes are to be succeeded by which that were just asked for."""
    heirs = {node.index: node for node in _asked(state, at_s)}
    pairs = [(node, heirs[node.index]) for node in state.nodes if node.moving and heirs]
    return ", ".join(f"{old.node_id} in {old.place} to {new.place}" for old, new in pairs)


def _rented(state: Active, at_s: float) -> str:
    """Say what is rented only now, after a wait for one's own machines or for others."""
    names = [f"{n.node_id} in {n.place}" for n in _asked(state, at_s) if not n.place.owned]
    late = "; the run is late" if state.late else ""
    return ", ".join(names) + late if names else ""


def _places(state: Active) -> str:
    """Say where how many nodes were asked for."""
    if any(node.place.pool == "local" for node in state.nodes):
        return f"{plural(_carriers(state), 'node')} and the head"
    places = [str(node.place) for node in state.nodes]
    counted = [f"{places.count(place)} x {place}" for place in dict.fromkeys(places)]
    return ", ".join(counted) or "no place is free"


def _next_try(state: Active, at_s: float) -> str:
    """Say what is asked next, or when."""
    if asked := _asked(state, at_s):
        return f"asking {asked[-1].place} for {asked[-1].node_id}"
    if state.waiting:
        wait = min(slot.until_s for slot in state.waiting) - at_s
        return f"asking again in {human_time(wait)}"
    return "enough others are there"


def _replacement(state: Active, event: NodeLost) -> str:
    over = "" if state.driving or not state.attempt else "; starting over from the last checkpoint"
    if asked := _asked(state, event.at_s):
        where = "" if asked[-1].place.owned else f" in {asked[-1].place}"
        return f"{asked[-1].node_id}{where} takes its place{over}"
    return _next_try(state, event.at_s) + over


def _done(state: Done) -> tuple[str, str]:
    detail = f"; {first_line(state.detail)}" if state.detail else ""
    return state.reason, f"step {state.step}, saved {state.saved_step}{detail}"


def told(fact: Mapping[str, Any]) -> tuple[datetime, str, str] | None:
    """Return time, word and text for a fact of the training worth a line of its own."""
    at = moment(fact["time"])
    match fact["kind"]:
        case "started":
            return at, "running", f"{plural(int(fact['world']), 'worker')}, from the beginning"
        case "resumed":
            workers = plural(int(fact["world"]), "worker")
            return at, "resumed", f"{workers}, from step {fact['step']}"
        case "saved":
            seconds = (moment(fact["end"]) - moment(fact["start"])).total_seconds()
            size = human_bytes(int(fact["size_bytes"]))
            return at, "saved", f"step {fact['step']}, {size} in {seconds:.1f} s"
        case "save_failed":
            return at, "unsaved", f"step {fact['step']}: {first_line(str(fact['error']))}"
        case _:
            return None


def progress(now: Progress, spent_usd: Decimal, budget_usd: Decimal | None) -> str:
    """Return where training stands: step, loss, speed, dollars, time left."""
    of = f" of {now.total}" if now.total else ""
    parts = [f"step {now.step}{of}"]
    if now.loss is not None:
        parts.append(f"loss {now.loss:.3f}")
    if now.tokens_per_second:
        parts.append(f"{now.tokens_per_second:,.0f} tokens/s")
    elif now.seconds_per_step:
        parts.append(f"{now.seconds_per_step:.2f} s/step")
    parts.append(dollars(spent_usd) + (f" of {dollars(budget_usd)}" if budget_usd else ""))
    if now.seconds_left is not None:
        parts.append(f"{human_time(now.seconds_left)} left")
    return "  ".join(parts)


def dollars(usd: Decimal) -> str:
    """Two digits, or four below ten cents so that small runs do not read as nothing."""
    return f"${usd:,.4f}" if Decimal(0) < usd < Decimal("0.1") else f"${usd:,.2f}"


def plural(count: int, noun: str) -> str:
    """Write `1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def first_line(text: str) -> str:
    """Return the line of an error that says what it is: the last one of a traceback."""
    lines = [found.strip() for found in text.strip().splitlines() if found.strip()]
    return lines[-1] if lines else ""


def human_bytes(size: int) -> str:
    """Write 12.3 MiB."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= KIB and len(units) > 1:
        value /= KIB
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def human_time(seconds: float) -> str:
    """Write 42 s, 3 min 10 s, 2 h 5 min, 4 d 3 h."""
    whole = timedelta(seconds=round(max(seconds, 0.0)))
    days, rest = whole.days, whole.seconds
    hours, minutes, left = rest // 3600, rest % 3600 // 60, rest % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
