"""Asking several pools: one that fails or hangs is told, and holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from burst.errors import SetupError, TransientError
from burst.provision.inspection.port import (
    SET_CLOCK,
    Finding,
    Row,
    Unreadable,
    Wanted,
    clock_finding,
    findings,
    rows,
)


@dataclass
class Pool:
    """A pool whose answer a test makes up."""

    name: str
    answer: Callable[[], None]

    def rows(self) -> tuple[Row, ...]:
        self.answer()
        return (Row(pool=self.name, healthy=True, detail=""),)

    def findings(self, wanted: Wanted) -> tuple[Finding, ...]:
        self.answer()
        return (Finding(pool=self.name, what="nodes", works=True, detail=str(wanted.nodes)),)


def fail(error: Exception) -> Callable[[], None]:
    def answer() -> None:
        raise error

    return answer


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Hold a pool back until the test is over."""
    opened = threading.Event()
    yield opened
    opened.set()


def test_the_answers_come_in_the_order_of_the_pools() -> None:
    met = threading.Barrier(2, timeout=20)  # so they are asked at the same time
    pools = [Pool("b", lambda: void(met.wait())), Pool("a", lambda: void(met.wait()))]
    assert [row.pool for row in rows(pools)] == ["b", "a"]
    pools = [Pool("b", lambda: None)]
    (found,) = findings(pools, Wanted(nodes=3))
    assert (found.pool, found.detail) == ("b", "3")


def void(_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (TransientError("no answer from it"), "no answer from it"),
        (SetupError("no key", hint="make one"), "no key; make one"),
        (
            KeyError("Arn"),
            "cannot be read: KeyError: 'Arn'; a defect in burst, or an unknown answer",
        ),
    ],
)
def test_a_pool_that_fails_is_a_row_and_a_finding_beside_the_others(
    error: Exception, detail: str
) -> None:
    pools = [Pool("bad", fail(error)), Pool("good", lambda: None)]
    bad, good = rows(pools)
    assert (bad.pool, bad.healthy, bad.detail) == ("bad", False, detail)
    assert good.healthy
    found, fine = findings(pools, Wanted())
    assert (found.pool, found.what, found.works) == ("bad", "answers", False)
    assert "; ".join(filter(None, (found.detail, found.fix))) == detail
    assert fine.works


def test_a_pool_that_hangs_is_told_at_the_limit(gate: threading.Event) -> None:
    pools = [Pool("slow", lambda: void(gate.wait())), Pool("good", lambda: None)]
    slow, good = rows(pools, limit_s=0.5)
    assert (slow.pool, slow.healthy) == ("slow", False)
    assert slow.detail == "no answer within 0.5 s; see whether it is reachable from here"
    assert good.healthy


def test_pools_that_cannot_be_named_say_why() -> None:
    (row,) = rows([Unreadable("ssh", SetupError("no file"))])
    assert (row.pool, row.healthy, row.detail) == ("ssh", False, "no file")


@pytest.mark.parametrize(
    ("ahead_s", "works", "detail"),
    [
        (0.0, True, "as here"),
        (-5.0, True, "as here"),
        (6.0, None, "+6 s from this machine's"),
        (-899.0, None, "-899 s from this machine's"),
        (900.0, False, "+900 s from this machine's; at 15 min S3 and AWS refuse what is signed"),
    ],
)
def test_what_a_clock_says(ahead_s: float, works: bool | None, detail: str) -> None:
    found = clock_finding("aws", "clock", ahead_s)
    assert (found.works, found.detail) == (works, detail)
    assert found.fix == ("" if works else SET_CLOCK)
