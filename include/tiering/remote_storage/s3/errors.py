"""What botocore raises, as errors of this platform. Texts carry codes and places, never a server's own words: those
may repeat keys and signatures."""

import contextlib
from collections.abc import Iterator
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from urllib3.exceptions import HTTPError as Urllib3Error

from include.tiering.errors import (
    RemoteAccessDeniedError,
    RemoteChecksumError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    RemoteStorageUnavailableError,
    RemoteStoreMissingError,
    printable,
)
from include.tiering.remote_storage.s3.body import SendingFailed

_NO_SUCH_BUCKET: Final = frozenset({"NoSuchBucket", "InvalidBucketName"})
_NOT_FOUND: Final = frozenset({"NoSuchKey", "NoSuchUpload", "InvalidRange", "404", "416"})
_CHECKSUM: Final = frozenset(
    {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "ChecksumMismatch"}
)
_DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "AccountProblem",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "NotSignedUp",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "XAdminUserNotFound",
        "401",
        "403",
    }
)
_FULL: Final = frozenset({"QuotaExceeded", "InsufficientStorage", "StorageFull", "XMinioStorageFull"})
_UNAVAILABLE: Final = frozenset(
    {
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "Unknown"))


def http_status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def was_retried(error: ClientError) -> bool:
    """Whether an earlier try of the same request may have succeeded, its answer lost."""
    return int(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) > 0


def is_retriable_code(code: str) -> bool:
    return code in _UNAVAILABLE


@contextlib.contextmanager
def translated(verb: str, bucket: str, key: str) -> Iterator[None]:
    """Turns what botocore raises into the storage error that names the object and the way out."""
    place = f"cannot {verb} s3://{bucket}/{printable(key)}"
    try:
        yield
    except SendingFailed as failure:
        raise failure.cause from None
    except ClientError as error:
        raise _of_answer(error, place, bucket) from error
    except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as error:
        raise RemoteStorageError(
            f"{place}: no usable credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
            " or name a profile with AWS_PROFILE"
        ) from error
    except SSLError as error:
        raise RemoteStorageUnavailableError(
            f"{place}: TLS failed: check the endpoint's certificate, or name its authority with AWS_CA_BUNDLE"
        ) from error
    except (BotoConnectionError, HTTPClientError, IncompleteReadError, Urllib3Error, TimeoutError) as error:
        raise RemoteStorageUnavailableError(
            f"{place}: no answer from the store, or a broken one ({type(error).__name__})"
        ) from error
    except BotoCoreError as error:
        raise RemoteStorageError(f"{place}: the request could not be made ({type(error).__name__})") from error


def _of_answer(error: ClientError, place: str, bucket: str) -> RemoteStorageError:
    code, status = error_code(error), http_status(error)
    answer = f"{place}: the store answered {printable(code)[:64]} ({status})"
    if code in _FULL or status == 507:
        return RemoteStorageFullError(f"{answer}: free space in bucket {bucket} or raise its quota")
    if code in _DENIED or status in (401, 403):
        return RemoteAccessDeniedError(
            f"{answer}: check the credentials, the clock, and that they allow s3:PutObject, s3:GetObject,"
            f" s3:DeleteObject, s3:AbortMultipartUpload and s3:ListBucket on bucket {bucket}"
        )
    if code in _NO_SUCH_BUCKET:
        return RemoteStoreMissingError(f"{answer}: create bucket {bucket} or correct remote_storage.url")
    if code in _CHECKSUM:
        return RemoteChecksumError(f"{answer}: what arrived is not what was read from the source")
    if code == "PreconditionFailed" or status == 412:
        return RemoteObjectExistsError(f"{answer}: the object exists already and is left as it is")
    if code in _UNAVAILABLE or status in (429, 500, 502, 503, 504):
        return RemoteStorageUnavailableError(f"{answer}, and again after the last retry")
    if code in _NOT_FOUND or status in (404, 416):
        return RemoteResourceNotFoundError(answer)
    return RemoteStorageError(answer)
