"""A decision in the making, which the rules of `decide` hand from one to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from burst.cost.events import Action, End
from burst.cost.state import Active, Done, Limits, Node, Reason, State

Decision = tuple[State, tuple[Action, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A state with the actions that lead to it, at a moment of the run and within its limits."""

    state: Active
    limits: Limits
    at_s: float
    actions: tuple[Action, ...] = ()

    def then(self, *actions: Action, **changes: object) -> Draft:
        """Return it with further actions, and with fields of its state changed."""
        state = replace(self.state, **changes)  # type: ignore[arg-type]  # names of Active's fields
        return replace(self, state=state, actions=self.actions + actions)

    def with_node(self, changed: Node) -> Draft:
        """Return it with a node as it is now."""
        return replace(self, state=self.state.with_node(changed))

    @property
    def decision(self) -> Decision:
        """What was decided: the run goes on."""
        return self.state, self.actions

    def done(self, reason: Reason, detail: str = "") -> Decision:
        """End the run: every node that was not ended yet is given back."""
        state = self.state
        done = Done(
            reason=reason,
            detail=detail,
            step=state.step,
            saved_step=state.step if reason == "finished" else state.saved_step,
            preemptions=state.preemptions,
            restarts=state.restarts,
            launched=state.launched,
            driver=state.driver,
        )
        ends = tuple(End(node_id=node.node_id) for node in reversed(state.nodes))
        return done, self.actions + ends
