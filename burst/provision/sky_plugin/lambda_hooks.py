"""The places at which SkyPilot 0.14.1's own Lambda Cloud is changed; each can be called again.

One is SkyPilot's own for this (`register_provisioner`); the others are changed from outside, so
each has a test that says which of them an upgrade breaks:
tests/integration/lambda_cloud/test_lambda_hooks.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from burst.clock import SystemClock
from burst.errors import BurstError, TransientError
from burst.provision.lambda_cloud.api import connect

KEYLESS_VAR = "SKYPILOT_BURST_KEYLESS"  # a client's SKYPILOT_ variables go with its requests


def provisioner() -> None:
    """Have machines made, waited for and ended by our functions: SkyPilot's wait for ever."""
    from sky import provision

    from burst.provision.sky_plugin import lambda_provision

    if provision.get_registered_provisioner("lambda_cloud") is None:  # `lambda` would be ignored
        provision.register_provisioner("lambda_cloud", lambda_provision)


def client() -> None:
    """Have SkyPilot's own client (SSH keys, its check of rights) ask by our API.

    So its calls keep the pace of all others, end after a while, and go where ours go.
    """
    from sky.provision.lambda_cloud import lambda_utils

    lambda_utils._try_request_with_backoff = _request


def keys() -> None:
    """Keep the account's key here when burst asks: no node needs it, and it opens everything."""
    from sky import clouds

    theirs = clouds.Lambda.get_credential_file_mounts
    if getattr(theirs, "knows_burst", False):
        return
    os.environ.pop(KEYLESS_VAR, None)  # of whoever started this server

    def key_files(self: clouds.Lambda) -> dict[str, str]:
        return {} if os.environ.get(KEYLESS_VAR) else theirs(self)

    key_files.knows_burst = True  # type: ignore[attr-defined]  # the mark that is looked for above
    clouds.Lambda.get_credential_file_mounts = key_files  # type: ignore[method-assign]


HOOKS: tuple[Callable[[], None], ...] = (provisioner, client, keys)


class _Answer:
    """As much of an HTTP answer as SkyPilot's client looks at."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def json(self) -> dict[str, Any]:
        return {"data": self._data}


def _request(method: str, url: str, headers: dict[str, str], data: str | None = None) -> _Answer:
    """See lambda_utils._try_request_with_backoff."""
    import requests
    from sky.provision.lambda_cloud import lambda_utils

    del headers  # the key is the same
    path = url.removeprefix(lambda_utils.API_ENDPOINT)
    body = None if data is None else json.loads(data)
    try:
        api = connect(os.environ, SystemClock())
        return _Answer(api.request(method.upper(), path, body, again=method == "get"))
    except TransientError as error:
        raise requests.exceptions.ConnectionError(error.message) from error
    except BurstError as error:
        raise lambda_utils.LambdaCloudError(error.message) from error
