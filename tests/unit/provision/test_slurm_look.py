"""What Slurm prints, in its own words and some that a site or another version has besides."""

from __future__ import annotations

import pytest

from burst.provision.slurm_look import COLUMNS, LOOK, Shape, Site, answers, read_jobs, read_site
from burst.provision.slurm_room import read_room
from burst.provision.slurm_states import When, when

CLOCK = 1_796_208_400
ONE = Shape(cpus=1, memory_gb=0)
GPU = "PartitionName=gpu AllowGroups=ALL PriorityTier=10 PreemptMode=OFF State=UP"
N1 = "n1 gpu* idle 0/8/0/8 16000 0 gpu:A100:4(S:0-1) gpu:A100:0(IDX:N/A)"


def row(words: str) -> str:
    """Return a node's line as sinfo lays it out."""
    cells = zip(words.split(" "), COLUMNS.values(), strict=True)
    return "".join(cell.ljust(wide)[:wide] for cell, wide in cells) + "\n"


def printed(*nodes: str, **other: str) -> str:
    """Return what a login node prints; `nodes` are sinfo's lines."""
    usual = {
        "clock": str(CLOCK),
        "disk": "81234567",
        "config": "PreemptType             = preempt/none",
        "partitions": GPU,
        "nodes": "".join(nodes or [row(N1)]),
    }
    return "".join(f"\n== {name}\n{said}\n" for name, said in {**usual, **other}.items())


def names(site: Site) -> list[str]:
    return [node.name for node in site.nodes]


@pytest.mark.parametrize(
    "odd",
    [
        row("n2 gpu* idle 0/8/0/8 N/A 0 (null) (null)"),
        row("n2 gpu* idle 0/1.2K/0/1.2K 16000 0 (null) (null)"),
        row("n2 gpu* idle 0/0.5/0/1 16000 0 (null) (null)"),
        row("n2 gpu* idle 0/0/0/0 16000 0 (null) (null)"),
        row("n2 gpu* idle UNLIMITED 16000 0 (null) (null)"),
        row("n2 gpu* idle 0/8/0/8 16000 0 gpu:A100 (null)"),
        row("n2 gpu* idle 0/8/0/8 16000 0 gpu:2K (null)"),
        row(f"n2 gpu* idle 0/8/0/8 16000 0 {','.join(['gpu:a_long_name:1'] * 20)} gpu:0"),
        row(f"{'n' * 200} gpu* idle 0/8/0/8 16000 0 (null) (null)"),
        row("n2 gpu* idle 0/8/0/8 16000 0 (null) (null)").lstrip("n2"),
        "slurm_load_partitions: Unable to contact slurm controller\n",
        "n2 gpu idle 8\n",
    ],
)
def test_a_line_that_is_not_understood_is_left_out_alone_and_told(odd: str) -> None:
    site = read_site(printed(odd, row(N1), odd))
    assert names(site) == ["n1"]
    assert site.odd == (" ".join(odd.split()),) * 2
    words = "2 lines of Slurm's left out, as burst does not understand: "
    assert site.left_out == words + " ".join(odd.split())[:200]
    assert read_site(printed()).left_out == ""


@pytest.mark.parametrize("odd", ["PartitionName=old PriorityTier=UNLIMITED State=UP", "State=UP"])
def test_a_partition_that_is_not_understood_is_left_out_alone_and_told(odd: str) -> None:
    site = read_site(printed(partitions=f"{odd}\n{GPU}\n"))
    assert list(site.partitions) == ["gpu"]
    assert site.odd == (odd,)


def test_columns_may_be_empty() -> None:
    cells = [N1.split(maxsplit=1)[0], "gpu", "idle", "0/8/0/8", "16000", "0", "", ""]
    (node,) = read_site(printed(row(" ".join(cells)))).nodes
    assert (node.name, node.gpus, node.cpus_free) == ("n1", {}, 8)


def test_a_shell_may_greet_and_a_disk_may_be_silent() -> None:
    site = read_site("=====\nWelcome\n==\n" + printed(disk="-"))
    assert (names(site), site.clock_s, site.disk_free_bytes) == (["n1"], CLOCK, None)
    assert read_site(printed()).disk_free_bytes == 81234567 * 1024


def test_what_is_no_slurm_is_told() -> None:
    with pytest.raises(ValueError, match="does not say its clock, but 'This account is currently"):
        read_site("This account is currently not available.\n")
    with pytest.raises(ValueError, match="does not tell the time, but says 'motd'"):
        read_site(printed(clock="motd"))
    with pytest.raises(ValueError, match="has no partition, but says ''"):
        read_site(printed(partitions=""))
    with pytest.raises(ValueError, match="does not say its queue"):
        list(answers(printed(), [*LOOK, "queue"]))


# When a node can take a job -----------------------------------------------------------------------

NOW, LATER, NEVER = When.NOW, When.LATER, When.NEVER
STATES = {
    NOW: "idle mix IDLE mix+",
    LATER: (
        "alloc comp plnd resv npc unk block pow_up pow_dn boot reboot^ powering_up planned "
        "idle~ idle# idle! idle% idle@ idle^ idle- mix- mix# mix~ alloc+ alloc- resv- boot^ comp#"
    ),
    NEVER: (
        "down down* down~ drain drain* drain~ drng drng* drng@ fail fail* failg futr futr* future "
        "inval maint maint* err idle* idle$ mix* mix$ alloc* comp* unk* resv* "
        "somethingnew idle? idle~* mix+drain"
    ),
}


@pytest.mark.parametrize(
    ("state", "expected"), [(state, one) for one, all_ in STATES.items() for state in all_.split()]
)
def test_when_a_node_takes_a_job_goes_by_its_state(state: str, expected: When) -> None:
    assert when(state) is expected
    (node,) = read_site(printed(row(N1.replace("idle", state)))).nodes
    assert node.usable is (expected is not NEVER)
    assert node.has_free(ONE) is (expected is NOW)
    free = (8, 16000, {"A100": 4}) if expected is NOW else (0, 0, {"A100": 0})
    assert (node.cpus_free, node.memory_free_mb, node.gpus_free) == free
    assert (node.cpus, node.gpus) == (8, {"A100": 4})


# GPUs, shapes, jobs and queues --------------------------------------------------------------------


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
        (
            "gpu:a100:no_consume:2,bandwidth:lustre:no_consume:4G",
            "(null)",
            {"a100": 2},
            {"a100": 2},
        ),
        ("gpu:no_consume:2", "gpu:0", {"gpu": 2}, {"gpu": 2}),
    ],
)
def test_gpus_in_every_form_that_slurm_prints(
    gres: str, used: str, has: dict[str, int], free: dict[str, int]
) -> None:
    line = row(f"n1 gpu* mix 48/16/0/64 524288 500000 {gres} {used}")
    (node,) = read_site(printed(line)).nodes
    assert (node.gpus, node.gpus_free) == (has, free)


def test_shapes_are_read_as_they_are_written() -> None:
    for text in ("8CPU--64GB", "8CPU--64GB--A100:2", "1CPU--0GB--nvidia_h100_80gb:8"):
        assert str(Shape.parse(text)) == text
    with pytest.raises(ValueError, match=r"m6i.large is no machine type of Slurm"):
        Shape.parse("m6i.large")


def test_other_peoples_lines_are_no_jobs() -> None:
    assert read_jobs("slurm_load_jobs error\n\n") == ()
    (job,) = read_jobs(f"7|{N1}|PENDING|Resources||N/A|N/A\n")
    assert (job.number, job.name, job.node, job.starts) == ("7", N1, "", None)
    assert [one.number for one in read_jobs(f"8|a|b|{N1}|R|x|y|1|2\n9|{N1}|RUNNING\n")] == []


def test_a_line_of_the_queue_that_is_not_understood_claims_nothing() -> None:
    now = f"sbatch: Job 9 to start at {CLOCK} using 1 processors on nodes n1 in partition gpu"
    two = [row(N1), row(N1.replace("n1", "n2"))]
    for queue, vacant in (
        ("", 2),
        ("gpu|Priority|1\n", 1),
        ("gpu|Priority|1-2\ngpu|Resources|1.2K\ngpu|None\nslurm_load_jobs error\n", 1),
    ):
        assert read_room(printed(*two, queue=queue, test=now), "gpu", ONE) == vacant
