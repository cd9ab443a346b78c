"""Objects in an S3 bucket below one prefix.

Payload goes out through `upload.py` (its failure table is there); the store itself proves every object: the CRC-32C of
the whole is sent with it, also over multipart, and the store names what it computed in its answer to PutObject, or to
HeadObject. Requests are retried by botocore, a bounded number of times.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any, Final

from botocore.exceptions import ClientError

from include.tiering.errors import (
    ObjectKeyError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    printable,
)
from include.tiering.model.segment_data import ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.bodies import BLOCK_BYTES, crc32c_of
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.remote_storage.credentials import S3Credentials
from include.tiering.remote_storage.object_store import (
    KeyFailure,
    ListedObject,
    ObjectStat,
    OpenUpload,
    SeenObject,
    checked_key,
    checked_prefix,
)
from include.tiering.remote_storage.s3.client import s3_client
from include.tiering.remote_storage.s3.errors import error_code, http_status, is_retriable_code, translated
from include.tiering.remote_storage.s3.upload import Upload, abort, encoded_crc32c, full_object_crc32c
from include.tiering.units import MIB

MAX_ATTEMPTS: Final = 8
SINGLE_REQUEST_BYTES: Final = 64 * MIB
PART_SIZE_BYTES: Final = 32 * MIB
# S3 takes 1,000 keys per request; servers were seen that take more, none that takes fewer.
_KEYS_PER_DELETE: Final = 999
_CONDITION_FAILED: Final = (404, 409, 412)
_NO_VERSION: Final = '"00000000000000000000000000000000"'


class S3ObjectStore:
    """An `ObjectStore` in `bucket` below `prefix` (empty, or ending in a slash).

    Objects of more than `single_request_bytes` go up in parts of `part_size_bytes` (5 MiB or more; a multiple of
    `RUNNING_CRC32C_STEP_BYTES` saves reading each part twice). A request is tried at most `max_attempts` times.
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

    def describe(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

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
        """By If-Match. S3 answers 409 to one of two that are under way at once: that is none of the two's failure."""
        full_key = self._full_key(key)
        condition = {} if version is None else {"IfMatch": version}
        checksum = encoded_crc32c(crc32c_of(content))
        with translated("write", self._bucket, full_key):
            try:
                self._client.put_object(
                    Bucket=self._bucket, Key=full_key, Body=content, ChecksumCRC32C=checksum, **condition
                )
            except ClientError as error:
                if condition and http_status(error) in _CONDITION_FAILED and error_code(error) != "NoSuchBucket":
                    return False
                raise
        return True

    def replaces_conditionally(self, key: str) -> bool:
        """A server that knows nothing of If-Match takes no notice of it, or answers that it does not implement it."""
        self.replace(key, b"is If-Match heeded?\n")
        try:
            return not self.replace(key, b"it is not\n", version=_NO_VERSION)
        except RemoteStorageError as error:
            if isinstance(error.__cause__, ClientError) and http_status(error.__cause__) in (400, 501):
                return False
            raise
        finally:
            self.delete([key])

    def stat(self, key: str, *, read_back: bool = True) -> ObjectStat | None:
        answer = self._head(key, ChecksumMode="ENABLED")
        return None if answer is None else ObjectStat(int(answer["ContentLength"]), full_object_crc32c(answer))

    def look(self, key: str) -> SeenObject | None:
        answer = self._head(key)
        if answer is None:
            return None
        modified_ms = round(answer["LastModified"].timestamp() * 1000)
        return SeenObject(int(answer["ContentLength"]), modified_ms, answer.get("VersionId"))

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        full_key = self._full_key(key)
        is_range = first > 0 or last is not None
        asked = {"Range": f"bytes={first}-{'' if last is None else last}"} if is_range else {}
        with translated("read", self._bucket, full_key):
            answer = self._client.get_object(Bucket=self._bucket, Key=full_key, **asked)
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
        return self._delete((key, {}) for key in keys)

    def delete_versions(self, versions: Collection[tuple[str, str]]) -> tuple[KeyFailure, ...]:
        return self._delete((key, {"VersionId": version_id}) for key, version_id in versions)

    def list_objects(self, prefix: str = "") -> Iterator[ListedObject]:
        for found in self._listed("list_objects_v2", "Contents", prefix):
            yield ListedObject(found["Key"].removeprefix(self._prefix), int(found["Size"]))

    def list_open_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        for found in self._listed("list_multipart_uploads", "Uploads", prefix):
            yield OpenUpload(found["Key"].removeprefix(self._prefix), token=found["UploadId"])

    def abort_upload(self, upload: OpenUpload) -> None:
        abort(self._client, self._bucket, self._full_key(upload.key), upload.token)

    def clock_ms(self, key: str) -> int | None:
        """The `Date` of an answer."""
        answer = self._head(key)
        said = None if answer is None else answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        try:
            return None if said is None else round(parsedate_to_datetime(said).timestamp() * 1000)
        except ValueError:
            return None

    def check_capacity(self) -> None:
        """S3 tells nothing about its space: a full bucket shows when something is written."""

    def _full_key(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _listed(self, operation: str, member: str, prefix: str) -> Iterator[Any]:
        """Entries of a paged listing. Pages are fetched as they are needed."""
        full_prefix = self._prefix + checked_prefix(prefix)
        with translated("list", self._bucket, full_prefix):
            pages = self._client.get_paginator(operation).paginate(Bucket=self._bucket, Prefix=full_prefix)
            for page in pages:
                yield from page.get(member, ())

    def _head(self, key: str, **options: str) -> Any:
        """The answer to HeadObject; None if there is no such object."""
        with translated("look at", self._bucket, self._full_key(key)):
            try:
                return self._client.head_object(Bucket=self._bucket, Key=self._full_key(key), **options)
            except ClientError as error:
                if http_status(error) == 404:
                    return None
                raise

    def _delete(self, doomed: Iterable[tuple[str, dict[str, str]]]) -> tuple[KeyFailure, ...]:
        """Keys, each with what else its entry in the request has."""
        failures = []
        accepted = []
        for key, version in doomed:
            try:
                accepted.append((checked_key(key), version))
            except ObjectKeyError as error:
                failures.append(KeyFailure(key, str(error), retriable=False))
        left = iter(accepted)
        while batch := list(islice(left, _KEYS_PER_DELETE)):
            failures.extend(self._delete_batch(batch))
        return tuple(failures)

    def _delete_batch(self, doomed: list[tuple[str, dict[str, str]]]) -> list[KeyFailure]:
        keys = [key for key, _ in doomed]
        request = {"Objects": [{"Key": self._prefix + key, **version} for key, version in doomed], "Quiet": True}
        try:
            with translated("delete", self._bucket, self._prefix + keys[0]):
                answer = self._client.delete_objects(Bucket=self._bucket, Delete=request)
        except RemoteStorageError as error:
            return [KeyFailure(key, str(error), error.retriable) for key in keys]
        return [
            KeyFailure(
                failed["Key"].removeprefix(self._prefix),
                f"cannot delete {self.describe()}: the store answered {printable(failed['Code'])[:64]}",
                is_retriable_code(failed["Code"]),
            )
            for failed in answer.get("Errors", ())
            if failed["Code"] not in ("NoSuchKey", "NoSuchVersion")
        ]
