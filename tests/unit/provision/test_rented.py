"""The pool of rented machines, against clusters that are entries in a dict."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from burst.cost.placement import Choice, Place
from burst.errors import BurstError, SetupError, TransientError
from burst.ports import NodeRequest, NodeView
from burst.provision import rented
from burst.provision.refusals import RefusedError
from burst.provision.rented import (
    Clouds,
    Machine,
    MachineRequest,
    RentedProvisioner,
    Settings,
    SilentError,
    by_node,
)
from burst.provision.ssh import Login, Ssh
from restless_clock import RestlessClock

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

AWS = Place(pool="aws", region="us-east-1", zone="us-east-1a", machine_type="m6i.large", spot=True)
REQUEST = NodeRequest(
    run_id="toy-abcdef",
    node_id="n001",
    run_uri="s3://b/runs/toy-abcdef",
    index=0,
    choice=Choice(place=AWS, usd_per_hour=Decimal("0.034")),
    env={"BURST_USER_ENV": '{"PIN": "hunter2"}'},
)


class FakeClusters:
    """See burst.provision.rented.Clusters; also the cloud behind them."""

    def __init__(self) -> None:
        self.up: dict[str, str] = {}
        self.wanted: Mapping[str, object] = {}  # of the last launch
        self.since: dict[str, datetime] = {}
        self.until: dict[str, datetime] = {}
        self.launched: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.refuse = ""
        self.trips: list[str] = []  # what the next launches say, which come to nothing
        self.leaves = False  # a failed launch leaves a machine
        self.deaf = 0  # so many calls of `down` fail
        self.fault: BurstError = TransientError("500, try again in 60 seconds")
        self.unheeded = 0  # so many calls of `down` end nothing
        self.free = 0
        self.kept: list[str] = []
        self.busy = False  # the cloud keeps nothing
        self.sick: set[str] = set()  # nodes whose machine is of no use, and paid for
        self.taken: dict[str, datetime] = {}  # nodes whose machine is about to be taken back

    def launch(self, request: MachineRequest) -> None:
        name, self.wanted = request.name, request.wanted
        assert request.wait_s == REQUEST.wait_s
        assert request.labels == {"burst-run": "toy-abcdef", "burst-node": name[-4:]}
        self.launched.append(name)
        self.gate.wait(5)
        if self.trips:
            raise RefusedError("no", self.trips.pop())
        if self.refuse and not self.leaves:
            raise RefusedError("no", self.refuse)
        self.up[name] = "up"
        self.since[name[-4:]] = BEGIN
        if self.refuse:
            raise RefusedError("no", self.refuse)

    def states(self, prefix: str, *, refresh: bool) -> Mapping[str, str]:
        return {name: state for name, state in self.up.items() if name.startswith(prefix)}

    def login(self, name: str, keys: Path) -> Login:
        return Login(host="10.0.0.1", ip="10.0.0.1", user="ubuntu")

    held = False

    def end_command(self, request: NodeRequest) -> str:
        return f"end {request.node_id}"

    def machine_env(self, name: str) -> Mapping[str, str]:
        return {"CUDA_VISIBLE_DEVICES": f"GPU-of-{name}"}

    def vacant(self, place: Place) -> int:
        return self.free

    def down(self, name: str) -> None:
        if self.deaf:
            self.deaf -= 1
            raise self.fault
        if self.unheeded:
            self.unheeded -= 1
            return
        self._gone(name)

    def _gone(self, name: str) -> None:
        if self.up.pop(name, None):
            self.until[name[-4:]] = BEGIN

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        return {
            node: Machine(
                name=node,
                since=since,
                until=self.until.get(node),
                costs=node not in self.until,
                works=node not in self.sick,
                leaves=self.taken.get(node),
            )
            for node, since in self.since.items()
        }

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        for node in node_ids:
            self._gone(f"burst-{run_id}-{node}")
            self.until[node] = BEGIN

    def keep(self, run_id: str) -> None:
        self.kept.append(run_id)
        if self.busy:
            raise TransientError("Throttling")


class Wire:
    """Takes the place of ssh: notes what is sent to nodes. What is known is always fresh."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[str] = []
        self.data: list[bytes] = []
        self.silent = 0

        def run(_: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
            if self.silent:
                self.silent -= 1
                raise TransientError("connection refused")
            self.commands.append(command)
            self.data.append(data)
            return "no\n"

        monkeypatch.setattr(Ssh, "run", run)
        monkeypatch.setattr(rented, "DOUBT_LOOK_S", 0.0)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


@pytest.fixture
def clusters() -> FakeClusters:
    return FakeClusters()


@pytest.fixture
def pool(clusters: FakeClusters, wire: Wire, tmp_path: Path) -> Iterator[RentedProvisioner]:
    yield make(clusters, tmp_path)
    clusters.gate.set()


def make(clusters: FakeClusters, home: Path) -> RentedProvisioner:
    settings = Settings(home=home, wanted={}, lease_ttl_s=600.0, env={"AWS_REGION": "us-east-1"})
    return RentedProvisioner(clusters, clusters, settings, RestlessClock())


def until(pool: RentedProvisioner, what: Callable[[NodeView], bool]) -> NodeView:
    """Wait until the node is seen as wanted."""
    end = time.monotonic() + 10
    while True:
        views = [view for view in pool.observe("toy-abcdef", ["n001"]) if view.node_id == "n001"]
        if views and what(views[0]):
            return views[0]
        assert time.monotonic() < end, views
        time.sleep(0.01)  # noqa: TID251


def test_an_answer_that_is_late_takes_nothing_back(
    pool: RentedProvisioner, clusters: FakeClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads ask; the first to do so is answered last, with what was true before."""
    now, slow, asked = threading.Event(), threading.Event(), clusters.machines
    clusters.since = {"n001": BEGIN}

    def machines(run_id: str) -> Mapping[str, Machine]:
        found = dict(asked(run_id))
        if threading.current_thread() is first:
            now.set()
            assert slow.wait(5)
            found["n003"] = replace(found["n001"], name="n003")
        return found

    monkeypatch.setattr(clusters, "machines", machines)
    first = threading.Thread(target=pool.sweep, args=(REQUEST.run_id,))
    first.start()
    assert now.wait(5)
    clusters.since["n002"] = BEGIN
    clusters.until["n001"] = BEGIN
    pool.sweep(REQUEST.run_id)
    slow.set()
    first.join(5)

    def silent(_: str) -> Mapping[str, Machine]:
        raise SilentError({"aws": TransientError("503")}, {})

    monkeypatch.setattr(clusters, "machines", silent)
    views = {view.node_id: view for view in pool.observe(REQUEST.run_id, ["n001", "n002"])}
    assert views["n001"].until == BEGIN
    assert {"n002", "n003"} <= set(views)


def test_a_node_is_asked_then_running_with_its_agent_started(
    pool: RentedProvisioner, clusters: FakeClusters, wire: Wire
) -> None:
    clusters.gate.clear()
    wire.silent = 2  # a fresh machine takes a moment until ssh answers
    pool.launch(REQUEST)
    pool.launch(REQUEST)
    assert until(pool, lambda view: True).state == "asked"
    clusters.gate.set()
    until(pool, lambda view: view.state == "running")
    assert clusters.launched == ["burst-toy-abcdef-n001"]
    assert wire.commands[-1].startswith("sh $HOME/.burst/code/")


@pytest.mark.parametrize(
    ("most", "told"), [(None, {}), (Decimal("0.05"), {"max_hourly_cost": 0.05})]
)
def test_what_a_node_may_cost_is_told_with_its_launch(
    pool: RentedProvisioner, clusters: FakeClusters, most: Decimal | None, told: dict[str, float]
) -> None:
    choice = replace(REQUEST.choice, most_usd_per_hour=most)
    pool.launch(replace(REQUEST, choice=choice))
    until(pool, lambda view: view.state == "running")
    assert clusters.wanted == told


@pytest.mark.parametrize("number", [0, 1])
def test_a_machine_is_wanted_as_the_tasks_candidate_says(
    clusters: FakeClusters, wire: Wire, tmp_path: Path, number: int
) -> None:
    each = ({"image_id": "ami-1"}, {"disk_tier": "high"})
    settings = Settings(home=tmp_path, wanted={"file_mounts": {}}, by_candidate=each,
                        lease_ttl_s=600.0)  # fmt: skip
    pool = RentedProvisioner(clusters, clusters, settings, RestlessClock())
    pool.launch(replace(REQUEST, choice=replace(REQUEST.choice, candidate=number)))
    until(pool, lambda view: view.state == "running")
    assert clusters.wanted == {"file_mounts": {}, **each[number]}


def test_secrets_go_through_the_wire_and_into_no_command_line(
    pool: RentedProvisioner, wire: Wire
) -> None:
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "running")
    assert b"hunter2" in wire.data[-1]
    assert not any("hunter2" in command for command in wire.commands)


@pytest.mark.parametrize(
    ("place", "looks_for"),
    [
        (AWS, "aws"),
        (replace(AWS, spot=False), None),
        (Place(pool="slurm/lab", owned=True), "slurm"),
        (Place(pool="k8s/arn:aws:eks:eu-west-1:1:cluster/a", owned=True), "k8s"),
    ],
)
def test_agents_look_for_notices_where_machines_may_be_taken(
    pool: RentedProvisioner, wire: Wire, place: Place, looks_for: str | None
) -> None:
    pool.launch(replace(REQUEST, choice=replace(REQUEST.choice, place=place)))
    until(pool, lambda view: view.state == "running")
    told = json.loads(wire.data[-1])["arguments"]
    found = told[told.index("--cloud") + 1] if "--cloud" in told else None
    assert found == looks_for


@pytest.mark.parametrize("held", [False, True])
def test_agents_are_told_how_their_machine_ends_itself(
    pool: RentedProvisioner, clusters: FakeClusters, wire: Wire, held: bool
) -> None:
    clusters.held = held
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "running")
    told = json.loads(wire.data[-1])
    assert (told["end"], told["held"]) == ("end n001", held)


def test_agents_are_told_of_their_machine(pool: RentedProvisioner, wire: Wire) -> None:
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "running")
    env = json.loads(wire.data[-1])["env"]
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-of-burst-toy-abcdef-n001"
    assert env["BURST_NODE_ID"] == "n001"


@pytest.mark.parametrize("fault", [TransientError("500, try again"), SetupError("exit code 1")])
def test_a_refusal_is_data_and_leaves_no_machine(
    pool: RentedProvisioner, clusters: FakeClusters, fault: BurstError
) -> None:
    """Set-up of SkyPilot that failed leaves a machine running and billing; here it is ended."""
    clusters.refuse = "x\nInsufficientInstanceCapacity: no m6i.large in us-east-1a\ny"
    clusters.leaves = True
    clusters.deaf, clusters.fault = 2, fault
    pool.launch(REQUEST)
    view = until(pool, lambda view: view.state == "refused")
    (refused,) = view.refusals
    assert (refused.place, refused.reason) == (AWS, "capacity")
    assert refused.detail == "InsufficientInstanceCapacity: no m6i.large in us-east-1a"
    assert clusters.up == {}
    assert pool.end("toy-abcdef", "n001") is True


def test_a_machine_whose_agent_does_not_start_was_there_and_is_lost(
    pool: RentedProvisioner, clusters: FakeClusters, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is paid for, and counts as a loss; a run must not go on renting such machines."""

    def run(_: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        if "start.sh" in command:
            raise SetupError("this node has other versions than the controller: ray 2.9 for 2.60")
        return "no\n"

    monkeypatch.setattr(Ssh, "run", run)
    pool.launch(REQUEST)
    view = until(pool, lambda view: view.state == "gone")
    assert "ray 2.9 for 2.60" in view.detail
    assert (view.since, view.until, clusters.up) == (BEGIN, BEGIN, {})


def test_a_machine_whose_set_up_by_skypilot_failed_was_there_and_is_lost(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    """A bucket that is not there: as refusals, such machines were rented for ever and cost "$0"."""
    clusters.refuse, clusters.leaves = "aws s3 sync failed: NoSuchBucket", True
    pool.launch(REQUEST)
    view = until(pool, lambda view: view.state != "asked")
    assert (view.state, clusters.up) == ("gone", {})
    assert "NoSuchBucket" in view.detail


def test_an_error_that_nobody_expected_leaves_no_machine_either(
    pool: RentedProvisioner, clusters: FakeClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def login(*_: object) -> Login:
        raise KeyError("ssh_private_key_content")

    monkeypatch.setattr(clusters, "login", login)
    pool.launch(REQUEST)
    view = until(pool, lambda view: view.state == "gone")
    assert "KeyError: 'ssh_private_key_content'" in view.detail
    assert clusters.up == {}


def test_ends_do_not_wait_for_launches_and_what_nobody_wants_is_not_made(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    clusters.gate.clear()
    names = [f"n{number:03d}" for number in range(1, 2 * rented.AT_ONCE + 1)]
    for name in names:
        pool.launch(replace(REQUEST, node_id=name))
    until(pool, lambda view: view.state == "asked")
    for name in names:
        assert pool.end("toy-abcdef", name) is False
    clusters.gate.set()
    end = time.monotonic() + 10
    while not all(pool.end("toy-abcdef", name) for name in names):
        assert time.monotonic() < end
        time.sleep(0.01)  # noqa: TID251
    assert len(clusters.launched) == rented.AT_ONCE
    assert clusters.up == {}


TRIPPED = "(LimitExceeded): Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1"


def test_launches_that_trip_over_each_other_are_made_once_more(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    """Two that furnish a new account at once: SkyPilot fails one of them."""
    clusters.trips = [TRIPPED]
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "running")
    assert clusters.launched == ["burst-toy-abcdef-n001"] * 2


def test_what_nobody_understands_is_told_in_full(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    clusters.trips = [TRIPPED, TRIPPED]
    pool.launch(REQUEST)
    (refused,) = until(pool, lambda view: view.state == "refused").refusals
    assert str(refused) == f"{AWS}: unknown ({TRIPPED})"
    assert clusters.up == {}


def test_a_machine_that_its_cloud_took_is_gone_though_skypilot_says_up(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "running")
    clusters.until["n001"] = BEGIN
    view = until(pool, lambda view: view.state == "gone")
    assert (view.since, view.until) == (BEGIN, BEGIN)


def test_a_machine_that_its_cloud_is_about_to_take_says_so_and_runs(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    pool.launch(REQUEST)
    assert until(pool, lambda view: view.state == "running").leaves is None
    clusters.taken["n001"] = BEGIN
    assert until(pool, lambda view: view.leaves is not None).state == "running"


def test_of_two_machines_of_a_node_the_one_that_leaves_first_counts() -> None:
    one = Machine(name="a", since=BEGIN, until=None, costs=True)
    soon, later = (replace(one, leaves=BEGIN + timedelta(minutes=n)) for n in (1, 2))
    assert by_node([("n001", one), ("n001", later), ("n001", soon)])["n001"].leaves == soon.leaves
    gone = replace(soon, costs=False, until=BEGIN)
    assert by_node([("n001", one), ("n001", gone)])["n001"].leaves is None


def test_a_cloud_is_asked_of_a_machine_as_soon_as_it_is_made(
    pool: RentedProvisioner, clusters: FakeClusters, wire: Wire
) -> None:
    """Alibaba Cloud forgets what ends before the next look: it had no times, and ran for ever."""
    pool._newest("toy-abcdef", in_doubt=False)  # nothing is there; the next look is far off
    pool.launch(REQUEST)
    work = pool._nodes["n001"].work
    assert work is not None
    work.result(10)
    clusters.since.clear()  # it has ended, and the cloud has forgotten it
    (view,) = pool.observe("toy-abcdef")
    assert view.since == BEGIN


def test_machines_are_kept_with_each_look(
    pool: RentedProvisioner, clusters: FakeClusters, caplog: pytest.LogCaptureFixture
) -> None:
    pool.launch(REQUEST)
    until(pool, lambda _: len(clusters.kept) >= 3)
    assert set(clusters.kept) == {"toy-abcdef"}
    clusters.busy = True
    until(pool, lambda view: "are not kept longer yet: Throttling" in caplog.text)
    assert until(pool, lambda view: view.state == "running").state == "running"


SILENT = "what lambda has is not known: 503"


class Away(FakeClusters):
    """A cloud that does not answer."""

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        raise TransientError("503")

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        raise TransientError("503")

    def keep(self, run_id: str) -> None:
        raise TransientError("503")


def test_several_clouds_are_asked_as_one() -> None:
    one, other = FakeClusters(), FakeClusters()
    one.since["n001"], other.since["n002"] = BEGIN, BEGIN
    both = Clouds({"aws": one, "lambda": other})
    both.end("toy-abcdef", ["n009"])  # of which nobody knows where it is
    assert "n009" in one.until
    assert "n009" in other.until
    assert set(both.machines("toy-abcdef")) == {"n001", "n002"}
    both.keep("toy-abcdef")
    assert one.kept == other.kept == ["toy-abcdef"]
    both.end("toy-abcdef", ["n002"])
    assert "n002" not in one.until
    assert "n002" in other.until


def test_a_cloud_that_does_not_answer_hides_no_machine_of_another() -> None:
    other = FakeClusters()
    other.since["n001"] = BEGIN
    both = Clouds({"lambda": Away(), "aws": other})
    with pytest.raises(TransientError, match="503"):
        both.end("toy-abcdef", ["n009"])
    with pytest.raises(SilentError, match=r"^what lambda has is not known: 503$") as caught:
        both.machines("toy-abcdef")
    assert [*caught.value.machines] == ["n001"]
    with pytest.raises(TransientError, match="503"):
        both.keep("toy-abcdef")
    both.end("toy-abcdef", ["n001"])
    assert other.kept == ["toy-abcdef"]
    assert "n001" in other.until


def test_a_node_is_seen_and_ended_while_another_cloud_is_silent(
    clusters: FakeClusters, wire: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(home=tmp_path, wanted={}, lease_ttl_s=600.0)
    clouds = Clouds({"lambda": Away(), "aws": clusters})
    pools = {"n007": "lambda"}  # an earlier controller asked for it
    pool = RentedProvisioner(clusters, clouds, settings, RestlessClock(), pools)
    pool.launch(REQUEST)
    assert until(pool, lambda view: view.state == "running").since == BEGIN
    assert SILENT in caplog.messages
    caplog.clear()  # it is told once
    states = {view.node_id: view.state for view in pool.observe("toy-abcdef")}
    assert states == {"n001": "running", "n007": "running"}  # nobody says that it is gone
    clusters.until["n001"] = BEGIN
    assert until(pool, lambda view: view.state == "gone").until == BEGIN
    del clusters.until["n001"]
    pool.end("toy-abcdef", "n001")
    pool._ending["n001"].result(10)
    assert clusters.up == {}
    assert pool.end("toy-abcdef", "n001")
    with pytest.raises(TransientError, match="lambda may have machines of toy-abcdef"):
        pool.sweep("toy-abcdef")
    pool.end("toy-abcdef", "n007")
    with pytest.raises(TransientError, match="503"):
        pool._ending["n007"].result(10)
    assert SILENT not in caplog.messages


def test_a_cloud_without_nodes_of_the_run_may_be_silent_at_the_end(
    clusters: FakeClusters, wire: Wire, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, wanted={}, lease_ttl_s=600.0)
    clouds = Clouds({"lambda": Away(), "aws": clusters})
    pool = RentedProvisioner(clusters, clouds, settings, RestlessClock(), {"n001": "aws"})
    clusters.since["n001"] = BEGIN
    assert pool.sweep("toy-abcdef") == ("n001",)
    assert "n001" in clusters.until


def test_a_machine_of_no_use_is_lost_and_paid_for_until_it_is_ended(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "running")
    clusters.sick.add("n001")
    assert until(pool, lambda view: view.state == "gone").until is None
    pool.end("toy-abcdef", "n001")
    assert until(pool, lambda view: view.until is not None).until == BEGIN


def test_an_end_is_over_when_the_cloud_agrees(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    """C70: the answer was OK and the machine stays."""
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "running")
    clusters.unheeded = 2
    assert pool.end("toy-abcdef", "n001") is False
    until(pool, lambda _: pool.end("toy-abcdef", "n001"))
    assert clusters.up == {}


def test_an_end_that_failed_is_tried_again_when_asked_again(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "running")
    clusters.deaf = 1
    pool.end("toy-abcdef", "n001")
    time.sleep(0.2)  # noqa: TID251
    assert until(pool, lambda view: True).state == "running"
    pool.end("toy-abcdef", "n001")
    until(pool, lambda view: view.state == "gone")


def test_a_node_given_up_while_it_was_made_leaves_nothing(
    pool: RentedProvisioner, clusters: FakeClusters, wire: Wire
) -> None:
    clusters.gate.clear()
    pool.launch(REQUEST)
    pool.end("toy-abcdef", "n001")
    clusters.gate.set()
    until(pool, lambda view: view.state == "gone")
    assert clusters.up == {}
    assert wire.commands == []  # no agent was started on it


def test_a_node_given_up_whose_rest_cannot_be_ended_keeps_no_thread_at_work(
    pool: RentedProvisioner, clusters: FakeClusters
) -> None:
    """Python waits for threads at its end: a controller that has given up must come to its own."""
    clusters.refuse, clusters.leaves, clusters.deaf = "no-capacity", True, 1_000_000
    pool.launch(REQUEST)
    until(pool, lambda view: view.state == "asked")
    assert pool.end("toy-abcdef", "n001") is False
    pool._launches.shutdown(wait=True)  # for ever, once
    assert pool.end("toy-abcdef", "n001") is False, "it is still there"
    clusters.deaf = 0
    until(pool, lambda _: pool.end("toy-abcdef", "n001"))
    assert clusters.up == {}


def test_another_controller_sees_what_is_there_and_sweeps_what_it_does_not_keep(
    pool: RentedProvisioner, clusters: FakeClusters, tmp_path: Path
) -> None:
    pool.launch(REQUEST)
    pool.launch(replace(REQUEST, node_id="n002", index=1))
    until(pool, lambda view: view.state == "running")
    while "burst-toy-abcdef-n002" not in clusters.up:
        time.sleep(0.01)  # noqa: TID251
    clusters.up["burst-toy-abcdef-n002-q1w2e3-n001"] = "up"  # of a run with a longer name
    clusters.since["n003"] = BEGIN  # SkyPilot's database does not know it
    other = make(clusters, tmp_path)
    states = {view.node_id: view.state for view in other.observe("toy-abcdef")}
    assert states == dict.fromkeys(("n001", "n002", "n003"), "running")
    assert len(other.sweep("toy-abcdef", ["n001"])) == 2
    assert sorted(clusters.up) == ["burst-toy-abcdef-n001", "burst-toy-abcdef-n002-q1w2e3-n001"]
    assert not clusters.machines("")["n003"].costs
