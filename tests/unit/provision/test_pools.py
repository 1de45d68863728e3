"""Several kinds of pools as one: each node is asked of its own; a silent one harms no other."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

import pytest

from burst.cost.placement import Choice, Place
from burst.errors import TransientError
from burst.ports import NodeRequest, NodeView
from burst.provision.pools import Pools, kind_of

OWN = Place(pool="ssh/lab", machine_type="8-cpu", owned=True)
RENTED = Place(pool="aws", region="r", zone="ra", machine_type="m6i.large", spot=True)


class OneKind:
    """See burst.ports.Provisioner."""

    outlives = True

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.silent = False
        self.asked: list[tuple[str, ...]] = []

    def launch(self, request: NodeRequest) -> None:
        self.there.add(request.node_id)

    def observe(self, run_id: str, doubted: Collection[str] = ()) -> tuple[NodeView, ...]:
        self.asked.append(tuple(doubted))
        self._answer()
        return tuple(NodeView(node_id=name, state="running") for name in sorted(self.there))

    def _answer(self) -> None:
        if self.silent:
            raise TransientError("no route to host")

    def vacant(self, places: Collection[Place]) -> tuple[Place, ...]:
        return tuple(places)

    def end(self, run_id: str, node_id: str) -> bool:
        self.there.discard(node_id)
        return True

    def sweep(self, run_id: str, but: Collection[str] = ()) -> tuple[str, ...]:
        self._answer()
        found = tuple(sorted(self.there - set(but)))
        self.there &= set(but)
        return found


def request(node_id: str, place: Place) -> NodeRequest:
    choice = Choice(place=place, usd_per_hour=Decimal(1))
    return NodeRequest(run_id="r", node_id=node_id, run_uri="s3://b/r", index=0, choice=choice)


def states(pools: Pools) -> dict[str, str]:
    return {view.node_id: view.state for view in pools.observe("r")}


@pytest.fixture
def ssh() -> OneKind:
    return OneKind()


@pytest.fixture
def cloud() -> OneKind:
    return OneKind()


@pytest.fixture
def pools(ssh: OneKind, cloud: OneKind) -> Pools:
    made = Pools(pools={"ssh": ssh, "cloud": cloud})
    made.launch(request("n001", OWN))
    made.launch(request("n002", RENTED))
    return made


def test_kinds() -> None:
    found = [kind_of(pool) for pool in ("local", "ssh/lab", "slurm/lab", "aws", "lambda")]
    assert found == ["local", "ssh", "slurm", "cloud", "cloud"]


def test_each_node_is_the_business_of_its_kind(pools: Pools, ssh: OneKind, cloud: OneKind) -> None:
    assert (ssh.there, cloud.there) == ({"n001"}, {"n002"})
    assert states(pools) == {"n001": "running", "n002": "running"}
    pools.observe("r", ["n001", "n002"])
    assert (ssh.asked[-1], cloud.asked[-1]) == (("n001",), ("n002",))
    assert pools.end("r", "n001")
    assert (ssh.there, cloud.there) == (set(), {"n002"})


def test_a_node_that_nobody_knows_is_ended_everywhere(
    pools: Pools, ssh: OneKind, cloud: OneKind
) -> None:
    ssh.there.add("n009")
    assert pools.end("r", "n009")
    assert ssh.there == {"n001"}


def test_of_a_silent_kind_the_last_answer_stands(
    pools: Pools, ssh: OneKind, cloud: OneKind
) -> None:
    pools.observe("r")
    ssh.silent = True
    pools.launch(request("n003", OWN))
    cloud.there.discard("n002")
    assert states(pools) == {"n001": "running", "n003": "asked"}
    ssh.silent = False
    assert states(pools) == {"n001": "running", "n003": "running"}


def test_a_kind_that_never_answered_is_waited_for(pools: Pools, ssh: OneKind) -> None:
    ssh.silent = True
    with pytest.raises(TransientError):
        pools.observe("r")


def test_a_silent_kind_without_a_node_is_not_waited_for(ssh: OneKind, cloud: OneKind) -> None:
    """All nodes are rented, and the laboratory is off, or cannot be reached from here."""
    cloud.there.add("n002")
    pools = Pools(pools={"ssh": ssh, "cloud": cloud}, kinds={"n002": "cloud"})
    ssh.silent = True
    assert states(pools) == {"n002": "running"}
    assert pools.sweep("r") == ("n002",)
    pools.launch(request("n003", OWN))
    assert states(pools) == {"n003": "asked"}
    ssh.silent = False
    assert states(pools) == {"n003": "running"}


def test_a_silent_kind_keeps_no_other_from_being_swept(
    pools: Pools, ssh: OneKind, cloud: OneKind
) -> None:
    ssh.silent = True
    with pytest.raises(TransientError):
        pools.sweep("r")
    assert cloud.there == set()
    ssh.silent = False
    assert pools.sweep("r") == ("n001",)


def test_each_kind_is_asked_of_its_own_places(pools: Pools) -> None:
    assert pools.vacant([OWN, RENTED, OWN]) == (OWN, OWN, RENTED)
