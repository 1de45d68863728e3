"""`python -m burst.agent.boot`: start a rented node's agent, and end the machine after it.

Reads one JSON object from its input, so that secrets are in no command line: `arguments` of the
agent, `env`, `versions` that must be those here, `end`, a shell command that ends the machine,
`grace_s`, and `held`. Prints the pid of what it left running. Running it again changes nothing.

What it leaves is a supervisor, which outlives the agent: whatever the agent ends of, the machine
is ended, after `grace_s` in which the controller may read the last logs and do it itself.

Where a node is a job of a queue (`held`), what a remote command leaves running is ended or lost to
the queue. There the first process of the job waits at a pipe, `hold`, in the node's folder, and
becomes the supervisor (`--held`); see burst.provision.slurm.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from burst.agent.node import ABANDONED
from burst.errors import SetupError
from burst.processes import alive, start_time

END_AGAIN_S = 30.0
HOLDER_S = 60.0  # how long a job's first process may take until it waits


def main() -> int:
    """Start the supervisor, unless it runs; or be the one of a job."""
    held = sys.argv[1:] == ["--held"]
    given: dict[str, Any] = json.loads(sys.stdin.readline() if held else sys.stdin.read())
    scratch = Path(given["env"]["BURST_NODE_DIR"])
    if held:
        _become_supervisor(given, scratch)
    wrong = skew(given["versions"])
    if wrong:
        sys.stderr.write(f"this node has other versions than the controller: {wrong}\n")
        return 9
    scratch.mkdir(parents=True, exist_ok=True)
    mark = scratch / "supervisor.json"
    if not _runs(mark):
        pid = _hand_over(given, scratch) if given["held"] else _detach(given, scratch)
        mark.write_text(json.dumps({"pid": pid, "start_time": start_time(pid)}))
    sys.stdout.write(mark.read_text() + "\n")
    return 0


def skew(versions: Mapping[str, str]) -> str:
    """Say which versions differ from those wanted; "" if none does."""
    there = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in versions.keys() - {"python"}:
        try:
            there[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            there[name] = "none"
    wrong = [f"{n} {there[n]} for {v}" for n, v in sorted(versions.items()) if there[n] != v]
    return ", ".join(wrong)


def _runs(mark: Path) -> bool:
    try:
        known = json.loads(mark.read_text())
    except FileNotFoundError:
        return False
    return alive(known["pid"], known["start_time"])


def _detach(given: Mapping[str, Any], scratch: Path) -> int:
    """Fork a supervisor that no terminal and no ssh session ends; return its pid."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        _become_supervisor(given, scratch)
    return pid


def _hand_over(given: Mapping[str, Any], scratch: Path) -> int:
    """Make the first process of the node's job the supervisor; return its pid."""
    end_s = time.monotonic() + HOLDER_S
    while not (scratch / "holder").exists():
        if time.monotonic() > end_s:
            raise SetupError(f"no job of this node holds {scratch}")
        time.sleep(0.1)  # noqa: TID251 - it has just been started
    path = f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
    command = shlex.join(["env", path, sys.executable, "-m", "burst.agent.boot", "--held"])
    pid = int((scratch / "holder").read_text())
    with os.fdopen(os.open(scratch / "hold", os.O_WRONLY), "w", encoding="utf-8") as pipe:
        pipe.write(f"{command}\n{json.dumps(given)}\n")
    return pid


def _become_supervisor(given: Mapping[str, Any], scratch: Path) -> NoReturn:
    """Supervise with the output in the agent's log; whatever happens, this process ends then."""
    out = os.open(scratch / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        supervise(given)
    finally:
        os._exit(1)


def supervise(given: Mapping[str, Any]) -> None:
    """Run the agent, then end the machine; return only if that is not wanted."""
    env = {**os.environ, **given["env"], "BURST_PYTHON": sys.executable}
    argv = [sys.executable, "-m", "burst.agent", *given["arguments"]]
    agent = subprocess.Popen(argv, env=env, start_new_session=True)
    if given["held"]:
        _pass_on_signals(agent)
    code = agent.wait()
    if code != ABANDONED:
        time.sleep(given["grace_s"])  # noqa: TID251 - the controller's chance
    while given["end"]:
        subprocess.run(["sh", "-c", given["end"]], env=env, check=False)
        time.sleep(END_AGAIN_S)  # noqa: TID251 - as a rule nobody wakes from this


def _pass_on_signals(agent: subprocess.Popen[bytes]) -> None:
    """Hand a job's signals to its agent: SIGUSR1, that there is a notice; SIGTERM, the end."""

    def end(number: int, frame: object) -> None:
        del number, frame
        agent.terminate()
        if agent.poll() is not None:
            os._exit(0)  # nothing is left to supervise, and the queue ends the job

    signal.signal(signal.SIGUSR1, lambda *_: agent.send_signal(signal.SIGUSR1))
    signal.signal(signal.SIGTERM, end)


if __name__ == "__main__":
    sys.exit(main())
