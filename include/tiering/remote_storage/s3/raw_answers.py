"""Answers to listings as bytes: botocore signs, sends again and judges errors, but does not parse.

Turning a page of 1,000 keys into dicts takes botocore ten times as long as everything else about it. Its `before-send`
event lets somebody else send the signed request: here the answer is read, bounded and to its declared end, and kept;
botocore gets an empty document in its place. Answers that are errors it gets as they are.
"""

import threading
from collections.abc import Iterator
from typing import Final

import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.client import BaseClient
from botocore.exceptions import ConnectionClosedError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from include.tiering.errors import RemoteStorageError
from include.tiering.units import KIB, MIB, format_bytes

MAX_ANSWER_BYTES: Final = 16 * MIB
"""A page has at most 1,000 keys of at most 1,024 bytes, three times that when encoded, and some hundred bytes each."""

_OPERATIONS: Final = ("ListObjectsV2", "ListObjectVersions", "ListMultipartUploads")
_NOTHING_TO_PARSE: Final = b"<Answer/>"
_ERROR: Final = b"<Error>"
_HEAD_BYTES: Final = 256
_BLOCK_BYTES: Final = 256 * KIB
_TIMEOUT_SECONDS: Final = (10, 60)


class RawAnswers:
    """Takes over the sending of the listing operations of one client."""

    def __init__(self, client: BaseClient) -> None:
        self._kept = threading.local()
        self._http = URLLib3Session(
            verify=botocore.session.get_session().get_config_variable("ca_bundle") or True,
            proxies=get_environ_proxies(client.meta.endpoint_url),
            timeout=_TIMEOUT_SECONDS,
        )
        for operation in _OPERATIONS:
            client.meta.events.register(f"before-send.s3.{operation}", self._send)

    def take(self) -> bytes:
        """The whole answer to what this thread asked last."""
        answer: bytes = self._kept.answer
        self._kept.answer = b""
        return answer

    def _send(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        request.stream_output = True
        answer = self._http.send(request)
        content = _whole(answer, request.url.partition("?")[0])
        # S3 may send an error under status 200, too.
        if answer.status_code < 300 and _ERROR not in content[:_HEAD_BYTES]:
            self._kept.answer, content = content, _NOTHING_TO_PARSE
        return AWSResponse(request.url, answer.status_code, answer.headers, _ReadBody(content))


class _ReadBody:
    """What `AWSResponse` takes its content from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self._content


def _whole(answer: AWSResponse, place: str) -> bytes:
    """Raises ConnectionClosedError, after which botocore tries again, if it ends before its declared length."""
    try:
        content = _bounded(answer.raw.stream(_BLOCK_BYTES))
    except HTTPError as error:
        raise ConnectionClosedError(endpoint_url=place) from error
    except RemoteStorageError:
        answer.raw.close()
        raise
    declared = answer.headers.get("Content-Length")
    if declared is not None and declared != str(len(content)):
        raise ConnectionClosedError(endpoint_url=place)
    return content


def _bounded(blocks: Iterator[bytes]) -> bytes:
    taken = []
    size_bytes = 0
    for block in blocks:
        size_bytes += len(block)
        if size_bytes > MAX_ANSWER_BYTES:
            raise RemoteStorageError(
                f"the store answers a listing with more than {format_bytes(MAX_ANSWER_BYTES)}: that is no page of keys"
            )
        taken.append(block)
    return b"".join(taken)
