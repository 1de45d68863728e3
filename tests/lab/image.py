"""The machine image of the lab: a file-system layer over this machine's own root.

`python -m tests.lab.image` builds it, once per version of SkyPilot: a user `ubuntu`, an SSH
server, and the Python environment that SkyPilot would else download onto every machine. Needs
root, the package registries, and overlayfs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(os.environ.get("BURST_LAB", "/var/tmp/burst-lab"))
IMAGE = ROOT / "image"
SKY = "0.14.1"
SKY_RAY = "2.9.3"  # SkyPilot's own, for its own jobs; not the one that trains
PACKAGES = ("openssh-server", "rsync", "sudo", "iproute2", "curl", "procps", "jq")
PROGRAMS = ("/usr/sbin/sshd", "/usr/bin/rsync", "/usr/bin/sudo", "/usr/sbin/ip", "/usr/bin/jq")
SSHD = """Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin no
PasswordAuthentication no
UsePAM no
Subsystem sftp /usr/lib/openssh/sftp-server
PidFile /run/sshd.pid
MaxStartups 100:30:200
"""
RUNTIME = (f"skypilot[aws,remote]=={SKY}", f"ray[default]=={SKY_RAY}", "click<8.3", "setuptools<70")


def build() -> None:
    """Build the image if it is not there; raise if a step fails."""
    install()
    done = IMAGE / f"done-{SKY}-{sys.version_info.major}.{sys.version_info.minor}"
    if not done.exists():
        unmount()
        shutil.rmtree(IMAGE, ignore_errors=True)
        (IMAGE / "upper").mkdir(parents=True)
        with entered() as merged:
            _people(merged)
            _runtime(merged)
            _wheel(merged)
            _own(merged)
        done.touch()
    with entered() as merged:  # these depend on who runs the tests
        _python(merged)


def install() -> None:
    """Install the programs of this machine that the lab needs."""
    if all(Path(program).exists() for program in PROGRAMS):
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet, stdout=subprocess.DEVNULL)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
    subprocess.run(install, check=True, env=quiet, stdout=subprocess.DEVNULL)


@contextmanager
def entered() -> Iterator[Path]:
    """Mount the image over this machine's root, for changing it."""
    merged = mount()
    mounted = []
    for name in ("proc", "dev"):
        subprocess.run(["mount", "--rbind", f"/{name}", str(merged / name)], check=True)
        subprocess.run(["mount", "--make-rslave", str(merged / name)], check=True)
        mounted.append(str(merged / name))
    try:
        yield merged
    finally:
        for where in mounted:
            subprocess.run(["umount", "-R", "-l", where], check=True)
        unmount()


def mount() -> Path:
    """Mount the image, if it is not, and return where."""
    merged, work = IMAGE / "merged", IMAGE / "work"
    merged.mkdir(parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    if not os.path.ismount(merged):
        layers = f"lowerdir=/,upperdir={IMAGE / 'upper'},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, merged], check=True)
    return merged


def unmount() -> None:
    """Take the mount away."""
    merged = IMAGE / "merged"
    if os.path.ismount(merged):
        subprocess.run(["umount", "-R", "-l", str(merged)], check=True)


def _inside(merged: Path, *argv: str) -> None:
    env = {**os.environ, "HOME": "/root", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(["chroot", str(merged), *argv], check=True, env=env, stdout=subprocess.DEVNULL)


def _people(merged: Path) -> None:
    """A user as cloud images have it, and a server that lets it in by key alone."""
    _inside(merged, "useradd", "-m", "-s", "/bin/bash", "ubuntu")
    _inside(merged, "usermod", "-p", "*", "ubuntu")
    rule = merged / "etc/sudoers.d/90-ubuntu"
    rule.write_text("ubuntu ALL=(ALL) NOPASSWD:ALL\n")
    rule.chmod(0o440)
    (merged / "etc/ssh/sshd_config").write_text(SSHD)
    _inside(merged, "ssh-keygen", "-A")
    for folder in (".local/bin", ".ssh", ".sky/wheels", ".burst", "sky_workdir"):
        (merged / "home/ubuntu" / folder).mkdir(parents=True, exist_ok=True)


def _runtime(merged: Path) -> None:
    """What SkyPilot would download: uv, and its own Python environment with its own Ray."""
    runtime = "/home/ubuntu/skypilot-runtime"
    _inside(merged, sys._base_executable, "-m", "venv", runtime)  # type: ignore[attr-defined]
    pip = (f"{runtime}/bin/pip", "--disable-pip-version-check")
    _inside(merged, *pip, "install", "-q", "uv", *RUNTIME)
    _inside(merged, *pip, "uninstall", "-q", "-y", "skypilot")
    home = merged / "home/ubuntu"
    shutil.copy2(home / "skypilot-runtime/bin/uv", home / ".local/bin/uv")


def _wheel(merged: Path) -> None:
    """The wheel that the API server would install at each launch, if it found another there."""
    make = (
        "from sky.backends import wheel_utils; "
        "folder, name = wheel_utils.build_sky_wheel(); print(folder, name)"
    )
    env = {**os.environ, "HOME": str(IMAGE / "home"), "PIP_NO_BUILD_ISOLATION": "0"}
    (IMAGE / "home").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", make], check=True, env=env, stdout=subprocess.PIPE, text=True
    )
    folder, name = done.stdout.split()[-2:]
    there = merged / "home/ubuntu/.sky/wheels"
    shutil.copytree(folder, there / name, dirs_exist_ok=True)
    (there / "current_sky_wheel_hash").write_text(name + "\n")
    wheel = next((there / name).glob("*.whl"))
    pip = "/home/ubuntu/skypilot-runtime/bin/pip"
    _inside(merged, pip, "install", "-q", "--no-deps", f"/{wheel.relative_to(merged)}")


def _own(merged: Path) -> None:
    _inside(merged, "chown", "-R", "ubuntu:ubuntu", "/home/ubuntu")


def _python(merged: Path) -> None:
    """Let machines train with the very Python that runs the tests, whoever owns its folders."""
    for program in (sys.executable, os.path.realpath(sys.executable)):
        for folder in Path(program).parents:
            inside = merged / folder.relative_to("/")
            if inside.stat().st_mode & 0o055 != 0o055:
                inside.chmod(inside.stat().st_mode | 0o055)
    (merged / "home/ubuntu/.burst/env-base").write_text(sys.executable + "\n")
    check = "import torch, ray, boto3, s3fs"
    _inside(merged, "sudo", "-u", "ubuntu", sys.executable, "-c", check)


if __name__ == "__main__":
    build()
