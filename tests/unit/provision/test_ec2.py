"""What EC2 says of a node's machine, and of two where one was to be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from burst.provision import ec2
from burst.provision.ec2 import Ec2, Instance
from burst.provision.rented import Machine

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def instance(state: str, since_s: int, until_s: int | None = None) -> Instance:
    return Instance(
        instance_id=f"i-{since_s}",
        region="us-east-1",
        zone="us-east-1a",
        machine_type="m6i.large",
        run_id="toy-abcdef",
        node_id="n001",
        state=state,
        since=at(since_s),
        until=None if until_s is None else at(until_s),
    )


def at(seconds: int) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def machine_of(monkeypatch: pytest.MonkeyPatch, *there: Instance) -> Machine:
    monkeypatch.setattr(ec2, "instances", lambda *_: there)
    return Ec2(["us-east-1"]).machines("toy-abcdef")["n001"]


@pytest.mark.parametrize(
    ("there", "until_s", "costs"),
    [
        ([("running", 0, None)], None, True),
        ([("shutting-down", 0, 50)], 50, True),
        ([("terminated", 0, 50)], 50, False),
        ([("terminated", 0, 50), ("running", 60, None)], None, True),
        ([("running", 0, None), ("terminated", 60, 90)], None, True),
        ([("terminated", 0, 95), ("terminated", 60, 90)], 95, False),
    ],
)
def test_machines_of_a_launch_that_was_made_once_more_count_as_one(
    monkeypatch: pytest.MonkeyPatch,
    there: list[tuple[str, int, int | None]],
    until_s: int | None,
    costs: bool,
) -> None:
    found = machine_of(monkeypatch, *(instance(*one) for one in there))
    assert (found.since, found.costs) == (BEGIN, costs)
    assert found.until == (None if until_s is None else at(until_s))
