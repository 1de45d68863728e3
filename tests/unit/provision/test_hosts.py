"""SSH hosts whose `ssh` is a shell of this machine with a home of its own for each host."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

import pytest

from burst.cost.placement import Place
from burst.errors import BurstError, SetupError, TransientError
from burst.provision.hosts import CLAIM, Host, Hosts, offers, read_hosts, release_command
from burst.provision.own import accelerators
from burst.provision.refusals import RefusedError, reason_of
from burst.provision.rented import MachineRequest
from burst.provision.ssh import Ssh
from burst.records import scratch_name
from burst.task_specs.model import Accelerators

Process: TypeAlias = subprocess.Popen[bytes]
NOW = datetime(2026, 12, 1, tzinfo=UTC)
RUN = f"toy-{os.getpid():06d}"  # an end kills processes of its node: not those of other tests
N1, N2, N3 = (f"burst-{RUN}-n00{n}" for n in (1, 2, 3))
OURS = f"burst-{RUN}-"


class World:
    """Hosts by address; those in `down` do not answer.

    They have this machine's processes. Where one is in `idle`, it sees none of a node there.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.down: set[str] = set()
        self.deaf: set[str] = set()  # the answer to a claim of one of these is lost
        self.idle: set[str] = set()

        def run(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
            if ssh.login.host in self.down:
                raise TransientError(f"{ssh.login.host} cannot be reached by ssh")
            home = folder / ssh.login.host
            home.mkdir(exist_ok=True)
            env = {"HOME": str(home), "PATH": os.environ["PATH"]}
            done = subprocess.run(
                ["sh", "-c", command], input=data, env=env, capture_output=True, timeout=limit_s,
                check=False,
            )  # fmt: skip
            if done.returncode:
                raise SetupError(done.stderr.decode())
            if ssh.login.host in self.deaf and "claims.lock" in command:
                raise TransientError(f"{ssh.login.host}: no answer within 60 s")
            said = done.stdout.decode()
            return said.replace(" lives", "") if ssh.login.host in self.idle else said

        monkeypatch.setattr(Ssh, "run", run)

    def hosts(self, *addresses: str, nodes: Mapping[str, str] | None = None) -> Hosts:
        pools = {"ssh": {"lab": {"user": "me", "hosts": list(addresses)}}}
        return Hosts(read_hosts(pools, "x"), self.folder, nodes or {})

    def claim(self, address: str) -> str:
        claim = self.folder / address / f".burst/claim-{os.uname().nodename}"
        return str(claim.readlink()) if claim.is_symlink() else ""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture
def process() -> Iterator[Process]:
    """Run a process of the first node for the test."""
    env = {**os.environ, "BURST_NODE_DIR": f"/tmp/{scratch_name(RUN)}/n001"}
    with subprocess.Popen(["sleep", "60"], env=env) as made:
        yield made
        made.kill()


@pytest.fixture
def place(world: World) -> Place:
    (found,) = world.hosts("a").look()
    return Place(pool="ssh/lab", machine_type=found.shape, owned=True)


def launch(hosts: Hosts, name: str, place: Place) -> None:
    hosts.launch(
        MachineRequest(name=name, place=place, wanted={}, labels={}, log=Path("/nonexistent"))
    )


def test_each_host_has_one_node_and_a_full_pool_says_so(world: World, place: Place) -> None:
    hosts = world.hosts("a", "b")
    launch(hosts, N1, place)
    launch(hosts, N1, place)  # again changes nothing
    launch(hosts, N2, place)
    assert {world.claim("a"), world.claim("b")} == {N1, N2}
    with pytest.raises(RefusedError, match=f"a has {N1}, b has {N2}") as refused:
        launch(hosts, N3, place)
    assert reason_of(refused.value.said) == "capacity"
    assert hosts.states(OURS, refresh=True) == {N1: "up", N2: "up"}
    assert hosts.states("burst-other-", refresh=True) == {}


def test_a_free_host_is_claimed_before_one_where_another_node_lives(
    world: World, place: Place, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(world.hosts("a"), N1, place)
    assert process.poll() is None
    answers, asked = Ssh.run, list[str]()

    def run(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        if "claims.lock" in command:
            asked.append(ssh.login.host)
        return answers(ssh, command, data, limit_s=limit_s)

    monkeypatch.setattr(Ssh, "run", run)
    launch(world.hosts("a", "b"), N2, place)
    assert asked == ["b"]


def test_a_claim_whose_answer_was_lost_is_given_back_too(world: World, place: Place) -> None:
    hosts = world.hosts("a", "b")
    world.deaf = {"a"}
    launch(hosts, N1, place)
    assert (world.claim("a"), world.claim("b")) == (N1, N1)
    hosts.down(N1)
    assert (world.claim("a"), world.claim("b")) == ("", "")


def test_another_controller_gives_back_all_claims_of_a_node(world: World, place: Place) -> None:
    world.deaf = {"a"}
    launch(world.hosts("a", "b"), N1, place)
    newcomer = world.hosts("a", "b")
    assert newcomer.states(OURS, refresh=True) == {N1: "up"}
    newcomer.down(N1)
    assert (world.claim("a"), world.claim("b")) == ("", "")


@pytest.mark.parametrize("again", [False, True], ids=["found", "asked for again"])
@pytest.mark.parametrize(("idle", "own"), ["ab", "ba"])
def test_of_two_hosts_with_its_claim_a_node_keeps_that_where_it_lives(
    world: World, place: Place, process: Process, idle: str, own: str, again: bool
) -> None:
    world.deaf = {"a"}
    launch(world.hosts("a", "b"), N1, place)
    world.deaf, world.idle = set(), {idle}
    newcomer = world.hosts("a", "b")
    if again:
        launch(newcomer, N1, place)
    for _ in range(2):
        assert newcomer.login(N1, Path()).host == own
        assert newcomer.states(OURS, refresh=True) == {N1: "up"}
    newcomer.down(N1)
    assert process.wait(5) == -9
    assert (world.claim("a"), world.claim("b")) == ("", "")


def test_a_node_is_not_where_it_has_but_a_claim_once_it_is_seen_to_live_elsewhere(
    world: World, place: Place, process: Process
) -> None:
    world.deaf = {"a"}
    launch(world.hosts("a", "b"), N1, place)
    world.deaf, world.idle, world.down = set(), {"a"}, {"b"}
    newcomer = world.hosts("a", "b")
    assert newcomer.login(N1, Path()).host == "a"
    world.down = set()
    assert newcomer.states(OURS, refresh=True) == {N1: "up"}
    assert newcomer.login(N1, Path()).host == "b"
    newcomer.down(N1)
    assert process.wait(5) == -9
    assert (world.claim("a"), world.claim("b")) == ("", "")


def test_two_controllers_do_not_get_the_same_host(world: World, place: Place) -> None:
    launch(world.hosts("a"), N1, place)
    with pytest.raises(RefusedError):
        launch(world.hosts("a"), N2, place)
    assert world.claim("a") == N1


def test_another_controller_finds_what_is_there(world: World, place: Place) -> None:
    launch(world.hosts("a", "b"), N1, place)
    other = world.hosts("a", "b")
    assert other.login(N1, Path()).host == "a"
    other.down(N1)
    assert world.claim("a") == ""
    other.down(N1)  # what is gone is gone


def test_a_host_that_does_not_answer_is_not_asked_to_give_a_node(
    world: World, place: Place
) -> None:
    world.down = {"a"}
    hosts = world.hosts("a", "b")
    launch(hosts, N1, place)
    assert hosts.login(N1, Path()).host == "b"


def test_silence_is_no_loss_and_an_end_does_not_hang_on_it(world: World, place: Place) -> None:
    """Its heartbeat says whether it lives; its dead-man switch frees it."""
    hosts = world.hosts("a", "b")
    launch(hosts, N1, place)
    world.down = {"a"}
    assert hosts.states(OURS, refresh=True) == {N1: "up"}
    hosts.down(N1)
    assert hosts.states(OURS, refresh=True) == {}
    world.down = {"a", "b"}
    with pytest.raises(TransientError):
        hosts.states(OURS, refresh=True)
    hosts.down(N2)


def test_a_host_that_is_silent_when_a_controller_takes_over_keeps_its_node(
    world: World, place: Place
) -> None:
    """The newcomer knows the node from the journal, and not which host has it."""
    hosts = world.hosts("a", "b")
    launch(hosts, N1, place)
    launch(hosts, N2, place)
    (silent,) = (address for address in "ab" if world.claim(address) == N1)
    world.down = {silent}
    nodes = {N1: "ssh/lab", N2: "ssh/lab", f"{OURS}n009": "ssh/other"}
    newcomer = world.hosts("a", "b", nodes=nodes)
    assert newcomer.states(OURS, refresh=True) == {N1: "up", N2: "up"}
    newcomer.down(N1)  # its heartbeat is missing
    assert newcomer.states(OURS, refresh=True) == {N2: "up"}
    assert world.hosts("a", "b").states(OURS, refresh=True) == {N2: "up"}


@pytest.mark.parametrize("known", [True, False])
def test_a_host_that_is_silent_when_its_node_ends_is_freed_when_it_answers(
    world: World, place: Place, process: Process, known: bool
) -> None:
    hosts = world.hosts("a", "b")
    launch(hosts, N1, place)
    if not known:
        hosts = world.hosts("a", "b", nodes={N1: "ssh/lab"})
    world.down = {"a"}
    hosts.down(N1)
    assert hosts.states(OURS, refresh=True) == {}
    assert process.poll() is None
    world.down = set()
    assert hosts.vacant(place) == 2
    assert process.wait(5) == -9
    assert world.claim("a") == ""
    assert hosts.states(OURS, refresh=True) == {}


def test_a_node_that_ends_while_no_host_answers_is_ended_once_one_does(
    world: World, place: Place
) -> None:
    launch(world.hosts("a"), N1, place)
    hosts = world.hosts("a")
    world.down = {"a"}
    hosts.down(N1)
    world.down = set()
    assert hosts.states(OURS, refresh=True) == {}
    assert world.claim("a") == ""


def test_a_claim_whose_answer_was_lost_is_given_back_by_a_host_that_falls_silent(
    world: World, place: Place
) -> None:
    hosts = world.hosts("a", "b")
    world.deaf = {"a"}
    launch(hosts, N1, place)
    world.down = {"a"}
    hosts.down(N1)
    assert (world.claim("a"), world.claim("b")) == (N1, "")
    world.down, world.deaf = set(), set()
    launch(hosts, N2, place)
    assert {world.claim("a"), world.claim("b")} == {N2, ""}


def test_a_claim_that_comes_after_its_node_has_ended_is_given_back(
    world: World, place: Place
) -> None:
    """Its command waited for another's lock, and was given up here."""
    hosts = world.hosts("a")
    hosts.down(N1)
    launch(world.hosts("a"), N1, place)
    assert hosts.states(OURS, refresh=True) == {}
    assert world.claim("a") == ""


def test_a_node_that_is_asked_for_again_after_its_end_is_not_ended(
    world: World, place: Place
) -> None:
    hosts = world.hosts("a")
    hosts.down(N1)
    launch(hosts, N1, place)
    assert hosts.states(OURS, refresh=True) == {N1: "up"}
    assert world.claim("a") == N1


def test_an_end_that_fails_is_told_and_made_up_for(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, run, sick = world.hosts("a", "b"), Ssh.run, {"a"}

    def fail(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        if ssh.login.host in sick and "rm -rf" in command:
            raise SetupError(f"{ssh.login.host}: exit code 1: Read-only file system")
        return run(ssh, command, data, limit_s=limit_s)

    world.deaf = {"a"}
    launch(hosts, N1, place)
    monkeypatch.setattr(Ssh, "run", fail)
    for _ in range(2):
        with pytest.raises(SetupError, match="a: exit code 1"):
            hosts.down(N1)
        assert (world.claim("a"), world.claim("b")) == (N1, "")
        assert [found.claim for found in hosts.look()] == [N1, ""]
    sick.clear()
    assert hosts.states(OURS, refresh=True) == {}
    assert world.claim("a") == ""


def test_a_silent_host_whose_node_is_known_hides_no_loss(world: World, place: Place) -> None:
    hosts = world.hosts("a", "b", nodes={N1: "ssh/lab", N2: "ssh/lab"})
    launch(hosts, N1, place)
    (other,) = (address for address in "ab" if not world.claim(address))
    world.down = {*"ab"} - {other}
    assert hosts.states(OURS, refresh=True) == {N1: "up"}


def test_a_dead_runs_claim_is_taken_over_in_time(
    world: World, place: Place, process: Process
) -> None:
    """It counts as none wherever hosts are counted, so that runs come to it at all."""
    hosts = world.hosts("a")
    launch(hosts, N1, place)
    assert hosts.vacant(place) == 0
    hour_ago = time.time() - 3700
    claim = world.folder / "a" / f".burst/claim-{os.uname().nodename}"
    os.utime(claim, (hour_ago, hour_ago), follow_symlinks=False)
    assert hosts.vacant(place) == 0
    assert hosts.states(OURS, refresh=True) == {N1: "up"}
    with pytest.raises(RefusedError):
        launch(hosts, N2, place)
    process.kill()
    process.wait()
    assert hosts.vacant(place) == 1
    assert hosts.states(OURS, refresh=True) == {}
    launch(hosts, N2, place)
    assert world.claim("a") == N2
    assert hosts.vacant(place) == 0


@pytest.fixture
def scratch() -> Iterator[Path]:
    made = Path("/tmp") / scratch_name(RUN) / "n001"
    made.mkdir(parents=True)
    yield made
    made.parent.rmdir()


def test_an_end_leaves_no_process_of_the_node(world: World, place: Place, scratch: Path) -> None:
    hosts = world.hosts("a")
    launch(hosts, N1, place)
    mine = {**os.environ, "BURST_NODE_DIR": str(scratch)}
    others = {**os.environ, "BURST_NODE_DIR": f"{scratch}0"}
    with (
        subprocess.Popen(["sleep", "60"], env=mine, start_new_session=True) as dies,
        subprocess.Popen(["sleep", "60"], env=others) as lives,
    ):
        hosts.down(N1)
        assert dies.wait(5) == -9
        assert lives.poll() is None
        lives.kill()
    assert not scratch.exists()


def test_a_supervisor_frees_its_host_and_ends(world: World, place: Place) -> None:
    launch(world.hosts("a"), N1, place)
    env = {**os.environ, "HOME": str(world.folder / "a")}

    def supervise(name: str) -> int:
        loop = f"while true; do sh -c '{release_command(name)}'; done"
        return subprocess.run(["bash", "-c", loop], env=env, check=False, timeout=10).returncode

    assert supervise(N2) == -15
    assert world.claim("a") == N1  # another's
    assert supervise(N1) == -15
    assert world.claim("a") == ""


def test_hosts_of_one_shape_are_one_offer_with_the_pools_price(world: World) -> None:
    pools = {"ssh": {"lab": {"usd_per_hour": "0.40", "hosts": ["a", "b", "c"]}}}
    world.down = {"c"}
    (offer,) = offers(read_hosts(pools, "me"), world.folder, NOW)
    assert (offer.pool, offer.owned, offer.spot) == ("ssh/lab", True, False)
    assert offer.cpus == len(os.sched_getaffinity(0))
    assert offer.quote.usd_per_hour == Decimal("0.40")
    assert not offer.quote.free
    assert (offer.most, offer.unsure) == (3, 1)  # the silent one may be back
    launch(world.hosts("a"), N1, Place(pool="ssh/lab", machine_type=offer.machine_type))
    assert offers(read_hosts(pools, "me"), world.folder, NOW) == (offer,)  # taken is not gone


def test_a_silent_host_may_be_of_each_shape_of_its_pool(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(tmp_path, monkeypatch)
    (tmp_path / "nvidia-smi").write_text('#!/bin/sh\ncat "$HOME/gpus"\n')
    for host, shown in {"a": "Tesla T4, GPU-1", "b": "NVIDIA A100, GPU-1"}.items():
        (tmp_path / host).mkdir()
        (tmp_path / host / "gpus").write_text(f"{shown}\n")
    world.down = {"c"}
    found = offers(world.hosts("a", "b", "c")._hosts, world.folder, NOW)
    shapes = {offer.machine_type: (offer.most, offer.unsure) for offer in found}
    assert shapes == {"1xTesla-T4": (2, 1), "1xA100": (2, 1)}


def test_hosts_are_written_as_for_skypilot() -> None:
    pool = {
        "user": "me",
        "identity_file": "/k",
        "hosts": ["10.0.0.1", {"ip": "10.0.0.2", "user": "you", "port": "2222"}],
    }
    one, two = read_hosts({"ssh": {"lab": pool}}, "x")
    assert one == Host(
        pool="ssh/lab", address="10.0.0.1", user="me", port=22, key=Path("/k"),
        usd_per_hour=Decimal(0), priced=False,
    )  # fmt: skip
    assert two == replace(one, address="10.0.0.2", user="you", port=2222)
    assert read_hosts({}, "x") == ()


def gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Have hosts show these GPUs."""
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("shown", "env"),
    [
        (["NVIDIA A100, GPU-1", "NVIDIA A100, GPU-2"], {}),
        (
            ["Tesla T4, GPU-0", "NVIDIA A100, GPU-1", "NVIDIA A100, GPU-2"],
            {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"},
        ),
        (
            ["NVIDIA A100, GPU-1", "NVIDIA A100, GPU-2", "[Unknown Error], [Unknown Error]"],
            {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"},
        ),
    ],
)
def test_a_node_uses_the_gpus_that_are_offered_and_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: list[str],
    env: dict[str, str],
) -> None:  # fmt: skip
    gpus(tmp_path, monkeypatch, *shown)
    (offer,) = offers(world.hosts("a")._hosts, world.folder, NOW)
    assert offer.accelerators == Accelerators(kind="A100", count=2)
    hosts = world.hosts("a")
    launch(hosts, N1, Place(pool="ssh/lab", machine_type=offer.machine_type))
    for one in (hosts, world.hosts("a")):
        assert one.machine_env(N1) == env


def test_a_host_without_gpus_hides_none(world: World, place: Place) -> None:
    hosts = world.hosts("a")
    launch(hosts, N1, place)
    assert hosts.machine_env(N1) == {}


def test_a_price_by_the_gpu_goes_before_that_of_a_host_with_gpus(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = {"usd_per_hour": "0.4", "usd_per_gpu_hour": "1.5"}
    (host,) = read_hosts({"ssh": {"lab": {"hosts": ["a"], **prices}}}, "x")
    (offer,) = offers([host], tmp_path, NOW)
    assert (offer.quote.usd_per_hour, offer.quote.source) == (Decimal("0.4"), "pools.yaml")
    gpus(tmp_path, monkeypatch, "NVIDIA H100, GPU-1", "NVIDIA H100, GPU-2")
    (offer,) = offers([host], tmp_path, NOW)
    assert offer.quote.usd_per_hour == Decimal(3)
    (host,) = read_hosts({"ssh": {"lab": {"hosts": ["a"], "usd_per_gpu_hour": "2"}}}, "x")
    (offer,) = offers([host], tmp_path, NOW)
    assert (offer.quote.usd_per_hour, offer.quote.source) == (Decimal(4), "pools.yaml")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["NVIDIA T400 4GB, GPU-1", "NVIDIA L40S, GPU-2", "NVIDIA L40S, GPU-3"], ("L40S", 2)),
        (["[Unknown Error], GPU-1", "NVIDIA A100-SXM4-80GB, GPU-2"], ("A100-SXM4-80GB", 1)),
        (["Tesla T4, GPU-1", "ERR!, GPU-2"], ("Tesla-T4", 1)),
        (["No devices were found"], None),
        (["", "[N/A], [N/A]"], None),
    ],
)
def test_gpus_that_count_are_the_most_of_one_kind_and_work(
    names: list[str], found: tuple[str, int] | None
) -> None:
    there = accelerators(names)
    assert (there and (there.kind, there.count)) == found


def test_two_that_take_over_one_dead_claim_do_not_both_have_it(tmp_path: Path) -> None:
    """Both have found the claim dead; the slower one must not remove what the faster one made."""
    claim = tmp_path / f".burst/claim-{os.uname().nodename}"
    claim.parent.mkdir()
    claim.symlink_to("burst-old-abcdef-n001")
    os.utime(claim, (1, 1), follow_symlinks=False)
    slow = tmp_path / "slow"
    slow.mkdir()
    os.mkfifo(tmp_path / "found")
    os.mkfifo(tmp_path / "go")
    waits = f'echo >"{tmp_path}/found"; read line <"{tmp_path}/go"; exec /bin/rm "$@"'
    (slow / "rm").write_text(f"#!/bin/sh\n{waits}\n")
    (slow / "rm").chmod(0o755)

    def start(name: str, path: str) -> subprocess.Popen[bytes]:
        text = CLAIM.format(name=name)
        env = {"HOME": str(tmp_path), "PATH": path}
        return subprocess.Popen(["sh", "-c", text], env=env, stdout=subprocess.PIPE)

    first = start(N1, f"{slow}:{os.environ['PATH']}")
    (tmp_path / "found").read_text()
    second = start(N2, os.environ["PATH"])
    with contextlib.suppress(subprocess.TimeoutExpired):  # without the lock it is through by then
        second.wait(3)
    (tmp_path / "go").write_text("\n")
    said = [process.communicate(timeout=10)[0].decode().strip() for process in (first, second)]
    assert said == [N1, N1]


def test_a_host_that_cannot_be_claimed_hides_no_other(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full, say."""
    answers = Ssh.run

    def run(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        if ssh.login.host == "a" and "ln -sn" in command:
            raise SetupError("a: exit code 1: No space left on device")
        return answers(ssh, command, data, limit_s=limit_s)

    monkeypatch.setattr(Ssh, "run", run)
    launch(world.hosts("a", "b"), N1, place)
    assert world.claim("b") == N1


@pytest.mark.parametrize(
    ("fault", "asked"),
    [(TransientError("a: no answer"), {"a", "b"}), (SetupError("a: exit code 1"), {"b"})],
)
def test_a_host_that_may_have_taken_a_claim_is_asked_to_free_it_and_one_that_refused_is_not(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch, fault: BurstError, asked: set[str]
) -> None:
    answers, ended = Ssh.run, set()

    def run(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        if ssh.login.host == "a" and "ln -sn" in command:
            raise fault
        if "rm -rf" in command:
            ended.add(ssh.login.host)
        return answers(ssh, command, data, limit_s=limit_s)

    monkeypatch.setattr(Ssh, "run", run)
    hosts = world.hosts("a", "b")
    launch(hosts, N1, place)
    hosts.down(N1)
    assert ended == asked


def test_a_host_that_can_hold_no_claim_is_not_told_as_taken(
    world: World, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.folder / "b").mkdir()
    (world.folder / "b/.burst").write_text("")  # no folder can be made
    full = tmp_path / "full"
    full.mkdir()
    (full / "ln").write_text("#!/bin/sh\necho 'ln: No space left on device' >&2; exit 1\n")
    (full / "ln").chmod(0o755)
    monkeypatch.setenv("PATH", f"{full}:{os.environ['PATH']}")
    with pytest.raises(RefusedError) as refused:
        launch(world.hosts("a", "b"), N1, place)
    told = refused.value.message
    assert "a cannot be claimed: ln: No space left on device" in told
    assert "b cannot be claimed: mkdir: " in told
    assert " has " not in told
    assert reason_of(told) == "capacity"


def test_the_complaint_of_a_broken_driver_is_no_gpu(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-smi complains on its standard output."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed because ...'\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (found,) = world.hosts("a").look()
    assert found.accelerators is None
