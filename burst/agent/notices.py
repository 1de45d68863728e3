"""What a machine's cloud, queue or kubelet tells it of its end.

A notice is a gift: nothing here may end the agent, and whatever is not a notice in every detail
is none. EC2 ("Spot Instance interruption notices", Amazon EC2 User Guide): about two minutes, on
the best effort; ask every five seconds, with a token (IMDSv2); 404 as long as there is none. ECS
("Query the interruption events of spot instances", Alibaba Cloud ECS): five minutes, the same way
under other names, and the time alone for an answer. Slurm: a job's end time is its start and its
time limit, and when it is preempted, the end of the partition's GraceTime (slurm.conf(5)); SIGUSR1
says that one of them is near, see sbatch's --signal. In a pod of Kubernetes the kubelet runs a
command before it ends the pod; burst's writes the time into a file (burst.provision.k8s.pod).
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
from pathlib import Path
from typing import Any, ClassVar, Protocol

from burst.records import POD_NOTICE

log = logging.getLogger(__name__)

ANSWER_S = 2.0
TOKEN_S = 21_600
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy


class Source(Protocol):
    """Where notices come from."""

    look_s: float  # how often to ask

    def __call__(self) -> datetime | None:
        """Return when the machine ends, if that is known. OSError, ValueError: no answer."""
        ...


@dataclass(slots=True)
class Metadata:
    """A metadata service that wants a token, and says 404 as long as there is no notice."""

    base: str
    wish: ClassVar[str]  # the header in which a token's lifetime is asked for
    said: ClassVar[str]  # and the one that carries it
    path: ClassVar[str]
    _token: str = ""
    look_s: float = 5.0

    def __call__(self) -> datetime | None:
        """Return when the machine ends, if that is known. OSError, ValueError: no answer."""
        if not self._token:
            self._token = _ask("PUT", f"{self.base}/latest/api/token", {self.wish: str(TOKEN_S)})
        try:
            text = _ask("GET", f"{self.base}{self.path}", {self.said: self._token})
        except urllib.error.HTTPError as error:
            if error.code in {401, 403}:  # Unauthorized, Forbidden: the token is old
                self._token = ""
            if error.code == 404:  # noqa: PLR2004 - Not Found: all is well
                return None
            raise
        return self.time(text)

    def time(self, text: str) -> datetime:
        """Read a notice; ValueError if it is none."""
        raise NotImplementedError


class Ec2(Metadata):
    """The notices of EC2's spot machines."""

    wish = "X-aws-ec2-metadata-token-ttl-seconds"
    said = "X-aws-ec2-metadata-token"
    path = "/latest/meta-data/spot/instance-action"

    def time(self, text: str) -> datetime:
        """Return the time in `{"action": "terminate", "time": "2026-01-05T18:02:00Z"}`."""
        told = json.loads(text)
        if not isinstance(told, dict) or not isinstance(told.get("time"), str):
            raise ValueError(f"not a notice: {told}")  # noqa: TRY004 - of the service's answer
        return _aware(told["time"])


class Ecs(Metadata):
    """The notices of Alibaba Cloud's spot machines."""

    wish = "X-aliyun-ecs-metadata-token-ttl-seconds"
    said = "X-aliyun-ecs-metadata-token"
    path = "/latest/meta-data/instance/spot/termination-time"

    def time(self, text: str) -> datetime:
        """Return the time in `2026-01-05T18:02:00Z`, which is all of the answer."""
        return _aware(text.strip())


@dataclass(slots=True)
class Pod:
    """The notices of pods, in a file that is not there as long as all is well."""

    path: str
    look_s: float = 1.0  # a look at a file costs nothing

    def __call__(self) -> datetime | None:
        """Return when the pod ends, if that is known. OSError, ValueError: no answer."""
        try:
            text = Path(self.path).read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        return datetime.fromtimestamp(int(text), UTC)


def _ask(method: str, url: str, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=dict(headers))  # noqa: S310
    with _OPENER.open(request, timeout=ANSWER_S) as answer:
        text: str = answer.read().decode()
    return text


def _aware(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"a time without its zone: {text}")
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


def _service(kind: type[Metadata], variable: str, usual: str) -> Maker:
    return lambda env: kind(env.get(variable, usual).rstrip("/"))


def _of_job(env: Mapping[str, str]) -> Source | None:
    job = env.get("SLURM_JOB_ID")
    return Slurm(job, _end_of) if job else None


Maker = Callable[[Mapping[str, str]], Source | None]  # of what is in the environment
SOURCES: Mapping[str, Maker] = {
    "aws": _service(Ec2, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254"),
    "alibaba": _service(Ecs, "BURST_ALIBABA_METADATA", "http://100.100.100.200"),
    "slurm": _of_job,
    "k8s": lambda env: Pod(env.get("BURST_POD_NOTICE", POD_NOTICE)),
}


def source(cloud: str, env: Mapping[str, str]) -> Source | None:
    """Return how the notices of a cloud's machines are asked for; None where there are none."""
    return SOURCES[cloud](env) if cloud in SOURCES else None


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
