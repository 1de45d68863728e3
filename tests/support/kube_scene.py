"""Somebody with a cluster: its stand-in, a home with a kubeconfig, and SkyPilot in a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from certificate import make_certificate
from kube_api import TOKEN, Cluster, KubeServer

REPO = Path(__file__).parents[2]
CONTEXT, POOL = "lab", "ssh-attic"
IMAGES = {"cpu": "registry.test/cpu:1", "gpu": "registry.test/gpu:1"}


# loads SkyPilot once, and has each piece of code run in a process of its own that knows it already
FORKS = """
import json, os, sys, traceback
import sky.check, sky.core, sky.execution
from burst.provision import skypilot
for line in sys.stdin:
    code, *files = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, path in enumerate(files, start=1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        failed = 0
        try:
            exec(code, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            failed = 1
        sys.stdout.flush()
        os._exit(failed)
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Scene:
    """A cluster, and the home of a person who may use it."""

    def __init__(self, server: KubeServer, home: Path) -> None:
        self.home = home
        self._forks: subprocess.Popen[str] | None = None
        self._server = server
        self.env: Mapping[str, str] = {
            "HOME": str(home),
            "BURST_HOME": str(home / ".burst"),
            "PATH": f"{home / 'bin'}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(REPO),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # which means: without; SkyPilot's wheel, offline
        }
        self._furnish()

    @property
    def cluster(self) -> Cluster:
        return self._server.cluster

    def renew(self) -> None:
        """Have a new cluster, with a small node and one that has four GPUs."""
        self._server.cluster = Cluster()
        self.cluster.node("small")
        self.cluster.node("big", gpu="H100", gpus=4, cpus=64, gib=512)

    def _furnish(self) -> None:
        """Write what a person has, and what SkyPilot would download."""
        self.write(".kube/config", yaml.safe_dump(self._server.kubeconfig(CONTEXT, "other", POOL)))
        tags = [f"skypilot:custom-{kind}-ubuntu-2204-v1,,{image}" for kind, image in IMAGES.items()]
        self.write(
            ".sky/catalogs/v8/kubernetes/images.csv", "\n".join(["Tag,Region,ImageId", *tags])
        )
        accelerators = "AcceleratorName,Clouds\nH100,['Kubernetes']\n"
        self.write(".sky/catalogs/v8/common/accelerators.csv", accelerators)
        self.write(".sky/config.yaml", "kubernetes: {provision_timeout: 1}\n")
        for name in ("socat", "nc"):  # SkyPilot looks whether they are there; no tunnel is made
            self.write(f"bin/{name}", "#!/bin/sh\nexit 0\n").chmod(0o755)

    def take(self, name: str, node: str, gpus: int) -> None:
        """Have somebody else's pod on a node."""
        wants = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
        container = {"name": "theirs", "image": "x", "resources": {"requests": wants}}
        self.cluster.answer(
            f"Bearer {TOKEN}",
            "POST",
            "/api/v1/namespaces/others/pods",
            {"metadata": {"name": name}, "spec": {"containers": [container]}},
        )
        assert self.cluster.pod(name)["spec"]["nodeName"] == node

    def write(self, name: str, text: str) -> Path:
        """Write a file in the home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *argv: str, check: bool = True, **env: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as that person."""
        done = subprocess.run(
            argv,
            env={**self.env, **env},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def ask(self, code: str) -> str:
        """Run Python with SkyPilot as that person; return what it prints on standard output."""
        if self._forks is None:
            argv = [sys.executable, "-c", FORKS]
            pipe = subprocess.PIPE
            self._forks = subprocess.Popen(
                argv, env=self.env, cwd=self.home, stdin=pipe, stdout=pipe, text=True
            )
        out, err = self.home / "out", self.home / "err"
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        self._forks.stdin.write(json.dumps([code, str(out), str(err)]) + "\n")
        self._forks.stdin.flush()
        ended = self._forks.stdout.readline()
        assert ended == "0\n", out.read_text() + err.read_text()
        return out.read_text()

    def close(self) -> None:
        """End the process that `ask` started."""
        if self._forks is not None:
            self._forks.communicate()


@contextmanager
def at_kubernetes(home: Path) -> Iterator[Scene]:
    """Serve a cluster to a person."""
    with KubeServer(Cluster(), make_certificate(home / "ca.pem")) as server:
        scene = Scene(server, home)
        scene.renew()
        yield scene
        scene.close()
