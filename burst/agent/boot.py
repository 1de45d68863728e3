"""`python -m burst.agent.boot`: start a rented node's agent, and end the machine after it.

Reads one JSON object from its input, so that secrets are in no command line: `arguments` of the
agent, `env`, `versions` that must be those here, `end`, a shell command that ends the machine,
and `grace_s`. Prints the pid of what it left running. Running it again changes nothing.

What it leaves is a supervisor, which outlives the agent: whatever the agent ends of, the machine
is ended, after `grace_s` in which the controller may read the last logs and do it itself.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burst.agent.node import ABANDONED
from burst.processes import alive, start_time

END_AGAIN_S = 30.0


def main() -> int:
    """Start the supervisor, unless it runs."""
    given: dict[str, Any] = json.load(sys.stdin)
    wrong = skew(given["versions"])
    if wrong:
        sys.stderr.write(f"this node has other versions than the controller: {wrong}\n")
        return 9
    scratch = Path(given["env"]["BURST_NODE_DIR"])
    scratch.mkdir(parents=True, exist_ok=True)
    mark = scratch / "supervisor.json"
    if not _runs(mark):
        pid = _detach(given, scratch)
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
    if pid:
        return pid
    os.setsid()
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
    code = subprocess.run(argv, env=env, check=False, start_new_session=True).returncode
    if code != ABANDONED:
        time.sleep(given["grace_s"])  # noqa: TID251 - the controller's chance
    while given["end"]:
        subprocess.run(["sh", "-c", given["end"]], env=env, check=False)
        time.sleep(END_AGAIN_S)  # noqa: TID251 - as a rule nobody wakes from this


if __name__ == "__main__":
    sys.exit(main())
