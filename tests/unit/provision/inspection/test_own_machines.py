"""Looking at machines of one's own: shells of this machine stand for hosts."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from burst.errors import SetupError, TransientError
from burst.provision.hosts import Hosts, read_hosts
from burst.provision.inspection.cuda import Torch
from burst.provision.inspection.hosts import HostsPool, ahead_s, pools_of, read
from burst.provision.inspection.local import LocalPool, driver_here
from burst.provision.inspection.port import Finding, Wanted
from burst.provision.local import LocalMachine
from burst.provision.own import quote
from burst.provision.ssh import Ssh
from burst.task_specs.model import Accelerators

NOW = datetime(2026, 12, 1, tzinfo=UTC)
PYPI = Torch(cuda="13.0", source="torch 2.13.0 of PyPI")
GIB = 1024**3
SMI = """#!/bin/sh
case "$*" in *driver_version*) echo {driver};;
*) printf 'NVIDIA H100, GPU-1\\nNVIDIA H100, GPU-2\\n';; esac
"""


class Lab:
    """Hosts of one pool, each a folder: its home, and programs of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.down: set[str] = set()
        self.said: dict[str, Callable[[str], str]] = {}  # by address: what becomes of an answer

        def run(ssh: Ssh, command: str, data: bytes = b"", *, limit_s: float = 60.0) -> str:
            name = ssh.login.host
            if name in self.down:
                raise TransientError(f"{name}: no answer within 15 s")
            env = {"HOME": str(folder / name), "PATH": f"{folder / name}/bin:{os.environ['PATH']}"}
            done = subprocess.run(
                ["sh", "-c", command], input=data, env=env, capture_output=True,
                timeout=limit_s, check=False,
            )  # fmt: skip
            if done.returncode:
                raise SetupError(done.stderr.decode())
            return self.said.get(name, str)(done.stdout.decode())

        monkeypatch.setattr(Ssh, "run", run)

    def pool(self, *addresses: str, **said: Any) -> HostsPool:
        for name in addresses:
            (self.folder / name / "bin").mkdir(parents=True, exist_ok=True)
        hosts = read_hosts({"ssh": {"lab": {"hosts": list(addresses), **said}}}, "me")
        found = Hosts(hosts, self.folder)
        return HostsPool(
            name="ssh/lab", hosts=found, packages="abc", now=lambda: datetime.now(UTC)
        )  # fmt: skip

    def program(self, address: str, name: str, text: str) -> None:
        path = self.folder / address / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def claim(self, address: str, name: str) -> None:
        claim = self.folder / address / f".burst/claim-{os.uname().nodename}"
        claim.parent.mkdir(exist_ok=True)
        claim.symlink_to(name)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def told(pool: HostsPool, wanted: Wanted | None = None) -> Mapping[str, Finding]:
    return {finding.what: finding for finding in pool.findings(wanted or Wanted(torch=PYPI))}


def test_a_host_that_was_set_up_anew_has_another_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is in a file of burst's own: a login by hand would work, and show nothing."""
    lab = Lab(tmp_path, monkeypatch)
    pool = lab.pool("a", port="2222")

    def run(*_: object, **__: object) -> str:
        raise TransientError("a cannot be reached by ssh: Host key verification failed.")

    monkeypatch.setattr(Ssh, "run", run)
    (found,) = pool.findings(Wanted())
    assert found.fix.endswith(f"forget its old key: rm {tmp_path}/known_hosts/a-2222")


def test_hosts_of_one_shape_are_a_row_and_those_that_are_silent_another(lab: Lab) -> None:
    pool = lab.pool("a", "b", "c", "d", usd_per_gpu_hour="1.5", usd_per_hour="0.4")
    for name in ("a", "b"):
        lab.program(name, "nvidia-smi", SMI.format(driver="580.95.05"))
    lab.claim("b", "burst-toy-abcdef-n001")
    lab.down = {"d"}
    gpus, cpus, silent = pool.rows()
    assert (gpus.machine, gpus.free, gpus.whole) == ("2xH100", 1, 2)
    assert (gpus.gpus_free, gpus.gpus) == (2, 4)
    assert gpus.price is not None
    assert (gpus.price.usd_per_hour, gpus.price.usd_per_gpu_hour) == (Decimal(3), Decimal("1.5"))
    assert (gpus.price.source, gpus.price.stale) == ("pools.yaml", False)
    assert (gpus.healthy, gpus.detail) == (True, "b has burst-toy-abcdef-n001")
    assert cpus.price is not None
    assert (cpus.price.usd_per_hour, cpus.price.usd_per_gpu_hour) == (Decimal("0.4"), None)
    assert (cpus.free, cpus.whole, cpus.gpus, cpus.detail) == (1, 1, 0, "")
    assert (silent.free, silent.whole, silent.healthy) == (0, 1, False)
    assert silent.detail == "d: no answer within 15 s"


def test_a_host_that_says_nonsense_hides_no_other(lab: Lab) -> None:
    pool = lab.pool("a", "b")
    lab.said["a"] = lambda _: "Welcome to a\n"
    fine, odd = pool.rows()
    assert (fine.whole, fine.healthy) == (1, True)
    assert (odd.whole, odd.healthy) == (1, False)
    assert odd.detail.startswith("a says what nobody understands: ")


def test_a_host_where_everything_works(lab: Lab) -> None:
    found = told(lab.pool("a"))
    assert set(found) == {"a answers", "a disk of ~/.burst", "a disk of /tmp", "a clock"}
    assert all(finding.works for finding in found.values())
    assert {finding.pool for finding in found.values()} == {"ssh/lab"}


@pytest.mark.parametrize(("driver", "works"), [("580.95.05", True), ("535.104.05", False)])
def test_the_driver_is_held_against_the_torch_of_nodes(lab: Lab, driver: str, works: bool) -> None:
    pool = lab.pool("a")
    lab.program("a", "nvidia-smi", SMI.format(driver=driver))
    found = told(pool)["a driver"]
    assert found.works is works
    assert found.detail.startswith(f"driver {driver}; torch 2.13.0 of PyPI is built with CUDA 13.0")


def test_a_driver_that_is_broken(lab: Lab) -> None:
    pool = lab.pool("a")
    lab.program(
        "a", "nvidia-smi", "#!/bin/sh\necho 'Failed to initialize NVML: mismatch'\nexit 9\n"
    )
    found = told(pool)["a driver"]
    assert found.works is False
    assert found.detail == "the driver does not answer: Failed to initialize NVML: mismatch"


@pytest.mark.parametrize(("gpus", "works"), [(True, False), (False, None)])
def test_gpus_without_a_driver(lab: Lab, gpus: bool, works: bool | None) -> None:
    pool = lab.pool("a")
    lab.said["a"] = lambda text: text + "bare 1\nbare 1\n" if "clock" in text else text
    found = told(pool, Wanted(torch=PYPI, gpus=gpus))["a driver"]
    assert found.works is works
    assert found.detail == "2 GPUs of NVIDIA's, and no nvidia-smi: no driver"
    assert "580 or later" in found.fix


def test_little_disk_for_the_packages_unless_they_are_there(lab: Lab) -> None:
    pool, much = lab.pool("a"), Wanted(torch=PYPI, disk_bytes=10**18)
    found = told(pool, much)["a disk of ~/.burst"]
    assert found.works is False
    assert found.detail.endswith(f"a node needs about {10**18 / GIB:.1f} GiB")
    ready = lab.folder / "a/.burst/env-abc"
    ready.mkdir(parents=True)
    (ready / ".whole").touch()
    assert told(pool, much)["a disk of ~/.burst"].works is True


def test_missing_programs(lab: Lab) -> None:
    pool = lab.pool("a")
    lab.said["a"] = lambda text: text + "missing flock\nmissing uv (or curl)\n"
    assert told(pool)["a programs"].detail == "has no flock, uv (or curl)"


def test_a_clock_that_is_off(lab: Lab) -> None:
    pool = lab.pool("a", "b")

    def later(text: str) -> str:
        match = re.match(r"clock (\d+)", text)
        return f"clock {int(match[1]) + 1000}{text[match.end() :]}" if match else text

    lab.said["b"] = later
    found = told(pool)
    assert (found["a clock"].works, found["b clock"].works) == (True, False)
    assert "15 min" in found["b clock"].detail


def test_a_host_that_is_silent_is_told_with_the_login_to_try(lab: Lab) -> None:
    pool = lab.pool("a", "b")
    lab.down = {"a"}
    found = told(pool)
    assert found["a answers"].works is False
    assert found["a answers"].fix.endswith(": ssh -p 22 me@a true")
    assert found["b answers"].works is True
    assert {what for what in found if what.startswith("a ")} == {"a answers"}


def test_an_answer_that_lacks_a_part() -> None:
    with pytest.raises(ValueError, match="no home"):
        read("clock 1\ntmp 5\n")


def test_the_least_that_is_certain_of_a_clock() -> None:
    assert ahead_s(99.5, (100.0, 110.0)) == -0.5
    assert ahead_s(111.5, (100.0, 110.0)) == 1.5
    assert ahead_s(105.0, (100.0, 110.0)) == 0.0


def test_hosts_by_pool() -> None:
    hosts = read_hosts({"ssh": {"x": {"hosts": ["a", "b"]}, "y": {"hosts": ["c"]}}}, "me")
    found = {name: [host.address for host in there] for name, there in pools_of(hosts).items()}
    assert found == {"ssh/x": ["a", "b"], "ssh/y": ["c"]}


HERE = LocalMachine(
    cpus=8,
    memory_gb=64.0,
    accelerators=Accelerators(kind="A100", count=2),
    usd_per_node_hour=Decimal(3),
    price_source="pools.yaml",
)


def local(machine: LocalMachine = HERE, **more: Any) -> LocalPool:
    given: dict[str, Any] = {
        "look": lambda: machine,
        "quote": lambda one: quote(one.usd_per_node_hour, one.price_source, NOW),
        "nodes": lambda: 0,
        "driver": lambda: None,
        "torch": PYPI,
        "now": lambda: NOW,
    }
    return LocalPool(**{**given, **more})


def test_this_machine_is_a_row() -> None:
    (row,) = local().rows()
    assert (row.pool, row.machine, row.free, row.gpus_free, row.gpus) == (
        "local", "2xA100", 1, 2, 2,
    )  # fmt: skip
    assert row.price is not None
    assert row.price.usd_per_gpu_hour == Decimal("1.5")
    (busy,) = local(nodes=lambda: 3).rows()
    assert (busy.free, busy.gpus_free, busy.detail) == (0, 0, "3 nodes of runs are here")
    (bare,) = local(replace(HERE, accelerators=None)).rows()
    assert (bare.machine, bare.gpus) == ("8-cpu", 0)


@pytest.mark.parametrize(
    ("driver", "works"), [("580.1", True), ("470.1", False), ("broken", False)]
)
def test_the_driver_of_this_machine(driver: str, works: bool) -> None:
    machine, found = local(driver=lambda: driver).findings(Wanted())
    assert machine.works
    assert (found.what, found.works) == ("driver", works)


@pytest.mark.parametrize(
    ("program", "driver"),
    [
        (None, None),
        (SMI.format(driver="580.95.05"), "580.95.05"),
        ("#!/bin/sh\necho no devices >&2\nexit 6\n", "no devices"),
        ("#!/bin/sh\nexit 6\n", "exit code 6"),
    ],
)
def test_asking_nvidia_smi_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, driver: str | None
) -> None:
    if program is not None:
        (tmp_path / "nvidia-smi").write_text(program)
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if program else str(tmp_path))
    assert driver_here() == driver
