"""A real Slurm of several nodes on this machine, with a login node. Needs root.

Every slurmd has a mount and a UTS namespace: a name, a /tmp and a loopback address of its own, and
GPUs that are null devices. Partition `gpu` is nobody's to take; jobs in `spot` make way for it.
Nodes share the home, as on a cluster. No systemd, no cgroups, no accounting. Debian's packages are
installed where they are missing.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from burst.processes import Mark, alive, find, start_time
from tests.lab import hosts

ROOT = Path(os.environ.get("BURST_SLURM_LAB", "/var/tmp/burst-slurm"))
REPO = Path(__file__).parents[2]
PACKAGES = ("slurm-wlm", "slurmctld", "slurmd", "munge", "openssh-server")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sinfo", "sshd")
PATH = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PORT = 16800  # slurmctld's; nodes count on from it
SSH_PORT = 16890
CONF = """ClusterName=lab
SlurmctldHost={host}({login})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_interval=1,bf_interval=2,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
GresTypes=gpu
KillWait=10
SlurmdTimeout=10
PropagateResourceLimits=NONE
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=24:00:00 State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=spot Nodes=ALL MaxTime=24:00:00 State=UP PriorityTier=1 PreemptMode=REQUEUE \
GraceTime={grace_s}
"""
NODE = (
    "NodeName=n{n} NodeHostname={host} NodeAddr={address} Port={port} CPUs=2 RealMemory=16000 "
    "Gres=gpu:A100:4 State=UNKNOWN"
)
SSHD = """Port {port}
ListenAddress {login}
HostKey {root}/host_key
AuthorizedKeysFile {root}/key.pub
PidFile {root}/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
MaxStartups 100
SetEnv PATH={path} SLURM_CONF={root}/slurm.conf HOME={root}/home
"""
LOGIN = """Host lab
  HostName {login}
  Port {port}
  User {user}
  IdentityFile {root}/key
  IdentitiesOnly yes
"""
START_NODE = (
    "hostname {name} && mount --bind {root}/tmp/{name} /tmp && "
    "exec slurmd -D -f {root}/slurm.conf -N {name}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where the cluster's addresses are."""

    login: str = "127.0.0.1"
    nodes: str = "127.0.1."  # node n2 has 127.0.1.2
    space: str = ""  # the namespace of the login node's; then each node has one of its own

    def inside(self, argv: Sequence[str], node: str = "") -> list[str]:
        """Return the command that runs another one on the login node's network, or on a node's."""
        space = f"bl-{node}" if node else self.space
        return ["nsenter", f"--net=/run/netns/{space}", "--", *argv] if self.space else [*argv]

    def attach(self, node: str) -> None:
        """Give a node its address."""
        if self.space:
            self.detach(node)
            hosts.attach(f"bl-{node}", f"v{node}", f"{self.nodes}{node[1:]}")

    def detach(self, node: str) -> None:
        """Take it away, if it is there."""
        if self.space:
            hosts.detach(f"bl-{node}", f"v{node}")


LOOPBACK = Network()
OF_LAB = Network(login=hosts.GATEWAY, nodes="10.200.1.", space=hosts.NETWORK)  # of tests.lab.rig


def missing() -> tuple[str, ...]:
    """Return the programs that this machine lacks."""
    return tuple(name for name in PROGRAMS if shutil.which(name, path=PATH) is None)


def install() -> None:
    """Install them; raise if that fails. Services that the packages bring are not started."""
    if not missing():
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet, stdout=subprocess.DEVNULL)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
    subprocess.run(install, check=True, env=quiet, stdout=subprocess.DEVNULL)


class SlurmLab:
    """Use as a context manager; one at a time on a machine."""

    def __init__(self, *, nodes: int = 3, grace_s: int = 20, network: Network = LOOPBACK) -> None:
        self.names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.home = ROOT / "home"  # of those at work there; every node sees it
        self._grace_s = grace_s
        self._network = network
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def env(self) -> dict[str, str]:
        """The environment of somebody at work on the cluster."""
        keep = {n: v for n, v in os.environ.items() if n in {"LANG", "PYTHONDONTWRITEBYTECODE"}}
        return {
            **keep,
            "HOME": str(self.home),
            "BURST_HOME": str(self.home / ".burst"),
            "PATH": PATH,
            "PYTHONPATH": str(REPO),
            "SLURM_CONF": str(ROOT / "slurm.conf"),
        }

    def __enter__(self) -> Self:
        """Bring it up: all nodes idle."""
        self._end_old()
        self._furnish()
        try:
            self._start("munged", self._munged())
            self._wait((ROOT / "munge.sock").exists, 10)
            Path("/run/sshd").mkdir(exist_ok=True)
            inside = self._network.inside
            self._start("sshd", inside(["/usr/sbin/sshd", "-D", "-f", str(ROOT / "sshd_config")]))
            self._start("slurmctld", inside(["slurmctld", "-D", "-f", str(ROOT / "slurm.conf")]))
            for name in self.names:
                self.start_node(name)
            self._wait(self._all_idle, 60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End jobs and daemons, and what jobs left on nodes."""
        self.run(["scancel", "--user", "root"], check=False)
        self._wait(lambda: not self.jobs(), 40, quiet=True)
        self._stop_controller()
        self._end_old()
        for child in self._daemons.values():
            child.wait(20)
        for name in self.names:
            self._network.detach(name)

    def _furnish(self) -> None:
        """Write what daemons read, anew."""
        shutil.rmtree(ROOT, ignore_errors=True)
        for folder in ("state", "spool", "log", "munge", "tmp", "dev", "home/.slurm"):
            (ROOT / folder).mkdir(parents=True)
        (ROOT / "munge").chmod(0o700)
        (ROOT / "munge/key").write_bytes(os.urandom(1024))
        (ROOT / "munge/key").chmod(0o600)
        for number in range(4):
            os.mknod(ROOT / f"dev/nvidia{number}", 0o20666, os.makedev(1, 3))
        (ROOT / "gres.conf").write_text(f"Name=gpu Type=A100 File={ROOT}/dev/nvidia[0-3]\n")
        for name in ("host_key", "key"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ROOT / name)]
            subprocess.run(key, check=True)
        host = os.uname().nodename.partition(".")[0]
        nodes = "\n".join(
            NODE.format(
                n=number, host=host, port=PORT + number, address=f"{self._network.nodes}{number}"
            )
            for number in range(1, len(self.names) + 1)
        )
        known = {"root": ROOT, "path": PATH, "user": pwd.getpwuid(os.geteuid()).pw_name}
        known["login"] = self._network.login
        conf = CONF.format(**known, host=host, port=PORT, nodes=nodes, grace_s=self._grace_s)
        (ROOT / "slurm.conf").write_text(conf)
        (ROOT / "sshd_config").write_text(SSHD.format(**known, port=SSH_PORT))
        (self.home / ".slurm/config").write_text(LOGIN.format(**known, port=SSH_PORT))
        (self.home / ".burst").mkdir()
        (self.home / ".burst/env-base").write_text(sys.executable + "\n")

    def _munged(self) -> list[str]:
        files = {"key-file": "munge/key", "socket": "munge.sock", "pid-file": "munge/pid"}
        files |= {"log-file": "log/munged.log", "seed-file": "munge/seed"}
        return ["munged", "-F", "--force", *(f"--{name}={ROOT / f}" for name, f in files.items())]

    def start_node(self, name: str) -> None:
        """Bring up a node."""
        for folder in ("spool", "tmp"):
            (ROOT / folder / name).mkdir(exist_ok=True)
        (ROOT / "tmp" / name).chmod(0o1777)
        self._network.attach(name)
        spaces = ["unshare", "--mount", "--uts", "--propagation", "private"]
        argv = [*spaces, "sh", "-c", START_NODE.format(name=name, root=ROOT)]
        self._start(name, self._network.inside(argv, name))

    def cut(self, name: str) -> None:
        """End a node and everything on it, as a power cut does."""
        for pid in _members(self._daemons[name].pid):
            _kill(pid)
        self._daemons.pop(name).wait(20)

    def _start(self, name: str, argv: Sequence[str]) -> None:
        env = {"PATH": PATH, "SLURM_CONF": str(ROOT / "slurm.conf")}
        with (ROOT / "log" / f"{name}.out").open("ab") as out:
            child = subprocess.Popen(argv, env=env, cwd="/", stdout=out, stderr=out)
        self._daemons[name] = child
        known = {n: [c.pid, start_time(c.pid)] for n, c in self._daemons.items()}
        (ROOT / "pids.json").write_text(json.dumps(known))

    def _stop_controller(self) -> None:
        """Let Slurm's controller end its own child first."""
        child = self._daemons.get("slurmctld")
        if child is not None:
            child.terminate()
            child.wait(20)

    def _end_old(self) -> None:
        """End the daemons that were started, by this process or one that was killed."""
        try:
            known = json.loads((ROOT / "pids.json").read_text())
        except FileNotFoundError:
            return
        for name, (pid, started) in known.items():
            if started is not None and alive(pid, started):
                for one in _members(pid) if name.startswith("n") else [pid]:
                    _kill(one)
        (ROOT / "pids.json").unlink()

    def _all_idle(self) -> bool:
        said = self.run(["sinfo", "-h", "-N", "-p", "gpu", "-t", "idle", "-o", "%N"], check=False)
        return len(said.split()) == len(self.names)

    @staticmethod
    def _wait(what: object, seconds: float, *, quiet: bool = False) -> None:
        assert callable(what)
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                assert quiet, "\n".join(p.read_text()[-2000:] for p in ROOT.glob("log/*"))
                return
            time.sleep(0.1)  # noqa: TID251

    def run(self, argv: Sequence[str], *, check: bool = True, timeout: float = 300) -> str:
        """Run a command as somebody at work on the cluster; return its output."""
        done = subprocess.run(
            self._network.inside(argv),
            env=self.env,
            cwd=REPO,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """Return the jobs that are not over, their states by name."""
        lines = self.run(["squeue", "-h", "-o", "%j %T"], check=False).splitlines()
        return dict(line.split() for line in lines)

    def job(self, name: str) -> str:
        """Return the number of the job of this name."""
        return self.run(["squeue", "-h", "-n", name, "-o", "%i"]).strip()

    def nodes(self) -> dict[str, str]:
        """Return the nodes of the jobs that run, by the jobs' numbers."""
        lines = self.run(["squeue", "-h", "-t", "R", "-o", "%i %N"]).splitlines()
        return dict(line.split() for line in lines)

    def how_ended(self, job: str) -> str:
        """Return the state that a job is in, or ended in."""
        found = re.search(r"JobState=(\w+)", self.run(["scontrol", "show", "job", job]))
        assert found is not None
        return found[1]

    def clear(self) -> None:
        """End all jobs."""
        self.run(["scancel", "--user", "root"], check=False)
        self._wait(lambda: not self.jobs(), 60)

    def left(self, run_id: str) -> list[str]:
        """Return the processes on nodes that belong to a run."""
        found = find(Mark(variables={"BURST_RUN_ID": run_id}))
        nodes = {pid for name in self.names for pid in _members(self._daemons[name].pid)}
        return [str(one) for one in found if one.pid in nodes]


def _members(pid: int) -> list[int]:
    """Return the processes in the mount namespace of one."""
    space = Path(f"/proc/{pid}/ns/mnt").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns/mnt").readlink() == space:
                found.append(int(entry.name))
        except OSError:
            continue  # it ended by itself
    assert os.getpid() not in found
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
