"""Where the keys of OSS come from, in the order of Alibaba's own tools, and how they are renewed.

Variables, then the profile of the `aliyun` command line, then the role of the machine, whose keys
live for hours: botocore asks for the next ones before these expire.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from botocore.credentials import CredentialProvider, Credentials, RefreshableCredentials
from botocore.exceptions import MetadataRetrievalError

from burst.errors import CredentialsError
from burst.storage.oss import read_profile

_Keys: TypeAlias = Any  # botocore has no types

METADATA = "http://100.100.100.200"
ANSWER_S = 2.0
TOKEN_S = 300
_ENDPOINT = "BURST_ALIBABA_METADATA"  # ours, as for the notices
_ROLE = "ALIBABA_CLOUD_ECS_METADATA"  # of Alibaba's SDKs: the role's name
_OFF = "ALIBABA_CLOUD_ECS_METADATA_DISABLED"
_PRODUCT = Path("/sys/class/dmi/id/product_name")
_VARIABLES = (
    ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"),
    (
        "ALIBABA_CLOUD_ACCESS_KEY_ID",
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
        "ALIBABA_CLOUD_SECURITY_TOKEN",
    ),
)
_ROLES = "/latest/meta-data/ram/security-credentials/"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
_HINT = (
    "set ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET, run `aliyun configure`, "
    "or give the machine a RAM role"
)


class OssKeys(CredentialProvider):  # type: ignore[misc, no-any-unimported]  # it has no types
    """Gives botocore the keys; CredentialsError if there are none."""

    METHOD = "burst-oss"

    def load(self) -> _Keys:
        return find_keys(os.environ)


def find_keys(environ: Mapping[str, str]) -> _Keys:
    """Return botocore's credentials; CredentialsError says where they were looked for."""
    for identity, secret, token in _VARIABLES:
        if environ.get(identity) and environ.get(secret):
            return Credentials(environ[identity], environ[secret], environ.get(token) or None)
    profile = read_profile(environ)
    match profile.get("mode"):
        case "AK":
            return Credentials(profile.get("access_key_id"), profile.get("access_key_secret"))
        case "StsToken":
            fields = ("access_key_id", "access_key_secret", "sts_token")
            return Credentials(*(profile.get(name) for name in fields))
        case "EcsRamRole":
            metadata = Metadata(environ.get(_ENDPOINT) or METADATA)
            return role_keys(metadata, str(profile.get("ram_role_name") or ""))
        case None:
            here = metadata_of(environ)
            if here is None:
                raise CredentialsError("there are no keys for OSS", hint=_HINT)
            return role_keys(here, environ.get(_ROLE, ""))
        case mode:
            raise CredentialsError(
                f"burst cannot use a profile of the aliyun command line with the mode {mode}",
                hint=_HINT,
            )


@dataclass(frozen=True, slots=True)
class Metadata:
    """The service that tells a machine of Alibaba Cloud about itself, always with a token.

    Source: Alibaba's "Access instance metadata", in security hardening mode.
    """

    base: str

    def region(self) -> str:
        """Return the machine's region. OSError: no answer."""
        return self._get("/latest/meta-data/region-id").strip()

    def role(self) -> str:
        """Return the name of the machine's role. OSError: no answer, or no role."""
        return self._get(_ROLES).strip()

    def keys_of(self, role: str) -> Mapping[str, Any]:
        """Return a role's keys as the service tells them. OSError, ValueError: it does not."""
        told: Any = json.loads(self._get(_ROLES + role))
        if not isinstance(told, dict) or told.get("Code") != "Success":
            raise ValueError(f"no keys for the role {role}")
        return told

    def _get(self, path: str) -> str:
        wanted = {"X-aliyun-ecs-metadata-token-ttl-seconds": str(TOKEN_S)}
        token = self._ask("PUT", "/latest/api/token", wanted)
        return self._ask("GET", path, {"X-aliyun-ecs-metadata-token": token})

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        url = self.base.rstrip("/") + path
        request = urllib.request.Request(url, method=method, headers=dict(headers))  # noqa: S310
        with _OPENER.open(request, timeout=ANSWER_S) as answer:
            text: str = answer.read().decode()
        return text


def metadata_of(environ: Mapping[str, str]) -> Metadata | None:
    """Return this machine's metadata service, or None where it is none of Alibaba's.

    Elsewhere nobody may answer at its address, and who asks waits.
    """
    if environ.get(_OFF, "").lower() in {"1", "true"}:
        return None
    if environ.get(_ENDPOINT):
        return Metadata(environ[_ENDPOINT])
    return Metadata(METADATA) if environ.get(_ROLE) or _is_ecs() else None


def role_keys(metadata: Metadata, role: str) -> _Keys:
    """Return the keys of the machine's role, which renew themselves."""

    def fetch() -> Mapping[str, str]:
        try:
            told = metadata.keys_of(role or metadata.role())
            return {
                "access_key": told["AccessKeyId"],
                "secret_key": told["AccessKeySecret"],
                "token": told["SecurityToken"],
                "expiry_time": told["Expiration"],
            }
        except (OSError, ValueError, KeyError) as error:
            said = f"{metadata.base} gives no keys of a RAM role: {error}"
            raise MetadataRetrievalError(error_msg=said) from error

    return RefreshableCredentials.create_from_metadata(fetch(), fetch, method="ecs-ram-role")


def _is_ecs() -> bool:
    try:
        return _PRODUCT.read_text().strip() == "Alibaba Cloud ECS"
    except OSError:
        return False
