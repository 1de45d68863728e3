"""Slurm clusters as a pool: a node is a job of one node, asked for and ended over SSH.

The login node has `sbatch`, `squeue`, `scancel` and `scontrol`; nothing else of a site is needed.
A job's script waits for the node's agent, becomes its supervisor, and so is the first process of
the job: the agent lives in the job whatever becomes of the login node, and ends with it. A job is
never requeued: whoever ends it, its node is lost, and burst asks for another.
"""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from burst.cost.offers import Offer
from burst.cost.placement import Place
from burst.errors import BurstError, SetupError, TransientError
from burst.ports import Clock, NodeRequest
from burst.provision import slurm_room
from burst.provision.refusals import RefusedError
from burst.provision.rented import (
    NODE_ID,
    Machine,
    MachineRequest,
    by_node,
    cluster_name,
)
from burst.provision.slurm_job import RELEASE, hold, options
from burst.provision.slurm_look import (
    JOBS,
    LOOK,
    LOOK_S,
    Job,
    Node,
    Shape,
    Site,
    read_jobs,
    read_site,
    script,
)
from burst.provision.slurm_site import Cluster, shapes
from burst.provision.ssh import Login
from burst.task_specs.model import Accelerators, Task

log = logging.getLogger(__name__)

WAIT_S = 120.0  # how long a job may be pending if nothing is said
LEAST_WAIT_S = 10.0  # Slurm starts none at once, even where there is room
POLL_S = 2.0
GONE_S = 90.0  # how long an ended job may take to be gone: KillWait is 30 s
COMPLETING = "COMPLETING"
ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "SPECIAL_EXIT",
        "TIMEOUT",
    ]
)
STARTING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"})
STOPPED = frozenset({"SUSPENDED", "STOPPED"})  # it computes nothing, so it is as good as gone
# why a pending job will never run as it is: squeue(1), "JOB REASON CODES"
NEVER = frozenset(
    [
        "AccountNotAllowed",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "JobHeldAdmin",
        "JobHeldUser",
        "PartitionDown",
        "PartitionInactive",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
    ]
)
ADDRESS = (
    "a=$(scontrol show node -o {node} | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p'); "
    "getent ahostsv4 \"$a\" | awk 'NR == 1 {{print $1}}'"
)


def offers(task: Task, clusters: Sequence[Cluster], home: Path, now: datetime) -> tuple[Offer, ...]:
    """Ask the clusters what they have for a task; what is free now comes first.

    Slurm chooses among the nodes that a job fits, so the dearest of them is what it may cost. A
    cluster that does not answer offers nothing, and is logged, as is what of it is not understood.
    """
    found: dict[tuple[str, str, str], tuple[Offer, bool]] = {}
    for cluster in clusters:
        try:
            site = look(cluster, home)
        except (BurstError, ValueError) as error:
            log.warning("Slurm cluster %s: %s", cluster.name, error)
            continue
        if site.left_out:
            log.warning("Slurm cluster %s: %s", cluster.name, site.left_out)
        for offer, free in _offers(task, cluster, site, now):
            place = (offer.pool, offer.zone, offer.machine_type)
            other, was_free = found.get(place, (offer, False))
            dearer = max(offer, other, key=lambda one: one.quote.usd_per_hour)
            found[place] = (dearer, free or was_free)
    return tuple(offer for offer, _ in sorted(found.values(), key=lambda pair: not pair[1]))


def look(cluster: Cluster, home: Path) -> Site:
    """Ask a cluster what it has; BurstError or ValueError if it does not say."""
    return read_site(cluster.ssh(home).run(script(LOOK), limit_s=LOOK_S), cluster.spot)


def _offers(
    task: Task, cluster: Cluster, site: Site, now: datetime
) -> Iterator[tuple[Offer, bool]]:
    for wanted in task.candidates:
        if wanted.infra.cloud not in {None, "slurm"}:
            continue
        for node in site.nodes:
            partition = site.partitions.get(node.partition)
            if partition is None or not partition.up or not node.usable:
                continue
            for shape, kind in shapes(wanted, node, cluster):
                if shape.cpus <= node.cpus and shape.memory_gb * 1024 <= node.memory_mb:
                    offer = _offer(cluster, node, shape, kind, now, spot=partition.preemptible)
                    yield offer, node.has_free(shape)


def _offer(
    cluster: Cluster, node: Node, shape: Shape, kind: str, now: datetime, *, spot: bool
) -> Offer:
    gpus = Accelerators(kind=kind, count=shape.gpus.count) if shape.gpus else None
    return Offer(
        pool=cluster.pool,
        region="",
        zone=node.partition,
        machine_type=str(shape),
        cpus=float(shape.cpus),
        memory_gb=float(shape.memory_gb),
        accelerators=gpus,
        spot=spot,
        quote=cluster.quote(shape, node, now),
    )


class Slurm:
    """Jobs as what makes and ends machines; see burst.provision.rented: Clusters, and Cloud.

    `nodes` are those that there may be, by name, with their pool: of an earlier controller.
    """

    held = True

    def __init__(
        self,
        clusters: Sequence[Cluster],
        home: Path,
        clock: Clock,
        nodes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._clusters = {cluster.pool: cluster for cluster in clusters}
        self._home = home
        self._clock = clock
        there = {name: self._clusters.get(pool) for name, pool in nodes.items()}
        self._where = {name: cluster for name, cluster in there.items() if cluster is not None}
        self._gone: set[str] = set()  # nodes that were ended; where they were is known still
        self._ran: dict[str, Mapping[str, Machine]] = {}  # by run and node; jobs seen to run
        self._looking = threading.Lock()

    def launch(self, request: MachineRequest) -> None:
        """Submit a node's job, unless it is there, and wait until it runs.

        RefusedError when the place does not take it, or it is still pending after `wait_s` or the
        cluster's `wait`, whichever is less; then it is cancelled. So it is as soon as Slurm expects
        it to start only after `wait_s`, when another place is going to be asked.
        """
        name, place = request.name, request.place
        cluster = self._clusters.get(place.pool)
        if cluster is None:
            raise SetupError(f"{place.pool} is not in ~/.slurm/config any more")
        self._where[name] = cluster
        self._gone.discard(name)
        if self._job(cluster, name) is None:
            number = self._submit(cluster, request)
            _note(request.log, f"{place}: job {number} was submitted")
        try:
            self._wait(cluster, name, request.wait_s)
        except RefusedError as error:
            _note(request.log, error.said)
            raise

    def _submit(self, cluster: Cluster, request: MachineRequest) -> str:
        asked = options(cluster, request.name, request.place, request.labels)
        command = shlex.join(["sbatch", *asked])
        script = hold(request.name)
        try:
            return cluster.ssh(self._home).run(command, script.encode(), limit_s=LOOK_S).strip()
        except SetupError as error:
            raise RefusedError(error.message, error.message) from error

    def _wait(self, cluster: Cluster, name: str, wait_s: float | None) -> None:
        """Wait until a job runs."""
        began_s = self._clock.monotonic()
        limits = [limit_s for limit_s in (wait_s, cluster.wait_s) if limit_s is not None]
        limit_s = max(min(limits, default=WAIT_S), LEAST_WAIT_S)
        while True:
            job = self._job(cluster, name)
            if job is None or job.state not in STARTING | {"RUNNING"}:
                state = "not there" if job is None else job.state
                said = f"the job of {name} is {state} before it ran"
                raise RefusedError(said, said)
            if job.state == "RUNNING":
                return
            waited_s = self._clock.monotonic() - began_s
            starts_s = self._starts_s(job)
            too_late = wait_s is not None and starts_s is not None and waited_s + starts_s > wait_s
            if job.reason in NEVER or too_late or waited_s >= limit_s:
                would = (
                    f"; Slurm would start it at {job.starts:%Y-%m-%d %H:%MZ}" if job.starts else ""
                )
                said = f"no-capacity: job {job.number} is pending ({job.reason}){would}"
                self.down(name)
                raise RefusedError(said, said, again_s=starts_s)
            self._clock.sleep(POLL_S)

    def _starts_s(self, job: Job) -> float | None:
        """Return in how many seconds Slurm expects a pending job to start, if it says."""
        return None if job.starts is None else (job.starts - self._clock.now()).total_seconds()

    def states(self, prefix: str, *, refresh: bool) -> Mapping[str, str]:
        """Return the nodes whose name begins so; TransientError when no cluster answers.

        Jobs of a cluster that does not answer are said to be up: their heartbeats tell, not we.
        """
        del refresh
        heard = self._heard()
        known = self._where.copy()  # other threads end nodes meanwhile
        silent = {name for name, cluster in known.items() if cluster not in heard}
        found = dict.fromkeys(silent - self._gone, "up")
        for cluster, jobs in heard.items():
            for job in jobs:
                if job.state not in ENDED | STOPPED | {COMPLETING}:
                    self._where.setdefault(job.name, cluster)
                    found[job.name] = "starting" if job.state in STARTING else "up"
        return {name: state for name, state in found.items() if name.startswith(prefix)}

    def machines(self, run_id: str) -> Mapping[str, Machine]:
        """Return since when, and until when, nodes' jobs ran: a queued one costs nothing.

        Slurm forgets ended jobs after a while (MinJobAge): what is not seen any more ended then.
        Of a cluster that does not answer it is said what was last; TransientError when none does.
        """
        with self._looking:  # an older list must not come after a newer one
            heard = self._heard()
            found = by_node(self._ran_there(run_id, heard))
            for node_id, machine in self._ran.get(run_id, {}).items():
                if node_id not in found:
                    name = cluster_name(run_id, node_id)
                    silent = name not in self._gone and self._where.get(name) not in heard
                    found[node_id] = machine if silent else machine.gone(self._clock.now())
            self._ran[run_id] = found
            return found

    def _heard(self) -> dict[Cluster, tuple[Job, ...]]:
        """Return the jobs of each cluster that answers; TransientError when none does."""
        heard: dict[Cluster, tuple[Job, ...]] = {}
        silent: list[BurstError] = []
        for cluster in self._clusters.values():
            try:
                heard[cluster] = read_jobs(self._ask(cluster, JOBS))
            except BurstError as error:
                silent.append(error)
        if silent and not heard:
            raise TransientError(f"no Slurm cluster answers: {silent[0].message}")
        return heard

    def _ran_there(
        self, run_id: str, heard: Mapping[Cluster, Collection[Job]]
    ) -> Iterator[tuple[str, Machine]]:
        """Yield a run's jobs that run or ran, by node."""
        prefix = cluster_name(run_id, "")
        for cluster, jobs in heard.items():
            for job in jobs:
                node_id = job.name.removeprefix(prefix)
                ours = job.name != node_id and NODE_ID.fullmatch(node_id)
                if ours and job.starts and job.state not in STARTING:
                    self._where.setdefault(job.name, cluster)
                    yield node_id, self._machine(cluster, job)

    def _machine(self, cluster: Cluster, job: Job) -> Machine:
        now = self._clock.now()
        over = job.state in ENDED | STOPPED | {COMPLETING}
        return Machine(
            name=f"job {job.number} of {cluster.pool}",
            since=job.starts or now,
            until=min(job.ends or now, now) if over else None,
            costs=not over,
        )

    def end(self, run_id: str, node_ids: Collection[str]) -> None:
        """Cancel nodes' jobs."""
        for node_id in node_ids:
            self.down(cluster_name(run_id, node_id))

    def keep(self, run_id: str) -> None:
        """Do nothing: a job's time limit is what it is."""

    def end_command(self, request: NodeRequest) -> str:
        """Return what cancels the job that runs it."""
        del request
        return RELEASE

    def machine_env(self, name: str) -> Mapping[str, str]:
        """Return nothing: Slurm itself tells a job which GPUs are its own."""
        del name
        return {}

    def vacant(self, place: Place) -> int:
        """Return how many jobs like a node's could start there now; see slurm_room.read_room."""
        cluster = self._clusters.get(place.pool)
        if cluster is None:
            return 0
        shape = Shape.parse(place.machine_type)
        try:
            said = self._ask(cluster, slurm_room.ask(options(cluster, "burst", place, {})))
            return slurm_room.read_room(said, place.zone, shape)
        except (BurstError, ValueError) as error:
            log.info("Slurm cluster %s: what is vacant is not known: %s", cluster.name, error)
            return 0

    def login(self, name: str, keys: Path) -> Login:
        """Return how a job's node is reached: through the login node, as a step of the job."""
        del keys
        cluster = self._cluster(name)
        job = None if cluster is None else self._job(cluster, name)
        if cluster is None or job is None or job.state != "RUNNING":
            raise TransientError(f"no Slurm cluster runs a job {name}")
        ip = self._ask(cluster, ADDRESS.format(node=shlex.quote(job.node))).strip()
        if not ip:
            raise TransientError(f"Slurm cluster {cluster.name}: {job.node} has no address")
        step = ("srun", "--quiet", "--overlap", f"--jobid={job.number}", "--nodes=1", "--ntasks=1")
        return Login(host=cluster.name, ip=ip, config=cluster.config, inside=step)

    def down(self, name: str) -> None:
        """Cancel a node's job; return when it is gone. TransientError if that cannot be said."""
        cluster = self._cluster(name)
        if cluster is None:
            return
        until_s = self._clock.monotonic() + GONE_S
        self._ask(cluster, f'scancel -u "$(id -un)" --name={shlex.quote(name)}')
        while (job := self._job(cluster, name)) is not None:
            if self._clock.monotonic() >= until_s:
                if job.state == COMPLETING:  # its node does not answer; it will not run again
                    log.warning("job %s of %s is still completing", job.number, name)
                    break
                raise TransientError(f"job {job.number} of {name} is still {job.state}")
            self._clock.sleep(POLL_S)
        self._gone.add(name)

    def _cluster(self, name: str) -> Cluster | None:
        """Return where a node's job is; TransientError if a cluster that may have it is silent."""
        if name in self._where:
            return self._where[name]
        for cluster in self._clusters.values():
            if self._job(cluster, name) is not None:
                self._where[name] = cluster
                return cluster
        return None

    def _job(self, cluster: Cluster, name: str) -> Job | None:
        """Return the job of a node that is not over."""
        return next((job for job in self._jobs(cluster) if job.name == name), None)

    def _jobs(self, cluster: Cluster) -> tuple[Job, ...]:
        jobs = read_jobs(self._ask(cluster, JOBS))
        return tuple(job for job in jobs if job.state not in ENDED)

    def _ask(self, cluster: Cluster, command: str) -> str:
        """Return what a command says; TransientError if it fails, as while slurmctld restarts."""
        try:
            return cluster.ssh(self._home).run(command, limit_s=LOOK_S)
        except SetupError as error:
            raise TransientError(f"Slurm does not answer: {error.message}") from error


def _note(log: Path, line: str) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as out:
        out.write(f"{line}\n")
