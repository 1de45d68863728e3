"""The composition root: the one module that knows which adapter serves which port."""

from __future__ import annotations

import errno
import getpass
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from burst.clock import SystemClock
from burst.errors import installing
from burst.ports import Clock
from burst.records import encode, notice_key

if TYPE_CHECKING:
    from burst.controller.book import History
    from burst.controller.loop import Controller, Watcher
    from burst.controller.networks import Networks
    from burst.controller.runs import Run, Runs
    from burst.cost.state import Limits
    from burst.errors import SetupError
    from burst.ports import Provisioner
    from burst.provision.hosts import Host
    from burst.provision.k8s.client import Client
    from burst.provision.local import LocalMachine, LocalProvisioner
    from burst.provision.rented import Cloud, Clusters, RentedProvisioner
    from burst.provision.slurm_site import Cluster
    from burst.storage.lease import Lease, Owner
    from burst.storage.port import ObjectStore
    from burst.task_specs.places import Known, Names

log = logging.getLogger(__name__)
LEASE_TTL_S = 15.0
WATCH_S = 20.0  # longer than a controller lets its lease stand
DEAD_MAN_S = 600.0
RETURN_AFTER_S = 120.0
DRIVER = ("-m", "burst.training.ray_train")


def clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()


def home() -> Path:
    """Return the folder of this person's burst: $BURST_HOME, or ~/.burst; OSError if it is none."""
    folder = _home()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    return folder


def _home() -> Path:
    return Path(os.environ.get("BURST_HOME", "~/.burst")).expanduser().absolute()


def make_home() -> None:
    """Make this person's folder, to write to; OSError if that cannot be."""
    folder = home()
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def unusable_home(error: OSError) -> SetupError | None:
    """Return what is wrong with this person's folder, if that is what an error says.

    A file that is missing in the folder says nothing of it.
    """
    from burst.errors import SetupError

    folder, where = _home(), Path(str(error.filename))
    missing = isinstance(error, FileNotFoundError)
    if where not in {folder, *folder.parents} and (missing or folder not in where.parents):
        return None
    there = "" if where == folder else f" at {where}"
    return SetupError(
        f"burst's own folder {folder} cannot be used: {error.strerror}{there}",
        hint="make it a folder that you may write to, or name another one in BURST_HOME",
    )


def store(uri: str) -> ObjectStore:
    """Open an object store."""
    from burst.storage.open import open_store

    return open_store(uri)


def runs() -> Runs:
    """Return the runs known here."""
    from burst.controller.runs import Runs

    return Runs(home(), store)


def networks() -> Networks:
    """Return what this person's runs measured between islands."""
    from burst.controller.networks import Networks

    return Networks(home() / "networks")


def pools() -> Mapping[str, Any]:
    """Return what `$BURST_HOME/pools.yaml` says, or nothing; SpecError with all that is wrong."""
    from burst.task_specs.pools import read_pools

    return read_pools(home() / "pools.yaml", _slurm_names())


def known_pools() -> Known:
    """Return the names of one's own pools; SpecError with all that is wrong in pools.yaml."""
    from burst.provision.k8s import client
    from burst.task_specs.places import Names

    ssh = pools().get("ssh") or {}
    known = {"ssh": Names(str(home() / "pools.yaml"), lambda: ssh), "slurm": _slurm_names()}
    if find_spec("kubernetes") is not None and client.config_files():
        known["k8s"] = Names(client.config_path(), lambda: client.known_contexts()[0])
    return known


def _slurm_names() -> Names:
    from burst.provision.slurm_site import cluster_names
    from burst.task_specs.places import Names

    config = slurm_config()
    return Names(str(config), lambda: cluster_names(config))


def local_pool() -> LocalProvisioner:
    """Return the pool of this machine."""
    from burst.provision.local import LocalProvisioner

    return LocalProvisioner(home())


def this_machine() -> LocalMachine:
    """Return what this machine has and costs."""
    from burst.provision.local import this_machine

    return this_machine(pools())


def provisioner(run: Run, history: History | None = None) -> Provisioner:
    """Return what gets the run's nodes; who has read the run's journal already hands it on."""
    if run.record.pool == "local":
        return local_pool()
    from burst.controller.book import read_history
    from burst.provision.pools import Pools, kind_of
    from burst.storage.journal import Journal

    history = history or read_history(Journal(run.store))
    choices = {intent.node_id: intent.choice for intent in history.intents}
    choices |= {span.node_id: span.choice for span in history.spans if span.ended is None}
    nodes = {node_id: choice.place.pool for node_id, choice in choices.items()}
    return Pools(
        pools={kind: machines(run, kind, nodes) for kind in sorted(kinds(run))},
        kinds={node_id: kind_of(pool) for node_id, pool in nodes.items()},
    )


def kinds(run: Run) -> frozenset[str]:
    """Return the kinds of pools that a run's nodes may be in."""
    from burst.provision.pools import kind_of

    return frozenset(kind_of(choice.place.pool) for choice in run.record.choices)


def machine_of(run: Run, node_id: str) -> RentedProvisioner:
    """Return the machines that a node is one of; UsageError for a node of this machine."""
    from burst.controller.status import status_of
    from burst.errors import UsageError
    from burst.provision.pools import kind_of

    if run.record.pool == "local":
        raise UsageError(f"{run.record.run_id} runs on this machine; its nodes are processes here")
    nodes = status_of(run, clock(), owner_alive).nodes
    return machines(run, kind_of(next(n.place.pool for n in nodes if n.node_id == node_id)))


def machines(
    run: Run, kind: str, nodes: Mapping[str, str] = MappingProxyType({})
) -> RentedProvisioner:
    """Return a run's machines of one kind: rented, or somebody's own that SSH reaches.

    `nodes` are those that there may be, with their pool.
    """
    from burst.provision.rented import Cloud, RentedProvisioner, Settings, cluster_name

    settings = Settings(
        home=home(),
        wanted=run.record.wish,
        by_candidate=run.record.wishes,
        lease_ttl_s=dead_man_s(),
        env=store_env(run.store.uri),
    )
    names = {cluster_name(run.record.run_id, node_id): pool for node_id, pool in nodes.items()}
    clusters = clusters_of(kind, names)
    cloud = cloud_of(run) if kind == "cloud" else None
    tells = clusters if isinstance(clusters, Cloud) else cloud  # since when a machine is
    return RentedProvisioner(clusters, tells, settings, clock(), nodes)


def cloud_of(run: Run) -> Cloud | None:
    """Return what the clouds of a run's places say of its machines; None: none can be asked.

    Each of Kubernetes' contexts is a cloud of its own, which may be silent while others answer.
    """
    from burst.provision.rented import Clouds

    places: dict[str, set[str]] = {}
    for choice in run.record.choices:
        pool = choice.place.pool
        places.setdefault(pool, set()).add(pool.partition("/")[2] or choice.place.region)
    kinds = {pool: pool.partition("/")[0] for pool in places}
    clouds = {pool: ASKED[kind](places[pool]) for pool, kind in kinds.items() if kind in ASKED}
    return Clouds(clouds) if clouds else None


def _aws(regions: set[str]) -> Cloud:
    from burst.provision.ec2 import Ec2

    return Ec2(regions)


def _alibaba(regions: set[str]) -> Cloud:
    from burst.provision.alibaba.client import connect
    from burst.provision.alibaba.cloud import Alibaba

    return Alibaba(regions, lambda region: connect(region, clock()))


def _lambda(regions: set[str]) -> Cloud:
    from burst.provision.lambda_cloud.api import connect
    from burst.provision.lambda_cloud.cloud import LambdaCloud

    del regions  # one list has all of them
    return LambdaCloud(connect(os.environ, clock()), clock())


def _k8s(contexts: set[str]) -> Cloud:
    from burst.provision.k8s.cloud import Kubernetes

    return Kubernetes(map(k8s_client, sorted(contexts)), clock().now)


def k8s_client(context: str) -> Client:
    """Return how a context of the kubeconfig is asked for the pods that SkyPilot makes there."""
    from burst.provision import skypilot
    from burst.provision.k8s.client import Client

    return Client(context, skypilot.namespace(context))


ASKED: Mapping[str, Callable[[set[str]], Cloud]] = {  # by kind of pool; of its part, or regions
    "aws": _aws,
    "alibaba": _alibaba,
    "lambda": _lambda,
    "k8s": _k8s,
}


def clusters_of(kind: str, nodes: Mapping[str, str] = MappingProxyType({})) -> Clusters:
    """Return what makes and ends machines of a kind; `nodes` may be there, by name, with pool."""
    return CLUSTERS[kind](nodes)


def _hosts(nodes: Mapping[str, str]) -> Clusters:
    from burst.provision.hosts import Hosts

    return Hosts(ssh_hosts(), home(), nodes)


def _slurm(nodes: Mapping[str, str]) -> Clusters:
    from burst.provision.slurm import Slurm

    return Slurm(slurm_clusters(), home(), clock(), nodes)


def _skypilot(nodes: Mapping[str, str]) -> Clusters:
    from burst.provision import skypilot

    del nodes  # it has a list of its own
    skypilot.prepare(home())
    return skypilot


CLUSTERS: Mapping[str, Callable[[Mapping[str, str]], Clusters]] = {  # by kind; see kind_of
    "ssh": _hosts,
    "slurm": _slurm,
    "cloud": _skypilot,
}


def ssh_hosts() -> tuple[Host, ...]:
    """Return the plain SSH hosts that pools.yaml names."""
    from burst.provision.hosts import read_hosts

    return read_hosts(pools(), getpass.getuser())


def slurm_clusters() -> tuple[Cluster, ...]:
    """Return the Slurm clusters that can be logged in to."""
    from burst.provision.slurm_site import read_clusters

    return read_clusters(pools(), slurm_config())


def slurm_config() -> Path:
    """Return where the login nodes of Slurm clusters are named, for SkyPilot too."""
    return Path("~/.slurm/config").expanduser()


def dead_man_s() -> float:
    """Return for how long a rented machine lives on without a word of its controller."""
    from burst.task_specs.units import duration_s

    text = (pools().get("rented") or {}).get("dead_man")
    return DEAD_MAN_S if text is None else duration_s(text, default="s")


def store_env(uri: str) -> Mapping[str, str]:
    """Return what this process was told about the store of a run and nodes must be told too.

    Keys are not among it: nodes have them from their own role.
    """
    from burst.storage.open import shared_env

    return shared_env(uri, os.environ)


def sees_files(pool: str) -> bool:
    """Whether nodes of a pool see this machine's files: a Slurm cluster has a file system for it.

    Each such node is asked for the run's folder before it becomes one.
    """
    from burst.task_specs.infra import SEES_FILES

    return pool.partition("/")[0] in SEES_FILES


def limits(run: Run) -> Limits:
    """Return what the run's task allows."""
    from burst.cost.state import Limits

    record = run.record
    per_hour = max(choice.usd_per_hour for choice in record.choices) * record.nodes
    return Limits(
        nodes=record.nodes,
        least_nodes=max(1, -(-record.workers_low // record.slots_per_node)),
        choices=record.choices,
        head_apart=record.head_apart,
        max_failures=record.max_failures,
        budget_usd=None if record.budget_usd is None else Decimal(record.budget_usd),
        deadline_s=record.deadline_s,
        return_after_s=RETURN_AFTER_S if record.return_after_s is None else record.return_after_s,
        reserve_usd=per_hour * 60 / 3600,  # a minute for the last save and the release
    )


def controller(
    run: Run, watcher: Watcher, env: Mapping[str, str], *, wait_s: float = 0.0
) -> Controller:
    """Take the run's lease and return its controller; OwnedError if another one lives.

    One on another machine is known to live or not only after `wait_s` of watching its lease.

    `env` is what the task gives to the user's code, secrets included; it goes to the nodes'
    environment and is written nowhere.
    """
    from burst.controller.book import Book, read_history
    from burst.controller.loop import Controller, Tools
    from burst.storage.journal import Journal

    lease = lease_of(run, wait_s)
    journal = Journal(run.store)
    history = read_history(journal)
    tools = Tools(
        store=run.store,
        provisioner=provisioner(run, history),
        clock=clock(),
        book=Book(journal),
        lease=lease,
        watcher=watcher,
        env=node_env(env),
        driver_argv=DRIVER,
        network=networks().note,
        tick_s=0.25 if run.store.uri.startswith("file:") else 2.0,  # each look costs requests
    )
    return Controller(run.record, limits(run), history, tools)


def this_owner() -> Owner:
    """Return this process as the owner of a lease."""
    from burst.processes import start_time
    from burst.storage.lease import Owner

    pid = os.getpid()
    return Owner(
        host=socket.gethostname(),
        pid=pid,
        started_at=f"{start_time(pid)}@{clock().now():%Y-%m-%d %H:%M:%SZ}",
        name=getpass.getuser(),
    )


def owner_alive(owner: Owner) -> bool | None:
    """Say whether an owner's process lives; None when it is on another machine."""
    from burst.processes import alive

    if owner.host != socket.gethostname():
        return None
    return alive(owner.pid, float(owner.started_at.partition("@")[0]))


def owner_known(run: Run) -> bool:
    """Whether it can be said at once if the run's controller lives: none, or of this machine."""
    from burst.storage.lease import current_owner

    owner = current_owner(run.store)
    return owner is None or owner_alive(owner) is not None


def forsaken(run: Run) -> bool:
    """Whether nobody drives a run; of a controller elsewhere, its lease shows it by standing still.

    Takes up to `WATCH_S`.
    """
    from burst.errors import OwnedError

    try:
        lease_of(run, WATCH_S).release()
    except OwnedError:
        return False
    return True


def lease_of(run: Run, wait_s: float) -> Lease:
    """Take a run's lease; OwnedError if another controller lives, or may live after `wait_s`."""
    from burst.storage.lease import Lease

    return Lease.acquire(
        run.store,
        this_owner(),
        ttl_s=LEASE_TTL_S,
        clock=clock(),
        alive=owner_alive,
        wait_s=wait_s,
    )


def give_notice(run: Run, node_id: str, seconds: float) -> None:
    """Tell a node's agent that the node will be taken, as a cloud's metadata service would."""
    run.store.put(notice_key(node_id), encode({"left_s": seconds, "source": "burst chaos"}))


def kill(run: Run, kind: str, victim: Mapping[str, Any]) -> None:
    """Kill a worker, a node or the controller by SIGKILL, as a machine would lose it."""
    from burst.processes import alive

    rented = run.record.pool != "local" and kind != "controller"
    if rented and kind == "node":
        machine_of(run, victim["node_id"]).kill_node(run.record.run_id, victim["node_id"])
    elif rented:
        ssh = machine_of(run, victim["node_id"]).ssh(run.record.run_id, victim["node_id"])
        ssh.run(f"kill -9 {int(victim['pid'])}")
    elif kind == "node":
        local_pool().kill_node(run.record.run_id, victim["node_id"])
    elif "start_time" not in victim or alive(victim["pid"], victim["start_time"]):
        os.kill(victim["pid"], signal.SIGKILL)


def ssh_argv(run: Run, node_id: str) -> list[str]:
    """Return the command line of a shell on a node that is another machine."""
    return machine_of(run, node_id).ssh(run.record.run_id, node_id).argv(interactive=True)


def _undriven() -> list[Run]:
    """Return the runs on other machines that nobody drives; all are watched at once."""
    from concurrent.futures import ThreadPoolExecutor

    elsewhere = [run for run in runs().all() if run.record.pool != "local"]
    if not elsewhere:
        return []
    with ThreadPoolExecutor(len(elsewhere)) as threads:
        told = threads.map(_idle, elsewhere)
        return [run for run, idle in zip(elsewhere, told, strict=True) if idle]


def _idle(run: Run) -> bool:
    from burst.storage.lease import current_owner

    owner = current_owner(run.store)
    lives = None if owner is None else owner_alive(owner)
    return owner is None or lives is False or (lives is None and forsaken(run))


@dataclass(frozen=True, slots=True)
class Orphans:
    """Machines of runs that nobody drives."""

    found: tuple[tuple[Run, str], ...]  # in words
    unknown: tuple[str, ...]  # of which runs and pools it is not known whether there are any, why


def orphans() -> Orphans:
    """Return the machines, rented or SSH hosts, of runs that nobody drives.

    A controller on another machine is watched for a while. Machines of runs that are not known
    here are left out: they may be a colleague's.
    """
    from burst.errors import BurstError

    found: list[tuple[Run, str]] = []
    unknown: list[str] = []
    for run in _undriven():
        for look in (_rented_of, _owned_of):
            try:
                found += [(run, words) for words in look(run, unknown)]
            except BurstError as error:
                unknown.append(f"{run.record.run_id}: {error.message}")
    return Orphans(tuple(found), tuple(unknown))


def _rented_of(run: Run, unknown: list[str]) -> list[str]:
    """Return a run's rented machines; note of which clouds that is not known."""
    from burst.provision.rented import SilentError

    cloud = cloud_of(run)
    if cloud is None:
        return []
    try:
        there = cloud.machines(run.record.run_id)
    except SilentError as error:
        there = error.machines
        unknown.append(f"{run.record.run_id}: {error.message}")
    return [str(one) for one in there.values() if one.costs]


def _owned_of(run: Run, unknown: list[str]) -> list[str]:
    """Return a run's machines of pools where no cloud is asked; note of which it is not known."""
    from burst.controller.status import status_of
    from burst.errors import TransientError
    from burst.provision.pools import kind_of
    from burst.provision.rented import cluster_name

    found: list[str] = []
    there = {n.place.pool for n in status_of(run, clock(), owner_alive).nodes if not n.ended}
    prefix = cluster_name(run.record.run_id, "")
    for kind in sorted({kind_of(pool) for pool in there if pool.partition("/")[0] not in ASKED}):
        try:
            names = clusters_of(kind).states(prefix, refresh=True)
        except TransientError as error:
            unknown.append(f"{run.record.run_id}: what {kind} has is not known: {error.message}")
        else:
            found += [f"{name} on {kind}" for name in sorted(names)]
    return found


def leftovers() -> tuple[str, ...]:
    """Return what still runs of runs that no controller drives."""
    from burst.controller.status import status_of

    found: list[str] = []
    for run in runs().all():  # of this machine; `orphans` has the rented ones
        if run.record.pool == "local" and not status_of(run, clock(), owner_alive).live:
            views = provisioner(run).observe(run.record.run_id)
            found += [
                f"{run.record.run_id} {view.node_id}" for view in views if view.state == "running"
            ]
    return tuple(found)


def node_env(user: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment of a node of this machine.

    The user's variables travel in one of ours and are set only around the user's own code, so
    that a RAY_ADDRESS or PYTHONPATH among them cannot touch the machinery.
    """
    return {"BURST_USER_ENV": json.dumps(dict(user))}


def detach(argv: list[str], env: Mapping[str, str], log: Path) -> int:
    """Start a burst command that outlives this terminal; return its pid."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "burst.cli", *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **env},
            start_new_session=True,
        )
    return child.pid


def on_interrupt(controller: Controller, who: str) -> None:
    """Save and stop on the first Ctrl-C, TERM or HUP; stop at once on the second."""
    seen = threading.Event()

    def stop(number: int, frame: object) -> None:
        del frame
        again = seen.is_set()
        seen.set()
        name = "ctrl-c" if number == signal.SIGINT else signal.Signals(number).name
        controller.ask_stop(f"{who} ({name})", now=again)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def missing_packages() -> Mapping[str, str]:
    """Return what is not installed, and how to get it."""
    wanted = {"ray": "train", "torch": "train", "boto3": "aws", "s3fs": "aws"}
    return {name: installing(extra) for name, extra in wanted.items() if find_spec(name) is None}


def disk_free(path: Path) -> int:
    """Return the free bytes of the disk that holds a path."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
