"""Lambda Cloud's API (OpenAPI 1.10.0): machine types, machines, launch, terminate.

Every call keeps the pace that Lambda asks for, has a limit in time, and is made again when that
is safe. Lambda has no idempotency token, so a launch whose answer was lost is not made again
here: `LostAnswerError` says so, and burst.provision.lambda_cloud.cluster looks what it did.
"""

from __future__ import annotations

import http.client
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from email.message import Message
from pathlib import Path
from typing import Any, Literal, cast, get_args

from burst.errors import BurstError, SetupError, TransientError
from burst.ports import Clock
from burst.provision.lambda_cloud.pace import Pace

log = logging.getLogger(__name__)

URL = "https://cloud.lambda.ai/api/v1"
KEYS = "~/.lambda_cloud/lambda_keys"  # where SkyPilot reads it too
SILENT_S = 30.0  # for so long a call may bring nothing
TRIES = 5  # of a call that may be made again
PAUSE_S = 2.0  # before the second try; doubled before each further one
TOO_MANY = 429
TOO_MANY_S = 10.0  # how long to hold when Lambda does not say
SERVER_FAULT = 500
SINCE_TAG = "burst-since"  # Lambda does not say from when on a machine is there
SINCE = "%Y%m%dT%H%M%SZ"
GONE = "object-does-not-exist"

State = Literal["booting", "active", "unhealthy", "terminated", "terminating", "preempted"]


class LambdaError(BurstError):
    """Lambda refused. `code` is its own, `global/invalid-api-key`, or one of ours, `burst/...`."""

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.status = status


class LostAnswerError(TransientError):
    """A call went out and no answer came back: it may or may not have been carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine. `ip` is "" until it is known, `since` None if burst did not launch it."""

    instance_id: str
    name: str
    state: State
    region: str
    machine_type: str
    ip: str = ""
    private_ip: str = ""
    since: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def costs(self) -> bool:
        """Whether it is there, and so is paid for."""
        return self.state in {"booting", "active", "unhealthy"}

    @property
    def works(self) -> bool:
        """Whether it is of use, now or once it has booted."""
        return self.state in {"booting", "active"}

    def __str__(self) -> str:
        what = f"{self.instance_id} ({self.machine_type}, {self.state})"
        return f"{what} {self.name} in lambda/{self.region}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A machine that is wanted."""

    name: str  # at most 64 characters
    region: str
    machine_type: str
    ssh_key: str  # by its name at Lambda
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """What Lambda rents, for how much, and where it has some now."""

    name: str
    usd_per_hour: Decimal
    regions: tuple[str, ...]


class LambdaApi:
    """The API, by one account's key."""

    def __init__(self, key: str, pace: Pace, clock: Clock, url: str = URL) -> None:
        self._key = key
        self._pace = pace
        self._clock = clock
        self._url = url.rstrip("/")
        self._opener = urllib.request.build_opener(_NoRedirects)

    def machine_types(self) -> Mapping[str, MachineType]:
        """Return what there is by name; LambdaError or TransientError if Lambda does not say."""
        found: Mapping[str, Any] = self.request("GET", "/instance-types")
        with _understood():
            return {name: _machine_type(name, raw) for name, raw in found.items()}

    def instances(self) -> tuple[Instance, ...]:
        """Return the account's machines, those ended lately perhaps too. Errors as above."""
        found = self.request("GET", "/instances")
        with _understood():
            return tuple(_instance(raw) for raw in found)

    def launch(self, wanted: Launch) -> str:
        """Launch a machine, once, and return its id.

        LambdaError when Lambda refuses; LostAnswerError when the machine may be there.
        """
        with self._pace.launching():
            tags = {**wanted.tags, SINCE_TAG: f"{self._clock.now():{SINCE}}"}
            body = {
                "region_name": wanted.region,
                "instance_type_name": wanted.machine_type,
                "ssh_key_names": [wanted.ssh_key],
                "name": wanted.name,
                "tags": [{"key": key, "value": value} for key, value in tags.items()],
            }
            answer = self.request("POST", "/instance-operations/launch", body, again=False)
        with _understood():
            (made,) = answer["instance_ids"]
            return str(made)

    def terminate(self, instance_ids: Collection[str]) -> None:
        """End machines; nothing happens for none. LambdaError (`GONE`) if one is unknown."""
        if instance_ids:
            body = {"instance_ids": sorted(instance_ids)}
            self.request("POST", "/instance-operations/terminate", body)

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, again: bool = True
    ) -> Any:  # noqa: ANN401 - whatever `data` is
        """Return the `data` of Lambda's answer. `again`: doing it twice is as good as once.

        LambdaError when Lambda refuses, TransientError when it does not answer.
        """
        pause_s, left = PAUSE_S, TRIES
        while True:
            left -= 1
            try:
                return self._once(method, path, body)
            except _TooManyError as error:  # nothing was done
                log.warning("%s %s: %s, %s tries left", method, path, error, left)
                self._pace.hold(error.wait_s)
                if not left:
                    raise
            except LostAnswerError as error:
                if not (left and again):
                    raise
                log.warning("%s %s: %s, %s tries left", method, path, error, left)
                self._clock.sleep(pause_s)
                pause_s *= 2

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:  # noqa: ANN401
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        asked = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310 - the person's own URL
        self._pace.call()
        try:
            with self._opener.open(asked, timeout=SILENT_S) as answer, _understood():
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.headers, error.read()) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise LostAnswerError(f"Lambda Cloud does not answer: {reason}") from error


class _TooManyError(TransientError):
    """Lambda carries nothing out for `wait_s`."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"Lambda Cloud says that it is asked too often; again in {wait_s:.0f} s")
        self.wait_s = wait_s


@contextmanager
def _understood() -> Iterator[None]:
    """Take an answer of another shape than Lambda documents for one that was lost."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LostAnswerError(f"Lambda Cloud's answer makes no sense: {error!r}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The key goes to nobody else."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _refusal(status: int, headers: Message, body: bytes) -> BurstError:
    if status == TOO_MANY:
        return _TooManyError(_seconds(headers.get("Retry-After")))
    try:
        said = json.loads(body)["error"]
        code, message = str(said["code"]), str(said["message"])
        hint = said.get("suggestion")
    except (ValueError, KeyError, TypeError, AttributeError):
        code, message, hint = f"http-{status}", body[:200].decode(errors="replace"), None
    if status >= SERVER_FAULT:
        return LostAnswerError(f"Lambda Cloud fails: {code}: {message}")
    return LambdaError(code, f"{message} {hint}" if hint else message, status)


def _seconds(text: str | None) -> float:
    try:
        return max(1.0, float(text or ""))
    except ValueError:
        return TOO_MANY_S


def _machine_type(name: str, raw: Mapping[str, Any]) -> MachineType:
    return MachineType(
        name=name,
        usd_per_hour=Decimal(int(raw["instance_type"]["price_cents_per_hour"])) / 100,
        regions=tuple(str(r["name"]) for r in raw["regions_with_capacity_available"]),
    )


def _instance(raw: Mapping[str, Any]) -> Instance:
    """Read one; a state that Lambda invents later counts as unhealthy: there, and of no use."""
    state = raw["status"] if raw["status"] in get_args(State) else "unhealthy"
    tags = {str(tag["key"]): str(tag["value"]) for tag in raw.get("tags") or ()}
    return Instance(
        instance_id=str(raw["id"]),
        name=str(raw.get("name") or ""),
        state=cast("State", state),
        region=str(raw["region"]["name"]),
        machine_type=str(raw["instance_type"]["name"]),
        ip=str(raw.get("ip") or ""),
        private_ip=str(raw.get("private_ip") or ""),
        since=_since(tags.get(SINCE_TAG, "")),
        tags=tags,
    )


def _since(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, SINCE).replace(tzinfo=UTC)
    except ValueError:
        return None


def read_key(env: Mapping[str, str]) -> str:
    """Return the account's key: of SkyPilot's file, else of LAMBDA_API_KEY; SetupError if none.

    The file comes first, because SkyPilot rents by it.
    """
    path = Path(KEYS).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"{KEYS} cannot be read: {error}", hint="write it anew") from None
    for line in lines:
        name, equals, value = (part.strip() for part in line.partition("="))
        if name == "api_key" and equals and value:
            return value
    if env.get("LAMBDA_API_KEY"):
        return env["LAMBDA_API_KEY"]
    raise SetupError(
        f"no key of Lambda Cloud: neither {KEYS} nor LAMBDA_API_KEY has one",
        hint=f"make a key in Lambda's console and write `api_key = KEY` to {KEYS}",
    )


def connect(env: Mapping[str, str], clock: Clock) -> LambdaApi:
    """Return the API for the person's account, as files and environment say.

    BURST_LAMBDA_URL takes the place of Lambda's own address.
    """
    pace = Pace(Path(KEYS).expanduser().parent / "burst-pace", clock)
    return LambdaApi(read_key(env), pace, clock, env.get("BURST_LAMBDA_URL") or URL)
