"""The newest refusal of each pool, out of the journals of several runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from burst.controller.book import Book
from burst.controller.last_refusals import last_refusals
from burst.controller.runs import Run
from burst.cost.events import Event, LaunchRefused, NodeLost, Refused
from burst.cost.placement import Place, Reason
from burst.cost.state import Active
from burst.storage.journal import Journal
from burst.storage.memory import MemoryStore
from some_run import RUN

BEGIN = datetime(2026, 12, 1, tzinfo=UTC)
ZONE = Place(pool="aws", region="us-east-1", zone="us-east-1a", machine_type="g5.xlarge", spot=True)
HOST = Place(pool="ssh/lab", machine_type="8-cpu", owned=True)


def run_of(name: str, *events: tuple[int, Event]) -> Run:
    run = Run(record=replace(RUN, run_id=name), store=MemoryStore())
    book = Book(Journal(run.store))
    for seconds, event in events:
        book.decision(event, (), Active(), BEGIN + timedelta(seconds=seconds))
    return run


def refused(place: Place, reason: Reason, detail: str = "") -> LaunchRefused:
    refusal = Refused(place=place, reason=reason, detail=detail)
    return LaunchRefused(node_id="n001", refusals=(refusal,), at_s=0.0)


def test_the_newest_of_each_pool_counts_whichever_run_it_was_of() -> None:
    runs = [
        run_of("toy-aaaaaa", (10, refused(ZONE, "quota")), (30, refused(ZONE, "capacity", "none"))),
        run_of("toy-bbbbbb", (20, refused(ZONE, "rights")), (40, refused(HOST, "capacity"))),
    ]
    for known in (runs, runs[::-1]):
        found = last_refusals(known)
        assert set(found) == {"aws", "ssh/lab"}
        aws = found["aws"]
        assert (aws.place, aws.reason, aws.detail) == (ZONE, "capacity", "none")
        assert (aws.at, aws.run_id) == (BEGIN + timedelta(seconds=30), "toy-aaaaaa")
        assert found["ssh/lab"].run_id == "toy-bbbbbb"


def test_a_lost_node_is_no_refusal() -> None:
    lost = NodeLost(node_id="n001", why="reclaimed", at_s=0.0)
    assert last_refusals([run_of("toy-aaaaaa", (1, lost))]) == {}
    assert last_refusals([]) == {}


def test_one_launch_may_be_refused_by_several_pools() -> None:
    both = (Refused(place=ZONE, reason="price"), Refused(place=HOST, reason="capacity"))
    event = LaunchRefused(node_id="n001", refusals=both, at_s=0.0)
    assert set(last_refusals([run_of("toy-aaaaaa", (1, event))])) == {"aws", "ssh/lab"}
