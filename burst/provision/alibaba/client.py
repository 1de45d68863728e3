"""Calls to ECS and VPC, through Alibaba Cloud's own SDK; the only place that imports it.

A call is the name of an action and its parameters as the API Reference writes them; so is the
answer. The SDK makes a second to load, and loads when the first call is made. It tries nothing
again by itself; here a call is, when the answer says that it may work in a moment and when doing
it twice does no harm: looking, saying how something shall be, and whatever carries a ClientToken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from burst.errors import SetupError, installing
from burst.ports import Clock
from burst.provision.alibaba.credentials import HINT, Credentials, find
from burst.provision.alibaba.errors import EcsBusyError, EcsSilentError, refusal

ENDPOINT = "BURST_ALIBABA_ENDPOINT"  # http://host:port, for tests
CONNECT_MS, READ_MS = 10_000, 30_000
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
LONGEST_PAUSE_S = 60.0
OF_VPC = frozenset(
    {"CreateVpc", "DescribeVpcs", "DeleteVpc",
     "CreateVSwitch", "DescribeVSwitches", "DeleteVSwitch"}
)  # fmt: skip
REPEATABLE = re.compile(r"Describe|Delete|TagResources$|ModifyInstanceAutoReleaseTime$")
PAGE = 100

Answer = Mapping[str, Any]


class Api(Protocol):
    """Calls to one region.

    EcsError: no. EcsBusyError, EcsSilentError (TransientErrors): not now, after having tried.
    """

    region: str
    clock: Clock

    def call(self, action: str, **parameters: Any) -> Answer:  # noqa: ANN401 - JSON
        """Make one call; its region is added where it has one, and None is left out."""
        ...


class Client:
    """See Api."""

    def __init__(self, region: str, credentials: Credentials, clock: Clock) -> None:
        self.region = region
        self.clock = clock
        self._credentials = credentials
        self._sdks: dict[str, tuple[Any, Any]] = {}

    def call(self, action: str, **parameters: Any) -> Answer:  # noqa: ANN401 - JSON
        """See Api."""
        again = "ClientToken" in parameters or REPEATABLE.match(action) is not None
        pauses = iter(PAUSES_S if again else ())
        while True:
            try:
                return self._once(action, parameters)
            except (EcsBusyError, EcsSilentError) as error:
                pause_s = next(pauses, None)
                if pause_s is None:
                    raise
                asked_s = getattr(error.__cause__, "retry_after", None) or 0  # in ms
                self.clock.sleep(min(max(pause_s, asked_s / 1000), LONGEST_PAUSE_S))

    def _once(self, action: str, parameters: Mapping[str, Any]) -> Answer:
        client, models = self._sdk("vpc" if action in OF_VPC else "ecs")
        from alibabacloud_tea_openapi.exceptions import AlibabaCloudException
        from darabonba.exceptions import UnretryableException
        from darabonba.runtime import RuntimeOptions

        given = {name: value for name, value in parameters.items() if value is not None}
        whole = {"RegionId": self.region, **given}
        request = getattr(models, f"{action}Request")().from_map(whole)
        dropped = given.keys() - request.to_map().keys()
        assert not dropped, f"{action} has no parameter {dropped}"
        call = getattr(client, f"{_snake(action)}_with_options")
        limits = RuntimeOptions(connect_timeout=CONNECT_MS, read_timeout=READ_MS)
        try:
            answer: Answer = call(request, limits).body.to_map()
        except AlibabaCloudException as error:
            said = re.sub(r"^code: \d+, | request id: \S+$", "", str(error.message))
            raise refusal(
                action, int(error.status_code or 0), str(error.code), said, str(error.request_id)
            ) from error
        except UnretryableException as error:
            raise EcsSilentError(f"no answer from Alibaba Cloud to {action}: {error}") from error
        return answer

    def _sdk(self, product: str) -> tuple[Any, Any]:
        """Return a product's client and its models."""
        if product not in self._sdks:
            try:
                self._sdks[product] = self._load(product)
            except ImportError as error:
                raise SetupError(
                    f"Alibaba Cloud needs its SDK, which is not installed ({error.name})",
                    hint=installing("alibaba"),
                ) from error
        return self._sdks[product]

    def _load(self, product: str) -> tuple[Any, Any]:
        from alibabacloud_tea_openapi.utils_models import Config

        if product == "vpc":
            from alibabacloud_vpc20160428 import models
            from alibabacloud_vpc20160428.client import Client as Sdk
        else:
            from alibabacloud_ecs20140526 import models
            from alibabacloud_ecs20140526.client import Client as Sdk
        protocol, _, host = os.environ.get(ENDPOINT, "").rpartition("://")
        config = Config(
            access_key_id=self._credentials.key_id,
            access_key_secret=self._credentials.secret,
            security_token=self._credentials.token or None,
            region_id=self.region,
            endpoint=host or None,
            protocol=protocol or "https",
        )
        return Sdk(config), models


def connect(region: str, clock: Clock) -> Client:
    """Return a region's client with this person's credentials; SetupError if there are none."""
    found = find(os.environ, Path.home())
    if found is None:
        raise SetupError("no credentials for Alibaba Cloud", hint=HINT)
    return Client(region, found, clock)


def address(region: str) -> str:
    """Return the web address of a region's ECS."""
    return os.environ.get(ENDPOINT) or f"https://ecs.{region}.aliyuncs.com"


def pages(api: Api, action: str, **parameters: Any) -> Iterator[Answer]:  # noqa: ANN401 - JSON
    """Make a call for each page of what it tells, where pages are linked by NextToken."""
    token: Mapping[str, str] = {}
    while True:
        answer = api.call(action, MaxResults=PAGE, **token, **parameters)
        yield answer
        if not answer.get("NextToken"):
            return
        token = {"NextToken": answer["NextToken"]}


def numbered(api: Api, action: str, **parameters: Any) -> Iterator[Answer]:  # noqa: ANN401 - JSON
    """Make a call for each page of what it tells, where pages have numbers."""
    size = 50  # the most that DescribeVpcs and its like take
    number = 1
    while True:
        answer = api.call(action, PageSize=size, PageNumber=number, **parameters)
        yield answer
        if number * size >= int(answer.get("TotalCount") or 0):
            return
        number += 1


def tags(wanted: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as requests carry them."""
    return [{"Key": key, "Value": value} for key, value in sorted(wanted.items())]


def _snake(action: str) -> str:
    """Return the SDK's name for an action: DescribeVSwitches is describe_vswitches."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", action).lower()
