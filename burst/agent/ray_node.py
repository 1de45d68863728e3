"""A node's part of the run's Ray cluster, as child processes of the agent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from burst.errors import SetupError, installing

READY = b"Ray runtime started"
OBJECT_STORE_BYTES = 100_000_000  # nothing goes through Ray's object store but small messages
LAST_BYTES = 4000
LONGEST_SCRATCH = 107 - len("/r/session_2026-12-01_06-10-07_153804_21510/sockets/plasma_store")

# Ray's own defaults take a minute to believe that a node is gone.
FAST = {
    "RAY_health_check_initial_delay_ms": "3000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "RAY_DEDUP_LOGS": "0",  # or lines of the user's output are left out
    "RAY_COLOR_PREFIX": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",  # each worker sets its own number
}


@dataclass(slots=True)
class Child:
    """A child process and the file that its output goes to."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def exit_code(self) -> int | None:
        """Return how it ended; None while it runs."""
        return self.process.poll()

    def last_words(self) -> str:
        """Return the end of its output."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - LAST_BYTES))
            return file.read().decode(errors="replace").strip()


def start(argv: list[str], env: Mapping[str, str], log: Path, folder: Path | None = None) -> Child:
    """Start a command that ends with this agent, its output appended to a file."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "burst.agent.launcher", str(os.getpid()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **FAST, **env},
            cwd=folder,
        )
    return Child(process=process, log=log)


def ray_program() -> str:
    """Return the `ray` beside this Python; SetupError if it is not installed."""
    program = Path(sys.executable).with_name("ray")
    if not program.exists():
        raise SetupError(
            f"there is no ray beside {sys.executable}",
            hint=installing("train"),
        )
    return str(program)


def start_ray(ip: str, num_cpus: int, head: str | None, scratch: Path) -> tuple[Child, str]:
    """Start Ray as head (`head` is None) or as a node of the head's cluster; return its address.

    Every node has an address of its own, so several fit on one machine.
    """
    address = head or f"{ip}:{free_port(ip)}"
    where = ["--head", f"--port={address.rpartition(':')[2]}"] if head is None else []
    where += ["--include-dashboard=false"] if head is None else [f"--address={address}"]
    common = [
        # Nodes that start together on one machine would else choose the same names of sockets.
        f"--temp-dir={ray_folder(scratch)}",
        f"--node-ip-address={ip}",
        f"--num-cpus={num_cpus}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--disable-usage-stats",
        "--block",
    ]
    log = scratch / "ray.log"
    log.write_bytes(b"")  # what an earlier cluster said is not this one's
    return start([ray_program(), "start", *where, *common], {}, log), address


def ready(child: Child) -> bool:
    """Whether Ray says that it has started."""
    return READY in child.log.read_bytes()


def free_port(ip: str) -> int:
    """Return a port nobody listens on at this address at the moment."""
    with socket.socket() as probe:
        probe.bind((ip, 0))
        port: int = probe.getsockname()[1]
        return port


def ray_folder(scratch: Path) -> Path:
    """Return the folder of the node's Ray: short, for a socket's path has at most 107 bytes."""
    if len(str(scratch)) > LONGEST_SCRATCH:
        raise SetupError(f"{scratch} is too long a path for Ray's sockets; set a shorter TMPDIR")
    return scratch / "r"
