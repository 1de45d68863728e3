"""How a run ends before its training is over: asked by a person, or at a limit of time or money.

The workers are told to save and stop; if they take too long, the run ends without.
"""

from __future__ import annotations

from burst.cost.draft import Decision, Draft
from burst.cost.events import SaveAndStop, StopAsked, Tick
from burst.cost.forming import dissolve, elect
from burst.cost.state import Reason, Stopping


def after_request(draft: Draft, event: StopAsked) -> Decision:
    """Save and stop; end at once when asked to, or when there is nothing to save."""
    state = draft.state
    detail = f"asked by {event.who}"
    if event.now or not state.driving or state.attempt == 0:
        return draft.done(state.stopping.reason if state.stopping else "stopped", detail)
    return draft.decision if state.stopping else _stop(draft, "stopped", detail)


def after_stop(draft: Draft) -> Decision:
    """End, or go on if it was an earlier controller that told the workers to stop."""
    stopping = draft.state.stopping
    if stopping is None:
        return elect(dissolve(draft.then(restarts=draft.state.restarts + 1))).decision
    return draft.done(stopping.reason, stopping.detail)


def at_a_limit(draft: Draft, event: Tick) -> Decision | None:
    """Stop a run whose money or time is used up, and end one that is stopping for too long.

    None: the run goes on.
    """
    limits, at_s, stopping = draft.limits, draft.at_s, draft.state.stopping
    if stopping:
        over = at_s - stopping.since_s >= limits.stop_grace_s
        return draft.done(stopping.reason, stopping.detail) if over else draft.decision
    if limits.budget_usd is not None and event.spent_usd + limits.reserve_usd >= limits.budget_usd:
        detail = f"spending reached ${event.spent_usd:.2f} of ${limits.budget_usd:.2f}"
        return _stop(draft, "budget", detail)
    if limits.deadline_s is not None and at_s + limits.reserve_s >= limits.deadline_s:
        return _stop(draft, "deadline", f"{at_s:.0f} s of {limits.deadline_s:.0f} s are over")
    return None


def _stop(draft: Draft, reason: Reason, detail: str) -> Decision:
    stopping = Stopping(reason=reason, detail=detail, since_s=draft.at_s)
    return draft.then(SaveAndStop(reason=detail), stopping=stopping, waiting=()).decision
