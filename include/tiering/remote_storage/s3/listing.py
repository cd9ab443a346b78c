"""List all objects of a bucket below a prefix, in parts by key, with every version if the bucket keeps versions.

A part is an interval of keys, listed without a delimiter: from `start-after` or a key marker to the first page with a
key beyond the interval. The borders come from a listing of two levels of "directories"; keys outside of them, or in
directories that are created later, belong to an interval, too. Several intervals need a server that lists in the
order of keys, as S3 promises: a page with a key that precedes the page before it is an error.

botocore signs requests, retries them and classifies errors, but does not parse pages: to turn a page of 1,000 keys into
dicts would take botocore ten times as long as the rest of the request. A handler of its `before-send` event sends the
signed request instead. The handler reads the response to its declared end, within a limit, and keeps it; botocore gets
an empty document in its place. Error responses are passed on to botocore unchanged. One page is read from its XML:

    <ListBucketResult>           or ListVersionsResult, ListMultipartUploadsResult
      <IsTruncated>true</…>      required; if true, a marker of the next page is required, too
      <KeyCount>…                optional: the number of entries and directories of the page, which is checked
      <NextContinuationToken>…   or NextKeyMarker with NextVersionIdMarker or NextUploadIdMarker
      <EncodingType>url</…>      keys and key markers are percent-encoded; without it they are plain
      <Contents>                 or Version, DeleteMarker, Upload: one entry
        <Key>…  <Size>…  <LastModified>…  <VersionId>…  <IsLatest>…  <UploadId>…  <Initiated>…
      <CommonPrefixes><Prefix>…  with a delimiter: one "directory"

Expat calls a handler for each element and its text, and only the fields above are kept, not a tree of the page. S3 and
compatible servers send names without a namespace prefix. A document type, and with it every entity except XML's
predefined ones, is refused.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final, NoReturn
from xml.parsers import expat

import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.client import BaseClient
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from include.tiering.errors import RemoteStorageError, printable
from include.tiering.remote_storage.object_store import (
    KeyInterval,
    ListedObject,
    ListedUpload,
    ListingProperties,
    S3Credentials,
    cut,
    decoded_key,
    milliseconds,
)
from include.tiering.remote_storage.s3.client import error_code, http_status, s3_client, translated
from include.tiering.units import KIB, MIB, format_bytes

_ENTRIES: Final = frozenset({"Contents", "Version", "DeleteMarker", "Upload"})
_ENTRY_FIELDS: Final = frozenset({"Key", "Size", "LastModified", "VersionId", "IsLatest", "UploadId", "Initiated"})
_PAGE_FIELDS: Final = frozenset(
    {
        "IsTruncated",
        "EncodingType",
        "KeyCount",
        "NextContinuationToken",
        "NextKeyMarker",
        "NextVersionIdMarker",
        "NextUploadIdMarker",
        "Prefix",
    }
)
_DIRECTORY: Final = "CommonPrefixes"


@dataclass(slots=True)
class ListPage:
    """One page: `entries` are element names with their fields, `directories` are the common prefixes.

    `fields` are the fields of the page itself. `decode` decodes the keys if the page is percent-encoded.
    """

    entries: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def is_truncated(self) -> bool:
        return self.fields["IsTruncated"] == "true"

    def marker(self, name: str) -> str:
        """Return a marker of the next page, decoded if it is a key; empty if there is none."""
        found = self.fields.get(name, "")
        return decoded_key(found) if name == "NextKeyMarker" and self._is_encoded else found

    @property
    def _is_encoded(self) -> bool:
        return self.fields.get("EncodingType") == "url"

    def decode(self) -> None:
        if self._is_encoded:
            for _, entry in self.entries:
                entry["Key"] = decoded_key(entry["Key"])
            self.directories = [decoded_key(directory) for directory in self.directories]


def parse_page(body: bytes) -> ListPage:
    """Parse a whole page.

    Raises:
        RemoteStorageError: the page is not XML, is truncated, or has a document type; an entry has no key; the number
            of entries and directories is not `KeyCount`; or `IsTruncated` is no boolean.
    """
    page = ListPage()
    try:
        _parse(body, page)
    except (expat.ExpatError, LookupError) as error:
        raise RemoteStorageError(f"a page of the listing cannot be parsed: {error}") from error
    if any("Key" not in entry for _, entry in page.entries):
        raise RemoteStorageError("a page of the listing has an entry without a key")
    if page.fields.get("IsTruncated") not in ("true", "false"):
        raise RemoteStorageError("a page of the listing does not say whether it is the last (IsTruncated): refused")
    counted = page.fields.get("KeyCount")
    found = len(page.entries) + len(page.directories)
    if counted and counted != str(found):
        raise RemoteStorageError(f"a page of the listing has {found} keys and says that it has {counted[:20]}")
    page.decode()
    return page


def _parse(body: bytes, page: ListPage) -> None:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_document_type
    texts: list[str] = []
    entry: dict[str, str] = {}

    def started(_: str, __: object) -> None:
        texts.clear()  # drops white space between elements

    def ended(name: str) -> None:
        nonlocal entry
        if name in _ENTRY_FIELDS:
            entry[name] = "".join(texts)
        elif name in _ENTRIES:
            page.entries.append((name, entry))
            entry = {}
        elif name in _PAGE_FIELDS:
            page.fields[name] = "".join(texts)
        elif name == _DIRECTORY:
            page.directories.append(page.fields["Prefix"])

    parser.CharacterDataHandler = texts.append
    parser.StartElementHandler = started
    parser.EndElementHandler = ended
    parser.Parse(body, True)


def _refuse_document_type(*_: object) -> NoReturn:
    raise RemoteStorageError("a page of the listing has a document type: no store sends one")


MAX_ANSWER_BYTES: Final = 16 * MIB
"""The limit is generous: a page has at most 1,000 keys, each at most 1,024 bytes long, or three times that if it is
percent-encoded, and a few hundred further bytes for each key."""

_OPERATIONS: Final = ("ListObjectsV2", "ListObjectVersions", "ListMultipartUploads")
_NOTHING_TO_PARSE: Final = b"<Answer/>"
_ERROR: Final = b"<Error>"
_HEAD_BYTES: Final = 256
_BLOCK_BYTES: Final = 256 * KIB
_TIMEOUT_SECONDS: Final = (10, 60)


class BoundedAnswers:
    """Sends some operations of one client, and reads at most `MAX_ANSWER_BYTES` of each response.

    botocore itself reads a response whole, however long it is.
    """

    def __init__(self, client: BaseClient, operations: Iterable[str]) -> None:
        self._http = URLLib3Session(
            verify=botocore.session.get_session().get_config_variable("ca_bundle") or True,
            proxies=get_environ_proxies(client.meta.endpoint_url),
            timeout=_TIMEOUT_SECONDS,
        )
        for operation in operations:
            client.meta.events.register(f"before-send.s3.{operation}", self._send)

    def _send(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        request.stream_output = True
        answer = self._http.send(request)
        content = self._to_parse(answer, _whole(answer, request.url.partition("?")[0]))
        return AWSResponse(request.url, answer.status_code, answer.headers, _ReadBody(content))

    def _to_parse(self, answer: AWSResponse, content: bytes) -> bytes:
        """Return what botocore is to parse: here the whole content; a subclass may keep it and return less."""
        return content


class RawAnswers(BoundedAnswers):
    """Sends the listing operations of one client, and keeps their responses unparsed."""

    def __init__(self, client: BaseClient) -> None:
        super().__init__(client, _OPERATIONS)
        self._kept = threading.local()

    def take(self) -> bytes:
        """Return the whole response to the last request of this thread, and forget it."""
        answer: bytes = self._kept.answer
        self._kept.answer = b""
        return answer

    def _to_parse(self, answer: AWSResponse, content: bytes) -> bytes:
        # S3 may send an error under status 200, too.
        if answer.status_code < 300 and _ERROR not in content[:_HEAD_BYTES]:
            self._kept.answer, content = content, _NOTHING_TO_PARSE
        return content


class DeleteAnswers(BoundedAnswers):
    """Sends the requests of one client that delete objects.

    S3 names only what it did not delete: a page of a proxy, or an empty response, would say that all is gone.
    """

    def __init__(self, client: BaseClient) -> None:
        super().__init__(client, ["DeleteObjects"])

    def _to_parse(self, answer: AWSResponse, content: bytes) -> bytes:
        if answer.status_code < 300 and not any(name in content[:_HEAD_BYTES] for name in (b"DeleteResult", _ERROR)):
            raise RemoteStorageError("the answer is not one of S3: is remote_storage.endpoint_url right?")
        return content


class _ReadBody:
    """A stream with the content of an `AWSResponse`."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self._content


def _whole(answer: AWSResponse, place: str) -> bytes:
    """Read a response; raise ConnectionClosedError, which botocore retries, if its length is not as declared."""
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
                f"the answer has more than {format_bytes(MAX_ANSWER_BYTES)}: too large for 1,000 keys"
            )
        taken.append(block)
    return b"".join(taken)


_MAX_ATTEMPTS: Final = 8
_PAGE_KEYS: Final = 1_000
MOST_EMPTY_PAGES: Final = 100
_NO_VERSIONING: Final = frozenset({"NotImplemented", "MethodNotAllowed", "VersioningNotConfigured"})

OBJECTS: Final = "list_objects_v2"
VERSIONS: Final = "list_object_versions"
UPLOADS: Final = "list_multipart_uploads"
_MARKERS: Final = {
    OBJECTS: {"NextContinuationToken": "ContinuationToken"},
    VERSIONS: {"NextKeyMarker": "KeyMarker", "NextVersionIdMarker": "VersionIdMarker"},
    UPLOADS: {"NextKeyMarker": "KeyMarker", "NextUploadIdMarker": "UploadIdMarker"},
}
"""What leads from one page to the next: field of the response -> parameter of the next request."""
_FROM_THE_START: Final[Mapping[str, str]] = MappingProxyType({})


class ListedPages:
    """Pages of listings below one prefix of a bucket, complete or an error, for any number of threads.

    Args:
        client: its listing operations are sent by this object from now on.
        bucket: the bucket.
        prefix: empty, or ending in a slash.
        page_keys: the number of keys that a request asks for; S3 returns 1,000 at most.
    """

    def __init__(self, client: BaseClient, bucket: str, prefix: str, page_keys: int = _PAGE_KEYS) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self._page_keys = page_keys
        self._answers = RawAnswers(client)

    def describe(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def of(self, operation: str, below: str = "", begin: Mapping[str, str] = _FROM_THE_START) -> Iterator[ListPage]:
        """Request all pages, one after another.

        Args:
            operation: OBJECTS, VERSIONS or UPLOADS.
            below: list only keys that begin with this, relative to `prefix`.
            begin: parameters of the request for the first page; of these only a delimiter is used for further pages.

        Raises:
            RemoteStorageError: a page says that there are more pages, but has no marker or the marker with which the
                page itself was requested; or more than `MOST_EMPTY_PAGES` pages in succession are empty.
        """
        limit = {"MaxUploads" if operation == UPLOADS else "MaxKeys": self._page_keys}
        ask = partial(getattr(self._client, operation), Bucket=self._bucket, Prefix=self._prefix + below, **limit)
        parameters: dict[str, str] = dict(begin)
        empty_pages = 0
        while True:
            page = self._page(ask, parameters)
            yield page
            if not page.is_truncated:
                return
            found = {to: page.marker(name) for name, to in _MARKERS[operation].items() if page.marker(name)}
            empty_pages = 0 if page.entries or page.directories else empty_pages + 1
            if not found or all(parameters.get(name) == value for name, value in found.items()):
                raise RemoteStorageError(f"{self.describe()}: the listing ends early: a page has no new marker")
            if empty_pages > MOST_EMPTY_PAGES:
                raise RemoteStorageError(f"{self.describe()}: {empty_pages} pages without a key, one after another")
            kept = {name: value for name, value in parameters.items() if name == "Delimiter"}
            parameters = kept | found

    def _page(self, ask: Any, parameters: Mapping[str, str]) -> ListPage:
        with translated("list", self._bucket, self._prefix):
            ask(**parameters)
        try:
            return parse_page(self._answers.take())
        except RemoteStorageError as error:
            raise RemoteStorageError(f"{self.describe()}: {error}") from error

    def key(self, entry: Mapping[str, str]) -> str:
        """Return the key of an entry, relative to the prefix. Raises RemoteStorageError if it is elsewhere."""
        key = entry["Key"]
        if not key.startswith(self._prefix):
            raise RemoteStorageError(f"{self.describe()}: {printable(key)!r} is listed, which is not below the prefix")
        return key[len(self._prefix) :]

    def incomplete(self, key: str) -> RemoteStorageError:
        return RemoteStorageError(f"{self.describe()}: {printable(key)!r} is listed without a valid size, time or id")


class S3Listing:
    """An `ObjectListing` of `bucket` below `prefix` (empty, or ending in a slash).

    `page_keys` is the number of keys that a request asks for; S3 returns 1,000 at most.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        credentials: S3Credentials | None = None,
        max_attempts: int = _MAX_ATTEMPTS,
        page_keys: int = _PAGE_KEYS,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._client = s3_client(
            endpoint_url=endpoint_url, region=region, credentials=credentials, max_attempts=max_attempts
        )
        self._pages = ListedPages(self._client, bucket, prefix, page_keys)

    def describe(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def properties(self) -> ListingProperties:
        return ListingProperties(shows_versions=self._keeps_versions, shows_open_uploads=True)

    def parts(self, wanted: int) -> Sequence[KeyInterval]:
        return cut(self._directories, wanted)

    def pages(self, part: KeyInterval) -> Iterator[Sequence[ListedObject]]:
        last = part.after
        for page in self._pages_of_part(part):
            listed = [self._listed(name, entry) for name, entry in page.entries]
            if part != KeyInterval():
                last = self._in_order(listed, last)
            inside = [listed_object for listed_object in listed if part.holds(listed_object.key)]
            if inside:
                yield inside
            if part.until is not None and any(listed_object.key > part.until for listed_object in listed):
                return

    def open_uploads(self) -> Iterator[Sequence[ListedUpload]]:
        for page in self._pages.of(UPLOADS):
            yield [self._upload(entry) for _, entry in page.entries]

    def _in_order(self, listed: Sequence[ListedObject], last: str | None) -> str | None:
        """Check that a page follows the key `last`; return the highest key so far.

        One key may have versions in several pages. The order inside a page is not checked, because some servers name
        all delete markers first.

        Raises:
            RemoteStorageError: the page has a key that precedes `last`.
        """
        if not listed:
            return last
        found = [listed_object.key for listed_object in listed]
        if last is not None and min(found) < last:
            raise RemoteStorageError(
                f"{self.describe()}: key {printable(min(found))!r} is listed after {printable(last)!r}: this server"
                " does not list in order, so it can be listed in one part only"
            )
        return max(found)

    @cached_property
    def _keeps_versions(self) -> bool:
        """Whether the bucket keeps versions, or kept versions before (versioning is suspended)."""
        with translated("look at the versioning of", self._bucket, ""):
            try:
                answer = self._client.get_bucket_versioning(Bucket=self._bucket)
            except ClientError as error:
                if error_code(error) in _NO_VERSIONING or http_status(error) == 501:
                    return False
                raise
        return bool(answer.get("Status"))

    def _pages_of_part(self, part: KeyInterval) -> Iterator[ListPage]:
        if self._keeps_versions:
            begin = {} if part.after is None else {"KeyMarker": self._prefix + part.after}
            return self._pages.of(VERSIONS, begin=begin)
        begin = {} if part.after is None else {"StartAfter": self._prefix + part.after}
        return self._pages.of(OBJECTS, begin=begin)

    def _directories(self, below: str) -> Iterator[str]:
        operation = VERSIONS if self._keeps_versions else OBJECTS
        for page in self._pages.of(operation, below, {"Delimiter": "/"}):
            yield from (directory.removeprefix(self._prefix) for directory in page.directories)

    def _listed(self, name: str, entry: Mapping[str, str]) -> ListedObject:
        key = self._pages.key(entry)
        is_marker = name == "DeleteMarker"
        try:
            at_ms = milliseconds(entry["LastModified"])
            size_bytes = 0 if is_marker else int(entry["Size"])
        except (KeyError, ValueError) as error:
            raise self._pages.incomplete(key) from error
        if name == "Contents":
            return ListedObject(key, size_bytes, at_ms)
        return ListedObject(key, size_bytes, at_ms, entry.get("VersionId"), entry.get("IsLatest") == "true", is_marker)

    def _upload(self, entry: Mapping[str, str]) -> ListedUpload:
        key = self._pages.key(entry)
        try:
            return ListedUpload(key, entry["UploadId"], milliseconds(entry["Initiated"]))
        except (KeyError, ValueError) as error:
            raise self._pages.incomplete(key) from error
