"""Slurm, over a stand-in whose clock stands still; see tests/support/slurm_stand_in.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from burst.cost.offers import candidates
from burst.cost.placement import Place
from burst.errors import SetupError, TransientError
from burst.provision.refusals import RefusedError, reason_of
from burst.provision.rented import MachineRequest
from burst.provision.slurm import Slurm, look, offers
from burst.provision.slurm_job import hold
from burst.provision.slurm_site import Cluster, read_clusters
from burst.provision.ssh import Login
from burst.task_specs.model import Accelerators, Amount, Burst, Infra, Resources, Task
from cli_scene import StillClock, at
from slurm_stand_in import ENDED, ME, Job, usual, varied

NOW = at(0)
N1, N2 = "burst-toy-abcdef-n001", "burst-toy-abcdef-n002"
LABELS = {"burst-run": "toy-abcdef", "burst-node": "n001"}
GPU = Place(pool="slurm/lab", zone="gpu", machine_type="16CPU--128GB--A100:2")


class World:
    """Two clusters, of which mostly the first is of interest, and a clock that stands still."""

    def __init__(self, folder: Path) -> None:
        self.clock = StillClock()
        self.lab = varied("lab", folder, self.clock)
        self.lab2 = usual("lab2", folder, self.clock)

    def mine(self, name: str = N1) -> Job:
        """Return the newest job of a name."""
        return [job for job in self.lab.jobs.values() if job.name == name][-1]

    def left(self) -> list[str]:
        """Return the names of our jobs that are not over."""
        return [j.name for j in self.lab.jobs.values() if j.user == ME and j.state not in ENDED]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path / "logins")
    monkeypatch.setenv("PATH", f"{made.lab.path}:{os.environ['PATH']}")
    with made.lab, made.lab2:
        yield made


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
    return Slurm([lab(config, **said)], config.parent, world.clock)


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
    world.lab.down = True
    assert offered(world, config, Resources()) == []
    world.lab.down = False
    world.lab.prints("date", "motd: welcome")
    assert offered(world, config, Resources()) == []


def test_what_is_not_understood_is_logged_and_hides_nothing_else(
    world: World, config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.lab.nodes[0].cpus = 0
    wanted = Resources(accelerators=Accelerators(kind="H100-80GB", count=1))
    assert len(offered(world, config, wanted)) == 1
    assert "Slurm cluster lab: 2 lines of Slurm's left out" in caplog.text


def test_what_is_free_now_is_offered_before_what_will_be(world: World, config: Path) -> None:
    asked = Resources(cpus=Amount(value=1), memory_gb=Amount(value=1))
    for state, first in (("", "gpu"), ("resv", "scav"), ("drain", "scav")):
        world.lab.nodes[0].state = state
        zones = [o.split()[0].rpartition("/")[2] for o in offered(world, config, asked)]
        assert zones[0] == first


def test_only_a_partition_that_makes_way_for_another_is_spot(world: World, config: Path) -> None:
    def spot(**said: object) -> list[str]:
        partitions = look(lab(config, **said), config.parent).partitions.values()
        return [p.name for p in partitions if p.preemptible]

    assert spot() == ["scav"]
    assert spot(spot=["old"]) == ["scav", "old"]
    world.lab.partitions[0].tier = 1
    assert spot() == []
    world.lab.partitions[0].tier, world.lab.preempt = 10, "preempt/none"
    assert spot() == []


def test_clusters_are_those_that_have_a_login(config: Path) -> None:
    assert read_clusters({}, config.parent / "none") == ()
    assert lab(config, usd_per_gpu_hour="1.5").usd_per_gpu_hour == Decimal("1.5")
    assert lab(config, spot="scav").spot == ("scav",)


# What is vacant -----------------------------------------------------------------------------------

QUARTER = Place(pool="slurm/lab", zone="gpu", machine_type="4CPU--4GB")


def queue(world: World, partition: str, reason: str, nodes: str = "1") -> None:
    """Have somebody's job wait, for more than any node has."""
    world.lab.add(partition, reason=reason, nodes=nodes, cpus=1000)


@pytest.mark.parametrize(
    ("waiting", "nodes"),
    [
        ([], 2),  # n5 has too little memory
        ([("scav", "Resources", "2")], 2),  # a lower partition comes after
        ([("gpu", "Dependency", "2"), ("gpu", "JobHeldUser", "4")], 2),
        ([("gpu", "QOSMaxJobsPerUserLimit", "1")], 2),
        ([("gpu", "Priority", "1")], 1),
        ([("scav,gpu", "Resources", "1-4")], 1),
        ([("gpu", "None", "1"), ("gpu", "Priority", "1")], 0),
    ],
)
def test_vacant_is_what_is_free_and_not_waited_for(
    world: World, config: Path, waiting: list[tuple[str, str, str]], nodes: int
) -> None:
    world.lab.nodes[1].state = ""
    for one in waiting:
        queue(world, *one)
    assert slurm(world, config).vacant(QUARTER) == nodes
    (asked,) = world.lab.submitted()
    assert "--test-only" in asked
    assert world.left() == []


def test_nothing_is_vacant_where_slurm_would_not_start_a_job_now(
    world: World, config: Path
) -> None:
    world.lab.planned_s = 500.0
    assert slurm(world, config).vacant(QUARTER) == 0
    world.lab.refusal = "allocation failure: Requested node configuration is not available"
    assert slurm(world, config).vacant(QUARTER) == 0


def test_where_others_would_make_way_one_is_vacant(world: World, config: Path) -> None:
    world.lab.add("scav", cpus=16, memory_mb=200_000)
    assert slurm(world, config).vacant(QUARTER) == 1
    queue(world, "gpu", "Priority")
    assert slurm(world, config).vacant(QUARTER) == 0


def test_a_cluster_that_is_silent_has_nothing_vacant_and_another_has(
    world: World, config: Path
) -> None:
    pool = Slurm(read_clusters({}, config), config.parent, world.clock)
    world.lab.down = True
    assert pool.vacant(QUARTER) == 0
    assert pool.vacant(replace(QUARTER, pool="slurm/lab2", machine_type="2CPU--4GB")) == 4
    world.lab.down = False
    world.lab.prints("date", "motd: welcome")
    assert pool.vacant(QUARTER) == 0


def test_what_is_not_there_is_not_vacant(world: World, config: Path) -> None:
    pool = slurm(world, config)
    assert pool.vacant(replace(QUARTER, pool="slurm/other")) == 0
    assert pool.vacant(replace(QUARTER, zone="other")) == 0


# Jobs ---------------------------------------------------------------------------------------------


def test_a_node_is_one_job_whatever_is_asked_twice(world: World, config: Path) -> None:
    pool = slurm(world, config, account="ml", qos="high", time="90s")
    launch(pool, config)
    launch(pool, config)
    (asked,) = world.lab.submitted()
    assert {
        "--parsable", "--no-requeue", f"--job-name={N1}", "--partition=gpu", "--cpus-per-task=16",
        "--mem=128G", "--gres=gpu:A100:2", "--account=ml", "--qos=high", "--time=2",
        "--comment=burst-run=toy-abcdef burst-node=n001", "--signal=B:USR1@120",
    } <= set(asked)  # fmt: skip
    assert world.mine().script.startswith("#!/bin/bash\n")
    assert pool.states("burst-toy-abcdef-", refresh=True) == {N1: "up"}
    assert pool.states("burst-other-", refresh=True) == {}


@pytest.mark.parametrize(
    ("time", "minutes"), [("90", 90), ("4:00:00", 240), ("1-12", 2160), ("0", 0), ("61s", 2)]
)
def test_a_time_limit_means_what_it_means_to_sbatch(
    world: World, config: Path, time: str, minutes: int
) -> None:
    launch(slurm(world, config, time=time), config)
    assert f"--time={minutes}" in world.lab.submitted()[0]


def test_nameless_gpus_and_no_memory_are_asked_for_as_such(world: World, config: Path) -> None:
    place = Place(pool="slurm/lab", zone="gpu", machine_type="4CPU--0GB--gpu:1")
    launch(slurm(world, config), config, place=place)
    (asked,) = world.lab.submitted()
    assert "--gres=gpu:1" in asked
    assert not [one for one in asked if one.startswith(("--mem", "--account", "--qos", "--time"))]


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
    world.lab.pending, world.lab.planned_s = pending, 11 * 3600.0
    with pytest.raises(RefusedError) as refused:
        launch(slurm(world, config, wait="1m"), config)
    assert reason_of(refused.value.said) == reason
    planned = f"({pending}); Slurm would start it at {at(11 * 3600):%Y-%m-%d %H:%MZ}"
    assert planned in refused.value.said
    assert world.left() == []
    assert (world.clock.seconds >= 60) is waits
    assert pending in (config.parent / "said" / f"{N1}.log").read_text()


@pytest.mark.parametrize(
    ("wait_s", "site", "waited_s"), [(30.0, None, 30), (0.0, None, 10), (300.0, "1m", 60)]
)
def test_a_job_is_queued_no_longer_than_until_another_place_is_asked(
    world: World, config: Path, wait_s: float, site: str | None, waited_s: float
) -> None:
    world.lab.pending = "Priority"
    with pytest.raises(RefusedError) as refused:
        launch(slurm(world, config, wait=site), config, wait_s=wait_s)
    assert waited_s <= world.clock.seconds <= waited_s + 2
    assert world.left() == []
    assert refused.value.again_s is None


@pytest.mark.parametrize(("wait_s", "waits"), [(600.0, False), (7200.0, True), (None, True)])
def test_a_job_that_would_start_too_late_is_not_queued(
    world: World, config: Path, wait_s: float | None, waits: bool
) -> None:
    """Unless nothing else can be asked: then it keeps its place in the queue for a while."""
    world.lab.pending, world.lab.planned_s = "Resources", 3600.0
    with pytest.raises(RefusedError) as refused:
        launch(slurm(world, config, wait="2m"), config, wait_s=wait_s)
    assert world.clock.seconds == (120 if waits else 0)
    assert refused.value.again_s == 3600 - world.clock.seconds


def test_what_sbatch_refuses_is_said(world: World, config: Path) -> None:
    world.lab.refusal = "sbatch: error: Batch job submission failed: Invalid qos specification"
    with pytest.raises(RefusedError) as refused:
        launch(slurm(world, config), config)
    assert reason_of(refused.value.said) == "rights"


def test_a_job_that_is_ended_before_it_ran_is_a_refusal(world: World, config: Path) -> None:
    world.lab.at_once = "COMPLETING"
    world.lab.completing_s = float("inf")
    with pytest.raises(RefusedError, match="COMPLETING before it ran"):
        launch(slurm(world, config), config)


@pytest.mark.parametrize("state", ["COMPLETING", "SUSPENDED", "PREEMPTED", "TIMEOUT", "CANCELLED"])
def test_a_job_that_is_ended_or_stands_still_is_no_node(
    world: World, config: Path, state: str
) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.mine().state, world.mine().ends = state, NOW.timestamp()
    assert pool.states("burst-", refresh=True) == {}


def test_a_controller_that_takes_over_finds_jobs_by_name(world: World, config: Path) -> None:
    launch(slurm(world, config), config)
    other = slurm(world, config)
    login = other.login(N1, config.parent)
    step = ("srun", "--quiet", "--overlap", "--jobid=8", "--nodes=1", "--ntasks=1")
    assert login == Login(host="lab", ip="10.0.0.5", config=config, inside=step)
    slurm(world, config).down(N1)
    assert world.left() == []
    with pytest.raises(TransientError, match=f"no Slurm cluster runs a job {N1}"):
        other.login(N1, config.parent)


def test_a_job_is_paid_for_from_its_start_to_its_end(world: World, config: Path) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.lab.add("scav", "burst-other-run-n001", user=ME)
    world.lab.add("gpu", N2, user=ME, cpus=1000)
    world.clock.seconds = 300.0
    (mine,) = pool.machines("toy-abcdef").values()
    assert (mine.since, mine.until, mine.costs) == (NOW, None, True)
    world.mine().state, world.mine().ends = "CANCELLED", at(280).timestamp()
    assert pool.machines("toy-abcdef")["n001"].until == at(280)
    assert not pool.machines("toy-abcdef")["n001"].costs


def test_a_job_that_slurm_has_forgotten_is_over(world: World, config: Path) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    assert pool.machines("toy-abcdef")["n001"].costs
    world.lab.jobs.clear()
    for _ in range(2):
        gone = pool.machines("toy-abcdef")["n001"]
        assert (gone.costs, gone.until) == (False, NOW)


def test_a_cluster_that_is_silent_says_nothing_of_its_jobs(world: World, config: Path) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.lab.down = True
    with pytest.raises(TransientError, match="no Slurm cluster answers"):
        pool.states("burst-", refresh=True)
    with pytest.raises(TransientError):
        pool.down(N1)
    world.lab.down = False
    pool.down(N1)
    assert world.left() == []


def test_a_slurm_that_starts_anew_is_silence_and_no_end_of_the_run(
    world: World, config: Path
) -> None:
    """While slurmctld is away, squeue and scancel fail; what they say may be asked for later."""
    pool = slurm(world, config)
    launch(pool, config)
    world.lab.away = True
    for ask in (
        lambda: pool.machines("toy-abcdef"),
        lambda: pool.down(N1),
        lambda: pool.login(N1, config),
        lambda: launch(pool, config, N2),
    ):
        with pytest.raises(TransientError, match="Unable to contact slurm controller"):
            ask()
    assert pool.vacant(GPU) == 0
    assert world.left() == [N1]
    world.lab.away = False
    assert pool.states("burst-toy-", refresh=True) == {N1: "up"}


def test_an_end_is_waited_for_but_not_that_of_a_node_that_is_gone(
    world: World, config: Path
) -> None:
    pool = slurm(world, config)
    launch(pool, config)
    world.lab.completing_s = float("inf")
    pool.down(N1)
    assert world.clock.seconds >= 90  # so is a job of a lost node, until Slurm gives the node up
    assert world.mine().state == "COMPLETING"


def test_the_script_that_holds_a_node_is_whole() -> None:
    script = hold(N1)
    assert "{" not in script
    assert "read -r -t 3600 -u 3" in script
