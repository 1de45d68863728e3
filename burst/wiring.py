"""The composition root: the one module that knows which adapter serves which port."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burst.ports import Clock
from burst.records import encode, notice_key

if TYPE_CHECKING:
    from burst.controller.loop import Controller, Watcher
    from burst.controller.runs import Machine, Run, Runs
    from burst.cost.decide import Limits
    from burst.cost.offers import Offer, Plan
    from burst.ports import NodeRequest, Provisioner
    from burst.provision.hosts import Host
    from burst.provision.local import LocalMachine, LocalProvisioner
    from burst.provision.rented import Clusters, RentedProvisioner
    from burst.provision.slurm_site import Cluster
    from burst.storage.lease import Owner
    from burst.storage.port import ObjectStore
    from burst.task_specs.model import Task

LEASE_TTL_S = 15.0
DRIVER = ("-m", "burst.training.ray_train")


class SystemClock:
    """See burst.ports.Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251 - the one real clock


def clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()


def home() -> Path:
    """Return the folder of this person's burst: $BURST_HOME, or ~/.burst."""
    return Path(os.environ.get("BURST_HOME", "~/.burst")).expanduser().absolute()


def store(uri: str) -> ObjectStore:
    """Open an object store."""
    from burst.storage.open import open_store

    return open_store(uri)


def runs() -> Runs:
    """Return the runs known here."""
    from burst.controller.runs import Runs

    return Runs(home(), store)


def pools() -> Mapping[str, Any]:
    """Return what `$BURST_HOME/pools.yaml` says, or nothing."""
    from burst.task_specs.pools import read_pools

    return read_pools(home() / "pools.yaml")


def local_pool() -> LocalProvisioner:
    """Return the pool of this machine."""
    from burst.provision.local import LocalProvisioner

    return LocalProvisioner(home())


def this_machine() -> LocalMachine:
    """Return what this machine has and costs."""
    from burst.provision.local import this_machine

    return this_machine(pools())


def provisioner(run: Run) -> Provisioner:
    """Return what gets the run's nodes."""
    return local_pool() if run.record.pool == "local" else rented_pool(run)


def rented_pool(run: Run) -> RentedProvisioner:
    """Return the pool of rented machines, for one run."""
    from burst.provision.ec2 import Ec2
    from burst.provision.rented import RentedProvisioner, Settings

    regions = {c.place.region for c in run.record.choices if c.place.pool == "aws"}
    settings = Settings(
        home=home(),
        wanted=run.record.wish,
        lease_ttl_s=dead_man_s(),
        env=store_env(),
        end_command=end_command,
        held=kind(run.record.pool) == "slurm",
    )
    clusters = clusters_of(run.record.pool)
    return RentedProvisioner(clusters, Ec2(regions) if regions else None, settings, clock())


def clusters_of(pool: str) -> Clusters:
    """Return what makes and ends the machines of a pool."""
    if kind(pool) == "ssh":
        from burst.provision.hosts import Hosts

        return Hosts(ssh_hosts(), home())
    if kind(pool) == "slurm":
        from burst.provision.slurm import Slurm

        return Slurm(slurm_clusters(), home(), clock())
    from burst.provision import skypilot

    return skypilot


def kind(pool: str) -> str:
    """Return the kind of a pool; a run stays on one: local, ssh, slurm, or cloud (SkyPilot's)."""
    first = pool.partition("/")[0]
    return first if first in {"local", "ssh", "slurm"} else "cloud"


def ssh_hosts() -> tuple[Host, ...]:
    """Return the plain SSH hosts that pools.yaml names."""
    from burst.provision.hosts import read_hosts

    return read_hosts(pools(), getpass.getuser())


def slurm_clusters() -> tuple[Cluster, ...]:
    """Return the Slurm clusters that can be logged in to, as SkyPilot's ~/.slurm/config has it."""
    from burst.provision.slurm_site import read_clusters

    return read_clusters(pools(), Path("~/.slurm/config").expanduser())


def dead_man_s() -> float:
    """Return for how long a rented machine lives on without a word of its controller."""
    from burst.errors import UsageError
    from burst.task_specs.units import duration_s

    text = str((pools().get("rented") or {}).get("dead_man", "10m"))
    try:
        return duration_s(text, default="s")
    except ValueError as error:
        raise UsageError(f"pools.yaml: rented.dead_man: {text}: {error}") from None


def store_env() -> Mapping[str, str]:
    """Return what this process was told about its object store and nodes must be told too.

    Keys are not among it: nodes have them from their own role.
    """
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")
    return {
        name: value
        for name, value in os.environ.items()
        if name in names or name.startswith("BURST_S3_")
    }


def ssh_states() -> tuple[tuple[str, bool, str], ...]:
    """Return each SSH host with whether it answers, and what it says or why it does not."""
    from burst.provision.hosts import Hosts

    hosts = ssh_hosts()
    found = {one.host: one for one in Hosts(hosts, home()).look()}
    told = []
    for host in hosts:
        one = found.get(host)
        words = f"{host.user}@{host.address}:{host.port} does not answer"
        if one is not None:
            who = f"{one.claim} has it" if one.claim else "free"
            words = f"{one.shape}, {one.memory_gb:g} GB, ${host.usd_per_hour} per hour, {who}"
        told.append((f"{host.pool} {host.address}", one is not None, words))
    return tuple(told)


def slurm_states() -> tuple[tuple[str, bool, str], ...]:
    """Return each Slurm cluster with whether it answers, and what it has or why it does not."""
    from burst.errors import BurstError
    from burst.provision.slurm import look

    told = []
    for cluster in slurm_clusters():
        try:
            site = look(cluster, home())
        except (BurstError, ValueError) as error:
            told.append((cluster.pool, False, str(error)))
        else:
            told += site.findings(cluster.pool, clock().now().timestamp())
    return tuple(told)


def end_command(request: NodeRequest) -> str:
    """Return the shell command by which a rented machine ends itself."""
    from burst.provision.hosts import release_command
    from burst.provision.rented import cluster_name
    from burst.provision.slurm import RELEASE

    off = "sudo -n shutdown -h now"
    place = request.choice.place
    if kind(place.pool) == "ssh":
        return release_command(cluster_name(request.run_id, request.node_id))
    if kind(place.pool) == "slurm":
        return RELEASE
    if place.pool != "aws":
        return off
    names = f"{request.run_id} {request.node_id} {place.region}"
    return f'"$BURST_PYTHON" -m burst.provision.ec2 {names} || {off}'


def machine(task: Task, plan: Plan) -> Machine:
    """Return what the nodes of a plan's best candidate are, and where else they may be.

    A run stays on one kind of pool: this machine, SSH hosts, or rented ones.
    """
    from burst.controller.runs import Machine
    from burst.cost.offers import choice_of

    best = plan.candidates[0].offer
    shared = best.pool == "local"
    alike = [c for c in plan.candidates if kind(c.offer.pool) == kind(best.pool)]
    return Machine(
        cpus=int(best.cpus),
        gpus=best.accelerators.count if best.accelerators else 0,
        choices=tuple(choice_of(candidate) for candidate in alike),
        shared=shared,
        same_files=kind(best.pool) == "slurm",  # as a rule; each node is asked before it starts
        wish={} if shared else _wish(task),
    )


def _wish(task: Task) -> Mapping[str, Any]:
    """Return what the task says of its machines besides their kind and place."""
    first = task.candidates[0]
    wish = {"disk_size": first.disk_size_gb, "image_id": first.image_id}
    return {name: value for name, value in wish.items() if value is not None}


def limits(run: Run) -> Limits:
    """Return what the run's task allows."""
    from burst.cost.decide import Limits

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
    from burst.storage.lease import Lease

    lease = Lease.acquire(
        run.store,
        this_owner(),
        ttl_s=LEASE_TTL_S,
        clock=clock(),
        alive=owner_alive,
        wait_s=wait_s,
    )
    journal = Journal(run.store)
    tools = Tools(
        store=run.store,
        provisioner=provisioner(run),
        clock=clock(),
        book=Book(journal),
        lease=lease,
        watcher=watcher,
        env=node_env(env),
        driver_argv=DRIVER,
        tick_s=0.25 if run.store.uri.startswith("file:") else 2.0,  # each look costs requests
    )
    return Controller(run.record, limits(run), read_history(journal), tools)


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


def give_notice(run: Run, node_id: str, seconds: float) -> None:
    """Tell a node's agent that the node will be taken, as a cloud's metadata service would."""
    run.store.put(notice_key(node_id), encode({"left_s": seconds, "source": "burst chaos"}))


def kill(run: Run, kind: str, victim: Mapping[str, Any]) -> None:
    """Kill a worker, a node or the controller by SIGKILL, as a machine would lose it."""
    from burst.processes import alive

    rented = run.record.pool != "local" and kind != "controller"
    if rented and kind == "node":
        rented_pool(run).kill_node(run.record.run_id, victim["node_id"])
    elif rented:
        ssh = rented_pool(run).ssh(run.record.run_id, victim["node_id"])
        ssh.run(f"kill -9 {int(victim['pid'])}")
    elif kind == "node":
        local_pool().kill_node(run.record.run_id, victim["node_id"])
    elif "start_time" not in victim or alive(victim["pid"], victim["start_time"]):
        os.kill(victim["pid"], signal.SIGKILL)


def ssh_argv(run: Run, node_id: str) -> list[str]:
    """Return the command line of a shell on a rented node."""
    from burst.errors import UsageError

    if run.record.pool == "local":
        raise UsageError(f"{run.record.run_id} runs on this machine; its nodes are processes here")
    return rented_pool(run).ssh(run.record.run_id, node_id).argv(interactive=True)


def orphans() -> tuple[tuple[Run, str], ...]:
    """Return the machines, rented or SSH hosts, of runs that nobody drives, in words.

    Machines of runs that are not known here are left out: they may be a colleague's.
    """
    from burst.controller.status import status_of
    from burst.provision import ec2
    from burst.provision.rented import cluster_name

    found: list[tuple[Run, str]] = []
    elsewhere = [run for run in runs().all() if run.record.pool != "local"]
    for run in elsewhere:
        status = status_of(run, clock(), owner_alive)
        if status.live:
            continue
        regions = {c.place.region for c in run.record.choices if c.place.pool == "aws"}
        if regions:
            there = ec2.instances(regions, run.record.run_id)
            found += [(run, str(one)) for one in there if one.costs]
        elif not all(node.ended for node in status.nodes):
            names = clusters_of(run.record.pool).states(
                cluster_name(run.record.run_id, ""), refresh=True
            )
            found += [(run, f"{name} on {run.record.pool}") for name in names]
    return tuple(found)


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
    from importlib.util import find_spec

    wanted = {"ray": "train", "torch": "train", "boto3": "aws", "s3fs": "aws"}
    return {
        name: f"pip install 'burst-trainer[{extra}]'"
        for name, extra in wanted.items()
        if find_spec(name) is None
    }


def disk_free(path: Path) -> int:
    """Return the free bytes of the disk that holds a path."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def offers(task: Task) -> tuple[Offer, ...]:
    """Return what every pool can give.

    SSH hosts and Slurm clusters are asked when the task names them or this machine does not fit;
    the clouds when the task names one, or none of one's own machines fits: asking starts SkyPilot's
    server, and takes seconds.
    """
    from burst.cost.offers import candidates

    here: tuple[Offer, ...] = (local_offer(),)
    named = {c.infra.cloud for c in task.candidates}
    if named <= {None, "local"} and (None not in named or candidates(task, here)):
        return here
    hosts = ssh_hosts()
    if hosts and named & {None, "ssh"}:
        from burst.provision import hosts as plain

        here = (*here, *plain.offers(hosts, home(), clock().now()))
    if named & {None, "slurm"}:
        here = (*here, *_slurm_offers(task, only=named == {"slurm"}))
    if named <= {"local", "slurm"} or (
        named <= {None, "local", "slurm", "ssh"} and candidates(task, here)
    ):
        return here
    from burst.provision import skypilot

    return (*here, *skypilot.offers(task))


def _slurm_offers(task: Task, *, only: bool) -> tuple[Offer, ...]:
    """Return what Slurm clusters can give; SetupError if the task wants them and there is none."""
    from burst.errors import SetupError

    clusters = slurm_clusters()
    if not clusters:
        if only:
            raise SetupError(
                "no Slurm cluster is known here: ~/.slurm/config has no Host",
                hint="give its login node a Host entry there; see docs/slurm.md",
            )
        return ()
    from burst.provision import slurm

    return slurm.offers(task, clusters, home(), clock().now())


def local_offer() -> Offer:
    """Return what this machine can give."""
    from burst.cost.offers import Offer
    from burst.provision.own import quote

    found = this_machine()
    return Offer(
        pool="local",
        region="",
        zone="",
        machine_type=socket.gethostname(),
        cpus=float(found.cpus),
        memory_gb=found.memory_gb,
        accelerators=found.accelerators,
        spot=False,
        quote=quote(found.usd_per_node_hour, found.price_source, clock().now()),
    )
