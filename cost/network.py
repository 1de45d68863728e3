"""Whether nodes of two islands shall train together: from what was measured between them.

An island is nodes with a fast network between them: here a pool of one's own, or a region of a
cloud. Nothing is measured inside of one.

Nodes that train together add their gradients up in each step. The time that takes is that of a
ring all-reduce (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
workstations, 2009): each of n nodes sends 2 (n - 1) / n of the gradients' bytes, in 2 (n - 1)
messages one after the other, all at the pace of the slowest link. What overlaps with computing is
not taken off, so the prediction is on the safe side; one that a measured step refutes is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from burst.cost.placement import Place

LEAST_GAIN = 0.5  # of the speed that added nodes would bring over a perfect network


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a node measured to one of another island."""

    round_trip_s: float = 0.0
    bytes_per_s: float = 0.0  # of one TCP connection, in the slower direction
    error: str = ""  # why they do not reach each other; then there are no numbers

    def __str__(self) -> str:
        if self.error:
            return self.error
        return f"{self.round_trip_s * 1e3:.3g} ms, {_rate(self.bytes_per_s * 8)}"


def _rate(bits_per_s: float) -> str:
    if bits_per_s >= 1e9:  # noqa: PLR2004 - giga
        return f"{bits_per_s / 1e9:.3g} Gbit/s"
    return f"{bits_per_s / 1e6:.3g} Mbit/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """Two islands, the last that was measured between them, and whether they train together."""

    islands: tuple[str, str]  # sorted
    link: Link
    apart: str = ""  # why they do not, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A step of the run as it is: how long it takes, on which nodes, and what they add up."""

    step_s: float
    nodes: tuple[str, ...]
    gradient_bytes: int


def island(place: Place) -> str:
    """Return the island that a place is in.

    >>> island(Place(pool="aws", region="eu-west-1", zone="eu-west-1a"))
    'aws/eu-west-1'
    >>> island(Place(pool="ssh/lab"))
    'ssh/lab'
    """
    return f"{place.pool}/{place.region}" if place.region else place.pool


def with_bridge(known: tuple[Bridge, ...], new: Bridge) -> tuple[Bridge, ...]:
    """Return the bridges with one more, or in place of what was known of its islands."""
    return (*(b for b in known if b.islands != new.islands), new)


def bridge_of(known: Iterable[Bridge], one: str, other: str) -> Bridge | None:
    """Return what is known between two islands."""
    pair = tuple(sorted((one, other)))
    return next((b for b in known if b.islands == pair), None)


def are_apart(known: Iterable[Bridge], one: str, other: str) -> bool:
    """Whether nodes of two islands must not train together."""
    bridge = bridge_of(known, one, other)
    return bridge is not None and bridge.apart != ""


def ring_s(gradient_bytes: int, nodes: int, link: Link) -> float:
    """Return the seconds of a ring all-reduce over nodes whose slowest link this is.

    >>> ring_s(1_000_000_000, 2, Link(round_trip_s=0.01, bytes_per_s=1e8))
    10.01
    """
    hops = 2 * (nodes - 1)
    return hops / nodes * gradient_bytes / link.bytes_per_s + hops * link.round_trip_s / 2


def why_not(ideal_s: float, alone_s: float, ring_time_s: float, *, late: bool = False) -> str:
    """Say why a mixed group does not pay; "" if it does.

    `ideal_s` is a step of it over a perfect network, `alone_s` one of the part that stays. Added
    nodes must bring half of the speed they are paid for; for a late run, any speed at all.
    """
    mixed_s = ideal_s + ring_time_s
    gain, most = 1 / mixed_s - 1 / alone_s, 1 / ideal_s - 1 / alone_s
    if gain > 0 and (late or gain >= LEAST_GAIN * most):
        return ""
    return f"a step would take {mixed_s:.3g} s instead of {alone_s:.3g} s"


def joining_why_not(work: Work, link: Link, joined: int, *, late: bool) -> str:
    """Say why a group that trains alone should not take nodes in; "" if it should.

    `joined` is how many nodes it had then. The global batch stays, so a perfect network would
    make steps shorter in proportion.
    """
    ideal_s = work.step_s * len(work.nodes) / joined
    return why_not(ideal_s, work.step_s, ring_s(work.gradient_bytes, joined, link), late=late)


def staying_why_not(work: Work, link: Link, kept: int, *, late: bool) -> str:
    """Say why a mixed group should go on with `kept` of its nodes alone; "" if it should not."""
    wire_s = ring_s(work.gradient_bytes, len(work.nodes), link)
    ideal_s = work.step_s - wire_s
    if ideal_s <= 0:  # the prediction is refuted
        return ""
    return why_not(ideal_s, ideal_s * len(work.nodes) / kept, wire_s, late=late)
