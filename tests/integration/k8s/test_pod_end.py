"""The command by which a pod ends itself, in a real process namespace as containers share one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from burst.provision.k8s import pod

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for namespaces"),
]
# as at the end of what SkyPilot 0.14.1 has its container run
SHELL = "trap : TERM INT; echo ready; while true; do sleep infinity & wait $!; done"


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.fixture
def pause() -> Iterator[int]:
    """Return the first process of a namespace, which is what a pod's own is."""
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", "echo ready; exec sleep 600"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == "ready\n"
        first = _child(made.pid)
        yield first
        os.kill(first, signal.SIGKILL)  # and with it all that is in there


def test_a_shell_that_ignores_terms_is_ended_from_within(pause: int) -> None:
    inside = ["nsenter", "-t", str(pause), "--pid", "--mount"]
    with subprocess.Popen(
        [*inside, "bash", "-c", SHELL], stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        os.kill(_child(shell.pid), signal.SIGTERM)
        assert shell.poll() is None
        orphan = "(read go; " + pod.END + ") <&0 >/dev/null 2>&1 &"  # as the agent's supervisor is
        subprocess.run([*inside, "sh", "-c", orphan], input="go\n", text=True, check=False)
        assert shell.wait(20) != 0
    assert Path(f"/proc/{pause}").exists()
