"""Every answer of a store has a type, a place and a way out, and repeats nothing that the server said."""

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
    SSLError,
)

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
)
from include.tiering.remote_storage.s3.client import SendingFailed, is_retriable_code, translated, was_retried

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
        ("ConditionalRequestConflict", 409, RemoteStorageUnavailableError, "last retry"),
        ("BadDigest", 400, RemoteChecksumError, "a/key"),
        ("XAmzContentChecksumMismatch", 400, RemoteChecksumError, "a/key"),
        ("SlowDown", 503, RemoteStorageUnavailableError, "last retry"),
        ("InternalError", 500, RemoteStorageUnavailableError, "last retry"),
        ("Unknown", 502, RemoteStorageUnavailableError, "last retry"),
        ("TooManyRequests", 429, RemoteStorageUnavailableError, "last retry"),
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
