"""What a machine's cloud, or queue, tells it of its end.

A notice is a gift: nothing here may end the agent, and whatever is not a notice in every detail
is none. EC2 ("Spot Instance interruption notices", Amazon EC2 User Guide): about two minutes, on
the best effort; ask every five seconds, with a token (IMDSv2); 404 as long as there is none.
Slurm: a job's end time is its start and its time limit, and when it is preempted, the end of the
partition's GraceTime (slurm.conf(5)); SIGUSR1 says that one of them is near, see sbatch's --signal.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

log = logging.getLogger(__name__)

ANSWER_S = 2.0
TOKEN_S = 21_600
EC2 = "http://169.254.169.254"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy


class Source(Protocol):
    """Where notices come from."""

    look_s: float  # how often to ask

    def __call__(self) -> datetime | None:
        """Return when the machine ends, if that is known. OSError, ValueError: no answer."""
        ...


@dataclass(slots=True)
class Ec2:
    """The notices of EC2's spot machines."""

    base: str = EC2
    look_s: float = 5.0
    _token: str = ""

    def __call__(self) -> datetime | None:
        """Return when the machine ends, if that is known. OSError, ValueError: no answer."""
        if not self._token:
            wanted = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
            self._token = _ask("PUT", f"{self.base}/latest/api/token", wanted)
        said = {"X-aws-ec2-metadata-token": self._token}
        try:
            text = _ask("GET", f"{self.base}/latest/meta-data/spot/instance-action", said)
        except urllib.error.HTTPError as error:
            if error.code == 401:  # noqa: PLR2004 - Unauthorized: the token is old
                self._token = ""
            if error.code == 404:  # noqa: PLR2004 - Not Found: all is well
                return None
            raise
        return _time(json.loads(text))


def _ask(method: str, url: str, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=dict(headers))  # noqa: S310
    with _OPENER.open(request, timeout=ANSWER_S) as answer:
        text: str = answer.read().decode()
    return text


def _time(said: Any) -> datetime:  # noqa: ANN401 - whatever came
    """Return the time in EC2's `{"action": "terminate", "time": "2026-01-05T18:02:00Z"}`."""
    if not isinstance(said, dict) or not isinstance(said.get("time"), str):
        raise ValueError(f"not a notice: {said}")  # noqa: TRY004 - of the service's answer
    at = datetime.fromisoformat(said["time"])
    if at.tzinfo is None:
        raise ValueError(f"a time without its zone: {said}")
    return at


@dataclass(slots=True)
class Slurm:
    """The end of a Slurm job, when it is near."""

    job: str
    ask: Callable[[str], str]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    look_s: float = 30.0  # each look is a question to Slurm's one controller
    near: timedelta = timedelta(seconds=180)

    def __call__(self) -> datetime | None:
        """See Source."""
        said = self.ask(self.job).strip()
        if not said.isdecimal():  # NONE, N/A: it has no limit
            return None
        ends = datetime.fromtimestamp(int(said), UTC)
        return ends if ends - self.now() <= self.near else None


def _end_of(job: str) -> str:
    """Return when a job ends, in seconds since 1970, or a word; OSError if nobody says."""
    env = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    argv = ["squeue", "-h", "-j", job, "-o", "%e"]
    try:
        done = subprocess.run(argv, env=env, capture_output=True, timeout=30, check=True, text=True)
    except subprocess.SubprocessError as error:
        raise OSError(f"squeue: {error}") from error
    return done.stdout


def source(cloud: str, env: Mapping[str, str]) -> Source | None:
    """Return how the notices of a cloud's machines are asked for; None where there are none."""
    if cloud == "aws":
        return Ec2(env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", EC2).rstrip("/"))
    if cloud == "slurm" and env.get("SLURM_JOB_ID"):
        return Slurm(env["SLURM_JOB_ID"], _end_of)
    return None


@dataclass(slots=True)
class Notices:
    """Asks in a thread of its own, as a metadata service may hang; `newest` returns at once."""

    ask: Source
    name: str
    _found: dict[str, Any] | None = None
    _silent: bool = False
    _stopped: bool = False
    _wake: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._watch, name="notices", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        self._wake.set()

    def hurry(self) -> None:
        """Ask at once."""
        self._wake.set()

    def newest(self) -> dict[str, Any] | None:
        """Return the notice as an agent's status holds it: `left_s` at the time it came."""
        return self._found

    def _watch(self) -> None:
        while self._found is None and not self._stopped:
            self._wake.clear()
            self.look()
            self._wake.wait(self.ask.look_s)

    def look(self) -> None:
        """Ask once."""
        try:
            ends = self.ask()
        except (OSError, ValueError) as error:  # no answer is no notice
            if not self._silent:
                log.warning("no word from %s of this machine's end: %s", self.name, error)
            self._silent = True
            return
        self._silent = False
        if ends is not None:
            left_s = max((ends - datetime.now(UTC)).total_seconds(), 0.0)
            log.info("notice: %s ends this machine in %.0f s", self.name, left_s)
            self._found = {"left_s": left_s, "source": self.name}
