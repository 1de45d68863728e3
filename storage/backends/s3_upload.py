"""Uploads in parts: a try for each part, and nothing left behind, or else swept later."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, BinaryIO, Protocol, TypeVar

from botocore.exceptions import ClientError

from burst.errors import BurstError, StorageError, TransientError
from burst.storage.backends.s3_client import S3Client
from burst.storage.backends.s3_errors import code_of
from burst.storage.transfer import part_size

_T = TypeVar("_T")
_MOST_BYTES_IN_HAND = 256 << 20
_MOST_THREADS = 4
_ENDED = "NoSuchUpload"  # completed or aborted
_RULE = "give the bucket a lifecycle rule that ends them (AbortIncompleteMultipartUpload)"

log = logging.getLogger(__name__)


class Calls(Protocol):
    """How the store makes one call: in turn, tried again, with its errors translated."""

    def __call__(self, where: str, call: Callable[[S3Client], _T]) -> _T:
        """Run `call` with a client."""
        ...


@dataclass(frozen=True, slots=True)
class _Parts:
    """A source cut into parts that any thread may read, again if need be."""

    source: BinaryIO
    start: int
    size_bytes: int
    part_bytes: int
    lock: threading.Lock

    def numbers(self) -> range:
        return range(1, -(-self.size_bytes // self.part_bytes) + 1)

    def read(self, number: int) -> bytes:
        begin = (number - 1) * self.part_bytes
        wanted = min(self.part_bytes, self.size_bytes - begin)
        with self.lock:
            self.source.seek(self.start + begin)
            data = self.source.read(wanted)
        if len(data) != wanted:
            raise ValueError(f"source ended within part {number}: {len(data)} of {wanted} bytes")
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedUpload:
    """One upload, from its start to its end or abort."""

    calls: Calls
    where: str  # in words
    place: Mapping[str, str]  # Bucket and Key
    headers: Mapping[str, str]  # encryption
    limit_bytes: int

    def run(self, source: BinaryIO, size_bytes: int) -> None:
        """Upload `size_bytes` from where the source stands; abort on any failure."""
        size = part_size(size_bytes, limit_bytes=self.limit_bytes)
        parts = _Parts(source, source.tell(), size_bytes, size, threading.Lock())
        upload = self._call(
            lambda client: client.create_multipart_upload(**self.place, **self.headers)
        )
        place = {"UploadId": str(upload["UploadId"])}
        try:
            self._complete(place, self._send(place, parts), size_bytes)
        except BaseException:  # also of a person's Ctrl-C: parts cost money and do not show
            self._abort(place)
            raise

    def _call(self, call: Callable[[S3Client], _T]) -> _T:
        return self.calls(self.where, call)

    def _send(self, place: Mapping[str, str], parts: _Parts) -> list[dict[str, Any]]:
        def send(number: int) -> dict[str, Any]:
            data = parts.read(number)
            answer = self._call(
                lambda client: client.upload_part(
                    **self.place, **place, PartNumber=number, Body=data
                )
            )
            return {"PartNumber": number, "ETag": answer["ETag"]}

        threads = max(1, min(_MOST_THREADS, _MOST_BYTES_IN_HAND // parts.part_bytes))
        with ThreadPoolExecutor(threads) as pool:
            try:
                return list(pool.map(send, parts.numbers()))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _complete(
        self, place: Mapping[str, str], parts: list[dict[str, Any]], size_bytes: int
    ) -> None:
        def complete(client: S3Client) -> None:
            try:
                client.complete_multipart_upload(
                    **self.place, **place, MultipartUpload={"Parts": parts}
                )
            except ClientError as error:
                # An earlier try may have got through without its answer reaching us.
                if code_of(error) != _ENDED:
                    raise
                if client.head_object(**self.place)["ContentLength"] != size_bytes:
                    raise

        self._call(complete)

    def _abort(self, place: Mapping[str, str]) -> None:
        try:
            self._call(lambda client: _abort(client, {**self.place, **place}))
        except (BurstError, FileNotFoundError) as error:
            log.warning("parts of an upload stay until they are swept: %s", error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Aborts what killed writers began below a prefix."""

    calls: Calls
    root: str  # of the bucket, in words: s3://bucket
    bucket: str
    prefix: str

    def run(self, older_than_s: float) -> int:
        """Abort the unfinished uploads that are old enough; return their bytes."""
        try:
            found = list(self._old(older_than_s))
        except TransientError:
            raise
        except StorageError as error:  # not every store lists them for S3's clients
            log.warning("unfinished uploads under %s cannot be found (%s); %s", *self._told(error))
            return 0
        freed = kept = 0
        reason: StorageError | None = None
        for place in found:
            where = f"{self.root}/{place['Key']}"
            size_bytes = self.calls(where, partial(_held_bytes, place=place))
            try:
                self.calls(where, partial(_abort, place=place))
            except StorageError as error:
                kept, reason = kept + size_bytes, error
            else:
                freed += size_bytes
        if reason is not None:
            log.warning(
                "%d bytes of unfinished uploads stay under %s and are billed (%s); %s",
                *(kept, *self._told(reason)),
            )
        return freed

    def _told(self, error: StorageError) -> tuple[str, StorageError, str]:
        return f"{self.root}/{self.prefix}", error, _RULE

    def _old(self, older_than_s: float) -> Iterator[dict[str, str]]:
        wanted = {"Bucket": self.bucket, "Prefix": self.prefix}
        while True:
            page = self.calls(
                f"{self.root}/{self.prefix}", partial(_list_uploads, wanted=dict(wanted))
            )
            now = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
            for upload in page.get("Uploads", ()):
                if (now - upload["Initiated"]).total_seconds() >= older_than_s:
                    names = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
                    yield {"Bucket": self.bucket, **names}
            if not page.get("IsTruncated"):
                return
            wanted |= {"KeyMarker": page["NextKeyMarker"]}
            wanted |= {"UploadIdMarker": page["NextUploadIdMarker"]}


def _abort(client: S3Client, place: Mapping[str, str]) -> None:
    try:
        client.abort_multipart_upload(**place)
    except ClientError as error:
        if code_of(error) != _ENDED:
            raise


def _held_bytes(client: S3Client, place: Mapping[str, str]) -> int:
    """Return the size of the upload's first thousand parts, which is nearly always all."""
    try:
        parts = client.list_parts(**place).get("Parts", ())
    except ClientError as error:
        if code_of(error) != _ENDED:
            raise
        return 0
    return sum(part["Size"] for part in parts)


def _list_uploads(client: S3Client, wanted: Mapping[str, str]) -> Mapping[str, Any]:
    page: Mapping[str, Any] = client.list_multipart_uploads(**wanted)
    return page
