"""Real SkyPilot 0.14.1 rents from moto; its machines are namespaces with an SSH server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.lab import image, market, slurm
from tests.lab.hosts import GATEWAY
from tests.lab.rig import REPO, Lab
from tests.lab.slurm import SlurmLab
from tests.lab.training import TOY, example, toy, undisturbed, undisturbed_example, weights

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.lab,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and overlays need root"),
]
LONG = 700  # steps of the example: minutes, so that machines can be replaced meanwhile


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    image.build()
    with Lab() as made:
        yield made


class Person:
    """Somebody who runs burst in the lab."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.home = lab.env["BURST_HOME"]
        self.before: list[str] = []  # what a command line begins with
        self.log = folder / "burst.log"
        self.runs: list[subprocess.Popen[bytes]] = []

    def burst(self, *argv: str, check: bool = True) -> str:
        words = [*self.before, sys.executable, "-m", "burst.cli", *argv]
        return self.lab.run(words, check=check, BURST_HOME=self.home).stdout

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        words = [*self.before, sys.executable, "-m", "burst.cli", *argv]
        self.runs.append(self.lab.start(words, self.log, BURST_HOME=self.home))
        return self.runs[-1]

    def train(self, step: int) -> subprocess.Popen[bytes]:
        """Start the toy and wait until it has come to a step."""
        run = self.start("run", str(TOY / "task.yaml"), "--yes")
        self.until(lambda: int(self.status()["step"]) >= step)
        return run

    def status(self) -> dict[str, Any]:
        """Return the state of this person's run."""
        name = re.search(r"^((?:rented|tiny-lm)-\w{6})  everything of", self.said(), re.MULTILINE)
        runs = json.loads(self.burst("ls", "--all", "--json")) if name else []
        mine = [run for run in runs if name and run["run"] == name[1]]
        return mine[0] if mine else {"run": "none", "step": 0, "state": "none"}

    def until(self, what: Callable[[], bool], seconds: float = 400) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, self.log.read_text()
            assert all(run.poll() is None for run in self.runs), self.log.read_text()
            time.sleep(2.0)  # noqa: TID251

    def kill(self, run: subprocess.Popen[bytes]) -> None:
        """End a controller as a power cut does."""
        run.send_signal(signal.SIGKILL)
        run.wait()
        self.runs.remove(run)

    def move(self, folder: Path) -> None:
        """Sit at another machine from now on, with nothing of burst's there."""
        self.home = str(folder)
        self.before = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', folder.name]

    def leave(self) -> None:
        """Stop what is still running."""
        for run in self.runs:
            for _ in range(2):
                run.send_signal(signal.SIGINT)
                time.sleep(1)  # noqa: TID251
            run.wait(120)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def check_end(self, wanted: str = "") -> None:
        """The toy's weights or others, no machine left, every second of each in the ledger."""
        newest = self.status()["run"]
        assert weights(self.burst("logs", newest)) == (wanted or undisturbed())
        assert self.nodes() == {}
        (cost,) = json.loads(self.burst("cost", newest, "--json"))
        check_ledger(self, cost)

    def check_kept(self, before: dict[str, dict[str, Any]]) -> None:
        """The run had the same machines to its end, and no others."""
        ended = self.nodes("terminated", self.status()["run"])
        assert {n: i["id"] for n, i in ended.items()} == {n: i["id"] for n, i in before.items()}

    def lose(self, *, head: bool) -> str:
        """Have the cloud take the head, or the other node; return its zone."""
        known = json.loads(self.burst("status", self.status()["run"], "--json"))["nodes"]
        up = {node["node_id"]: node["head"] for node in known if node["state"] == "up"}
        victim = self.nodes()[next(name for name, leads in up.items() if leads is head)]
        self.lab.reclaim(victim["id"])
        return str(victim["zone"])

    def nodes(self, state: str = "running", run: str = "") -> dict[str, dict[str, Any]]:
        """Return the instances of a run, or of any, by node, in one state."""
        found = [i for i in self.lab.state()["instances"] if i["state"] == state]
        mine = [i for i in found if i["tags"].get("burst-run", "").startswith(run)]
        return {i["tags"]["burst-node"]: i for i in mine}


@pytest.fixture
def person(lab: Lab, tmp_path: Path) -> Iterator[Person]:
    made = Person(lab, tmp_path)
    yield made
    made.leave()
    made.lab.capacity()


def test_a_full_zone_is_passed_over_and_a_reclaimed_node_replaced_in_another(
    person: Person, tmp_path: Path
) -> None:
    person.lab.capacity(**{"us-east-1a": {"m6i.large": 1}})
    run = person.start("run", str(with_mounts(tmp_path)), "--yes")
    person.until(lambda: person.status()["step"] >= 9)
    there = person.nodes()
    assert sorted(i["zone"] for i in there.values()) == ["us-east-1a", "us-east-1b"]
    assert {i["spot"] for i in there.values()} == {True}
    person.lab.capacity()
    used = person.lab.state()["keys"]
    for instance in there.values():  # no key of the person's own reaches a machine
        assert {key[:4] for key in used[instance["ip"]]} == {"ASIA"}
    zone = person.lose(head=False)
    person.until(lambda: len(person.nodes()) == 2)
    newest = max(person.nodes())
    assert person.nodes()[newest]["zone"] != zone  # SkyPilot itself would go back there
    assert run.wait(400) == 0, person.log.read_text()
    person.check_end()
    assert re.search(r"refused +n00\d by aws/us-east-1a m6i.large spot: capacity", person.said())


def test_the_documented_rights_are_those_that_were_used(person: Person) -> None:
    """What has been called by now is what SkyPilot and burst need."""
    text = (REPO / "docs" / "renting.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    granted = {action for one in json.loads(block)["Statement"] for action in one["Action"]}
    seeded = person.lab.seeded
    used = {name for name, count in person.lab.state()["calls"].items() if count > seeded[name]}
    used = {name for name in used if not name.startswith(("s3:", "unsigned:"))}
    assert used <= granted, used - granted
    assert granted - used <= {"iam:PassRole", "ec2:DescribeRegions"}, granted - used


@pytest.mark.slow
def test_a_region_without_capacity_is_left_for_another(person: Person) -> None:
    person.lab.capacity(**{"us-east-1": {"*": 0}})
    run = person.start("run", str(TOY / "task.yaml"), "--yes", "--env", "PAUSE_S=0.01")
    assert run.wait(400) == 0, person.log.read_text()
    person.lab.capacity()
    ended = person.nodes("terminated", person.status()["run"])
    assert {instance["region"] for instance in ended.values()} == {"us-west-2"}
    refused = re.findall(r"refused +n\d+ by aws/(us-east-1.) .*: capacity", person.said())
    assert set(refused) == {"us-east-1a", "us-east-1b", "us-east-1c"}


@pytest.mark.slow
def test_a_reclaimed_head_costs_a_restart_from_the_last_checkpoint(person: Person) -> None:
    run = person.train(16)
    person.lose(head=True)
    assert run.wait(500) == 0, person.log.read_text()
    person.check_end()


@pytest.mark.slow
def test_a_notice_has_a_successor_asked_for_before_the_machine_goes(person: Person) -> None:
    run = person.train(9)
    before = person.nodes()
    victim = max(before)
    person.lab.notice(before[victim]["id"], 120)
    person.until(lambda: max(person.nodes()) > victim)
    assert re.search(rf"notice +{victim} leaves in 1\d\d s", person.said())
    assert run.wait(500) == 0, person.log.read_text()
    person.check_end()


@pytest.mark.slow
def test_another_home_adopts_a_run_whose_controller_was_killed(
    person: Person, tmp_path: Path
) -> None:
    """Law 8: the nodes train on meanwhile, and none is rented twice."""
    run = person.train(9)
    before = person.nodes()
    uri = person.status()["uri"]
    person.kill(run)
    person.home = str(tmp_path / "another")
    other = person.start("adopt", uri, "--yes")
    assert other.wait(400) == 0, person.log.read_text()
    person.check_end()
    person.check_kept(before)


@pytest.mark.slow
def test_two_controllers_race_and_one_wins(person: Person, tmp_path: Path) -> None:
    """While one lives no other gets the run; one that slept too long has lost it, and obeys."""
    first = person.train(5)
    uri, before = person.status()["uri"], person.nodes()
    person.move(tmp_path / "another")
    rival = person.start("adopt", uri, "--yes")
    assert rival.wait(120) == 3, person.log.read_text()  # owned
    person.runs.remove(rival)
    first.send_signal(signal.SIGSTOP)  # a laptop's lid
    other = person.start("adopt", uri, "--yes")
    person.until(lambda: "another" in person.status().get("owner", ""), 120)
    first.send_signal(signal.SIGCONT)
    assert first.wait(120) == 3, person.log.read_text()
    person.runs.remove(first)
    assert other.wait(400) == 0, person.log.read_text()
    person.check_end()
    person.check_kept(before)


@pytest.mark.slow
def test_a_server_of_skypilot_elsewhere_serves_as_well(person: Person, tmp_path: Path) -> None:
    """It has another home, so no key, state or file of SkyPilot's is shared with its client."""
    lab, elsewhere = person.lab, tmp_path / "server"
    market.furnish(elsewhere)
    lab.run(["sky", "api", "stop"])
    start = ["sky", "api", "start", "--host", "0.0.0.0"]  # noqa: S104 - of the lab
    lab.run(start, HOME=str(elsewhere))
    person.before = ["env", f"SKYPILOT_API_SERVER_ENDPOINT=http://{GATEWAY}:46580"]
    run = person.start("run", str(with_mounts(tmp_path)), "--yes")
    try:
        person.until(lambda: person.status()["step"] >= 9)
        person.lose(head=False)
        assert run.wait(500) == 0, person.log.read_text()
        person.check_end()
    finally:
        lab.run(["sky", "api", "stop"], HOME=str(elsewhere))
        lab.run(["sky", "api", "start"])
    assert (elsewhere / ".sky/state.db").exists()


@pytest.mark.slow
def test_machines_end_themselves_when_nobody_takes_over(person: Person) -> None:
    """Law 7, for real: no lease renewal, no machine; and nothing else ends them here."""
    home = Path(person.lab.env["BURST_HOME"])
    home.mkdir(exist_ok=True)
    (home / "pools.yaml").write_text("rented: {dead_man: 40s}\n")
    run = person.train(3)
    person.kill(run)
    killed = time.monotonic()
    person.until(lambda: person.nodes() == {}, 120)
    assert 30 < time.monotonic() - killed < 110
    assert person.burst("doctor", "--reap") == "no machine of a run that nobody drives\n"
    (home / "pools.yaml").unlink()


@pytest.mark.slow
def test_skypilots_server_and_database_may_be_lost(person: Person) -> None:
    """A healthy run goes on, and its machines are found by their tags at its end."""
    run = person.train(9)
    before = sorted(person.nodes())
    person.lab.run(["sky", "api", "stop"])
    for path in (person.lab.home / ".sky").glob("state.db*"):
        path.unlink()
    assert run.wait(400) == 0, person.log.read_text()
    person.check_end()
    assert sorted(person.nodes("terminated", person.status()["run"])) == before


@pytest.mark.slow
def test_ctrl_c_while_machines_are_made_leaves_none(person: Person) -> None:
    """C73."""
    run = person.start("run", str(TOY / "task.yaml"), "--yes")
    person.until(lambda: person.lab.running() != [])
    run.send_signal(signal.SIGINT)
    assert run.wait(120) == 130, person.log.read_text()
    assert person.nodes() == {}


@pytest.mark.slow
def test_alibaba_cloud_passes_over_a_full_zone_and_replaces_a_machine_that_is_recycled(
    person: Person, tmp_path: Path
) -> None:
    where = "infra: alibaba/ap-southeast-1, cpus: 2, max_hourly_cost: 0.15"
    task = example(tmp_path, where, steps=LONG)
    person.lab.ecs_stock(**{"ap-southeast-1a": {"ecs.g7.large": 1}})
    run = person.start("run", task, "--yes")
    person.until(lambda: person.status()["step"] >= 3)
    before = person.nodes()
    assert sorted(i["zone"] for i in before.values()) == ["ap-southeast-1a", "ap-southeast-1b"]
    assert {i["spot"] for i in before.values()} == {True}
    assert {i["price_limit"] for i in before.values()} == {"0.15"}
    victim = max(before)
    person.lab.notice(before[victim]["id"], 45)
    person.until(lambda: max(person.nodes(), default="") > victim)
    assert re.search(rf"notice +{victim} leaves in \d\d\d? s", person.said())
    person.until(lambda: victim not in person.nodes())
    assert run.wait(500) == 0, person.log.read_text()
    person.lab.ecs_stock()
    newest = person.status()["run"]
    assert victim in person.nodes("terminated", newest)
    assert weights(person.burst("logs", newest)) == undisturbed_example(LONG)
    assert person.nodes() == {}
    assert re.search(r"refused +n00\d by alibaba/ap-southeast-1a .*: capacity", person.said())
    (cost,) = json.loads(person.burst("cost", newest, "--json"))
    check_ledger(person, cost, exact_s=65.0)  # ECS tells minutes
    removed = json.loads(person.burst("doctor", "--reap", "--yes", "--json"))["removed"]
    assert [one.split()[2] for one in removed] == ["network", "key"]
    assert person.burst("doctor", "--reap") == "no machine of a run that nobody drives\n"


AT_LAMBDA = "infra: lambda, cpus: 4"  # no role or metadata for its machines


@pytest.mark.slow
def test_lambda_cloud_passes_over_a_full_region_and_replaces_a_machine_that_is_lost(
    person: Person, tmp_path: Path
) -> None:
    person.lab.lambda_stock(**{"us-east-1": {"cpu_4x_general": 0}})
    run = person.start("run", example(tmp_path, AT_LAMBDA, steps=LONG), "--yes")
    person.until(lambda: person.status()["step"] >= 3)
    before = person.nodes()
    assert {i["region"] for i in before.values()} == {"us-west-1"}
    for one in before.values():  # the bucket's keys had to come; the account's one opens everything
        files = image.ROOT / "hosts" / one["id"] / "root/home/ubuntu"
        assert (files / ".aws/credentials").exists()
        assert not (files / ".lambda_cloud").exists()
    person.lose(head=False)
    (lost,) = before.keys() - person.nodes().keys()
    person.until(lambda: max(person.nodes(), default="") > max(before))
    assert run.wait(500) == 0, person.log.read_text()
    person.lab.lambda_stock()
    newest = person.status()["run"]
    assert weights(person.burst("logs", newest)) == undisturbed_example(LONG, cpus=4)
    assert person.nodes() == {}
    refused = re.findall(r"refused +n\d+ by lambda/(\S+) .*: capacity", person.said())
    assert set(refused) == {"us-east-1"}
    (cost,) = json.loads(person.burst("cost", newest, "--json"))
    check_ledger(person, cost, exact_s=8.0, late={lost: 35.0})  # Lambda tells no times
    account = person.lab.state()["lambda"]
    (key,) = account["ssh_keys"]  # SkyPilot's, one for each person
    assert key.startswith("sky-key-")
    assert 20 * sum(account["limited"].values()) <= sum(account["calls"].values()), account


@pytest.mark.slow
def test_lambda_cloud_has_no_machine_left_after_ctrl_c_in_the_middle_of_set_up(
    person: Person, tmp_path: Path
) -> None:
    """And those that a killed controller leaves, which cannot end themselves, doctor ends."""
    run = person.start("run", toy(tmp_path, AT_LAMBDA), "--yes")
    person.until(lambda: person.nodes() != {})
    run.send_signal(signal.SIGINT)
    assert run.wait(180) == 130, person.log.read_text()
    person.runs.remove(run)
    assert person.nodes() == {}
    run = person.start("run", toy(tmp_path, AT_LAMBDA), "--yes")
    person.until(lambda: len(person.nodes()) == 2)
    person.kill(run)
    told = json.loads(person.burst("doctor", "--reap", "--yes", "--json"))
    assert len(told["ended"]) == 2
    assert person.nodes() == {}
    assert person.burst("doctor", "--reap") == "no machine of a run that nobody drives\n"


@pytest.fixture
def own_hosts(person: Person) -> Iterator[list[str]]:
    """Three machines of one's own, that the cloud knows nothing of, in pools.yaml."""
    key = person.lab.home / "own.pem"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    addresses = [f"10.200.0.{number}" for number in (1, 2, 3)]
    for address in addresses:
        person.lab.host(f"own-{address}", address, key.with_suffix(".pem.pub").read_text())
    home = Path(person.home)
    home.mkdir(exist_ok=True)
    pool = {"user": "ubuntu", "identity_file": str(key), "hosts": addresses, "usd_per_hour": 0.5}
    (home / "pools.yaml").write_text(json.dumps({"ssh": {"lab": pool}}))
    yield addresses
    for address in addresses:
        person.lab.cut(f"own-{address}")
    (home / "pools.yaml").unlink()
    for path in key.parent.glob("own.pem*"):
        path.unlink()


@pytest.mark.parametrize("what", ["toy", pytest.param("example", marks=pytest.mark.slow)])
def test_hosts_with_nothing_but_ssh_train_and_a_lost_one_is_replaced(
    person: Person, own_hosts: list[str], tmp_path: Path, what: str
) -> None:
    own = "infra: ssh/lab, cpus: 2"
    task = toy(tmp_path, own) if what == "toy" else example(tmp_path, own, steps=LONG)
    wanted = undisturbed() if what == "toy" else undisturbed_example(LONG)

    def claims() -> dict[str, str]:
        said = json.loads(person.burst("doctor", "--json", check=False))
        hosts = [one for one in said if one["pool"] == "ssh/lab" and "answers" in one["what"]]
        return {one["what"].partition(" ")[0]: one["detail"] for one in hosts}

    assert all("free" in detail for detail in claims().values())
    run = person.start("run", task, "--yes")
    person.until(lambda: person.status()["step"] >= 9)
    newest = person.status()["run"]
    known = json.loads(person.burst("status", newest, "--json"))["nodes"]
    other = next(n["node_id"] for n in known if n["state"] == "up" and not n["head"])
    lost = next(host for host, detail in claims().items() if other in detail)
    person.lab.cut(f"own-{lost}")
    assert run.wait(500) == 0, person.log.read_text()
    assert weights(person.burst("logs", newest)) == wanted
    assert "takes its place" in person.said()
    there = claims()
    assert sorted(there) == own_hosts
    assert all("free" in there[host] for host in own_hosts if host != lost), there
    (cost,) = json.loads(person.burst("cost", newest, "--json"))
    assert len({row["node_id"] for row in cost["rows"]}) == 3


@pytest.mark.slow
def test_a_run_overflows_from_own_hosts_to_the_cloud_and_comes_back(
    person: Person, own_hosts: list[str], tmp_path: Path
) -> None:
    """Colleagues have all hosts but one; once they leave, what was rented is given back."""
    pools = Path(person.home) / "pools.yaml"
    known = json.loads(pools.read_text())
    known["ssh"]["lab"]["usd_per_hour"] = 0  # what was bought is paid for
    pools.write_text(json.dumps(known))
    anywhere = "cpus: 2, any_of: [infra: ssh/lab, infra: aws]"
    task = toy(tmp_path, anywhere, "pools: {overflow_after: 15s, return_after: 20s}")
    for host in own_hosts[1:]:
        on_host(person, host, 'mkdir -p ~/.burst; ln -s colleague ~/.burst/claim-"$(uname -n)"')
    run = person.start("run", task, "--yes", "--env", "PAUSE_S=2.5")
    person.until(lambda: person.status()["step"] >= 4 and len(person.nodes()) == 1)
    (rented,) = person.nodes()
    for host in own_hosts[1:]:
        on_host(person, host, 'rm ~/.burst/claim-"$(uname -n)"')
    person.until(lambda: person.nodes() == {})
    assert run.wait(600) == 0, person.log.read_text()
    newest = person.status()["run"]
    assert weights(person.burst("logs", newest)) == undisturbed()
    assert list(person.nodes("terminated", newest)) == [rented]
    (cost,) = json.loads(person.burst("cost", newest, "--json"))
    places = {row["node_id"]: row["pool"] for row in cost["rows"]}
    assert sorted(places.values()) == ["aws", "ssh/lab", "ssh/lab"], places
    assert places[max(places)] == "ssh/lab"
    left = [on_host(person, host, "ls ~/.burst | grep ^claim-; true") for host in own_hosts]
    assert left == ["", "", ""]


def on_host(person: Person, address: str, command: str) -> str:
    """Run a command on one of the person's own hosts."""
    key = str(person.lab.home / "own.pem")
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    options += ["-o", "ConnectionAttempts=30"]  # a second each: it may be starting
    argv = ["ssh", "-q", "-i", key, *options, f"ubuntu@{address}", command]
    return person.lab.run(argv).stdout


@pytest.fixture
def slurm_of_two(person: Person) -> Iterator[SlurmLab]:
    """A Slurm of two nodes of one's own, on the lab's network, with prices in pools.yaml."""
    slurm.install()
    config, pools = person.lab.home / ".slurm/config", Path(person.home) / "pools.yaml"
    with SlurmLab(nodes=2, network=slurm.OF_LAB) as made:
        for path in (config, pools):
            path.parent.mkdir(exist_ok=True)
        config.write_text((made.home / ".slurm/config").read_text())
        pools.write_text("slurm: {lab: {usd_per_hour: 0.001}}\n")
        yield made
        person.leave()
    config.unlink()
    pools.unlink()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_full_slurm_overflows_to_a_cloud_and_takes_the_run_back_once_it_is_free(
    person: Person, slurm_of_two: SlurmLab, tmp_path: Path
) -> None:
    """Slurm says that the colleague's job may take a day, so nothing waits for ten minutes."""
    own, rented = "infra: slurm/lab/gpu, cpus: 2, memory: 4", "infra: aws, cpus: 2, use_spot: false"
    pools = "pools: {prefer: [slurm/lab], overflow_after: 10m, return_after: 5s}"
    task = toy(tmp_path, f"any_of: [{{{own}}}, {{{rented}}}]", pools)
    colleague = ["sbatch", "--parsable", "-p", "gpu", "-c", "2", "-o", "/dev/null"]
    job = slurm_of_two.run([*colleague, "--wrap", "sleep 3600"]).strip()

    def jobs() -> dict[str, str]:
        return {n: s for n, s in slurm_of_two.jobs().items() if n.startswith("burst-")}

    run = person.start("run", task, "--yes", "--env", "PAUSE_S=2")
    person.until(lambda: person.status()["step"] >= 3)
    assert list(jobs().values()) == ["RUNNING"], "the one that was queued was cancelled"
    (away,) = person.nodes()
    assert re.search(r"refused +n00\d by slurm/lab/gpu .*: capacity", person.said())
    slurm_of_two.run(["scancel", job])
    person.until(lambda: list(jobs().values()) == ["RUNNING"] * 2)
    person.until(lambda: person.nodes() == {})
    assert run.wait(500) == 0, person.said()
    newest = person.status()["run"]
    assert jobs() == {}
    assert slurm_of_two.left(newest) == []
    person.check_end()
    (cost,) = json.loads(person.burst("cost", newest, "--json"))
    pools_of = {row["node_id"]: row["pool"] for row in cost["rows"]}
    assert sorted(pools_of.values()) == ["aws", "slurm/lab", "slurm/lab"]
    assert pools_of[away] == "aws"


def with_mounts(folder: Path) -> Path:
    """Return the toy's task, with a file for the home and a folder outside it on each node."""
    (folder / "given").mkdir()
    (folder / "given" / "words.txt").write_text("hello")
    task = Path(toy(folder, "infra: aws, cpus: 2"))
    mounts = f"{{~/.config/hello.txt: {folder}/given/words.txt, /srv/given: {folder}/given}}"
    check = "cmp ~/.config/hello.txt /srv/given/words.txt"
    with task.open("a") as more:
        more.write(f"file_mounts: {mounts}\nsetup: {check}\n")
    return task


def check_ledger(
    person: Person,
    cost: dict[str, Any],
    exact_s: float = 2.5,
    late: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """The ledger has each machine for as long as the cloud itself had it, to the second.

    `late` has the seconds for nodes whose end had to be found out.
    """
    rows: dict[str, float] = {}
    for row in cost["rows"]:
        if "/" in row["pool"]:  # own machines, which no cloud knows of
            continue
        rows[row["node_id"]] = rows.get(row["node_id"], 0.0) + row["duration"]
    times = person.lab.state()["times"]
    mine = person.nodes("terminated", cost["run_id"])
    assert rows.keys() == mine.keys()
    for name, instance in mine.items():
        seen = {k: datetime.fromisoformat(v) for k, v in times[instance["id"]].items()}
        there = seen["until"] - seen["since"]
        limit_s = late.get(name, exact_s)
        assert rows[name] == pytest.approx(there.total_seconds(), abs=limit_s), name
