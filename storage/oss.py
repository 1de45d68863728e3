"""Alibaba's OSS as a run URI: what the variables and files of its own tools say of it.

OSS speaks S3's language with an accent, and burst's S3 store has it too once the settings say so
(`burst.storage.backends.oss_client` holds it). Keys are read where a client is made; here is only
what is no secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from burst.errors import SetupError
from burst.storage.settings import THREADS, StoreSettings, settings_from

ENDPOINT = "OSS_ENDPOINT"  # ossutil's; a host, or a URL
REGION = "OSS_REGION"  # ossutil's
_REGIONS = (REGION, "ALIBABA_CLOUD_REGION_ID")  # the second one is of Alibaba's SDKs
_OWN = re.compile(r"(?:https?://)?(?:s3\.)?oss-([a-z0-9-]+?)(?:-internal)?\.aliyuncs\.com/?")
_GLOBAL = ("accelerate", "accelerate-overseas")  # OSS's endpoints of no region


def oss_settings_from(environ: Mapping[str, str]) -> StoreSettings:
    """Return how OSS is reached: SetupError when nothing says in which region the bucket is.

    OSS's own tools ask for the region too. Encryption is the bucket's own setting.
    """
    said = environ.get(ENDPOINT) or None
    region = oss_region(environ)
    if said is None and region is None:
        raise SetupError(
            "nothing says in which region the OSS bucket is",
            hint=f"set {REGION} to the bucket's region, as in cn-hangzhou",
        )
    return replace(
        settings_from(environ),
        scheme="oss",
        endpoint=said if said is None or "://" in said else f"https://{said}",
        region=region or "oss",  # signed with, and of no meaning to a custom endpoint
        addressing="virtual",
        kms_key=None,
    )


def oss_region(environ: Mapping[str, str]) -> str | None:
    """Return the bucket's region: said in a variable, in the endpoint, or of the profile."""
    named = next((environ[name] for name in _REGIONS if environ.get(name)), None)
    found = named or region_of(environ.get(ENDPOINT, "")) or read_profile(environ).get("region_id")
    return str(found).removeprefix("oss-") if found else None


def region_of(endpoint: str) -> str | None:
    """Return the region of an endpoint of OSS itself, None for any other.

    >>> region_of("oss-cn-hangzhou-internal.aliyuncs.com")
    'cn-hangzhou'
    """
    match = _OWN.fullmatch(endpoint)
    return match[1] if match and match[1] not in _GLOBAL else None


def endpoint_in(region: str, *, internal: bool) -> str:
    """Return OSS's endpoint for S3 clients: internal from a machine of that region, and free there.

    Source: Alibaba's "Access OSS with the AWS SDK".
    """
    return f"https://s3.oss-{region}{'-internal' if internal else ''}.aliyuncs.com"


def oss_env(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return what a run's nodes must be told of OSS, keys excepted.

    An endpoint of OSS itself says no more than its region: each node takes the one that is near.
    """
    region, endpoint = oss_region(environ), environ.get(ENDPOINT, "")
    told = {name: environ[name] for name in (THREADS,) if name in environ}
    if region:
        told[REGION] = region
    if endpoint and not region_of(endpoint):
        told[ENDPOINT] = endpoint
    return told


def read_profile(environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the profile of the `aliyun` command line that is in use, {} if there is none.

    It may hold keys. SetupError, which quotes nothing, when the file is damaged.
    """
    path = Path.home() / ".aliyun" / "config.json"
    try:
        known = json.loads(path.read_bytes())
        profiles = {profile["name"]: profile for profile in known["profiles"]}
        name = environ.get("ALIBABA_CLOUD_PROFILE") or known["current"]
    except OSError:
        return {}
    except (ValueError, TypeError, KeyError):
        raise SetupError(
            f"{path} is no file of the aliyun command line", hint="run `aliyun configure`"
        ) from None
    found: Mapping[str, Any] = profiles.get(name, {})
    return found
