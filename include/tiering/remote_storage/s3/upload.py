"""Writing one object: in one request, or in parts.

What a failure or a crash leaves (an object appears whole or not at all):

    at                                    leaves                               who cleans up
    PutObject, before its end             nothing                              -
    PutObject, answer lost                the object; the retry meets 412,     nobody has to: `is_ours` compares size
                                          because of our own first try         and checksum, equal means success
    CreateMultipartUpload, answer lost    an open upload nobody knows          delete of the attempt, which lists them
    any part, error                       an open upload, aborted at once      the delete, if the abort fails too
    any part, crash                       an open upload                       delete of the attempt
    Complete, answer lost                 the object; the retry meets 412      as PutObject
                                          or NoSuchUpload
    Complete, all retries lost            the object or an open upload         delete of the attempt

A retry is known by botocore's own count: a 412 on the very first try is somebody else's object, whatever it holds.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from botocore.client import BaseClient
from botocore.exceptions import ClientError

from include.tiering.errors import RemoteStorageError
from include.tiering.formats.crc32c import rest_crc32c
from include.tiering.model.segment_data import RUNNING_CRC32C_STEP_BYTES, ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.remote_storage.s3.body import PacedBody, crc32c_of_part
from include.tiering.remote_storage.s3.errors import error_code, translated, was_retried

MAX_PARTS: Final = 10_000
_OUR_OWN_EARLIER_TRY: Final = frozenset({"PreconditionFailed", "NoSuchUpload"})


@dataclass(frozen=True, slots=True)
class Upload:
    """One object on its way. `key` is the full key; `is_ours` tells whether the store has exactly these bytes."""

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
        """Whether the answer names the checksum, computed by the store over all that it received and now has."""
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
        """Parts of equal size, the last one shorter; one after another, so that one writer is one stream."""
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
        """Goes into the header, so it is needed before the part is sent: from what is known, else by reading."""
        head, whole = self._crc32c_up_to(first), self._crc32c_up_to(first + size_bytes)
        if head is None or whole is None:
            return crc32c_of_part(self.body, first, size_bytes)
        return rest_crc32c(whole, head, size_bytes)

    def _crc32c_up_to(self, end: int) -> int | None:
        """Of the first `end` bytes; None if it is not known."""
        if end in (0, self.body.size_bytes):
            return self.crc32c if end else 0
        steps, rest = divmod(end, RUNNING_CRC32C_STEP_BYTES)
        return self.running_crc32c[steps - 1] if not rest and steps <= len(self.running_crc32c) else None

    def _once(self, request: Callable[..., dict[str, Any]], **arguments: object) -> dict[str, Any] | None:
        """A request that may create the object only if there is none; None instead of its own earlier, lost answer."""
        try:
            return request(Bucket=self.bucket, Key=self.key, IfNoneMatch="*", **arguments)
        except ClientError as error:
            if not (error_code(error) in _OUR_OWN_EARLIER_TRY and was_retried(error) and self.is_ours()):
                raise
            return None

    def _abort(self, upload_id: str) -> None:
        """The first error is the one to report: an upload that stays open is found by the delete of the attempt."""
        try:
            abort(self.client, self.bucket, self.key, upload_id)
        except RemoteStorageError:
            return


def abort(client: BaseClient, bucket: str, key: str, upload_id: str) -> None:
    """Give up an open upload; harmless if it is gone."""
    with translated("abort the upload of", bucket, key):
        try:
            client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
        except ClientError as error:
            if error_code(error) != "NoSuchUpload":
                raise


def full_object_crc32c(answer: dict[str, Any]) -> int | None:
    """The checksum in an answer, if it covers the whole object and not the checksums of its parts."""
    encoded = answer.get("ChecksumCRC32C")
    if encoded is None or "-" in encoded or answer.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return int.from_bytes(b64decode(encoded), "big")


def encoded_crc32c(crc32c: int) -> str:
    """As a header carries it."""
    return b64encode(crc32c.to_bytes(4, "big")).decode()
