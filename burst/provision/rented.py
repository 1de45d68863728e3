"""The pool of rented machines: SkyPilot makes and ends them, an agent on each obeys the run.

One cluster of one node per burst node, so that losing one loses nothing else. Everything slow is
done in threads; a node's thread makes its machine, brings burst's code there and starts the
agent. What is known of the machines is asked of SkyPilot and, where it can be, of the cloud
itself, seldom, and at once when a node is in doubt.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import shlex
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from burst.cost.events import Refused
from burst.cost.placement import Place, Reason
from burst.errors import BurstError, SetupError, TransientError
from burst.ports import Clock, NodeRequest, NodeView
from burst.provision import refusals
from burst.provision.bundle import bundle, pins
from burst.provision.refusals import RefusedError
from burst.provision.ssh import Login, Ssh
from burst.records import node_folder

log = logging.getLogger(__name__)

AT_ONCE = 8  # calls at work at the same time
LOOK_S = 45.0  # how old what is known may be
VACANT_LOOK_S = 20.0  # how old what is said of vacant places may be
DOUBT_LOOK_S = 5.0  # and when a node gives no sign of life
REACH_S = 120.0  # how long a fresh machine may take until ssh works
INSTALL_S = 1800.0  # how long making the Python environment of a node may take
GONE_LOOKS = 15  # how often a machine is asked to end and looked at before that failed
NODE_ID = re.compile(r"n\d{3,}")
RUN_TAG, NODE_TAG = "burst-run", "burst-node"  # what every machine carries
GRACE_S = 120.0  # between the end of an agent and that of its machine


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRequest:
    """A machine that is asked for, to be one node."""

    name: str
    place: Place
    wanted: Mapping[str, Any]  # as in Settings
    labels: Mapping[str, str]  # whose machine it is, where machines can say so
    log: Path  # what is said while it is made is written there
    wait_s: float | None = None  # how long the place may let it wait; None: as it sees fit


class Clusters(Protocol):
    """What makes and ends machines, by name: burst.provision.skypilot, burst.provision.hosts.

    Every call may block, and may be made from several threads at once. TransientError: nobody
    answers, the same call may work later.
    """

    @property
    def held(self) -> bool:
        """Whether a machine is a job, whose first process waits to be its agent's supervisor."""
        ...

    def end_command(self, request: NodeRequest) -> str:
        """Return the shell command by which a node's machine ends itself; "" where none can."""
        ...

    def machine_env(self, name: str) -> Mapping[str, str]:
        """Return what a node's processes must be told of its machine. TransientError."""
        ...

    def launch(self, request: MachineRequest) -> None:
        """Make a machine; of a name that has one already, nothing more. RefusedError: none."""
        ...

    def states(self, prefix: str, *, refresh: bool) -> Mapping[str, str]:
        """Return the machines whose name begins so. TransientError rather than none if unknown."""
        ...

    def login(self, name: str, keys: Path) -> Login:
        """Return how a machine is reached. TransientError if nobody knows it."""
        ...

    def down(self, name: str) -> None:
        """End a machine. Safe to call twice, and on what never was."""
        ...

    def vacant(self, place: Place) -> int:
        """Return how many machines a place could give at once; 0 if it cannot tell."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a cloud says of a node's machine."""

    name: str  # the cloud's own
    since: datetime
    until: datetime | None
    costs: bool
    works: bool = True  # if not, it is lost to the run though it may still cost
    leaves: datetime | None = None  # the cloud said that it takes it back, not before this

    def __str__(self) -> str:
        return self.name

    def gone(self, now: datetime) -> Machine:
        """Return it as one that its pool does not show any more."""
        return replace(self, until=self.until or now, costs=False)


def by_node(found: Iterable[tuple[str, Machine]]) -> dict[str, Machine]:
    """Return machines by node; two of one node, whose launch was made once more, count as one."""
    together: dict[str, list[Machine]] = {}
    for node_id, machine in found:
        together.setdefault(node_id, []).append(machine)
    return {node_id: _as_one(its) for node_id, its in together.items()}


def _as_one(its: list[Machine]) -> Machine:
    there = [one for one in its if one.costs]
    until = [one.until for one in its if one.until is not None]
    open_end = any(one.until is None for one in there)
    return Machine(
        name=", ".join(one.name for one in there or its),
        since=min(one.since for one in its),
        until=None if open_end else max(until, default=None),
        costs=bool(there),
        works=any(one.works for one in there),
        leaves=min((one.leaves for one in there if one.leaves is not None), default=None),
    )


@runtime_checkable
class Cloud(Protocol):
    """What the clouds themselves say of machines with a run's tags; see burst.provision.ec2."""

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        """Return a run's machines by node, those that ended lately too. TransientError."""
        ...

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        """End the machines of some nodes; safe to repeat. TransientError if that is not taken."""
        ...

    def keep(self, run_id: str) -> None:
        """Put off when the cloud ends the run's machines by itself, if it does.

        Called again and again while the run is driven. TransientError if that is not taken.
        """
        ...


class SilentError(TransientError):
    """Some clouds do not answer, so that nothing is known of their machines; others do."""

    def __init__(
        self, silent: Mapping[str, TransientError], machines: Mapping[str, Machine]
    ) -> None:
        told = (f"what {name} has is not known: {error}" for name, error in silent.items())
        super().__init__("; ".join(told))
        self.silent = silent  # by pool
        self.machines = machines  # of those that answer


class Clouds:
    """See Cloud: several of them, by their pools' names, as one.

    One that is silent hides no machine of another, and keeps none from being ended or kept.
    """

    def __init__(self, clouds: Mapping[str, Cloud]) -> None:
        self._clouds = dict(clouds)
        self._where: dict[str, str] = {}  # the pool of each node that was seen

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        """See Cloud. SilentError, with what the others say, if one does not answer."""
        found: dict[str, Machine] = {}
        silent: dict[str, TransientError] = {}
        for pool, cloud in self._clouds.items():
            try:
                its = cloud.machines(run_id)
            except TransientError as error:
                silent[pool] = error
            else:
                found.update(its)
                self._where.update(dict.fromkeys(its, pool))
        if silent:
            raise SilentError(silent, found)
        return found

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        def end(pool: str, cloud: Cloud) -> None:
            mine = [node for node in node_ids if self._where.get(node, pool) == pool]
            if mine:
                cloud.end(run_id, mine)

        self._tell(end)

    def keep(self, run_id: str) -> None:
        self._tell(lambda _, cloud: cloud.keep(run_id))

    def _tell(self, what: Callable[[str, Cloud], None]) -> None:
        """Tell each cloud, whatever others answer; TransientError then if one was not told."""
        failed: TransientError | None = None
        for pool, cloud in self._clouds.items():
            try:
                what(pool, cloud)
            except TransientError as error:
                failed = error
        if failed is not None:
            raise failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is the same for all nodes of a run."""

    home: Path
    wanted: Mapping[str, Any]  # of every machine, in SkyPilot's words
    by_candidate: Sequence[Mapping[str, Any]] = ()  # disk, image and the like, in the same words
    lease_ttl_s: float  # without a renewal for so long, a machine ends itself
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # store settings, tokens


@dataclass(slots=True)
class _Node:
    """A node that was asked for here."""

    request: NodeRequest
    work: Future[None] | None = None
    refused: tuple[Refused, ...] = ()
    failed: str = ""  # why the machine, which was there, came to nothing
    ready_s: float | None = None  # when its agent was started
    given_up: bool = False  # nobody wants it any more


class RentedProvisioner:
    """See burst.ports.Provisioner.

    `pools` are those of nodes that there may be: of an earlier controller.
    """

    outlives = True

    def __init__(
        self,
        clusters: Clusters,
        cloud: Cloud | None,
        settings: Settings,
        clock: Clock,
        pools: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._clusters = clusters
        self._cloud = cloud
        self._settings = settings
        self._clock = clock
        self._launches = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="launch")
        self._calls = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rented")
        self._nodes: dict[str, _Node] = {}
        self._pools = dict(pools)
        self._silent: frozenset[str] = frozenset()  # pools that did not answer, and were told of
        self._ending: dict[str, Future[None]] = {}
        self._times: Mapping[str, Machine] = {}
        self._questions, self._answered = itertools.count(), -1  # put to the clouds, by number
        self._answering = threading.Lock()
        self._look: Future[_Seen] | None = None
        self._seen: _Seen | None = None
        self._vacant: Future[tuple[Place, ...]] | None = None
        self._vacant_s = float("-inf")

    # Making ---------------------------------------------------------------------------------------

    def launch(self, request: NodeRequest) -> None:
        if request.node_id in self._nodes:
            return
        node = self._nodes[request.node_id] = _Node(request=request)
        self._pools[request.node_id] = request.choice.place.pool
        node.work = self._launches.submit(self._bring_up, node)

    def _bring_up(self, node: _Node) -> None:
        """Make the machine and start its agent; what fails leaves no machine.

        Without a machine it is a refusal. One whose set-up fails, SkyPilot's (a bucket that is not
        there, say) or ours, was there and is lost: it is paid for, and there is an end to trying.
        """
        if node.given_up:
            return
        made = False
        try:
            self._make(node)
            made = True
            if not node.given_up:
                self._start_agent(node)
                node.ready_s = self._clock.monotonic()
        except Exception as error:
            said, again_s = str(error), None
            if isinstance(error, RefusedError):
                said, again_s = error.said, error.again_s
            if not isinstance(error, BurstError):
                log.exception("%s could not be brought up", node.request.node_id)
                said = f"{type(error).__name__}: {error}"
            reason: Reason = refusals.reason_of(said)
            left = reason == "unknown" and self._is_there(node)
            if not self._clear(node):
                return
            place, gist = node.request.choice.place, refusals.gist(said)
            if made or left:
                node.failed = f"its {'agent did not start' if made else 'set-up failed'}: {gist}"
            else:
                node.refused = (Refused(place=place, reason=reason, detail=gist, again_s=again_s),)

    def _make(self, node: _Node) -> None:
        run_id, node_id = node.request.run_id, node.request.node_id
        request = MachineRequest(
            name=cluster_name(run_id, node_id),
            place=node.request.choice.place,
            wanted=self._wanted(node.request),
            labels={RUN_TAG: run_id, NODE_TAG: node_id},
            log=self._settings.home / "rented" / run_id / f"{node_id}.log",
            wait_s=node.request.wait_s,
        )
        try:
            self._clusters.launch(request)
        except RefusedError as error:
            if node.given_up or refusals.reason_of(error.said) != "unknown":
                raise
            log.warning("%s, once more: %s", request.name, refusals.gist(error.said))
            # SkyPilot's launches trip over each other when they furnish an account
            self._clusters.launch(request)
        finally:
            self._note_machine(node.request)

    def _wanted(self, request: NodeRequest) -> Mapping[str, Any]:
        """Return what is wanted of a node's machine, in SkyPilot's words."""
        most, number = request.choice.most_usd_per_hour, request.choice.candidate
        cap = {} if most is None else {"max_hourly_cost": float(most)}
        its = self._settings.by_candidate[number] if self._settings.by_candidate else {}
        return {**self._settings.wanted, **its, **cap}

    def _note_machine(self, request: NodeRequest) -> None:
        """Have its cloud asked at once: some forget a machine that ends before the next look."""
        try:
            self._ask_cloud(request.run_id)
        except TransientError as error:
            log.warning("%s: its cloud does not tell of it yet: %s", request.node_id, error)

    def _is_there(self, node: _Node) -> bool:
        """Whether a failed launch left a machine, as far as is known."""
        name = cluster_name(node.request.run_id, node.request.node_id)
        try:
            return name in self._clusters.states(name, refresh=False)
        except TransientError:
            return False

    def _clear(self, node: _Node) -> bool:
        """End what a failed launch may have left, until it is gone: SkyPilot leaves it running.

        Of a node that is given up meanwhile, `end` sees to that: then return False.
        """
        name = cluster_name(node.request.run_id, node.request.node_id)
        while not node.given_up:
            try:
                self._clusters.down(name)
            except BurstError as error:
                log.warning("%s: what is left of it is not ended yet: %s", name, error)
                self._clock.sleep(5.0)
            else:
                return True
        return False

    def _start_agent(self, node: _Node) -> None:
        """Bring burst's code to the machine, once, and start the agent; again changes nothing."""
        ssh = self.ssh(node.request.run_id, node.request.node_id)
        self._reach(ssh)
        self._see_run(ssh, node.request.run_uri)
        code = bundle()
        there = f"$HOME/.burst/code/{code.name}"
        if ssh.run(f"test -e {there} && echo yes || true").strip() != "yes":
            ssh.run(
                f"set -e; umask 077; mkdir -p $HOME/.burst/code; t=$(mktemp -d {there}.XXXX);"
                f" tar xzf - -C $t; mv -T $t {there} || test -e {there}",
                code.data,
                limit_s=300,
            )
        given = self._boot(node.request, ssh.login)
        ssh.run(f"sh {there}/burst/agent/start.sh", json.dumps(given).encode(), limit_s=INSTALL_S)

    def _reach(self, ssh: Ssh) -> None:
        began = self._clock.monotonic()
        while True:
            try:
                ssh.run("true", limit_s=30)
            except TransientError:
                if self._clock.monotonic() - began > REACH_S:
                    raise
                self._clock.sleep(2.0)
            else:
                return

    def _see_run(self, ssh: Ssh, uri: str) -> None:
        """Raise SetupError if the run is a folder that the machine does not see."""
        folder = uri.removeprefix("file://")
        if folder != uri and ssh.run(f"test -d {shlex.quote(folder)} && echo yes || true") == "":
            raise SetupError(
                f"{ssh.login.host} does not see {folder}, where the run is",
                hint="give a folder of a file system that all nodes have, or a bucket",
            )

    def _boot(self, request: NodeRequest, login: Login) -> Mapping[str, Any]:
        """Return what burst.agent.boot reads: the agent's arguments, and secrets beside them."""
        scratch = node_folder(request.run_id, request.node_id)
        arguments = ["--run-uri", request.run_uri, "--run-id", request.run_id]
        arguments += ["--node-id", request.node_id, "--index", str(request.index)]
        arguments += ["--ip", login.ip, "--scratch", scratch]
        arguments += ["--lease-ttl", str(self._settings.lease_ttl_s)]
        place = request.choice.place
        if place.spot or place.owned:  # nobody takes a rented machine that is on-demand
            arguments += ["--cloud", place.pool.partition("/")[0]]
        marks = {
            "BURST_RUN_ID": request.run_id,
            "BURST_NODE_ID": request.node_id,
            "BURST_NODE_DIR": scratch,
        }
        machine = self._clusters.machine_env(cluster_name(request.run_id, request.node_id))
        versions = dict(pin.split("==") for pin in pins() if pin.startswith(("ray==", "torch==")))
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return {
            "arguments": arguments,
            "env": {**self._settings.env, **request.env, **machine, **marks},
            "versions": {"python": python, **versions},
            "end": self._clusters.end_command(request),
            "grace_s": GRACE_S,
            "held": self._clusters.held,
        }

    def ssh(self, run_id: str, node_id: str) -> Ssh:
        """Return a way to run commands on a node."""
        home = self._settings.home
        name = cluster_name(run_id, node_id)
        return Ssh(self._clusters.login(name, home / "keys"), home / "known_hosts" / name)

    # Observing ------------------------------------------------------------------------------------

    def observe(self, run_id: str, doubted: Collection[str] = ()) -> tuple[NodeView, ...]:
        seen = self._newest(run_id, in_doubt=bool(doubted))
        unknown = {name for name in self._pools if self._is_unknown(name, seen.silent)}
        names = sorted({*self._nodes, *self._ending, *seen.states, *self._times, *unknown})
        return tuple(self._view(name, seen) for name in names)

    def _newest(self, run_id: str, *, in_doubt: bool) -> _Seen:
        """Return what was seen last; have it looked at again, in a thread, when that is old."""
        if self._look is not None and self._look.done():
            look, self._look = self._look, None
            self._seen = look.result()
        seen_s = self._seen.at_s if self._seen else float("-inf")
        if self._look is None and self._clock.monotonic() - seen_s >= (
            DOUBT_LOOK_S if in_doubt else LOOK_S
        ):
            self._look = self._calls.submit(self._look_now, run_id)
        if self._seen is None:
            assert self._look is not None
            look, self._look = self._look, None
            self._seen = look.result()
        return self._seen

    def _look_now(self, run_id: str) -> _Seen:
        at_s = self._clock.monotonic()
        silent = self._ask_cloud(run_id)  # it answers at once, SkyPilot takes its time
        self._keep(run_id)
        states = self._clusters.states(cluster_name(run_id, ""), refresh=True)
        found = {name[len(cluster_name(run_id, "")) :]: state for name, state in states.items()}
        states = {name: state for name, state in found.items() if NODE_ID.fullmatch(name)}
        return _Seen(at_s, states, silent)

    def _ask_cloud(self, run_id: str) -> frozenset[str]:
        """Note what the clouds say of a run's machines; return the pools that are silent.

        What a silent one said last stands, and what was asked for later than an answer that is
        slow to come.
        """
        if self._cloud is None:
            return frozenset()
        question = next(self._questions)
        try:
            found, silent = self._cloud.machines(run_id), frozenset[str]()
        except SilentError as error:
            found, silent = error.machines, frozenset(error.silent)
            if silent != self._silent:
                log.warning("%s", error)
        with self._answering:
            self._silent = silent
            late = question < self._answered
            self._answered = max(question, self._answered)
            self._times = {**found, **self._times} if late else {**self._times, **found}
        return silent

    def _is_unknown(self, name: str, silent: Collection[str]) -> bool:
        """Whether a node may have a machine at one of the clouds that are silent."""
        pool = self._pools.get(name)
        return bool(silent) if pool is None else pool in silent

    def vacant(self, places: Collection[Place]) -> tuple[Place, ...]:
        """Return the last answer; have the pool asked again, in a thread, when that is old."""
        asked = self._vacant
        if asked is None or (
            asked.done() and self._clock.monotonic() - self._vacant_s >= VACANT_LOOK_S
        ):
            self._vacant_s = self._clock.monotonic()
            self._vacant = self._calls.submit(self._count_vacant, tuple(places))
        if asked is None or not asked.done() or asked.exception() is not None:
            return ()
        return asked.result()

    def _count_vacant(self, places: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple(place for place in places for _ in range(self._clusters.vacant(place)))

    def _keep(self, run_id: str) -> None:
        """Put off the machines' end; one look that fails to do so is made up for by the next."""
        if self._cloud is not None:
            try:
                self._cloud.keep(run_id)
            except TransientError as error:
                log.warning("machines of %s are not kept longer yet: %s", run_id, error)

    def _view(self, name: str, seen: _Seen) -> NodeView:
        node, machine = self._nodes.get(name), self._times.get(name)
        view = NodeView(
            node_id=name,
            state="running",
            since=machine.since if machine else None,
            until=machine.until if machine else None,
            leaves=machine.leaves if machine else None,
        )
        if node is not None and node.refused:
            return replace(view, state="refused", refusals=node.refused)
        if node is not None and node.failed:
            return replace(view, state="gone", detail=node.failed)
        if _succeeded(self._ending.get(name)):
            return replace(view, state="gone")
        if node is not None and node.ready_s is None:
            return replace(view, state="asked")
        current = node is None or (node.ready_s is not None and seen.at_s > node.ready_s)
        if machine is None:
            there = name in seen.states or self._is_unknown(name, seen.silent)
        else:
            there = machine.costs and machine.works
        return replace(view, state="gone") if current and not there else view

    # Ending ---------------------------------------------------------------------------------------

    def end(self, run_id: str, node_id: str) -> bool:
        node, ending = self._nodes.get(node_id), self._ending.get(node_id)
        if node is not None:
            node.given_up = True
            if node.refused:
                return True
        if _succeeded(ending):
            return True
        if ending is None or ending.done():
            self._ending[node_id] = self._calls.submit(self._end_now, run_id, node_id)
        return False

    def _end_now(self, run_id: str, node_id: str) -> None:
        """End a machine and see that it is gone; TransientError if it is not.

        Its cloud is told first where it can be: SkyPilot takes half a minute that costs money.
        """
        if self._cloud is not None:
            self._cloud.end(run_id, [node_id])
        self._clusters.down(cluster_name(run_id, node_id))
        node = self._nodes.get(node_id)
        if node is not None and node.work is not None:
            wait([node.work])  # a launch that was under way has noticed by now
            self._clusters.down(cluster_name(run_id, node_id))
        if self._cloud is None:
            return
        for _ in range(GONE_LOOKS):
            if self._is_unknown(node_id, self._ask_cloud(run_id)):
                break
            machine = self._times.get(node_id)
            if machine is None or not machine.costs:
                return
            self._cloud.end(run_id, [node_id])
            self._clock.sleep(2.0)
        raise TransientError(f"{node_id} of {run_id} is still there, or nobody says that it is not")

    def kill_node(self, run_id: str, node_id: str) -> None:
        """Take a machine away behind SkyPilot's back, as a cloud does."""
        if self._cloud is not None:
            self._cloud.end(run_id, [node_id])
        else:
            self._clusters.down(cluster_name(run_id, node_id))

    def sweep(self, run_id: str, but: Collection[str] = ()) -> tuple[str, ...]:
        prefix, found = cluster_name(run_id, ""), []
        for name in self._clusters.states(prefix, refresh=False):
            node_id = name[len(prefix) :]
            if NODE_ID.fullmatch(node_id) and node_id not in but:
                self._clusters.down(name)
                found.append(f"SkyPilot's cluster {name}")
        if self._cloud is not None:
            silent = self._ask_cloud(run_id)
            left = {n: m for n, m in self._times.items() if m.costs and n not in but}
            self._cloud.end(run_id, list(left))
            found += [str(machine) for machine in left.values()]
            if any(self._is_unknown(name, silent) for name in self._pools):
                raise TransientError(f"{', '.join(sorted(silent))} may have machines of {run_id}")
        return tuple(found)


def _succeeded(work: Future[None] | None) -> bool:
    return work is not None and work.done() and work.exception() is None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was said of a run's machines, and when it was asked."""

    at_s: float
    states: Mapping[str, str]
    silent: frozenset[str]  # pools whose clouds did not answer


def cluster_name(run_id: str, node_id: str) -> str:
    """Return the name of a node's SkyPilot cluster; with node "", how a run's begin."""
    return f"burst-{run_id}-{node_id}"


def folder_of(name: str) -> str:
    """Return the folder of the files of the node with this cluster name, on its machine."""
    run_id, _, node_id = name.removeprefix("burst-").rpartition("-")
    return node_folder(run_id, node_id)
