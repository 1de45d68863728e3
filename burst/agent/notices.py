"""What a machine's cloud tells it of its end, by the metadata service on the machine.

A notice is a gift: nothing here may end the agent, and whatever is not a notice in every detail
is none. EC2 ("Spot Instance interruption notices", Amazon EC2 User Guide): about two minutes, on
the best effort; ask every five seconds, with a token (IMDSv2); 404 as long as there is none.
"""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

log = logging.getLogger(__name__)

LOOK_S = 5.0
ANSWER_S = 2.0
TOKEN_S = 21_600
EC2 = "http://169.254.169.254"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy


@dataclass(slots=True)
class Ec2:
    """The notices of EC2's spot machines."""

    base: str = EC2
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


def source(cloud: str, env: Mapping[str, str]) -> Callable[[], datetime | None] | None:
    """Return how the notices of a cloud's machines are asked for; None where there are none."""
    if cloud == "aws":
        return Ec2(env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", EC2).rstrip("/"))
    return None


@dataclass(slots=True)
class Notices:
    """Asks in a thread of its own, as a metadata service may hang; `newest` returns at once."""

    ask: Callable[[], datetime | None]
    name: str
    look_s: float = LOOK_S
    _found: dict[str, Any] | None = None
    _silent: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._watch, name="notices", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def newest(self) -> dict[str, Any] | None:
        """Return the notice as an agent's status holds it: `left_s` at the time it came."""
        return self._found

    def _watch(self) -> None:
        while self._found is None:
            self.look()
            if self._stop.wait(self.look_s):
                return

    def look(self) -> None:
        """Ask once."""
        try:
            ends = self.ask()
        except (OSError, ValueError) as error:  # no answer is no notice
            if not self._silent:
                log.warning("no word from %s's metadata service: %s", self.name, error)
            self._silent = True
            return
        self._silent = False
        if ends is not None:
            left_s = max((ends - datetime.now(UTC)).total_seconds(), 0.0)
            log.info("notice: %s ends this machine in %.0f s", self.name, left_s)
            self._found = {"left_s": left_s, "source": self.name}
