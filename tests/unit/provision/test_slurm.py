"""Slurm whose login node answers what a table says; the words are those that Slurm 22.05 prints."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from burst.cost.offers import candidates
from burst.cost.placement import Place
from burst.errors import SetupError, TransientError
from burst.provision.refusals import RefusedError, reason_of
from burst.provision.rented import MachineRequest
from burst.provision.slurm import HOLD, Slurm, offers
from burst.provision.slurm_site import Cluster, Shape, read_clusters, read_jobs, read_site
from burst.provision.ssh import Login, Ssh
from burst.task_specs.model import Accelerators, Amount, Burst, Infra, Resources, Task

NOW = datetime(2026, 12, 2, tzinfo=UTC)
N1, N2 = "burst-toy-abcdef-n001", "burst-toy-abcdef-n002"
LABELS = {"burst-run": "toy-abcdef", "burst-node": "n001"}
GPU = Place(pool="slurm/lab", zone="gpu", machine_type="16CPU--128GB--A100:2")
SITE = """1796208400
81234567
PreemptType             = preempt/partition_prio
==
PartitionName=gpu AllowGroups=ALL Default=YES GraceTime=0 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=scav AllowGroups=ALL Default=NO PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=old AllowGroups=ALL Default=NO PriorityTier=1 PreemptMode=OFF State=DOWN
==
n1 gpu*  mix   48/16/0/64 524288 500000 gpu:A100:8(S:0-1)  gpu:A100:6(IDX:0-5)
n2 gpu*  down* 0/0/64/64  524288 0      gpu:A100:8(S:0-1)  gpu:A100:0(IDX:N/A)
n1 scav  mix   48/16/0/64 524288 500000 gpu:A100:8(S:0-1)  gpu:A100:6(IDX:0-5)
n3 scav  idle  0/32/0/32  262144 0      gpu:nvidia_h100_80gb:4 gpu:nvidia_h100_80gb:0(IDX:N/A)
n4 old   idle  0/32/0/32  1      0      (null) (null)
n5 gpu*  idle~ 0/32/0/32  1      0      gpu:2 gpu:0
"""


@dataclass
class World:
    """A login node: its jobs by number, and what it was asked."""

    site: str = SITE
    jobs: dict[int, list[str]] = field(default_factory=dict)  # name, state, reason, node
    asked: list[str] = field(default_factory=list)
    scripts: list[bytes] = field(default_factory=list)
    down: bool = False
    no_controller: bool = False  # the login node answers, Slurm's own controller does not
    refuse: str = ""
    next_state: str = "RUNNING"  # of submitted jobs
    next_reason: str = "None"
    starts: str = ""  # of its jobs, in seconds since 1970
    ends: str = ""
    room: str = "==\nsbatch: Job 9 to start at 1796208400 using 16 processors on nodes n1\n"
    deaf: int = 0  # so many calls of scancel end nothing yet
    time_s: float = 0.0

    def run(self, ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        if self.down:
            raise TransientError("lab cannot be reached by ssh")
        self.asked.append(command)
        if self.no_controller:
            raise SetupError("lab: exit code 1: Unable to contact slurm controller")
        if "squeue -h -t all" in command:
            times = f"{self.starts or 'N/A'}|{self.ends or 'N/A'}"
            return "".join(f"{n}|{'|'.join(job)}|{times}\n" for n, job in self.jobs.items())
        if command.startswith("scancel"):
            return self.scancel(command)
        if command.startswith("sbatch"):
            return self.sbatch(command, data)
        if "--test-only" in command:
            return f"{self.site}==\n{self.room}"
        return "10.0.0.5\n" if "NodeAddr" in command else self.site

    def scancel(self, command: str) -> str:
        for number, job in list(self.jobs.items()):
            if f"--name={job[0]}" in command:
                job[1] = "COMPLETING"
                if not self.deaf:
                    del self.jobs[number]
        return ""

    def sbatch(self, command: str, script: bytes) -> str:
        if self.refuse:
            raise SetupError(f"lab: exit code 1: {self.refuse}")
        name = re.search(r"--job-name=(\S+)", command)
        assert name is not None
        self.scripts.append(script)
        self.jobs[7] = [name[1], self.next_state, self.next_reason, "n1"]
        return "7\n"

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.time_s

    elapsed = monotonic

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    def run(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        return made.run(ssh, command, data, limit_s=limit_s)

    monkeypatch.setattr(Ssh, "run", run)
    return made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text("Host *\n  User me\nHost lab lab2\n  HostName 10.0.0.1\nHost web-*\n")
    return path


def lab(config: Path, **said: object) -> Cluster:
    found = read_clusters({"slurm": {"lab": said}}, config)
    assert [one.pool for one in found] == ["slurm/lab", "slurm/lab2"]
    return found[0]


def slurm(world: World, config: Path, **said: object) -> Slurm:
    return Slurm([lab(config, **said)], config.parent, world)


def launch(
    pool: Slurm, config: Path, name: str = N1, place: Place = GPU, wait_s: float | None = None
) -> None:
    said = config.parent / "said" / f"{name}.log"
    pool.launch(
        MachineRequest(name=name, place=place, wanted={}, labels=LABELS, log=said, wait_s=wait_s)
    )


def test_clusters_are_the_hosts_that_openssh_reads(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b'Host lab # my own: f\xfcr mich\n  # Host no\nHost "quoted"\nhost=lab2\n')
    assert [one.name for one in read_clusters({}, path)] == ["lab", "quoted", "lab2"]
    with pytest.raises(SetupError, match="cannot be read: Is a directory"):
        read_clusters({}, tmp_path)


# What there is ------------------------------------------------------------------------------------


def task(*wanted: Resources) -> Task:
    return Task(name="toy", candidates=wanted, burst=Burst(), source="task.yaml")


def offered(world: World, config: Path, *wanted: Resources, **said: object) -> list[str]:
    found = offers(task(*wanted), [lab(config, **said)], config.parent, NOW)
    return [
        f"{o.pool}/{o.zone} {o.machine_type} {'spot ' if o.spot else ''}{o.quote.usd_per_hour}"
        for o in found
    ]


def test_gpus_are_offered_with_their_share_of_a_node_what_is_free_first(
    world: World, config: Path
) -> None:
    two = Resources(accelerators=Accelerators(kind="A100", count=2))
    assert offered(world, config, two, usd_per_gpu_hour="1.10") == [
        "slurm/lab/gpu 16CPU--128GB--A100:2 2.20",
        "slurm/lab/scav 16CPU--128GB--A100:2 spot 2.20",
    ]
    (one, _) = offers(task(two), [lab(config)], config.parent, NOW)
    assert (one.owned, one.cpus, one.memory_gb, one.accelerators) == (
        True, 16.0, 128.0, two.accelerators,
    )  # fmt: skip
    assert [c.offer.spot for c in candidates(task(two), (one,))] == [False]


def test_a_gpu_is_known_by_part_of_slurms_name_and_a_nameless_one_by_pools_yaml(
    world: World, config: Path
) -> None:
    wanted = Resources(accelerators=Accelerators(kind="H100-80GB", count=1))
    whole = "slurm/lab/scav 8CPU--64GB--nvidia_h100_80gb:1 spot 1.000000"
    assert offered(world, config, wanted, usd_per_hour="4") == [whole]
    other = Resources(accelerators=Accelerators(kind="L40S", count=2))
    assert offered(world, config, other) == []
    assert offered(world, config, other, gpu="L40S") == ["slurm/lab/gpu 32CPU--0GB--gpu:2 0.000000"]


@pytest.mark.parametrize(
    ("gres", "used", "has", "free"),
    [
        ("gpu:2080ti:8(S:0-1)", "gpu:2080ti:3(IDX:0-2)", {"2080ti": 8}, {"2080ti": 5}),
        ("gpu:3090:2", "gpu:3090:0(IDX:N/A)", {"3090": 2}, {"3090": 2}),
        ("gpu:4(S:0-1)", "gpu:(null):3(IDX:0-2)", {"gpu": 4}, {"gpu": 1}),
        ("gpu:8", "gpu:8", {"gpu": 8}, {"gpu": 0}),
        (
            "gpu:a100:2(S:0,2),gpu:1080ti:4(S:1)",
            "gpu:a100:1(IDX:1),gpu:1080ti:4(IDX:0-3)",
            {"a100": 2, "1080ti": 4},
            {"a100": 1, "1080ti": 0},
        ),
        ("gpu:1g.10gb:7(S:0)", "gpu:1g.10gb:0", {"1g.10gb": 7}, {"1g.10gb": 7}),
        ("gpu:h100:8,shard:h100:32", "gpu:h100:2,shard:h100:0", {"h100": 8}, {"h100": 6}),
        ("mps:200,craynetwork:4", "mps:0", {}, {}),
    ],
)
def test_gpus_in_every_form_that_slurm_prints(
    config: Path, gres: str, used: str, has: dict[str, int], free: dict[str, int]
) -> None:
    line = f"n1 gpu* mix 48/16/0/64 524288 500000 {gres} {used}\n"
    (node,) = read_site(SITE.rpartition("==\n")[0] + "==\n" + line, lab(config)).nodes
    assert (node.gpus, node.gpus_free) == (has, free)


def test_without_gpus_what_is_asked_for_or_the_whole_node(world: World, config: Path) -> None:
    asked = Resources(
        infra=Infra(cloud="slurm"),
        cpus=Amount(value=8, at_least=True),
        memory_gb=Amount(value=2, per_cpu=True),
    )
    assert offered(world, config, asked, spot=["gpu"], usd_per_hour="2") == [
        "slurm/lab/gpu 8CPU--16GB spot 0.250000",
        "slurm/lab/scav 8CPU--16GB spot 0.500000",  # of the two nodes it may be, the dearer
    ]
    assert offered(world, config, Resources(cpus=Amount(value=65))) == []
    assert "slurm/lab/scav 32CPU--256GB spot 0.000000" in offered(world, config, Resources())


def test_a_cluster_that_does_not_answer_offers_nothing(world: World, config: Path) -> None:
    world.down = True
    assert offered(world, config, Resources()) == []
    world.down = False
    world.site = "motd: welcome\n"
    assert offered(world, config, Resources()) == []


def test_only_a_partition_that_makes_way_for_another_is_spot(config: Path) -> None:
    def spot(site: str, **said: object) -> list[str]:
        read = read_site(site, lab(config, **said))
        return [p.name for p in read.partitions.values() if p.preemptible]

    assert spot(SITE) == ["scav"]
    assert spot(SITE, spot=["old"]) == ["scav", "old"]
    assert spot(SITE.replace("partition_prio", "none")) == []
    assert spot(SITE.replace("PriorityTier=10", "PriorityTier=1")) == []


def test_shapes_are_read_as_they_are_written() -> None:
    for text in ("8CPU--64GB", "8CPU--64GB--A100:2", "1CPU--0GB--nvidia_h100_80gb:8"):
        assert str(Shape.parse(text)) == text
    with pytest.raises(ValueError, match=r"m6i.large is no machine type of Slurm"):
        Shape.parse("m6i.large")


def test_clusters_are_those_that_have_a_login(config: Path) -> None:
    assert read_clusters({}, config.parent / "none") == ()
    assert lab(config, usd_per_gpu_hour="1.5").usd_per_gpu_hour == Decimal("1.5")
    assert lab(config, spot="scav").spot == ("scav",)


# What is vacant -----------------------------------------------------------------------------------

QUARTER = Place(pool="slurm/lab", zone="gpu", machine_type="4CPU--4GB")
NOW_LINE = "sbatch: Job 9 to start at 1796208430 using 4 processors on nodes n1 in partition gpu\n"


@pytest.mark.parametrize(
    ("queue", "test", "nodes"),
    [
        ("", NOW_LINE, 2),  # n5 has too little memory
        ("scav|Resources|2\n", NOW_LINE, 2),  # a lower partition comes after
        ("gpu|Dependency|2\ngpu|JobHeldUser|4\ngpu|QOSMaxJobsPerUserLimit|1\n", NOW_LINE, 2),
        ("gpu|Priority|1\n", NOW_LINE, 1),
        ("scav,gpu|Resources|1-4\n", NOW_LINE, 1),
        ("gpu|None|1\ngpu|Priority|1\n", NOW_LINE, 0),
        ("", NOW_LINE.replace("8430", "8930"), 0),  # Slurm plans it for later
        ("", "allocation failure: Requested node configuration is not available\n", 0),
    ],
)
def test_vacant_is_what_is_free_and_not_waited_for(
    world: World, config: Path, queue: str, test: str, nodes: int
) -> None:
    world.site = SITE.replace("n2 gpu*  down* 0/0/64/64 ", "n2 gpu*  mix  0/64/0/64 ")
    world.room = f"{queue}==\n{test}"
    assert slurm(world, config).vacant(QUARTER) == nodes
    (asked,) = world.asked
    assert "sbatch --test-only" in asked
    assert world.jobs == {}


def test_where_others_would_make_way_one_is_vacant(world: World, config: Path) -> None:
    world.site = SITE.replace("48/16/0/64", "64/0/0/64").replace("0/32/0/32", "32/0/0/32")
    world.room = f"==\n{NOW_LINE}"
    assert slurm(world, config).vacant(QUARTER) == 1
    world.room = f"gpu|Priority|1\n==\n{NOW_LINE}"
    assert slurm(world, config).vacant(QUARTER) == 0


def test_what_is_not_there_is_not_vacant(world: World, config: Path) -> None:
    pool = slurm(world, config)
    assert pool.vacant(replace(QUARTER, pool="slurm/other")) == 0
    assert pool.vacant(replace(QUARTER, zone="other")) == 0


# Jobs ---------------------------------------------------------------------------------------------


def test_a_node_is_one_job_whatever_is_asked_twice(world: World, config: Path) -> None:
    pool = slurm(world, config, account="ml", qos="high", time="90s")
    launch(pool, config)
    launch(pool, config)
    (asked,) = [shlex.split(one) for one in world.asked if one.startswith("sbatch")]
    assert {
        "--parsable", "--no-requeue", f"--job-name={N1}", "--partition=gpu", "--cpus-per-task=16",
        "--mem=128G", "--gres=gpu:A100:2", "--account=ml", "--qos=high", "--time=2",
        "--comment=burst-run=toy-abcdef burst-node=n001", "--signal=B:USR1@120",
    } <= set(asked)  # fmt: skip
    assert world.scripts[0].decode().startswith("#!/bin/bash\n")
    assert pool.states("burst-toy-abcdef-", refresh=True) == {N1: "up"}
    assert pool.states("burst-other-", refresh=True) == {}


def test_nameless_gpus_and_no_memory_are_asked_for_as_such(world: World, config: Path) -> None:
    place = Place(pool="slurm/lab", zone="gpu", machine_type="4CPU--0GB--gpu:1")
    launch(slurm(world, config), config, place=place)
    (asked,) = [one for one in world.asked if one.startswith("sbatch")]
    assert "--gres=gpu:1 " in f"{asked} "
    for absent in ("--mem", "--account", "--qos", "--time"):
        assert absent not in asked


@pytest.mark.parametrize(
    ("pending", "waits", "reason"),
    [
        ("Resources", True, "capacity"),
        ("Priority", True, "capacity"),
        ("QOSMaxJobsPerUserLimit", True, "quota"),
        ("PartitionTimeLimit", False, "quota"),
        ("InvalidAccount", False, "rights"),
    ],
)
def test_a_job_that_stays_pending_is_cancelled_and_says_why(
    world: World, config: Path, pending: str, waits: bool, reason: str
) -> None:
    world.next_state, world.next_reason = "PENDING", pending
    world.starts = str(int(NOW.timestamp()) + 11 * 3600)
    with pytest.raises(RefusedError) as refused:
        launch(slurm(world, config, wait="1m"), config)
    assert reason_of(refused.value.said) == reason
    assert f"({pending}); Slurm would start it at 2026-12-02 11:00Z" in refused.value.said
    assert world.jobs == {}
    assert (world.time_s >= 60) is waits
    assert pending in (config.parent / "said" / f"{N1}.log").read_text()


@pytest.mark.parametrize(
    ("wait_s", "site", "waited_s"), [(30.0, None, 30), (0.0, None, 10), (300.0, "1m", 60)]
)
def test_a_job_is_queued_no_longer_than_until_another_place_is_asked(
    world: World, config: Path, wait_s: float, site: str | None, waited_s: float
) -> None:
    world.next_state, world.next_reason = "PENDING", "Priority"
    with pytest.raises(RefusedError) as refused:
        launch(slurm(world, config, wait=site), config, wait_s=wait_s)
    assert waited_s <= world.time_s <= waited_s + 2
    assert world.jobs == {}
    assert refused.value.again_s is None


@pytest.mark.parametrize(("wait_s", "waits"), [(600.0, False), (7200.0, True), (None, True)])
def test_a_job_that_would_start_too_late_is_not_queued(
    world: World, config: Path, wait_s: float | None, waits: bool
) -> None:
    """Unless nothing else can be asked: then it keeps its place in the queue for a while."""
    world.next_state, world.next_reason = "PENDING", "Resources"
    world.starts = str(int(NOW.timestamp()) + 3600)
    with pytest.raises(RefusedError) as refused:
        launch(slurm(world, config, wait="2m"), config, wait_s=wait_s)
    assert world.time_s == (120 if waits else 0)
    assert refused.value.again_s == 3600


def test_what_sbatch_refuses_is_said(world: World, config: Path) -> None:
    world.refuse = "sbatch: error: Batch job submission failed: Invalid qos specification"
    with pytest.raises(RefusedError) as refused:
        launch(slurm(world, config), config)
    assert reason_of(refused.value.said) == "rights"


def test_a_job_that_is_ended_before_it_ran_is_a_refusal(world: World, config: Path) -> None:
    world.next_state = "COMPLETING"
    with pytest.raises(RefusedError, match="COMPLETING before it ran"):
        launch(slurm(world, config), config)


@pytest.mark.parametrize("state", ["COMPLETING", "SUSPENDED", "PREEMPTED", "TIMEOUT", "CANCELLED"])
def test_a_job_that_is_ended_or_stands_still_is_no_node(
    world: World, config: Path, state: str
) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.jobs[7][1] = state
    assert pool.states("burst-", refresh=True) == {}


def test_a_controller_that_takes_over_finds_jobs_by_name(world: World, config: Path) -> None:
    launch(slurm(world, config), config)
    other = slurm(world, config)
    login = other.login(N1, config.parent)
    step = ("srun", "--quiet", "--overlap", "--jobid=7", "--nodes=1", "--ntasks=1")
    assert login == Login(host="lab", ip="10.0.0.5", config=config, inside=step)
    slurm(world, config).down(N1)
    assert world.jobs == {}
    with pytest.raises(TransientError, match=f"no Slurm cluster runs a job {N1}"):
        other.login(N1, config.parent)


def test_a_job_is_paid_for_from_its_start_to_its_end(world: World, config: Path) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.jobs[8] = ["burst-other-run-n001", "RUNNING", "None", "n2"]
    world.jobs[9] = [N2, "PENDING", "Priority", ""]
    world.starts = str(int(NOW.timestamp()) - 300)
    world.ends = str(int(NOW.timestamp()) + 86_400)  # its time limit
    (mine,) = pool.machines("toy-abcdef").values()
    assert (mine.since, mine.until, mine.costs) == (NOW - timedelta(seconds=300), None, True)
    world.jobs[7][1], world.ends = "CANCELLED", str(int(NOW.timestamp()) - 20)
    assert pool.machines("toy-abcdef")["n001"].until == NOW - timedelta(seconds=20)
    assert not pool.machines("toy-abcdef")["n001"].costs


def test_a_job_that_slurm_has_forgotten_is_over(world: World, config: Path) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.starts = str(int(NOW.timestamp()) - 300)
    assert pool.machines("toy-abcdef")["n001"].costs
    world.jobs.clear()
    for _ in range(2):
        gone = pool.machines("toy-abcdef")["n001"]
        assert (gone.costs, gone.until) == (False, NOW)


def test_a_cluster_that_is_silent_says_nothing_of_its_jobs(world: World, config: Path) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.down = True
    with pytest.raises(TransientError, match="no Slurm cluster answers"):
        pool.states("burst-", refresh=True)
    with pytest.raises(TransientError):
        pool.down(N1)
    world.down = False
    pool.down(N1)
    assert world.jobs == {}


def test_a_slurm_that_starts_anew_is_silence_and_no_end_of_the_run(
    world: World, config: Path
) -> None:
    """While slurmctld is away, squeue and scancel fail; what they say may be asked for later."""
    pool = slurm(world, config)
    launch(pool, config)
    world.no_controller = True
    for ask in (
        lambda: pool.machines("toy-abcdef"),
        lambda: pool.down(N1),
        lambda: pool.login(N1, config),
        lambda: pool.vacant(GPU),
        lambda: launch(pool, config, N2),
    ):
        with pytest.raises(TransientError, match="Unable to contact slurm controller"):
            ask()
    assert set(world.jobs) == {7}
    world.no_controller = False
    assert pool.states("burst-toy-", refresh=True) == {N1: "up"}


def test_an_end_is_waited_for_but_not_that_of_a_node_that_is_gone(
    world: World, config: Path
) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.deaf = 1
    pool.down(N1)
    assert world.time_s >= 90  # a job of a lost node is completing until Slurm gives the node up
    assert world.jobs[7][1] == "COMPLETING"


def test_other_peoples_lines_are_no_jobs() -> None:
    assert read_jobs("slurm_load_jobs error\n\n") == ()
    (job,) = read_jobs(f"7|{N1}|PENDING|Resources||N/A|N/A\n")
    assert (job.number, job.name, job.node, job.starts) == ("7", N1, "", None)


def test_the_script_that_holds_a_node_is_whole() -> None:
    script = HOLD.format(scratch="/tmp/x/n001", limit=3600)
    assert "{" not in script
    assert "read -r -t 3600 -u 3" in script
