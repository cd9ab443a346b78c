"""Requests to S3: configuration of the boto3 client, rate-limited bodies, and translation of errors.

setting                                  why
request_checksum_calculation             when required: botocore adds a CRC-32 only if S3 requires a checksum and the
                                         request has none; our bodies are sent with a CRC-32C
payload_signing_enabled False            over plain http botocore would read the body for a SHA-256 too; the checksum
                                         header, which is signed, protects the body. Use https on untrusted networks:
                                         http does not encrypt
no Expect: 100-continue                  it costs one more round trip per object
path style if an endpoint is set         names such as bucket.host may not resolve
standard retries, bounded                a body can be rewound and is charged again; retries must end. Each request
                                         has its own bound (`OwnRetries`)
no validation of parameters              all arguments are built and typed here; validation takes 3 % of the time of a
                                         small request
classic client, never CRT                CRT ignores an endpoint that is set, and accepts no rate-limited body
a fixed User-Agent                       botocore would compose it for every request, in 10 % of the time of a small
                                         request

botocore reads the body of a `put` from a `PacedBody`, which reads the byte source in blocks. Messages of errors
contain the error code and the place, never the message text of a server, which may repeat keys and signatures.
"""

import contextlib
import io
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
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
    SettingError,
    printable,
)
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.remote_storage.object_store import BLOCK_BYTES, S3Credentials, blocks_of, filled_block
from include.tiering.settings.fields import check_endpoint_url

DEFAULT_REGION = "us-east-1"
MAX_CONNECTIONS: Final = 64
"""How many connections are kept for later requests. No process sends more requests at the same time."""
USER_AGENT = f"kafka-tiering-operations boto3/{boto3.__version__}"


def s3_client(
    *, endpoint_url: str | None, region: str | None, credentials: S3Credentials | None, max_attempts: int
) -> BaseClient:
    """Create a client.

    Args:
        endpoint_url: URL of an S3-compatible server; None: the one that the SDK chooses.
        region: None: the region of the AWS configuration, or `DEFAULT_REGION` if that has none.
        credentials: None: boto3's credential chain (environment, profile, instance).
        max_attempts: tries of a request, the first included.

    Raises:
        SettingError: an endpoint that is not an http(s) URL, or holds credentials; an invalid region; a profile or an
            AWS configuration that cannot be used.
    """
    if endpoint_url is not None:
        _check_endpoint(endpoint_url)
    try:
        return _client_of(endpoint_url, region, credentials, max_attempts)
    except (BotoCoreError, ValueError) as error:
        raise SettingError(
            f"S3 cannot be used as it is set ({type(error).__name__}): check remote_storage.endpoint_url,"
            " remote_storage.region, AWS_PROFILE, AWS_DEFAULT_REGION and the AWS configuration file"
        ) from error


def _client_of(
    endpoint_url: str | None, region: str | None, credentials: S3Credentials | None, max_attempts: int
) -> BaseClient:
    session = boto3.session.Session() if credentials is None else _session_of(credentials)
    client = session.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=region or session.region_name or DEFAULT_REGION,
        config=Config(
            signature_version="s3v4",
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"mode": "standard", "total_max_attempts": max_attempts},
            parameter_validation=False,
            connect_timeout=10,
            read_timeout=60,
            tcp_keepalive=True,
            max_pool_connections=MAX_CONNECTIONS,
            user_agent=USER_AGENT,
            s3={
                "payload_signing_enabled": False,
                "addressing_style": "auto" if endpoint_url is None else "path",
            },
        ),
    )
    client.meta.events.register_last("before-call.s3", _drop_expect)
    client.meta.events.register_last("before-parameter-build.s3.HeadBucket", _follow_no_redirect)
    OwnRetries(client, max_attempts)
    return client


def _session_of(credentials: S3Credentials) -> boto3.session.Session:
    return boto3.session.Session(
        aws_access_key_id=credentials.access_key_id,
        aws_secret_access_key=credentials.secret_access_key,
        aws_session_token=credentials.session_token,
    )


def _drop_expect(params: dict[str, dict[str, str]], **_: object) -> None:
    """Remove the header Expect before a request is sent.

    This handler must return None: botocore takes any other value for the response to the request.
    """
    params["headers"].pop("Expect", None)


def _follow_no_redirect(context: dict[str, dict[str, object]], **_: object) -> None:
    """Let botocore take the answer to HeadBucket as it is.

    botocore sends this request when another one is redirected and the answer names no region. A server that redirects
    all requests redirects this one too, and botocore would send the next one for it, until Python's stack is exhausted.
    """
    context["s3_redirect"]["redirected"] = True


def _check_endpoint(endpoint_url: str) -> None:
    try:
        check_endpoint_url(endpoint_url)
    except ValueError as error:
        raise SettingError(f"remote_storage.endpoint_url: {error}; credentials come from the environment") from None


class SendingFailed(BaseException):
    """Carries an error of the source, the limiter or the callback through the HTTP client.

    botocore takes every Exception raised while it sends for a broken connection, wraps it and tries again. To end the
    request at once, this class is derived from BaseException. `translated` raises the carried error.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class PacedBody:
    """Bytes `first` to `first + size_bytes` (exclusive) of a source, as a file that can be read and rewound.

    `read` ignores its argument and returns a block of up to 1 MiB, as much as the limiter grants at once: urllib3
    requests 16 KiB at a time, which would take 64 times as many calls. A block is valid until the next read.
    A retry rewinds: bytes that are sent again are charged again, and subtracted from the progress.
    """

    def __init__(
        self, source: ByteSource, first: int, size_bytes: int, limiter: ByteLimiter, on_sent: ProgressCallback
    ) -> None:
        self._source = source
        self._first = first
        self._size_bytes = size_bytes
        self._limiter = limiter
        self._on_sent = on_sent
        self._position = 0
        self._reported_bytes = 0
        self._buffer = memoryview(bytearray(min(BLOCK_BYTES, size_bytes)))

    def __len__(self) -> int:
        return self._size_bytes

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size_bytes: int = -1) -> memoryview | bytes:
        wanted_bytes = min(len(self._buffer), self._size_bytes - self._position)
        if wanted_bytes <= 0:
            return b""
        try:
            granted_bytes = self._limiter.take(wanted_bytes)
            block = filled_block(self._source, self._first + self._position, self._buffer[:granted_bytes])
        except Exception as error:
            raise SendingFailed(error) from error
        self._position += len(block)
        self._report()
        return block

    def report_rest(self) -> None:
        """Report all bytes as sent, after a success: a store may respond before it has read the last try to its end."""
        self._position = self._size_bytes
        self._report()

    def _report(self) -> None:
        """Report the difference between the position and what was reported so far."""
        change_bytes = self._position - self._reported_bytes
        self._reported_bytes = self._position
        try:
            if change_bytes:
                self._on_sent(change_bytes)
        except Exception as error:
            raise SendingFailed(error) from error


def crc32c_of_part(source: ByteSource, first: int, size_bytes: int) -> int:
    """Read bytes `first` to `first + size_bytes` (exclusive) of a source; return their CRC-32C."""
    crc32c = 0
    for block in blocks_of(source, first, size_bytes):
        crc32c = extend_crc32c(crc32c, block)
    return crc32c


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
_SLOW_DOWN: Final = frozenset({"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"})
_UNAVAILABLE: Final = _SLOW_DOWN | {
    "ConditionalRequestConflict",
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
}


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "Unknown"))


def http_status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def was_retried(error: ClientError) -> bool:
    """Return whether an earlier try of the same request may have succeeded with its response lost."""
    return int(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) > 0


class SlowDowns:
    """Counts the responses by which the server asked for fewer requests, each try of a request included."""

    def __init__(self, client: BaseClient) -> None:
        self.count = 0
        client.meta.events.register_first("needs-retry.s3", self._note)

    def _note(self, response: tuple[Any, dict[str, Any]] | None = None, **_: object) -> None:
        """Count one response. Return None: botocore takes any other value for the seconds to wait before a retry."""
        parsed = {} if response is None else response[1]
        status = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status in (429, 503) or parsed.get("Error", {}).get("Code") in _SLOW_DOWN:
            self.count += 1


_PASSING_STATUS: Final = (500, 502, 503, 504)
_FIRST_RETRY_SECONDS: Final = 0.05
_FIRST_SLOW_DOWN_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 20.0


class OwnRetries:
    """Lets each request have all of its tries, however many requests of the same client fail.

    botocore also bounds the retries of all requests of a client together: it stops after 35 retries (100 after
    SlowDown) without a success. If 16 requests are sent at the same time, that is 2 retries for each. So they would
    fail in an outage of half a second, which a single request survives. This handler comes after botocore's: it decides
    only where botocore's decided not to retry.
    """

    def __init__(self, client: BaseClient, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        client.meta.events.register_last("needs-retry.s3", self._seconds)

    def _seconds(
        self,
        attempts: int,
        response: tuple[Any, dict[str, Any]] | None = None,
        caught_exception: Exception | None = None,
        **_: object,
    ) -> float | None:
        """Return how long to wait before the next try; None: there is none."""
        parsed = {} if response is None else response[1]
        status = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode")
        is_slow_down = parsed.get("Error", {}).get("Code") in _SLOW_DOWN
        is_broken = isinstance(caught_exception, (BotoConnectionError, HTTPClientError))
        if attempts >= self._max_attempts or not (is_slow_down or is_broken or status in _PASSING_STATUS):
            return None
        first_seconds = _FIRST_SLOW_DOWN_SECONDS if is_slow_down else _FIRST_RETRY_SECONDS
        return min(first_seconds * 2.0 ** (attempts - 1), _LONGEST_RETRY_SECONDS) / 2


def is_retriable_code(code: str) -> bool:
    return code in _UNAVAILABLE


@contextlib.contextmanager
def translated(action: str, bucket: str, key: str) -> Iterator[None]:
    """Turn an exception of botocore into the storage error that fits it; the message names the object."""
    place = f"cannot {action} s3://{bucket}/{printable(key)}"
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
            f"{place}: the store sent no response, or a broken one ({type(error).__name__}{_asked(error)})"
        ) from error
    except FlexibleChecksumError as error:
        raise RemoteChecksumError(f"{place}: the bytes that arrived do not have the object's checksum") from error
    except BotoCoreError as error:
        raise RemoteStorageError(f"{place}: the request could not be made ({type(error).__name__})") from error
    except (ValueError, LookupError, RecursionError) as error:
        # botocore itself fails like this: with a date that is none, or a redirect that leads back to itself.
        raise RemoteStorageError(
            f"{place}: the answer is not one of S3 ({type(error).__name__}): is remote_storage.endpoint_url right?"
        ) from error


def from_byte(first: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a read. Raises LookupError if it says that it begins elsewhere, as that of a cache may."""
    if not answer.get("ContentRange", f"bytes {first}-").startswith(f"bytes {first}-"):
        raise LookupError("bytes of another range")
    return answer


def _asked(error: Exception) -> str:
    """Return ` at ADDRESS` with scheme, host and port of the endpoint, if botocore's error names it; else nothing."""
    named = getattr(error, "kwargs", {}).get("endpoint_url")
    if not isinstance(named, str):
        return ""
    parts = urlsplit(named)
    return f" at {printable(parts.scheme)}://{printable(parts.netloc.rpartition('@')[2])}"


def _of_answer(error: ClientError, place: str, bucket: str) -> RemoteStorageError:
    code, status = error_code(error), http_status(error)
    answer = f"{place}: the store answered {printable(code)[:64]} ({status})"
    if code in _FULL or status == 507:
        return RemoteStorageFullError(f"{answer}: free space in bucket {bucket} or raise its quota")
    if code in _DENIED or status in (401, 403):
        return RemoteAccessDeniedError(
            f"{answer}: check the credentials and the clock; the credentials have to allow s3:PutObject, s3:GetObject,"
            f" s3:DeleteObject, s3:AbortMultipartUpload and s3:ListBucket on bucket {bucket}"
        )
    if code in _NO_SUCH_BUCKET:
        return RemoteStoreMissingError(f"{answer}: create bucket {bucket} or correct remote_storage.url")
    if code in _CHECKSUM:
        return RemoteChecksumError(f"{answer}: the bytes that arrived differ from those read from the source")
    if code == "PreconditionFailed" or status == 412:
        return RemoteObjectExistsError(f"{answer}: the object exists already and is left as it is")
    if code in _UNAVAILABLE or status in (429, 500, 502, 503, 504):
        return RemoteStorageUnavailableError(f"{answer} to the last try: a later one may succeed")
    if code in _NOT_FOUND or status in (404, 416):
        return RemoteResourceNotFoundError(answer)
    return RemoteStorageError(answer)
