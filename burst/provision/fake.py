"""A cloud in memory, with the faults of real ones: for tests, and for policies without machines.

`FakeCloud` is the truth about its machines, whoever asks; `FakeProvisioner` is one controller's
view of it. A machine's agent is started by the provisioner that asked for it, once it sees it;
from then on what the controller wants of the node is true at once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from burst.cost.events import Refused
from burst.cost.network import Link
from burst.cost.placement import Place
from burst.errors import TransientError
from burst.ports import Clock, NodeRequest, NodeView
from burst.records import desired_key, encode, stamp, status_key
from burst.storage.port import ObjectStore

FAST = Link(round_trip_s=0.0002, bytes_per_s=1.25e9)


@dataclass(slots=True)
class Faults:
    """How often a call goes wrong, from 0 to 1, and how late things show."""

    throttled: float = 0.0  # any call: "try again later", nothing done
    unheard: float = 0.0  # a create or an end that worked, and whose answer was lost
    wrong: float = 0.0  # a list that leaves a machine out
    late_s: float = 0.0  # from a machine's making until lists show it
    lingers_s: float = 0.0  # from the call to end a machine until it is gone


@dataclass(slots=True)
class Machine:
    """A machine that was made."""

    request: NodeRequest
    born: datetime
    born_s: float
    ending_s: float | None = None  # when it is gone, by the clock's `monotonic`
    ended: datetime | None = None
    leaves: datetime | None = None  # the cloud said that it takes it back then
    agent: bool = False


@dataclass(slots=True)
class FakeCloud:
    """Makes machines until there is no stock; idempotent by run and node."""

    clock: Clock
    stock: Callable[[NodeRequest], bool] = lambda _: True
    faults: Faults = field(default_factory=Faults)
    chance: random.Random = field(default_factory=random.Random)
    machines: dict[str, Machine] = field(default_factory=dict)  # by token; ever made
    calls: int = 0
    vacant: dict[Place, int] = field(default_factory=dict)  # what it says it could give
    network: Callable[[Place, Place], Link | None] = lambda *_: FAST  # None: never measured

    def create(self, request: NodeRequest) -> bool:
        """Make a machine; return whether there was stock. TransientError: perhaps not made."""
        self._throttle()
        token = f"{request.run_id}/{request.node_id}"
        if token not in self.machines:
            if not self.stock(request):
                return False
            now = self.clock
            made = Machine(request=request, born=now.now(), born_s=now.monotonic())
            self.machines[token] = made
        self._lose_answer()
        return True

    def alive(self, run_id: str | None = None) -> dict[str, Machine]:
        """Return the machines that are there and cost money: the truth."""
        for machine in self.machines.values():
            self._settle(machine)
        return {
            token: machine
            for token, machine in self.machines.items()
            if machine.ended is None and run_id in {None, machine.request.run_id}
        }

    def list(self, run_id: str) -> dict[str, Machine]:
        """Return what the cloud says was made for a run, which may be late or wrong."""
        self._throttle()
        self.alive()
        old = self.clock.monotonic() - self.faults.late_s
        return {
            token: machine
            for token, machine in self.machines.items()
            if machine.request.run_id == run_id
            and machine.born_s <= old
            and self.chance.random() >= self.faults.wrong
        }

    def end(self, token: str) -> None:
        """Ask for a machine's end. TransientError: perhaps not heard."""
        self._throttle()
        machine = self.machines.get(token)
        if machine is not None and machine.ending_s is None:
            machine.ending_s = self.clock.monotonic() + self.faults.lingers_s
            self._settle(machine)
        self._lose_answer()

    def take(self, token: str, after_s: float) -> None:
        """Say that a machine will be taken away, and do so."""
        machine = self.machines[token]
        machine.ending_s = self.clock.monotonic() + after_s
        machine.leaves = self.clock.now() + timedelta(seconds=after_s)

    def lose(self, token: str) -> None:
        """Take a machine away without a word, if it is there."""
        machine = self.machines.get(token)
        if machine is not None:
            machine.ending_s = machine.ending_s or self.clock.monotonic()
            machine.ended = machine.ended or self.clock.now()

    def _settle(self, machine: Machine) -> None:
        due = machine.ending_s is not None and self.clock.monotonic() >= machine.ending_s
        if machine.ended is None and due:
            machine.ended = self.clock.now()

    def _throttle(self) -> None:
        self.calls += 1
        if self.chance.random() < self.faults.throttled:
            raise TransientError("RequestLimitExceeded")

    def _lose_answer(self) -> None:
        if self.chance.random() < self.faults.unheard:
            raise TransientError("the connection was closed before the answer came")


class FakeProvisioner:
    """See burst.ports.Provisioner. A node's agent is ready at once, and says so in the store."""

    GRACE_S = 30.0  # a machine just asked for is not missing because a list does not show it
    BELIEVED = 2  # lists in a row that leave a node out until it is taken for gone

    def __init__(self, cloud: FakeCloud, store: ObjectStore, *, outlives: bool = False) -> None:
        self.outlives = outlives
        self._cloud = cloud
        self._store = store
        self._asked: dict[str, tuple[NodeRequest, float]] = {}  # when, by the monotonic clock
        self._unmade: dict[str, NodeRequest] = {}  # asked for, and no answer came yet
        self._refused: dict[str, NodeRequest] = {}
        self._missing: dict[str, int] = {}
        self._seen: dict[str, Machine] = {}
        self._beat = 0

    def launch(self, request: NodeRequest) -> None:
        self._asked[request.node_id] = (request, self._cloud.clock.monotonic())
        self._unmade[request.node_id] = request
        self._make(request)

    def _make(self, request: NodeRequest) -> None:
        """Ask with the same token until there is an answer: never two machines."""
        try:
            made = self._cloud.create(request)
        except TransientError:
            return
        del self._unmade[request.node_id]
        if not made:
            self._refused[request.node_id] = request

    def observe(self, run_id: str, doubted: Collection[str] = ()) -> tuple[NodeView, ...]:
        del doubted
        for request in list(self._unmade.values()):
            self._make(request)
        listed = {m.request.node_id: m for m in self._cloud.list(run_id).values()}
        self._seen |= listed
        there = {name: machine for name, machine in listed.items() if machine.ended is None}
        names = sorted({*self._asked, *self._seen})
        return tuple(self._view(name, there) for name in names)

    def _view(self, name: str, there: dict[str, Machine]) -> NodeView:
        machine = self._seen.get(name)
        since, until = (machine.born, machine.ended) if machine else (None, None)
        if name in self._refused:
            place = self._refused[name].choice.place
            refused = Refused(place=place, reason="capacity", detail="out of stock")
            return NodeView(node_id=name, state="refused", refusals=(refused,))
        if name in there:
            self._missing[name] = 0
            there[name].agent |= name in self._asked
            if there[name].agent:
                self._serve(name)
            return NodeView(node_id=name, state="running", since=since, leaves=there[name].leaves)
        self._missing[name] = self._missing.get(name, 0) + 1
        _, asked_s = self._asked.get(name, (None, float("-inf")))
        young = self._cloud.clock.monotonic() - asked_s < self.GRACE_S and machine is None
        if young or name in self._unmade:
            return NodeView(node_id=name, state="asked")
        if machine is not None and machine.ended is None and self._missing[name] < self.BELIEVED:
            return NodeView(node_id=name, state="running", since=since)
        return NodeView(node_id=name, state="gone", since=since, until=until)

    def _serve(self, name: str) -> None:
        """Be the node's agent: what is wanted is so."""
        try:
            wanted = json.loads(self._store.get(desired_key(name)))
        except FileNotFoundError:
            wanted = {}
        ray = wanted.get("ray") or {}
        self._beat += 1
        status = {
            "setup": "done",
            "ray": "ended" if wanted.get("end") else "up" if ray else "waiting",
            "cluster": ray.get("cluster", 0),
            "address": "127.0.0.2:6379",
            "beat": self._beat,
            "time": stamp(self._cloud.clock.now()),
        }
        if (peers := wanted.get("probe")) is not None:
            status["probe"] = {
                "address": f"{name}:1",
                "links": self._links(name, peers["ask"]),
                "reached": self._links(name, peers["reach"]),
            }
        self._store.put(status_key(name), encode(status))

    def _links(self, name: str, peers: Collection[str]) -> dict[str, Any]:
        """Measure from a node to others."""
        places = {peer: self._seen[peer].request.choice.place for peer in (name, *peers)}
        found = {peer: self._cloud.network(places[name], places[peer]) for peer in peers}
        return {peer: asdict(link) for peer, link in found.items() if link is not None}

    def vacant(self, places: Collection[Place]) -> tuple[Place, ...]:
        return tuple(place for place in places for _ in range(self._cloud.vacant.get(place, 0)))

    def end(self, run_id: str, node_id: str) -> bool:
        self._unmade.pop(node_id, None)
        token = f"{run_id}/{node_id}"
        self._cloud.end(token)
        return token not in self._cloud.alive(run_id)

    def sweep(self, run_id: str, but: Collection[str] = ()) -> tuple[str, ...]:
        found = []
        for token, machine in self._cloud.alive(run_id).items():
            if machine.request.node_id not in but:
                found.append(token)
                self._end_surely(token)
        return tuple(found)

    def _end_surely(self, token: str) -> None:
        """Ask for a machine's end until the answer is heard."""
        while True:
            try:
                self._cloud.end(token)
            except TransientError:
                self._cloud.clock.sleep(1.0)
            else:
                return
