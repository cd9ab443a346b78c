"""Objects in an S3 bucket below one prefix.

S3 itself verifies every object: the CRC-32C of the whole object is sent with it, also in multipart uploads. The
response to PutObject or HeadObject names the checksum that S3 computed.

One object is written in one request, or in parts. The object appears whole or not at all. What a failure or a crash
leaves:

    at                                    leaves                               who cleans up
    PutObject, before its end             nothing                              -
    PutObject, response lost              the object; the retry gets 412,      not needed: `is_ours` compares size and
                                          because of our own first try         checksum, equal means success
    CreateMultipartUpload, response lost  an open upload with unknown id       delete of the attempt; if that becomes
                                                                               FINISHED, a removal after an audit
    any part, error                       an open upload, aborted at once      the delete, if the abort fails too
    any part, crash                       an open upload                       delete of the attempt
    Complete, response lost               the object; the retry gets 412       as PutObject
                                          or NoSuchUpload
    all responses to a request lost       the object or an open upload         delete of the attempt

botocore counts the retries. A 412 on the first try means that this call did not write the object, so it is an error
even if the object has the same bytes.
"""

import contextlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any, Final

from botocore.client import BaseClient
from botocore.exceptions import ClientError

from include.tiering.errors import ObjectKeyError, RemoteResourceNotFoundError, RemoteStorageError, printable
from include.tiering.formats.record_batch import rest_crc32c
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES, ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.remote_storage.object_store import (
    BLOCK_BYTES,
    KeyFailure,
    ObjectEntry,
    ObjectStat,
    OpenUpload,
    S3Credentials,
    SeenObject,
    checked_key,
    checked_prefix,
    crc32c_of,
)
from include.tiering.remote_storage.s3.client import (
    PacedBody,
    SlowDowns,
    crc32c_of_part,
    error_code,
    from_byte,
    http_status,
    is_retriable_code,
    s3_client,
    translated,
    was_retried,
)
from include.tiering.remote_storage.s3.listing import OBJECTS, UPLOADS, DeleteAnswers, ListedPages
from include.tiering.units import MIB

MAX_ATTEMPTS: Final = 8
SINGLE_REQUEST_BYTES: Final = 64 * MIB
PART_SIZE_BYTES: Final = 32 * MIB
# S3 accepts up to 1,000 keys per request. Some servers accept more; no server is known that accepts fewer than 999.
_KEYS_PER_DELETE: Final = 999
_CONDITION_FAILED: Final = (404, 409, 412)
_NO_VERSION: Final = '"00000000000000000000000000000000"'


class S3ObjectStore:
    """An `ObjectStore` in `bucket` below `prefix` (empty, or ending in a slash).

    Objects of more than `single_request_bytes` are sent in parts of `part_size_bytes` (5 MiB or more), or of more bytes
    if there would be more than 10,000 parts. If the size of parts is a multiple of `RUNNING_CRC32C_STEP_BYTES` and the
    running checksums are given, no part is read for its checksum. A request is tried at most `max_attempts` times.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        credentials: S3Credentials | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        single_request_bytes: int = SINGLE_REQUEST_BYTES,
        part_size_bytes: int = PART_SIZE_BYTES,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._single_request_bytes = single_request_bytes
        self._part_size_bytes = part_size_bytes
        self._client = s3_client(
            endpoint_url=endpoint_url, region=region, credentials=credentials, max_attempts=max_attempts
        )
        DeleteAnswers(self._client)
        self._pages = ListedPages(self._client, bucket, prefix)
        self._slow_downs = SlowDowns(self._client)

    def describe(self) -> str:
        """Return a URL without credentials, for messages and logs."""
        return f"s3://{self._bucket}/{self._prefix}"

    @property
    def slow_downs(self) -> int:
        """How often the store has asked so far for fewer requests (S3: SlowDown, status 503 or 429)."""
        return self._slow_downs.count

    def put(
        self,
        key: str,
        body: ByteSource,
        crc32c: int,
        *,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
        running_crc32c: Sequence[int] = (),
    ) -> bool:
        """Create the object; on return it is complete and durable.

        Returns:
            Whether the response named the checksum of all of it, equal to `crc32c`; False if it was sent in parts.
        """
        upload = Upload(
            self._client,
            self._bucket,
            self._full_key(key),
            body,
            crc32c,
            running_crc32c,
            limiter,
            on_sent,
            is_ours=lambda: self.stat(key) == ObjectStat(body.size_bytes, crc32c),
        )
        if body.size_bytes <= self._single_request_bytes:
            return upload.in_one_request()
        upload.in_parts(self._part_size_bytes)
        return False

    def read_version(self, key: str, max_bytes: int) -> tuple[bytes, str] | None:
        """Read a small object whole, with its version for `replace`; None if there is no such object.

        Raises RemoteStorageError if the object has more than `max_bytes`.
        """
        full_key = self._full_key(key)
        with translated("read", self._bucket, full_key):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=full_key)
            except ClientError as error:
                if error_code(error) == "NoSuchKey":
                    return None
                raise
            with contextlib.closing(answer["Body"]) as body:
                content = bytes(body.read(max_bytes + 1))
        if len(content) > max_bytes:
            raise RemoteStorageError(f"{self.describe()}{key}: more than {max_bytes} bytes")
        return content, str(answer["ETag"])

    def replace(self, key: str, content: bytes, *, version: str | None = None) -> bool:
        """Replace the object, with If-Match if a version is given.

        With a version, the result is False after the responses 404 (there is no such object), 412, and 409 (to one of
        two concurrent requests): the object was not replaced.
        """
        full_key = self._full_key(key)
        condition = {} if version is None else {"IfMatch": version}
        checksum = encoded_crc32c(crc32c_of(content))
        with translated("write", self._bucket, full_key):
            try:
                answer = self._client.put_object(
                    Bucket=self._bucket, Key=full_key, Body=content, ChecksumCRC32C=checksum, **condition
                )
                _of_object(answer)
            except ClientError as error:
                if condition and http_status(error) in _CONDITION_FAILED and error_code(error) != "NoSuchBucket":
                    return False
                raise
        return True

    def replaces_conditionally(self, key: str) -> bool:
        """Test If-Match: a server that does not support it ignores it, or responds with status 400 or 501."""
        self.replace(key, b"is If-Match heeded?\n")
        try:
            return not self.replace(key, b"it is not\n", version=_NO_VERSION)
        except RemoteStorageError as error:
            if isinstance(error.__cause__, ClientError) and http_status(error.__cause__) in (400, 501):
                return False
            raise
        finally:
            self.delete([key])

    def stat(self, key: str, *, read_back: bool = True, most_bytes: int | None = None) -> ObjectStat | None:
        """Return size and checksum; None if there is no such object. No byte is read, whatever the arguments say."""
        answer = self._head(key, ChecksumMode="ENABLED")
        return None if answer is None else ObjectStat(answer["ContentLength"], full_object_crc32c(answer))

    def head(self, key: str) -> SeenObject | None:
        """Return size, time and version id without reading the object; None if there is no such object."""
        answer = self._head(key)
        if answer is None:
            return None
        with translated("look at", self._bucket, self._full_key(key)):
            modified_ms = round(answer["LastModified"].timestamp() * 1000)
        return SeenObject(answer["ContentLength"], modified_ms, answer.get("VersionId"))

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        """Read bytes `first` to `last` (both inclusive; `last` None: to the end) in blocks."""
        full_key = self._full_key(key)
        is_range = first > 0 or last is not None
        options = {"Range": f"bytes={first}-{'' if last is None else last}"} if is_range else {}
        with translated("read", self._bucket, full_key):
            answer = from_byte(first, _of_object(self._client.get_object(Bucket=self._bucket, Key=full_key, **options)))
            with contextlib.closing(answer["Body"]) as body:
                remaining_bytes = int(answer["ContentLength"])
                if last is not None and remaining_bytes != last + 1 - first:
                    raise RemoteResourceNotFoundError(
                        f"{self.describe()}{key}: bytes {first}..{last} of an object of {first + remaining_bytes}"
                    )
                while remaining_bytes:
                    block = body.read(limiter.take(min(BLOCK_BYTES, remaining_bytes)))
                    yield block
                    remaining_bytes -= len(block)

    def delete(self, keys: Collection[str]) -> tuple[KeyFailure, ...]:
        """Remove these objects, and return those that failed. Absent objects are no error."""
        return self._delete((key, {}) for key in keys)

    def delete_versions(self, versions: Collection[tuple[str, str]]) -> tuple[KeyFailure, ...]:
        """Remove these versions, given as (key, version id), permanently; return those that failed."""
        return self._delete((key, {"VersionId": version_id}) for key, version_id in versions)

    def list_objects(self, prefix: str = "") -> Iterator[ObjectEntry]:
        """List every complete object whose key starts with `prefix`, in no particular order."""
        for page in self._pages.of(OBJECTS, checked_prefix(prefix)):
            for _, entry in page.entries:
                key, size = self._pages.key(entry), entry.get("Size", "")
                if not (size.isascii() and size.isdigit()):
                    raise self._pages.incomplete(key)
                yield ObjectEntry(key, int(size))

    @property
    def keeps_checksums(self) -> bool:
        """Return True: every object is sent with its checksum."""
        return True

    @property
    def leaves_uploads(self) -> bool:
        """Return True: if the answer with an upload's id is lost, the SDK begins a second upload of the same object."""
        return True

    def list_open_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """List every unfinished write under `prefix`, in no particular order. Some servers also list other uploads."""
        for page in self._pages.of(UPLOADS, checked_prefix(prefix)):
            for _, entry in page.entries:
                if not (token := entry.get("UploadId")):
                    raise self._pages.incomplete(entry["Key"])
                if entry["Key"].startswith(self._prefix):
                    yield OpenUpload(self._pages.key(entry), token=token)

    def abort_upload(self, upload: OpenUpload) -> None:
        """Remove what an unfinished write has stored, so that its writer fails; do nothing if nothing is stored."""
        abort(self._client, self._bucket, self._full_key(upload.key), upload.token)

    def clock_ms(self, key: str) -> int | None:
        """Return the time in the `Date` header of the response to HeadObject; None without object or usable header."""
        answer = self._head(key)
        date = None if answer is None else answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        try:
            return None if date is None else round(parsedate_to_datetime(date).timestamp() * 1000)
        except ValueError:
            return None

    def check_capacity(self) -> None:
        """Do nothing: S3 does not show free space. That a bucket is full is noticed when an object is written."""

    def _full_key(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _head(self, key: str, **options: str) -> Any:
        """Return the response to HeadObject; None if its status is 404: there is no such object, or no such bucket."""
        with translated("look at", self._bucket, self._full_key(key)):
            try:
                answer = _of_object(self._client.head_object(Bucket=self._bucket, Key=self._full_key(key), **options))
                answer["ContentLength"] = int(answer["ContentLength"])
                return answer
            except ClientError as error:
                if http_status(error) == 404:
                    return None
                raise

    def _delete(self, versioned_keys: Iterable[tuple[str, dict[str, str]]]) -> tuple[KeyFailure, ...]:
        """Delete keys. What is given beside a key, such as `VersionId`, is added to its entry in the request."""
        failures = []
        accepted = []
        for key, version in versioned_keys:
            try:
                accepted.append((checked_key(key), version))
            except ObjectKeyError as error:
                failures.append(KeyFailure(key, str(error), retriable=False, version_id=version.get("VersionId")))
        left = iter(accepted)
        while batch := list(islice(left, _KEYS_PER_DELETE)):
            failures.extend(self._delete_batch(batch))
        return tuple(failures)

    def _delete_batch(self, versioned_keys: list[tuple[str, dict[str, str]]]) -> list[KeyFailure]:
        keys = [key for key, _ in versioned_keys]
        request = {
            "Objects": [{"Key": self._prefix + key, **version} for key, version in versioned_keys],
            "Quiet": True,
        }
        try:
            with translated("delete", self._bucket, self._prefix + keys[0]):
                answer = self._client.delete_objects(Bucket=self._bucket, Delete=request)
                return [
                    KeyFailure(
                        failed["Key"].removeprefix(self._prefix),
                        f"cannot delete an object below {self.describe()}: the store answered"
                        f" {printable(failed['Code'])[:64]}",
                        is_retriable_code(failed["Code"]),
                        failed.get("VersionId"),
                    )
                    for failed in answer.get("Errors", ())
                    if failed["Code"] not in ("NoSuchKey", "NoSuchVersion")
                ]
        except RemoteStorageError as error:
            return [
                KeyFailure(key, str(error), error.retriable, version.get("VersionId"))
                for key, version in versioned_keys
            ]


MAX_PARTS: Final = 10_000
_CRC32C_BYTES: Final = 4
_OUR_OWN_EARLIER_TRY: Final = frozenset({"PreconditionFailed", "NoSuchUpload"})


@dataclass(frozen=True, slots=True)
class Upload:
    """One object that is being sent. `key` is the full key.

    `is_ours` returns whether the object under `key` has the size and checksum of `body`.
    """

    client: BaseClient
    bucket: str
    key: str
    body: ByteSource
    crc32c: int
    running_crc32c: Sequence[int]
    limiter: ByteLimiter
    on_sent: ProgressCallback
    is_ours: Callable[[], bool]

    def in_one_request(self) -> bool:
        """Send the object; return whether the response names the checksum of all of it, equal to `crc32c`."""
        body = PacedBody(self.body, 0, self.body.size_bytes, self.limiter, self.on_sent)
        with translated("write", self.bucket, self.key):
            answer = self._once(
                self.client.put_object,
                Body=body,
                ContentLength=self.body.size_bytes,
                ChecksumCRC32C=encoded_crc32c(self.crc32c),
            )
            body.report_rest()
        return answer is not None and full_object_crc32c(answer) == self.crc32c

    def in_parts(self, part_size_bytes: int) -> None:
        """Send parts of equal size, of which the last may be shorter, one after another."""
        part_size_bytes = max(part_size_bytes, -(-self.body.size_bytes // MAX_PARTS))
        with translated("write", self.bucket, self.key):
            upload_id = self.client.create_multipart_upload(
                Bucket=self.bucket, Key=self.key, ChecksumAlgorithm="CRC32C", ChecksumType="FULL_OBJECT"
            )["UploadId"]
            try:
                parts = [
                    self._send_part(upload_id, number, first, min(part_size_bytes, self.body.size_bytes - first))
                    for number, first in enumerate(range(0, self.body.size_bytes, part_size_bytes), start=1)
                ]
                self._once(
                    self.client.complete_multipart_upload,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},
                    ChecksumCRC32C=encoded_crc32c(self.crc32c),
                    ChecksumType="FULL_OBJECT",
                    MpuObjectSize=self.body.size_bytes,
                )
            except BaseException:
                self._abort(upload_id)
                raise

    def _send_part(self, upload_id: str, number: int, first: int, size_bytes: int) -> dict[str, Any]:
        checksum = encoded_crc32c(self._crc32c_of_part(first, size_bytes))
        answer = self.client.upload_part(
            Bucket=self.bucket,
            Key=self.key,
            UploadId=upload_id,
            PartNumber=number,
            Body=PacedBody(self.body, first, size_bytes, self.limiter, self.on_sent),
            ContentLength=size_bytes,
            ChecksumCRC32C=checksum,
        )
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32C": checksum}

    def _crc32c_of_part(self, first: int, size_bytes: int) -> int:
        """Return the checksum for a part's header: from the running checksums, or else by reading the part."""
        head, whole = self._crc32c_up_to(first), self._crc32c_up_to(first + size_bytes)
        if head is None or whole is None:
            return crc32c_of_part(self.body, first, size_bytes)
        return rest_crc32c(whole, head, size_bytes)

    def _crc32c_up_to(self, end: int) -> int | None:
        """Return the checksum of the first `end` bytes; None if it is not known."""
        if end in (0, self.body.size_bytes):
            return self.crc32c if end else 0
        steps, rest = divmod(end, RUNNING_CRC32C_STEP_BYTES)
        return self.running_crc32c[steps - 1] if not rest and steps <= len(self.running_crc32c) else None

    def _once(self, request: Callable[..., dict[str, Any]], **arguments: object) -> dict[str, Any] | None:
        """Send a request that creates the object only if there is none.

        Returns:
            The response; None if an earlier try of the same request had created the object.
        """
        try:
            return request(Bucket=self.bucket, Key=self.key, IfNoneMatch="*", **arguments)
        except ClientError as error:
            if not (error_code(error) in _OUR_OWN_EARLIER_TRY and was_retried(error) and self.is_ours()):
                raise
            return None

    def _abort(self, upload_id: str) -> None:
        """Abort the upload; ignore an error of this, as the error before is raised, and the delete aborts it again."""
        try:
            abort(self.client, self.bucket, self.key, upload_id)
        except RemoteStorageError:
            return


def _of_object(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a response about an object. Raises LookupError without an ETag: it is a page of a proxy, say."""
    if not answer.get("ETag"):
        raise LookupError("no ETag")
    return answer


def abort(client: BaseClient, bucket: str, key: str, upload_id: str) -> None:
    """Abort an open upload; do nothing if it is gone."""
    with translated("abort the upload of", bucket, key):
        try:
            client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
        except ClientError as error:
            if error_code(error) != "NoSuchUpload":
                raise


def full_object_crc32c(answer: dict[str, Any]) -> int | None:
    """Return the object's checksum in a response; None if it is missing, unreadable, or made of checksums of parts."""
    encoded = answer.get("ChecksumCRC32C")
    if encoded is None or "-" in encoded or answer.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    try:
        decoded = b64decode(encoded, validate=True)
    except ValueError:
        return None
    return int.from_bytes(decoded, "big") if len(decoded) == _CRC32C_BYTES else None


def encoded_crc32c(crc32c: int) -> str:
    """Encode a checksum as a header carries it."""
    return b64encode(crc32c.to_bytes(4, "big")).decode()
