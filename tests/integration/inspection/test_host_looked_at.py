"""Looking at a host through a real sshd on the loopback."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from burst.clock import SystemClock
from burst.provision.hosts import Hosts, read_hosts
from burst.provision.inspection.cuda import Torch
from burst.provision.inspection.hosts import HostsPool
from burst.provision.inspection.port import Finding, Wanted, rows

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(SSHD is None, reason="no sshd on this machine"),
]
SETTINGS = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
PasswordAuthentication no
PidFile none
SetEnv HOME={folder}/home PATH={folder}/bin:/usr/bin:/bin
"""
SMI = """#!/bin/sh
case $* in *driver*) echo 535.104.05;; *) echo NVIDIA A100-SXM4-80GB, GPU-1;; esac
"""


class Host(NamedTuple):
    """An sshd of this person's own, and how to log in to it."""

    folder: Path
    port: int

    def pool(self, *, port: int | None = None, key: str = "user_key") -> HostsPool:
        said = {"hosts": [{"ip": "127.0.0.1", "port": str(port or self.port)}],
                "identity_file": str(self.folder / key), "usd_per_gpu_hour": "1.2"}  # fmt: skip
        hosts = Hosts(read_hosts({"ssh": {"lab": said}}, getpass.getuser()), self.folder)
        return HostsPool(name="ssh/lab", hosts=hosts, packages="x", now=SystemClock().now)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Serve a home and programs of its own until the test is over."""
    if SSHD is None:
        pytest.skip("no sshd on this machine")
    for name in ("home", "bin"):
        (tmp_path / name).mkdir()
    for name in ("host_key", "user_key", "other_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True
        )
    smi = tmp_path / "bin/nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    port = _free_port()
    settings = tmp_path / "sshd_config"
    settings.write_text(SETTINGS.format(port=port, folder=tmp_path))
    with subprocess.Popen(
        [SSHD, "-D", "-e", "-f", str(settings)], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        if "listening" not in first:
            server.kill()
            pytest.skip(f"sshd does not start here: {first.strip()}")
        yield Host(tmp_path, port)
        server.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def told(pool: HostsPool) -> dict[str, Finding]:
    wanted = Wanted(torch=Torch(cuda="13.0", source="torch 2.13.0 of PyPI"))
    return {one.what.partition(" ")[2]: one for one in pool.findings(wanted)}


def test_a_host_says_what_it_has_and_what_does_not_fit(host: Host) -> None:
    (row,) = rows([host.pool()])
    assert (row.machine, row.free, row.gpus_free, row.healthy) == ("1xA100-SXM4-80GB", 1, 1, True)
    assert row.price is not None
    assert str(row.price.usd_per_gpu_hour) == "1.2"
    found = told(host.pool())
    assert found["answers"].works is True
    assert found["clock"].works is True
    assert found["disk of ~/.burst"].works is True
    assert found["driver"].works is False
    assert "535.104.05" in found["driver"].detail
    assert list((host.folder / "home").iterdir()) == []  # a look leaves nothing there


def test_a_key_that_is_not_let_in(host: Host) -> None:
    found = told(host.pool(key="other_key"))
    assert {what: one.works for what, one in found.items()} == {"answers": False}
    assert "Permission denied" in found["answers"].detail
    assert f"-i {host.folder}/other_key" in found["answers"].fix


def test_nobody_listens(host: Host) -> None:
    pool = host.pool(port=_free_port())
    (row,) = rows([pool])
    assert (row.healthy, row.free, row.whole) == (False, 0, 1)
    assert "Connection refused" in row.detail
    assert told(pool)["answers"].works is False
