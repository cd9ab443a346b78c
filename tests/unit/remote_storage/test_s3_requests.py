"""Bodies of requests to S3, and errors of its answers."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from botocore.client import BaseClient
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
    SSLError,
)
from botocore.hooks import HierarchicalEmitter
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import (
    RemoteAccessDeniedError,
    RemoteChecksumError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    RemoteStorageUnavailableError,
    RemoteStoreMissingError,
    SendingStoppedError,
    SourceChangedError,
)
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import is_unread
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.object_store import BLOCK_BYTES, BytesSource, ObjectStat, crc32c_of
from include.tiering.remote_storage.s3.client import (
    PacedBody,
    SendingFailed,
    SlowDowns,
    crc32c_of_part,
    is_retriable_code,
    s3_client,
    translated,
    was_retried,
)
from include.tiering.remote_storage.s3.listing import ListedPages, ListPage
from include.tiering.remote_storage.s3.store import S3ObjectStore, encoded_crc32c
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.memory_source import ShrinkingSource
from tests.doubles.partial import Partial
from tests.doubles.stored_log import CountingLimiter, some_bytes, some_metadata


@pytest.fixture(scope="module", autouse=True)
def _one_client() -> Iterator[None]:
    """Of the SDK, to make which takes longer than a test. Each test puts a client of its own in its place."""
    with patch(f"{S3ObjectStore.__module__}.s3_client", cache(s3_client)):
        yield


# Responses that ask for fewer requests.


@pytest.mark.parametrize(
    ("status", "code", "count"),
    [(503, "ServiceUnavailable", 1), (429, "", 1), (400, "Throttling", 1), (200, "", 0), (500, "InternalError", 0)],
)
def test_which_responses_ask_for_fewer_requests(status: int, code: str, count: int) -> None:
    events = HierarchicalEmitter()
    slow_downs = SlowDowns(cast(BaseClient, SimpleNamespace(meta=SimpleNamespace(events=events))))
    parsed = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}
    answers = events.emit("needs-retry.s3.PutObject", response=(None, parsed), attempts=1)
    answers += events.emit("needs-retry.s3.PutObject", response=None, attempts=1)
    assert slow_downs.count == count
    assert [answer for _, answer in answers] == [None, None], "any other answer would be taken for a delay"


# The body that paces: blocks, rewinds, errors that end a request at once.

CONTENT = some_bytes(3 * BLOCK_BYTES + 10)


def read_all(body: PacedBody) -> bytes:
    return b"".join(bytes(block) for block in iter(lambda: body.read(16_384), b""))


def test_it_gives_large_blocks_whatever_is_asked_for() -> None:
    limiter = CountingLimiter()
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), limiter, lambda _: None)
    assert len(body) == len(CONTENT)
    assert read_all(body) == CONTENT
    assert limiter.granted == [BLOCK_BYTES] * 3 + [10]
    assert body.read() == b""


@given(st.integers(0, len(CONTENT)), st.data())
def test_any_part_of_the_source(first: int, data: st.DataObject) -> None:
    size_bytes = data.draw(st.integers(0, len(CONTENT) - first))
    body = PacedBody(BytesSource(CONTENT), first, size_bytes, UnlimitedBytes(), lambda _: None)
    part = CONTENT[first : first + size_bytes]
    assert read_all(body) == part
    assert crc32c_of_part(BytesSource(CONTENT), first, size_bytes) == crc32c_of(part)


def test_what_is_sent_again_is_charged_again_and_taken_back_from_the_progress() -> None:
    limiter = CountingLimiter()
    progress: list[int] = []
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), limiter, progress.append)
    body.read()
    body.read()
    assert body.tell() == 2 * BLOCK_BYTES
    assert body.seek(0) == 0
    first = bytes(body.read())
    assert sum(progress) == BLOCK_BYTES
    assert first + read_all(body) == CONTENT
    assert sum(progress) == len(CONTENT)
    assert limiter.total_bytes == len(CONTENT) + 2 * BLOCK_BYTES


def test_looking_at_the_end_is_not_sending() -> None:
    limiter = CountingLimiter()
    progress: list[int] = []
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), limiter, progress.append)
    body.read()
    assert body.seek(0, io.SEEK_END) == len(CONTENT)
    assert body.seek(0) == 0
    assert body.seek(0, io.SEEK_CUR) == 0
    assert limiter.total_bytes == BLOCK_BYTES
    assert read_all(body) == CONTENT
    assert sum(progress) == len(CONTENT)


def test_a_try_that_was_answered_early_counts_as_sent_when_the_object_is_ours() -> None:
    progress: list[int] = []
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), UnlimitedBytes(), progress.append)
    body.read()
    body.report_rest()
    body.report_rest()
    assert sum(progress) == len(CONTENT)


@pytest.mark.parametrize("kind", [SendingStoppedError, OSError])
def test_an_error_of_the_limiter_is_no_exception_that_a_client_would_retry(kind: type[Exception]) -> None:
    limiter = CountingLimiter(allowance=BLOCK_BYTES, error=kind("stop"))
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), limiter, lambda _: None)
    body.read()
    with pytest.raises(SendingFailed) as raised:
        body.read()
    assert not isinstance(raised.value, Exception)
    assert isinstance(raised.value.cause, kind)


def test_errors_of_the_source_and_of_the_callback_end_it_too() -> None:
    shrunk = ShrinkingSource(BytesSource(CONTENT), shrunk_bytes=10)
    with pytest.raises(SendingFailed) as raised:
        PacedBody(shrunk, 0, len(CONTENT), UnlimitedBytes(), lambda _: None).read()
    assert isinstance(raised.value.cause, SourceChangedError)
    with pytest.raises(SendingFailed) as raised:
        PacedBody(BytesSource(b""), 0, 10, UnlimitedBytes(), lambda _: None).read()
    assert isinstance(raised.value.cause, RemoteChecksumError)

    def fail(_: int) -> None:
        raise SendingStoppedError("progress has nowhere to go")

    with pytest.raises(SendingFailed):
        PacedBody(BytesSource(CONTENT), 0, len(CONTENT), UnlimitedBytes(), fail).read()


# Every answer of a store has a type, a place and a way out, and repeats nothing that the server said.

SECRET = "StringToSign:AKIA123:s3cr3t"


def answer(code: str, status: int, retries: int = 0) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": SECRET},
            "ResponseMetadata": {"HTTPStatusCode": status, "RetryAttempts": retries},
        },
        "PutObject",
    )


def outcome_of(error: BaseException) -> RemoteStorageError:
    with pytest.raises(RemoteStorageError) as raised, translated("write", "bucket-1", "a/key"):
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("code", "status", "kind", "words"),
    [
        ("NoSuchKey", 404, RemoteResourceNotFoundError, "a/key"),
        ("404", 404, RemoteResourceNotFoundError, "a/key"),
        ("InvalidRange", 416, RemoteResourceNotFoundError, "a/key"),
        ("NoSuchBucket", 404, RemoteStoreMissingError, "create bucket bucket-1"),
        ("PreconditionFailed", 412, RemoteObjectExistsError, "exists already"),
        ("ConditionalRequestConflict", 409, RemoteStorageUnavailableError, "a later one may succeed"),
        ("BadDigest", 400, RemoteChecksumError, "a/key"),
        ("XAmzContentChecksumMismatch", 400, RemoteChecksumError, "a/key"),
        ("SlowDown", 503, RemoteStorageUnavailableError, "a later one may succeed"),
        ("InternalError", 500, RemoteStorageUnavailableError, "a later one may succeed"),
        ("Unknown", 502, RemoteStorageUnavailableError, "a later one may succeed"),
        ("TooManyRequests", 429, RemoteStorageUnavailableError, "a later one may succeed"),
        ("QuotaExceeded", 403, RemoteStorageFullError, "raise its quota"),
        ("InsufficientStorage", 507, RemoteStorageFullError, "raise its quota"),
        ("XMinioStorageFull", 507, RemoteStorageFullError, "free space"),
        ("AccessDenied", 403, RemoteAccessDeniedError, "check the credentials"),
        ("SignatureDoesNotMatch", 403, RemoteAccessDeniedError, "check the credentials"),
        ("XAdminUserNotFound", 404, RemoteAccessDeniedError, "check the credentials"),
        ("InvalidObjectState", 403, RemoteAccessDeniedError, "InvalidObjectState"),
        ("NotImplemented", 501, RemoteStorageError, "NotImplemented (501)"),
    ],
)
def test_answers(code: str, status: int, kind: type[RemoteStorageError], words: str) -> None:
    error = outcome_of(answer(code, status))
    assert type(error) is kind
    assert words in str(error)
    assert "cannot write s3://bucket-1/a/key" in str(error)
    assert "s3cr3t" not in str(error)


def test_a_hostile_code_is_made_harmless() -> None:
    assert str(outcome_of(answer("\x1b[31m" * 100, 400))).isprintable()


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="http://h"),
        ConnectTimeoutError(endpoint_url="http://h"),
        ReadTimeoutError(endpoint_url="http://h"),
        HTTPClientError(error=OSError("reset")),
        IncompleteReadError(actual_bytes=1, expected_bytes=2),
        SSLError(endpoint_url="https://h", error="certificate"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_answer_is_worth_retrying(error: Exception) -> None:
    assert type(outcome_of(error)) is RemoteStorageUnavailableError


def test_what_cannot_even_be_asked() -> None:
    assert "AWS_ACCESS_KEY_ID" in str(outcome_of(NoCredentialsError()))
    assert not outcome_of(ParamValidationError(report="bad")).retriable


def test_an_object_that_does_not_have_its_own_checksum_is_damaged() -> None:
    """Other than what cannot be asked, which says nothing about the object."""
    damaged, not_asked = outcome_of(FlexibleChecksumError(error_msg="crc32c")), outcome_of(NoCredentialsError())
    assert (type(damaged), is_unread(damaged), is_unread(not_asked)) == (RemoteChecksumError, False, True)


def test_an_error_of_the_sender_comes_out_as_it_was() -> None:
    stopped = SendingStoppedError("paused")
    with pytest.raises(SendingStoppedError) as raised, translated("write", "bucket-1", "a/key"):
        raise SendingFailed(stopped)
    assert raised.value is stopped


def test_a_retry_is_known_by_the_clients_own_count() -> None:
    assert not was_retried(answer("PreconditionFailed", 412))
    assert was_retried(answer("PreconditionFailed", 412, retries=1))
    assert not was_retried(ClientError({}, "PutObject"))


def test_failed_keys_of_a_delete_say_whether_to_retry() -> None:
    assert is_retriable_code("InternalError")
    assert is_retriable_code("SlowDown")
    assert not is_retriable_code("AccessDenied")


def test_a_store_that_does_not_answer_is_named_by_its_address_alone() -> None:
    error = EndpointConnectionError(
        endpoint_url="http://user:s3cr3t@127.0.0.1:9999/bucket-1/key?X-Amz-Signature=s3cr3t"
    )
    message = str(outcome_of(error))
    assert "http://127.0.0.1:9999)" in message
    assert "s3cr3t" not in message


# Answers that no S3 gives: an error with the object's name, never another exception.


class AnswersWith(Partial):
    """A client whose every answer is the same, or which raises."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        def answered(**_: Any) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return answered


def store_of(answer: Any) -> S3ObjectStore:
    store = S3ObjectStore("bucket", "", endpoint_url="http://127.0.0.1:1", region="us-east-1")
    store._client = AnswersWith(answer)
    return store


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"ContentLength": "many"},
        ValueError("Invalid timestamp"),
        RecursionError("redirected again and again"),
    ],
)
def test_a_head_that_is_none_is_named(answer: Any) -> None:
    for ask in (S3ObjectStore.stat, S3ObjectStore.head):
        with pytest.raises(RemoteStorageError, match="cannot look at s3://bucket/a/b: the answer is not one of S3"):
            ask(store_of(answer), "a/b")


def test_a_time_that_is_missing_is_named() -> None:
    with pytest.raises(RemoteStorageError, match="cannot look at s3://bucket/a/b"):
        store_of({"ContentLength": 3, "ETag": "e"}).head("a/b")


@pytest.mark.parametrize("encoded", ["!!!not base64", "AAA", "AAAAAAAAAAA="])
def test_a_checksum_that_is_none_counts_as_missing(encoded: str) -> None:
    found = store_of({"ContentLength": 3, "ETag": "e", "ChecksumCRC32C": encoded, "ChecksumType": "FULL_OBJECT"}).stat(
        "a/b"
    )
    assert found == ObjectStat(3, None)


def test_a_deletion_that_failed_without_a_key_fails_for_all() -> None:
    failures = store_of({"Errors": [{"Code": "AccessDenied"}]}).delete(["a/b", "a/c"])
    assert [failure.key for failure in failures] == ["a/b", "a/c"]


# Uploads in parts, of which a server answers one request as it should not.


class Parts(Partial):
    """A client for an upload of two parts: answers by request, or exceptions; `called` are the requests in order."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "create_multipart_upload": {"UploadId": "u"},
            "upload_part": {"ETag": "e"},
            "complete_multipart_upload": {},
            "abort_multipart_upload": {},
            **answers,
        }
        self.called: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        def answered(**arguments: Any) -> Any:
            self.called.append((name, arguments.get("UploadId")))
            if isinstance(self.answers[name], Exception):
                raise self.answers[name]
            return self.answers[name]

        return answered


def refused(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Any")


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"upload_part": {}}, "the answer is not one of S3"),
        ({"upload_part": refused("BadDigest", 400)}, "differ from those read from the source"),
        ({"complete_multipart_upload": refused("InternalError", 200)}, "a later one may succeed"),
        ({"complete_multipart_upload": refused("PreconditionFailed", 412)}, "is left as it is"),
        (
            {"upload_part": refused("BadDigest", 400), "abort_multipart_upload": refused("AccessDenied", 403)},
            "differ from those read",
        ),
    ],
)
def test_an_upload_that_went_wrong_is_aborted_and_its_first_error_is_told(answers: Any, error: str) -> None:
    client = Parts(**answers)
    store = S3ObjectStore(
        "bucket",
        "",
        endpoint_url="http://127.0.0.1:1",
        region="us-east-1",
        single_request_bytes=BLOCK_BYTES,
        part_size_bytes=2 * BLOCK_BYTES,
    )
    store._client = client
    with pytest.raises(RemoteStorageError, match=error):
        store.put("a/b", BytesSource(CONTENT), crc32c_of(CONTENT), limiter=UnlimitedBytes(), on_sent=lambda _: None)
    assert client.called[-1] == ("abort_multipart_upload", "u")


def test_an_upload_without_an_id_is_no_upload() -> None:
    client = Parts(create_multipart_upload={})
    store = S3ObjectStore(
        "bucket", "", endpoint_url="http://127.0.0.1:1", region="us-east-1", single_request_bytes=BLOCK_BYTES
    )
    store._client = client
    with pytest.raises(RemoteStorageError, match="the answer is not one of S3"):
        store.put("a/b", BytesSource(CONTENT), crc32c_of(CONTENT), limiter=UnlimitedBytes(), on_sent=lambda _: None)
    assert [name for name, _ in client.called] == ["create_multipart_upload"]


class GivenPages(ListedPages):
    """Pages of open uploads that a test made; an error is raised in their place."""

    def __init__(self, given: ListPage | RemoteStorageError) -> None:
        self._prefix = "p/"
        self._given = given

    def of(self, operation: str, below: str = "", begin: Mapping[str, str] | None = None) -> Iterator[ListPage]:
        if isinstance(self._given, RemoteStorageError):
            raise self._given
        yield self._given


def test_only_uploads_of_the_segment_itself_are_aborted_whatever_a_listing_shows() -> None:
    """Other writers share the bucket, and a listing may name their uploads."""
    segment = replace(some_metadata(10), state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    own = AivenLayout().keys(segment)[0][1]
    uploads = [
        ("Upload", {"Key": f"p/{own}", "UploadId": "own"}),
        ("Upload", {"Key": f"other/{own}", "UploadId": "of another prefix"}),
        ("Upload", {"Key": f"p/{own}.more", "UploadId": "of another object"}),
    ]
    client = Parts(delete_objects={})
    store = S3ObjectStore("bucket", "p/", endpoint_url="http://127.0.0.1:1", region="us-east-1")
    store._client, store._pages = client, GivenPages(ListPage(uploads))
    assert SegmentStorage(store, AivenLayout()).delete_log_segments([segment]) == ()
    assert [upload for name, upload in client.called if name == "abort_multipart_upload"] == ["own"]


def test_finished_segments_are_deleted_without_the_permission_to_list_uploads() -> None:
    """docs/airflow.md says so of s3:ListBucketMultipartUploads; an abandoned copy stays until it may be listed."""

    finished = replace(some_metadata(10), state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    client = Parts(delete_objects={})
    store = S3ObjectStore("bucket", "p/", endpoint_url="http://127.0.0.1:1", region="us-east-1")
    store._client, store._pages = client, GivenPages(RemoteAccessDeniedError("AccessDenied (403)"))
    assert SegmentStorage(store, AivenLayout()).delete_log_segments([finished]) == ()
    assert [name for name, _ in client.called] == ["delete_objects"]
    abandoned = replace(finished, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    with pytest.raises(RemoteAccessDeniedError):
        SegmentStorage(store, AivenLayout()).delete_log_segments([abandoned])


class Whole(Parts):
    """A server that says of an object in one request which checksum it computed, and of which kind."""

    def __init__(self, **answer: Any) -> None:
        super().__init__(put_object=answer)


@pytest.mark.parametrize(
    ("client", "single_request_bytes", "is_confirmed"),
    [
        # An upload in parts is asked for afterwards, whatever the server answers.
        (Parts(complete_multipart_upload={"ChecksumCRC32C": encoded_crc32c(crc32c_of(CONTENT))}), BLOCK_BYTES, False),
        (Whole(ChecksumCRC32C=encoded_crc32c(crc32c_of(CONTENT)), ChecksumType="FULL_OBJECT"), len(CONTENT), True),
        (Whole(), len(CONTENT), False),
    ],
    ids=["in parts", "in one request", "in one request without a checksum"],
)
def test_a_write_counts_as_confirmed_only_if_the_answer_names_the_checksum_of_the_whole_object(
    client: Parts, single_request_bytes: int, is_confirmed: bool
) -> None:
    store = S3ObjectStore(
        "bucket",
        "",
        endpoint_url="http://127.0.0.1:1",
        region="us-east-1",
        single_request_bytes=single_request_bytes,
        part_size_bytes=2 * BLOCK_BYTES,
    )
    store._client = client
    confirmed = store.put(
        "a/b", BytesSource(CONTENT), crc32c_of(CONTENT), limiter=UnlimitedBytes(), on_sent=lambda _: None
    )
    assert confirmed is is_confirmed
