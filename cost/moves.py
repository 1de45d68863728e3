"""Whether it pays to move nodes of a run to a cheaper place while it is on.

A move asks for a successor, waits until it is set up, saves, and gives the old node back; then all
workers start again from that checkpoint. So it costs a restart of every node, and the successor's
price while it is set up. What it brings is the difference of the prices until the run's end.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

RESTART_S = 60  # in which all nodes are paid for and none trains
SET_UP_S = 120  # in which a successor is paid for as well as the node it succeeds
UNKNOWN_LEFT_S = 3600.0  # what a run is taken to last on that does not say
MARGIN = 2  # a move must bring so many times what it costs


def pays(
    moves: Iterable[tuple[Decimal, Decimal]], all_usd_per_hour: Decimal, left_s: float | None
) -> bool:
    """Say whether moves, each from one price per hour to another, bring enough.

    `all_usd_per_hour` is the price of every node of the run, `left_s` how long it goes on.
    """
    prices = list(moves)
    hours = Decimal(repr(UNKNOWN_LEFT_S if left_s is None else left_s)) / 3600
    saved = sum((old - new for old, new in prices), Decimal(0)) * hours
    set_up = sum((new for _, new in prices), Decimal(0)) * SET_UP_S
    return saved > MARGIN * (all_usd_per_hour * RESTART_S + set_up) / 3600
