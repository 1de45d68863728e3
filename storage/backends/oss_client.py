"""The accent with which OSS speaks S3's language, for botocore.

Sources: Alibaba's "S3 API on OSS: supported operations and limitations", "PutObject" and "Access
OSS with the AWS SDK".
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
from typing import Any, TypeAlias

import boto3
import botocore.session
from botocore.credentials import CredentialResolver

from burst.storage.backends.oss_keys import OssKeys, metadata_of
from burst.storage.oss import endpoint_in
from burst.storage.settings import StoreSettings

_Client: TypeAlias = Any  # boto3 makes the class at run time
_NOT_AWS = dict.fromkeys(("profile", "config_file"), (None, None, None, None))

log = logging.getLogger(__name__)


def oss_session() -> Any:  # noqa: ANN401 - boto3 has no types
    """Return a session with the keys of OSS; nothing of AWS's is read, and no key of AWS's sent."""
    session = botocore.session.Session(session_vars=_NOT_AWS)
    session.register_component("credential_provider", CredentialResolver([OssKeys()]))
    return boto3.session.Session(botocore_session=session)


def oss_endpoint(settings: StoreSettings) -> str:
    """Return the endpoint that is set, or else the region's, the internal one from inside."""
    if settings.endpoint is not None:
        return settings.endpoint
    region = settings.region or ""
    return endpoint_in(region, internal=_is_here(region))


def speak_oss(client: _Client) -> None:
    """Put what OSS wants into the requests of a client."""
    client.meta.events.register("before-call.s3.PutObject", _forbid_overwrite)
    client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)


def _forbid_overwrite(params: dict[str, Any], **_: object) -> None:
    """Say "only where there is none" in OSS's words; it refuses S3's."""
    if params["headers"].pop("If-None-Match", None) == "*":
        params["headers"]["x-oss-forbid-overwrite"] = "true"


def _add_md5(params: dict[str, Any], **_: object) -> None:
    """Give a bulk delete the checksum that OSS asks for, and none of the newer ones."""
    params["context"].pop("checksum", None)
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _is_here(region: str) -> bool:
    """Whether this machine is in the region, as far as it says."""
    metadata = metadata_of(os.environ)
    if metadata is None:
        return False
    try:
        return metadata.region() == region
    except OSError as error:
        log.warning(
            "OSS is reached from outside, for this machine does not say where it is: %s", error
        )
        return False
