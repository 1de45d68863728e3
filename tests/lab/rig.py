"""The lab, whole: a network without a way out, a cloud in it, and SkyPilot's API server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.lab import hosts, image, market

REPO = Path(__file__).parents[2]


class Lab:
    """Use as a context manager; one at a time on a machine. Needs root and a built image."""

    def __init__(self, *, managed_jobs: bool = False) -> None:
        self._managed_jobs = managed_jobs  # SkyPilot's, for comparison
        self.home = image.ROOT / "home"
        self._socket = image.ROOT / "control"
        self.seeded: Counter[str] = Counter()  # the calls that furnished the account
        self._cloud: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """The environment of somebody at work in the lab: nothing of ours but the Python."""
        keep = {n: v for n, v in os.environ.items() if n in {"LANG", "PYTHONDONTWRITEBYTECODE"}}
        return {
            **keep,
            "HOME": str(self.home),
            "BURST_HOME": str(self.home / ".burst"),
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": f"{REPO}:{REPO / 'tests/support'}",
            "BURST_ALIBABA_ENDPOINT": market.ECS_ENDPOINT,
            "BURST_LAMBDA_URL": market.LAMBDA_URL,
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            "SKYPILOT_SERVER_PLUGINS_CONFIG": str(self.home / "plugins.yaml"),
            "PIP_NO_BUILD_ISOLATION": "0",  # which means: without; SkyPilot's wheel, offline
            "AWS_ENDPOINT_URL": market.ENDPOINT,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def __enter__(self) -> Self:
        """Bring it up."""
        self._clean()
        image.mount()
        hosts.network_up()
        self.home.mkdir(parents=True)
        market.furnish(self.home, managed_jobs=self._managed_jobs)
        self._start_cloud()
        self.run([sys.executable, "-m", "tests.lab.market"])
        self.seeded.update(self.state()["calls"])
        self.run(["sky", "api", "start"])
        return self

    def __exit__(self, *_: object) -> None:
        """Take it down: servers, machines, network, mounts."""
        self.run(["sky", "api", "stop"], check=False)
        if self._cloud is not None:
            self._cloud.kill()
            self._cloud.wait()
        self._clean()

    def _clean(self) -> None:
        """End what is there, also of a lab that was killed."""
        for pid in _members():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue  # it ended by itself
        hosts.network_down()
        image.unmount()
        self._socket.unlink(missing_ok=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def _start_cloud(self) -> None:
        argv = self._inside([sys.executable, "-m", "tests.lab.cloud", str(self._socket)])
        with (image.ROOT / "cloud.log").open("wb") as out:
            self._cloud = subprocess.Popen(argv, env=self.env, stdout=out, stderr=out, cwd=REPO)
        end = time.monotonic() + 60
        while True:
            try:
                self.state()
            except OSError:
                assert time.monotonic() < end, (image.ROOT / "cloud.log").read_text()
                time.sleep(0.1)  # noqa: TID251
            else:
                return

    def _inside(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{hosts.NETWORK}", "--", *argv]

    def run(
        self, argv: Sequence[str], *, check: bool = True, timeout: float = 300, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the lab's network, as somebody at work there."""
        done = subprocess.run(
            self._inside(argv),
            env={**self.env, **env},
            cwd=REPO,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done

    def start(self, argv: Sequence[str], log: Path, **env: str) -> subprocess.Popen[bytes]:
        """Start a command in the lab's network and leave it running; it has the pid returned."""
        with log.open("ab") as out:
            return subprocess.Popen(
                self._inside(argv), env={**self.env, **env}, cwd=REPO, stdout=out, stderr=out
            )

    def _do(self, **wish: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(30)
            line.connect(str(self._socket))
            line.sendall(json.dumps(wish).encode() + b"\n")
            found: dict[str, Any] = json.loads(line.makefile().readline())
        return found

    def state(self) -> dict[str, Any]:
        """Return what the cloud knows: instances, machines, times, and calls by name."""
        return self._do(do="state")

    def running(self) -> list[dict[str, Any]]:
        """Return the instances that run."""
        return [one for one in self.state()["instances"] if one["state"] == "running"]

    def capacity(self, **table: dict[str, int]) -> None:
        """Say how many of a type may run where: `capacity(**{"us-east-1a": {"*": 0}})`."""
        self._do(do="capacity", table=table)

    def notice(self, name: str, seconds: float) -> None:
        """Tell a machine that it will be taken away; EC2 does not do it then, ECS does."""
        self._do(do="notice", id=name, seconds=seconds)

    def host(self, name: str, address: str, key: str) -> None:
        """Start a machine that is not the cloud's; `key` may log in."""
        self._do(do="host", name=name, address=address, key=key)

    def cut(self, name: str) -> None:
        """End such a machine as a power cut does."""
        self._do(do="cut", name=name)

    def ecs_stock(self, **table: dict[str, int]) -> None:
        """Say how many of a type are left in a zone of Alibaba Cloud: `{"zone": {"*": 0}}`."""
        self._do(do="stock", table=table)

    def lambda_stock(self, **table: dict[str, int]) -> None:
        """Say how many of a type may run in a region of Lambda Cloud: `{"us-east-1": {...}}`."""
        self._do(do="lambda_stock", table=table)

    def reclaim(self, name: str) -> None:
        """Take a machine away, as a cloud takes spot machines."""
        self._do(do="reclaim", id=name)


def _members() -> list[int]:
    """Return the processes in the lab's networks."""
    found = []
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for line in names.stdout.splitlines():
        space = line.split()[0] if line else ""
        if space == hosts.NETWORK or space.startswith("bl-"):
            pids = subprocess.run(
                ["ip", "netns", "pids", space], capture_output=True, text=True, check=False
            )
            found += [int(pid) for pid in pids.stdout.split()]
    return found
