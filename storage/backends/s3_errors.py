"""What S3's refusals mean for burst: a table from codes, never from the text of a message."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from botocore import exceptions as boto

from burst.errors import BurstError, ConflictError, CredentialsError, StorageError, TransientError

EXPIRED = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "SecurityTokenExpired"}
)
NO_BULK_DELETE = frozenset(
    {"InvalidRequest", "MissingContentMD5", "NotImplemented", "MethodNotAllowed", "MalformedXML"}
)
UNSAID = frozenset({"400", "403"})  # a HEAD was refused; its body would hold the code
_SKEWED = "RequestTimeTooSkewed"
_TRY_LATER = frozenset(
    {
        *("SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "InternalError"),
        *("RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests"),
        *("RequestLimitExceeded", "OperationAborted", "ConditionalRequestConflict"),
    }
)
_TRY_LATER_STATUS = frozenset({429, 500, 502, 503, 504})
_ABSENT = frozenset({"NoSuchKey", "404"})  # a HEAD has no body, so its status is its code
_TAKEN = frozenset({"PreconditionFailed", "412", "FileAlreadyExists"})  # the last one: OSS
_CHECKSUM_HINT = (
    "the endpoint may not accept new checksum headers: name it as the endpoint, so that burst "
    "leaves them out (AWS_ENDPOINT_URL_S3)"
)
_HINTS = {
    "AccessDenied": "the role needs s3:GetObject, PutObject, DeleteObject, ListBucket and "
    "AbortMultipartUpload here (in OSS oss:GetObject, PutObject, DeleteObject, ListObjects and "
    "AbortMultipartUpload); the bucket policy may require encryption headers (BURST_S3_KMS_KEY)",
    "ExpiredToken": "renew the credentials; burst takes new ones from where it got these",
    "InvalidAccessKeyId": "check the credentials, and that they are of this endpoint",
    "InvalidBucketName": "check the bucket's name in the run URI",
    "NoSuchBucket": "make the bucket first, or check its name and region",
    "NotImplemented": _CHECKSUM_HINT,
    "PermanentRedirect": "the bucket is in another region: set AWS_REGION",
    "PublicEndpointForbidden": "your account may use this bucket only from inside its region, or "
    "choose a bucket outside mainland China",
    "SecondLevelDomainForbidden": "this store wants the bucket in the host name: set "
    "BURST_S3_ADDRESSING=virtual; if it is OSS, write oss://bucket instead of s3://bucket",
    "SignatureDoesNotMatch": "check the secret key; a proxy that changes headers does this too",
    "Unauthorized": _CHECKSUM_HINT,
    "XAmzContentSHA256Mismatch": _CHECKSUM_HINT,
}
_WORDS = {
    "AccessDenied": "these credentials have no right to it",
    "ExpiredToken": "the credentials have expired",
    "InvalidAccessKeyId": "the store does not know this access key",
    "NoSuchBucket": "there is no such bucket",
    "PermanentRedirect": "the bucket is in another region",
    "SignatureDoesNotMatch": "the secret key is not that of the access key",
}
_KEYS_HINT = (
    "run `aws configure`, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give "
    "the machine a role"
)
_LATER = (
    *(boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError),
    *(boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.MetadataRetrievalError),
)


class Refusal(Protocol):
    """The part of botocore's ClientError that counts."""

    response: Mapping[str, Any]
    operation_name: str


def code_of(error: Refusal) -> str:
    """Return the store's own code for it."""
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def translate(error: Exception, where: str) -> BurstError | FileNotFoundError:
    """Return what to raise instead of an error of botocore at the object `where`."""
    if isinstance(error, boto.ClientError):
        return _refusal(error, where)
    if (missing := _missing(error)) is not None:
        return CredentialsError(f"{where} cannot be opened: {missing}", hint=_KEYS_HINT)
    said = f"{where}: {type(error).__name__}: {error}"
    if isinstance(error, boto.SSLError):
        return StorageError(
            said, hint="set AWS_CA_BUNDLE to the authority of the store's certificate"
        )
    if isinstance(error, boto.EndpointConnectionError):
        words = f"{where}: nobody answers at {error.kwargs['endpoint_url']}"
        return TransientError(words, hint="check the network, and AWS_ENDPOINT_URL_S3 if it is set")
    return TransientError(said) if isinstance(error, _LATER) else StorageError(said)


def _missing(error: Exception) -> str | None:
    """Return which credentials are missing, if that is what the error says."""
    match error:
        case boto.NoCredentialsError():
            return "there are no credentials for AWS"
        case boto.PartialCredentialsError():
            return f"of the credentials for AWS {error.kwargs['cred_var']} is missing"
        case boto.ProfileNotFound():
            return f"AWS's configuration has no profile {error.kwargs['profile']}"
        case _:
            return None


def refusal(code: str, where: str, what: str) -> StorageError:
    """Return the error for a code alone, as the answer to a bulk delete gives for each key."""
    kind = TransientError if code in _TRY_LATER | EXPIRED | {_SKEWED} else StorageError
    words = f"{_WORDS[code]} ({what}: {code})" if code in _WORDS else f"{what} was refused: {code}"
    return kind(f"{where}: {words}", hint=_HINTS.get(code))


def _refusal(error: Refusal, where: str) -> BurstError | FileNotFoundError:
    code, status = code_of(error), _metadata(error).get("HTTPStatusCode")
    if code in _ABSENT:
        return FileNotFoundError(where)
    if code in _TAKEN:
        return ConflictError(f"{where} was written by another writer")
    if code == _SKEWED:
        return TransientError(f"{where}: {_skew(error)}", hint="set this machine's clock")
    if code not in _HINTS and status in _TRY_LATER_STATUS:
        return TransientError(f"{where}: the store answered {code} ({status})")
    return refusal("ExpiredToken" if code in EXPIRED else code, where, error.operation_name)


def _skew(error: Refusal) -> str:
    date = _metadata(error).get("HTTPHeaders", {}).get("date")
    if date is None:
        return "this host's clock is too far from the store's"
    ahead_s = time.time() - parsedate_to_datetime(date).timestamp()
    return f"this host's clock is about {abs(ahead_s):.0f} s {_side(ahead_s)} the store"


def _side(ahead_s: float) -> str:
    return "ahead of" if ahead_s > 0 else "behind"


def _metadata(error: Refusal) -> Mapping[str, Any]:
    found: Mapping[str, Any] = error.response.get("ResponseMetadata", {})
    return found
