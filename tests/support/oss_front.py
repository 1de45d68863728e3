"""OSS as its documentation has it, in front of a stand-in for S3: strict where OSS is strict.

It takes the bucket in the host's name only, no body in chunks, no condition of S3's on a PUT, no
bulk delete without Content-MD5, no request that is not signed by a key it knows; it writes ETags in
capitals, and knows `x-oss-forbid-overwrite`, which it ignores in a bucket with versions.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit

from fault_proxy import FaultProxy, Handler, Request

HOST = "oss.localhost"
NAMES = (HOST, f"*.{HOST}")  # for its certificate
_Reply: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
_ETAG = re.compile(rb"(<ETag>)(.*?)(</ETag>)")


@dataclass(frozen=True, slots=True)
class Key:
    secret: str
    token: str | None = None
    expired: bool = False


class OssFront(FaultProxy):
    """Serves until `close`; the rules of a FaultProxy go first."""

    def __init__(self, upstream: str, tls: ssl.SSLContext) -> None:
        super().__init__(upstream, tls)
        self.keys: dict[str, Key] = {}
        self.versioned: set[str] = set()  # buckets
        self.lists_uploads = True  # its S3 documentation does not name that call
        self.refused: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"https://{HOST}:{self.port}"


class _RefusedError(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status = status
        self.code = code


class _OssHandler(Handler):
    proxy: OssFront

    def request_of(self) -> Request:
        request = super().request_of()
        bucket = _bucket(request)
        return replace(request, path=f"/{bucket}{self.path}" if bucket else self.path)

    def forward(self, request: Request, body: bytes) -> _Reply:
        try:
            self._check(request, body)
            status, headers, data = self._ask(request, body)
        except _RefusedError as refused:
            self.proxy.refused.append(refused.code)
            said = f"<Error><Code>{refused.code}</Code><Message>as OSS does</Message></Error>"
            data = b"" if request.verb == "HEAD" else said.encode()
            return refused.status, [("Content-Type", "application/xml")], data
        shown = [(name, value.upper() if name == "ETag" else value) for name, value in headers]
        return status, shown, _ETAG.sub(lambda m: m[1] + m[2].upper() + m[3], data)

    def _check(self, request: Request, body: bytes) -> None:
        headers = request.headers
        if not _bucket(request):
            raise _RefusedError(403, "SecondLevelDomainForbidden")
        if "aws-chunked" in headers.get("content-encoding", "") or "x-amz-trailer" in headers:
            raise _RefusedError(400, "InvalidArgument")
        self._check_key(request)
        if not hmac.compare_digest(*_signatures(self.path, request, self.proxy.keys)):
            raise _RefusedError(403, "SignatureDoesNotMatch")
        if headers["x-amz-content-sha256"] not in ("UNSIGNED-PAYLOAD", _sha256(body)):
            raise _RefusedError(400, "XAmzContentSHA256Mismatch")
        if request.verb == "PUT" and {"if-match", "if-none-match"} & headers.keys():
            raise _RefusedError(501, "NotImplemented")
        self._check_call(request, body)

    def _check_key(self, request: Request) -> None:
        key = self.proxy.keys.get(_credential(request)[0])
        if key is None:
            raise _RefusedError(403, "InvalidAccessKeyId")
        if key.token != request.headers.get("x-amz-security-token"):
            raise _RefusedError(403, "InvalidSecurityToken")
        if key.expired:
            raise _RefusedError(403, "SecurityTokenExpired")

    def _check_call(self, request: Request, body: bytes) -> None:
        names = {name for name, _ in _query(self.path)}
        digest = request.headers.get("content-md5")
        if digest not in (None, base64.b64encode(hashlib.md5(body).digest()).decode()):  # noqa: S324
            raise _RefusedError(400, "InvalidDigest")
        if request.verb == "POST" and "delete" in names and digest is None:
            raise _RefusedError(400, "MissingArgument")
        if request.verb == "GET" and "uploads" in names and not self.proxy.lists_uploads:
            raise _RefusedError(501, "NotImplemented")

    def _ask(self, request: Request, body: bytes) -> _Reply:
        headers = dict(request.headers)
        forbids = headers.pop("x-oss-forbid-overwrite", "false")
        if forbids not in ("true", "false"):
            raise _RefusedError(400, "InvalidArgument")
        if forbids == "true" and _bucket(request) not in self.proxy.versioned:
            headers["if-none-match"] = "*"
        if "if-match" in headers:
            headers["if-match"] = headers["if-match"].lower()
        body = _ETAG.sub(lambda m: m[1] + m[2].lower() + m[3], body)
        status, told, data = super().forward(replace(request, headers=headers), body)
        if status == 412 and forbids == "true":
            raise _RefusedError(409, "FileAlreadyExists")
        return status, told, data


OssFront.handler = _OssHandler


def _bucket(request: Request) -> str:
    host = request.headers.get("host", "").partition(":")[0]
    return host.removesuffix(HOST).rstrip(".")


def _query(path: str) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(path).query, keep_blank_values=True)


def _credential(request: Request) -> list[str]:
    """Return key id, date, region, service and the last word."""
    found = re.search(r"Credential=([^,]+)", request.headers.get("authorization", ""))
    return found[1].split("/") if found else ["", "", "", "", ""]


def _signatures(path: str, request: Request, keys: Mapping[str, Key]) -> tuple[str, str]:
    """Return the signature a request has and the one it should have.

    Source: "Create a signed AWS API request", AWS Identity and Access Management User Guide.
    """
    headers = request.headers
    signed = re.search(r"SignedHeaders=([^,]+)", headers.get("authorization", ""))
    given = re.search(r"Signature=([0-9a-f]+)", headers.get("authorization", ""))
    if signed is None or given is None or not {"host", "x-amz-date"} <= set(signed[1].split(";")):
        raise _RefusedError(403, "SignatureDoesNotMatch")
    pairs = sorted((quote(name, "-_.~"), quote(value, "-_.~")) for name, value in _query(path))
    canonical = "\n".join(
        [
            request.verb,
            urlsplit(path).path,
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(headers[name].split())}" for name in signed[1].split(";")),
            "",
            signed[1],
            headers["x-amz-content-sha256"],
        ]
    )
    identity, *scope = _credential(request)
    text = "\n".join(
        ["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join(scope), _sha256(canonical.encode())]
    )
    secret = f"AWS4{keys[identity].secret}".encode()
    for part in (*scope, text):
        secret = hmac.digest(secret, part.encode(), "sha256")
    return given[1], secret.hex()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
