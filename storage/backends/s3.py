"""A store in S3, in OSS, or in what else speaks S3's language."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, BinaryIO, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from burst.errors import StorageError, TransientError
from burst.storage.backends.s3_client import Connection, S3Client
from burst.storage.backends.s3_errors import (
    EXPIRED,
    NO_BULK_DELETE,
    UNSAID,
    code_of,
    refusal,
    translate,
)
from burst.storage.backends.s3_upload import PartedUpload, Sweep
from burst.storage.keys import check_key, check_prefix, is_key, join
from burst.storage.port import ObjectStore, Stat
from burst.storage.retry import Retries, RetryPolicy, SystemWaitingClock, WaitingClock
from burst.storage.settings import StoreSettings
from burst.storage.transfer import PIECE_BYTES, SMALLEST_PART_BYTES, check_size

_T = TypeVar("_T")
_MOST_DELETES = 1000  # keys of one DeleteObjects
_CLOCK = SystemWaitingClock()


class S3Store:
    """See burst.storage.port.ObjectStore.

    Versions are ETags: nothing here takes one for an MD5. A store that ignores the condition of a
    create makes `conditional` a lie; `burst.storage.preflight` finds that out.
    """

    conditional = True

    def __init__(
        self, bucket: str, prefix: str, settings: StoreSettings, *, clock: WaitingClock = _CLOCK
    ) -> None:
        self._bucket = bucket
        self._root = f"{settings.scheme}://{bucket}"
        self._prefix = prefix
        self._settings = settings
        self._connection = Connection(settings, bucket)
        self._bulk_deletes = True
        self._retries = Retries(
            RetryPolicy(give_up_after_s=settings.give_up_after_s),
            clock,
            random.Random(),  # noqa: S311  spreads load
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process without the client, which makes its own."""
        return S3Store, (self._bucket, self._prefix, self._settings)

    @property
    def uri(self) -> str:
        return join(self._root, self._prefix)

    def at(self, prefix: str) -> ObjectStore:
        below = S3Store(self._bucket, join(self._prefix, check_key(prefix)), self._settings)
        below._connection = self._connection
        below._retries = self._retries
        return below

    def get(self, key: str) -> bytes:
        place = self._place(key)

        def read(client: S3Client) -> bytes:
            answer = client.get_object(**place)
            data = b"".join(_pieces(answer))
            # Without a length it was sent in chunks, where a cut looks like the end.
            known = answer if "ContentLength" in answer else _head(client, place)
            if known["ETag"] != answer["ETag"]:
                raise TransientError(f"{self._where(key)} was changed while it was read")
            _check_length(self._where(key), len(data), known["ContentLength"])
            return data

        return self._call(self._where(key), read)

    def download(self, key: str, target: BinaryIO) -> int:
        """See the port. A try goes on where the last one ended, so `target` need not seek."""
        stat = self.stat(key)
        written = 0

        def read_on(client: S3Client) -> None:
            nonlocal written
            place = {**self._place(key), "IfMatch": stat.version}
            if written:
                place["Range"] = f"bytes={written}-"
            answer = client.get_object(**place)
            _check_start(self._where(key), answer, written)
            for piece in _pieces(answer):
                written += len(piece)
                target.write(piece)
            _check_length(self._where(key), written, stat.size_bytes)

        self._call(self._where(key), read_on)
        return written

    def stat(self, key: str) -> Stat:
        place = self._place(key)
        head = self._call(self._where(key), lambda client: _head(client, place))
        return Stat(key=key, size_bytes=head["ContentLength"], version=str(head["ETag"]))

    def keys(self, prefix: str = "") -> Iterator[str]:
        root = self._prefix + "/" if self._prefix else ""
        start = root + check_prefix(prefix)
        after: dict[str, str] = {}
        while True:
            page = self._list(start, after)
            names = (found["Key"].removeprefix(root) for found in page.get("Contents", ()))
            yield from filter(is_key, names)  # others make objects named `folder/` as folders
            if not page["IsTruncated"]:
                return
            after = {"ContinuationToken": page["NextContinuationToken"]}

    def put(self, key: str, data: bytes) -> None:
        self._put(key, data)

    def upload(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        check_size(source, size_bytes)
        if size_bytes <= SMALLEST_PART_BYTES:
            self._put(key, source.read(size_bytes))
            return
        PartedUpload(
            calls=self._call,
            where=self._where(key),
            place=self._place(key),
            headers=self._encryption(),
            limit_bytes=self._settings.max_object_bytes,
        ).run(source, size_bytes)

    def create(self, key: str, data: bytes) -> None:
        self._put(key, data, IfNoneMatch="*")

    def delete(self, keys: Iterable[str]) -> None:
        wanted = [self._place(key)["Key"] for key in keys]
        for begin in range(0, len(wanted), _MOST_DELETES):
            batch = wanted[begin : begin + _MOST_DELETES]
            if not (self._bulk_deletes and self._delete_together(batch)):
                for name in batch:
                    self._delete_one(name)

    def sweep_unfinished(self, older_than_s: float) -> int:
        if not self._prefix:
            raise ValueError(f"{self.uri} is a whole bucket: others' uploads are in it too")
        return Sweep(
            calls=self._call, root=self._root, bucket=self._bucket, prefix=self._prefix + "/"
        ).run(older_than_s)

    def _put(self, key: str, data: bytes, **condition: str) -> None:
        arguments = {**self._place(key), **self._encryption(), **condition, "Body": data}
        self._call(self._where(key), lambda client: client.put_object(**arguments))

    def _list(self, start: str, after: Mapping[str, str]) -> Mapping[str, Any]:
        page: Mapping[str, Any] = self._call(
            f"{self._root}/{start}",
            lambda client: client.list_objects_v2(Bucket=self._bucket, Prefix=start, **after),
        )
        return page

    def _delete_together(self, names: list[str]) -> bool:
        """Delete with one call; False where the store has no such call, now and from now on."""
        wanted = {"Objects": [{"Key": name} for name in names], "Quiet": True}

        def delete(client: S3Client) -> Mapping[str, Any] | None:
            try:
                answer: Mapping[str, Any] = client.delete_objects(
                    Bucket=self._bucket, Delete=wanted
                )
            except ClientError as error:
                if code_of(error) in NO_BULK_DELETE:
                    return None
                raise
            return answer

        answer = self._call(self.uri, delete)
        if answer is None:
            self._bulk_deletes = False
            return False
        for failed in answer.get("Errors", ()):
            if failed["Code"] != "NoSuchKey":
                where = f"{self._root}/{failed['Key']}"
                raise refusal(failed["Code"], where, "DeleteObjects")
        return True

    def _delete_one(self, name: str) -> None:
        self._call(
            f"{self._root}/{name}",
            lambda client: client.delete_object(Bucket=self._bucket, Key=name),
        )

    def _call(self, where: str, call: Callable[[S3Client], _T]) -> _T:
        """Make the call with a client of this process, again while it may help."""

        def once() -> _T:
            try:
                with self._connection.client() as client:
                    return call(client)
            except (ClientError, BotoCoreError) as error:
                if isinstance(error, ClientError) and code_of(error) in EXPIRED:
                    self._connection.renew()
                raise translate(error, where) from error

        return self._retries.run(once)

    def _encryption(self) -> dict[str, str]:
        if self._settings.kms_key is None:
            return {}
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self._settings.kms_key}

    def _place(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": join(self._prefix, check_key(key))}

    def _where(self, key: str) -> str:
        return f"{self.uri}/{key}"


def _head(client: S3Client, place: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        head: Mapping[str, Any] = client.head_object(**place)
    except ClientError as error:
        if code_of(error) in UNSAID:  # the answer to a HEAD has no body; that to a GET says why
            client.get_object(**place, Range="bytes=0-0")["Body"].close()
        raise
    return head


def _pieces(answer: Mapping[str, Any]) -> Iterator[bytes]:
    with closing(answer["Body"]) as body:
        while piece := body.read(PIECE_BYTES):
            yield piece


def _check_length(where: str, got: int, wanted: int) -> None:
    if got > wanted:
        raise StorageError(f"{where}: the store sent {got} bytes of an object of {wanted}")
    if got < wanted:
        raise TransientError(f"{where}: the body ended after {got} of {wanted} bytes")


def _check_start(where: str, answer: Mapping[str, Any], written: int) -> None:
    """Check that a part of the object is the one that was asked for."""
    wanted = f"bytes {written}-" if written else ""
    if not str(answer.get("ContentRange", "")).startswith(wanted):
        raise TransientError(f"{where}: the store sent another part than bytes from {written} on")
