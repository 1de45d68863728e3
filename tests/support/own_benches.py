"""Machines of one's own under test: SSH hosts, and Slurm clusters."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from burst.cost.placement import Place
from burst.errors import SetupError, TransientError
from burst.ports import Provisioner
from burst.provision import hosts, rented
from burst.provision.hosts import Hosts, read_hosts
from burst.provision.rented import Clusters, RentedProvisioner, cluster_name
from burst.provision.slurm import Slurm
from burst.provision.slurm_look import Shape
from burst.provision.slurm_site import Cluster, read_clusters
from burst.provision.ssh import Ssh
from pool_bench import NODES, RUN
from rented_bench import RentedBench


class HostsBench(RentedBench):
    """RentedProvisioner over SSH hosts whose `ssh` is a shell of this machine, a home for each."""

    can = ("refuse", "fall silent", "fall silent in part")
    ADDRESSES = ("a", "b", "c", "d")

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self._down: set[str] = set()
        super().__init__(home, patch)
        found = Hosts(self._hosts(), home).look()[0]
        self.place = Place(pool="ssh/lab", machine_type=found.shape, owned=True)

    def _hosts(self) -> tuple[hosts.Host, ...]:
        return read_hosts({"ssh": {"lab": {"user": "me", "hosts": list(self.ADDRESSES)}}}, "x")

    def _run(self, ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        del data
        if ssh.login.host in self._down:
            raise TransientError(f"{ssh.login.host} cannot be reached by ssh")
        of_a_node = "claim" not in command  # bringing code there and starting it takes no shell
        if of_a_node:
            return self.calls.make(lambda: "no\n")
        sets_up = "ln -sn" in command
        shell = self.calls.counted(self._shell) if sets_up else self._shell
        return shell(self._home / ssh.login.host, command, limit_s)

    def _shell(self, home: Path, command: str, limit_s: float) -> str:
        home.mkdir(exist_ok=True)
        env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["sh", "-c", command], env=env, capture_output=True, timeout=limit_s, check=False
        )
        if done.returncode:
            raise SetupError(done.stderr.decode())
        return done.stdout.decode()

    def clusters(self) -> Clusters:
        nodes = {rented.cluster_name(RUN, node_id): "ssh/lab" for node_id in NODES}
        return Hosts(self._hosts(), self._home, nodes)

    def asked(self) -> None:
        return None

    def _claims(self) -> dict[str, Path]:
        """Return the claims there are by the name of their node."""
        claim = f".burst/claim-{os.uname().nodename}"
        there = [self._home / address / claim for address in self.ADDRESSES]
        return {str(path.readlink()): path for path in there if path.is_symlink()}

    def there(self, run_id: str = RUN) -> set[str]:
        prefix = rented.cluster_name(run_id, "")
        names = (name.removeprefix(prefix) for name in self._claims() if name.startswith(prefix))
        return {name for name in names if rented.NODE_ID.fullmatch(name)}

    def lose(self, node_id: str) -> None:
        """Do what its supervisor does once its dead-man switch has fallen."""
        self._claims()[rented.cluster_name(RUN, node_id)].unlink()

    def fill(self) -> None:
        clusters = self.clusters()
        for number in range(len(self.ADDRESSES) - len(self._claims())):
            name = f"burst-else-abcdef-n{number}"
            clusters.launch(
                rented.MachineRequest(name=name, place=self.place, wanted={}, labels={}, log=Path())
            )

    @contextmanager
    def silent(self) -> Iterator[None]:
        self._down = set(self.ADDRESSES)
        yield
        self._down = set()

    @contextmanager
    def silent_about(self, node_id: str) -> Iterator[None]:
        claim = self._claims()[rented.cluster_name(RUN, node_id)]
        self._down = {claim.relative_to(self._home).parts[0]}
        yield
        self._down = set()


class SlurmBench(RentedBench):
    """RentedProvisioner over Slurm clusters with login nodes in an OpenSSH configuration.

    Its levers are Slurm's own commands, so a stand-in serves as well as real daemons do. What is
    run on a node, as a step of its job, works always.
    """

    EACH = Shape(cpus=2, memory_gb=4)  # all CPUs of a node
    MOST_WAIT = "10s"  # in a queue, as somebody in a hurry says in pools.yaml

    def __init__(
        self, home: Path, patch: pytest.MonkeyPatch, config: Path, names: Sequence[str]
    ) -> None:
        self._really = Ssh.run
        self._down: set[str] = set()
        super().__init__(home, patch)
        said = {name: {"wait": self.MOST_WAIT} for name in names}
        self._clusters = read_clusters({"slurm": said}, config)
        if len(names) > 1:
            self.can = ("refuse", "fall silent", "fall silent in part")

    def _run(self, ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
        def call() -> str:
            if ssh.login.host in self._down:
                raise TransientError(f"{ssh.login.host} cannot be reached by ssh")
            return self._really(ssh, command, data, limit_s=limit_s)

        on_a_node = bool(ssh.login.inside)
        return self.calls.of_launches((lambda: "no\n") if on_a_node else call)()

    def _cluster(self, node_id: str) -> Cluster:
        return self._clusters[int(node_id[1:]) % len(self._clusters)]

    def place_of(self, node_id: str) -> Place:
        cluster = self._cluster(node_id)
        return Place(pool=cluster.pool, zone="gpu", machine_type=str(self.EACH), owned=True)

    @property
    def place(self) -> Place:  # type: ignore[override]  # where the clusters' own tests launch
        return self.place_of("n001")

    def clusters(self) -> Slurm:
        names = {cluster_name(RUN, node_id): self._cluster(node_id).pool for node_id in NODES}
        return Slurm(self._clusters, self._home, self.clock, names)

    def open(self) -> Provisioner:
        jobs = self.clusters()
        settings = rented.Settings(home=self._home, wanted={}, lease_ttl_s=600.0)
        return RentedProvisioner(jobs, jobs, settings, self.clock)

    def _command(self, cluster: Cluster, *words: str) -> str:
        return self._really(cluster.ssh(self._home), shlex.join(words))

    def there(self, run_id: str = RUN) -> set[str]:
        squeue = ("squeue", "-h", "-o", "%j")  # of jobs that are not over
        names = " ".join(self._command(one, *squeue) for one in self._clusters).split()
        prefix = cluster_name(run_id, "")
        ours = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return {name for name in ours if rented.NODE_ID.fullmatch(name)}

    def lose(self, node_id: str) -> None:
        self._command(self._cluster(node_id), "scancel", f"--name={cluster_name(RUN, node_id)}")

    def fill(self) -> None:
        for cluster in self._clusters:
            for _ in range(4):
                whole = (f"--cpus-per-task={self.EACH.cpus}", f"--mem={self.EACH.memory_gb}G")
                quiet = ("--job-name=theirs", "--output=/dev/null", "--wrap=sleep 600")
                self._command(cluster, "sbatch", "--partition=gpu", *whole, *quiet)

    @contextmanager
    def silent(self) -> Iterator[None]:
        self._down = {cluster.name for cluster in self._clusters}
        yield
        self._down = set()

    @contextmanager
    def silent_about(self, node_id: str) -> Iterator[None]:
        self._down = {self._cluster(node_id).name}
        yield
        self._down = set()
