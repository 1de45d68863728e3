"""What a person may set about a store, for every backend at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from burst.errors import SetupError

THREADS = "BURST_S3_THREADS"
Scheme = Literal["s3", "oss"]
Addressing = Literal["auto", "path", "virtual"]

# boto3 asks a node's metadata service for its role's keys once, for a second; on a node whose
# workers all start at once that fails: https://docs.aws.amazon.com/boto3 "Configuration".
PATIENCE = {"AWS_METADATA_SERVICE_TIMEOUT": "5", "AWS_METADATA_SERVICE_NUM_ATTEMPTS": "5"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How to reach S3-compatible stores. The other backends have nothing to set.

    Credentials are not here: they come from where the vendor's own tools take them, so that
    they refresh themselves and never reach a file of ours.
    """

    scheme: Scheme = "s3"  # of the URI: whose S3 it is, for each has its own ways
    endpoint: str | None = None  # None: AWS itself, or OSS in `region`
    region: str | None = None
    addressing: Addressing = "auto"
    ca_bundle: str | None = None  # path to a PEM file
    kms_key: str | None = None  # key id or ARN; sets the encryption headers on every write
    max_threads: int = 8  # connections, and so calls at work at once, of one process
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 60.0
    give_up_after_s: float = 120.0  # of retrying one call
    max_object_bytes: int = 5 << 40  # 5 TiB: the lowest limit among the common stores


def settings_from(environ: Mapping[str, str]) -> StoreSettings:
    """Read AWS's own variables for endpoint, region and CA bundle, and BURST_S3_* for the rest.

    Every process of a run reads them, so what is set once holds for all.
    """
    addressing = environ.get("BURST_S3_ADDRESSING", "auto")
    if addressing not in get_args(Addressing):
        raise SetupError(
            f"BURST_S3_ADDRESSING is {addressing!r}", hint="set it to auto, path or virtual"
        )
    threads = environ.get(THREADS, "8")
    if not threads.isdecimal() or int(threads) < 1:
        raise SetupError(f"{THREADS} is {threads!r}", hint="set it to 1 or more")
    return StoreSettings(
        endpoint=environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None,
        region=environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None,
        addressing=cast("Addressing", addressing),
        ca_bundle=environ.get("AWS_CA_BUNDLE") or None,
        kms_key=environ.get("BURST_S3_KMS_KEY") or None,
        max_threads=int(threads),
    )


def s3_env(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return what a run's nodes must be told of S3, keys excepted."""
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")
    told = {n: v for n, v in environ.items() if n in names or n.startswith("BURST_S3_")}
    return {**PATIENCE, **told}
