"""The lab's machines: namespaces over the image, each with an SSH server and an address."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.lab import image

NETWORK = "burst-lab"  # the namespace that stands for the Internet; it has no way out
BRIDGE = "br0"
GATEWAY = "10.255.0.1"  # where the clouds' own services are
METADATA = "169.254.169.254"
ECS_METADATA = "100.100.100.200"  # Alibaba Cloud's
INIT = """#!/bin/bash
hostname {name}
mkdir -p /run/sshd
chmod 1777 /dev/shm /tmp
/usr/sbin/sshd -D -E /var/log/sshd.log &
while true; do wait -n || sleep 0.2; done
"""
ENTER = """mount --make-rprivate /
mount -t proc proc {root}/proc
mount -t sysfs sysfs {root}/sys
mount --rbind /dev {root}/dev
mount -t tmpfs -o size=2g tmpfs {root}/dev/shm
mount -t tmpfs tmpfs {root}/run
exec chroot {root} /init
"""


def ip(*argv: str, check: bool = True) -> None:
    """Run iproute2."""
    subprocess.run(["ip", *argv], check=check, capture_output=not check)


def network_up() -> None:
    """Make the network, anew."""
    network_down()
    ip("netns", "add", NETWORK)
    ip("-n", NETWORK, "link", "set", "lo", "up")
    ip("-n", NETWORK, "link", "add", BRIDGE, "type", "bridge")
    ip("-n", NETWORK, "addr", "add", f"{GATEWAY}/8", "dev", BRIDGE)
    for service in (METADATA, ECS_METADATA):
        ip("-n", NETWORK, "addr", "add", f"{service}/32", "dev", BRIDGE)
    ip("-n", NETWORK, "link", "set", BRIDGE, "up")


def network_down() -> None:
    """End every machine and the network."""
    for folder in sorted(_hosts().glob("*")):
        end(folder.name)
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    for line in names.stdout.splitlines():
        if line.split()[0] == NETWORK or line.startswith("bl-"):
            ip("netns", "del", line.split()[0], check=False)


def _hosts() -> Path:
    return image.ROOT / "hosts"


def attach(space: str, link: str, address: str) -> None:
    """Make a network namespace with an address in the network; its name begins with `bl-`."""
    ip("netns", "add", space)
    ip("-n", NETWORK, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
    ip("-n", NETWORK, "link", "set", link, "master", BRIDGE, "up")
    ip("-n", space, "link", "set", "lo", "up")
    ip("-n", space, "addr", "add", f"{address}/8", "dev", "eth0")
    ip("-n", space, "link", "set", "eth0", "up")
    for service in (METADATA, ECS_METADATA):
        ip("-n", space, "route", "add", f"{service}/32", "dev", "eth0")


def detach(space: str, link: str) -> None:
    """Remove it, if it is there."""
    ip("-n", NETWORK, "link", "del", link, check=False)
    ip("netns", "del", space, check=False)


def start(name: str, address: str, key: str) -> None:
    """Start a machine; it takes SSH logins of `ubuntu` by a key within a second or two."""
    folder, space, link = _hosts() / name, f"bl-{name[-8:]}", f"v{name[-8:]}"
    root = folder / "root"
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    attach(space, link, address)
    layers = f"lowerdir={image.mount()},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(root)], check=True)
    host = f"ip-{address.replace('.', '-')}"
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{address} {host}\n")
    (root / "etc/resolv.conf").write_text("")
    home = root / "home/ubuntu"
    keys = home / ".ssh/authorized_keys"
    keys.write_text(key)
    owner = home.stat()
    for file, mode in ((home / ".ssh", 0o700), (keys, 0o600)):
        os.chown(file, owner.st_uid, owner.st_gid)
        file.chmod(mode)
    init = root / "init"
    init.write_text(INIT.format(name=host))
    init.chmod(0o755)
    spaces = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    shell = ["env", "-i", path, "bash", "-c", ENTER.format(root=root)]
    with (folder / "console.log").open("ab") as out:
        child = subprocess.Popen(
            ["ip", "netns", "exec", space, *spaces, *shell],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    (folder / "pid").write_text(str(child.pid))


def end(name: str) -> None:
    """Kill a machine as a power cut does, and remove what it wrote."""
    folder, root = _hosts() / name, _hosts() / name / "root"
    pid = folder / "pid"
    if pid.exists():
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.kill(int(pid.read_text()), signal.SIGKILL)
        pid.unlink()
    detach(f"bl-{name[-8:]}", f"v{name[-8:]}")
    for _ in range(50):
        if not os.path.ismount(root):
            break
        subprocess.run(["umount", str(root)], check=False, capture_output=True)
        time.sleep(0.1)  # noqa: TID251 - its processes are still ending
    else:
        subprocess.run(["umount", "-R", "-l", str(root)], check=True)
    shutil.rmtree(folder, ignore_errors=True)
