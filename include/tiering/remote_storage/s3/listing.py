"""All objects of a bucket below a prefix, in parts by key, and every version where the bucket keeps versions.

A part is an interval of keys, listed flat: `start-after` or a key marker begins it, the first key beyond ends it. The
borders come from a look at the "directories" (topic, then partition); a key that is in none of those, or in one that
came later, is in an interval all the same. Intervals need a server that lists in the order of keys, as S3 promises:
that is checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

from botocore.exceptions import ClientError

from include.tiering.errors import RemoteStorageError, printable
from include.tiering.remote_storage.credentials import S3Credentials
from include.tiering.remote_storage.listing import (
    KeyInterval,
    ListedObject,
    ListedUpload,
    ListingFacts,
    cut,
    milliseconds,
)
from include.tiering.remote_storage.s3.client import s3_client
from include.tiering.remote_storage.s3.errors import error_code, http_status, translated
from include.tiering.remote_storage.s3.list_page import ListPage, parse_page
from include.tiering.remote_storage.s3.raw_answers import RawAnswers

_MAX_ATTEMPTS: Final = 8
_PAGE_KEYS: Final = 1_000
MOST_EMPTY_PAGES: Final = 100
_NO_VERSIONING: Final = frozenset({"NotImplemented", "MethodNotAllowed", "VersioningNotConfigured"})

_OBJECTS: Final = "list_objects_v2"
_VERSIONS: Final = "list_object_versions"
_UPLOADS: Final = "list_multipart_uploads"
# What carries one page to the next: field of the answer -> parameter of the request.
_OBJECT_MARKERS: Final = {"NextContinuationToken": "ContinuationToken"}
_VERSION_MARKERS: Final = {"NextKeyMarker": "KeyMarker", "NextVersionIdMarker": "VersionIdMarker"}
_UPLOAD_MARKERS: Final = {"NextKeyMarker": "KeyMarker", "NextUploadIdMarker": "UploadIdMarker"}


class S3Listing:
    """An `ObjectListing` of `bucket` below `prefix` (empty, or ending in a slash). `page_keys`: keys that are asked for
    at once, 1,000 at most."""

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
        self._page_keys = page_keys
        self._client = s3_client(
            endpoint_url=endpoint_url, region=region, credentials=credentials, max_attempts=max_attempts
        )
        self._answers = RawAnswers(self._client)

    def describe(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def facts(self) -> ListingFacts:
        return ListingFacts(shows_versions=self._keeps_versions, shows_open_uploads=True)

    def parts(self, wanted: int) -> Sequence[KeyInterval]:
        return cut(self._directories, wanted)

    def pages(self, part: KeyInterval) -> Iterator[Sequence[ListedObject]]:
        last = part.after
        for page in self._pages_of_part(part):
            listed = [self._listed(name, entry) for name, entry in page.entries]
            if part != KeyInterval():
                last = self._in_order(listed, last)
            inside = [one for one in listed if part.holds(one.key)]
            if inside:
                yield inside
            if part.until is not None and any(one.key > part.until for one in listed):
                return

    def open_uploads(self) -> Iterator[Sequence[ListedUpload]]:
        for page in self._all_pages(_UPLOADS, {}, _UPLOAD_MARKERS):
            yield [self._upload(entry) for _, entry in page.entries]

    def _in_order(self, listed: Sequence[ListedObject], last: str | None) -> str | None:
        """The key that the next page follows: `last`, or the highest of these. One key may have versions in several
        pages; inside a page their order is not looked at, because some servers name all delete markers first.

        Raises:
            RemoteStorageError: a page with a key that precedes those of the page before.
        """
        if not listed:
            return last
        found = [one.key for one in listed]
        if last is not None and min(found) < last:
            raise RemoteStorageError(
                f"{self.describe()}: key {printable(min(found))!r} is listed after {printable(last)!r}: this server"
                " does not list in order, so it can be listed in one part only"
            )
        return max(found)

    @cached_property
    def _keeps_versions(self) -> bool:
        """Whether the bucket keeps versions, or has kept some."""
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
            return self._all_pages(_VERSIONS, begin, _VERSION_MARKERS)
        begin = {} if part.after is None else {"StartAfter": self._prefix + part.after}
        return self._all_pages(_OBJECTS, begin, _OBJECT_MARKERS)

    def _directories(self, below: str) -> Iterator[str]:
        operation, markers = (_VERSIONS, _VERSION_MARKERS) if self._keeps_versions else (_OBJECTS, _OBJECT_MARKERS)
        for page in self._all_pages(operation, {"Delimiter": "/"}, markers, below):
            yield from (directory.removeprefix(self._prefix) for directory in page.directories)

    def _all_pages(
        self, operation: str, begin: Mapping[str, str], markers: Mapping[str, str], below: str = ""
    ) -> Iterator[ListPage]:
        """Page after page to the last. `begin` holds parameters of the first; those that are no markers stay.

        Raises:
            RemoteStorageError: a page that says there are more and not where they begin, or begins again where it did.
        """
        limit = {"MaxUploads" if operation == _UPLOADS else "MaxKeys": self._page_keys}
        ask = partial(getattr(self._client, operation), Bucket=self._bucket, Prefix=self._prefix + below, **limit)
        parameters: dict[str, str] = dict(begin)
        empty_pages = 0
        while True:
            page = self._page(ask, parameters)
            yield page
            if not page.is_truncated:
                return
            found = {to: page.marker(name) for name, to in markers.items() if page.marker(name)}
            empty_pages = 0 if page.entries or page.directories else empty_pages + 1
            if not found or all(parameters.get(name) == value for name, value in found.items()):
                raise RemoteStorageError(f"{self.describe()}: the listing ends early: no further page is named")
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

    def _listed(self, name: str, entry: Mapping[str, str]) -> ListedObject:
        key = self._relative(entry)
        is_marker = name == "DeleteMarker"
        try:
            at_ms = milliseconds(entry["LastModified"])
            size_bytes = 0 if is_marker else int(entry["Size"])
        except (KeyError, ValueError) as error:
            raise self._incomplete(key) from error
        if name == "Contents":
            return ListedObject(key, size_bytes, at_ms)
        return ListedObject(key, size_bytes, at_ms, entry.get("VersionId"), entry.get("IsLatest") == "true", is_marker)

    def _upload(self, entry: Mapping[str, str]) -> ListedUpload:
        key = self._relative(entry)
        try:
            return ListedUpload(key, entry["UploadId"], milliseconds(entry["Initiated"]))
        except (KeyError, ValueError) as error:
            raise self._incomplete(key) from error

    def _incomplete(self, key: str) -> RemoteStorageError:
        return RemoteStorageError(f"{self.describe()}: {printable(key)!r} is listed without its size, time or id")

    def _relative(self, entry: Mapping[str, str]) -> str:
        key = entry["Key"]
        if not key.startswith(self._prefix):
            raise RemoteStorageError(f"{self.describe()}: {printable(key)!r} is listed, which is not below the prefix")
        return key[len(self._prefix) :]
