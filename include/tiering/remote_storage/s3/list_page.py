"""One page of a listing, from its XML.

    <ListBucketResult>           or ListVersionsResult, ListMultipartUploadsResult
      <IsTruncated>true</…>      required; with true a marker of the next page
      <NextContinuationToken>…   or NextKeyMarker with NextVersionIdMarker or NextUploadIdMarker
      <EncodingType>url</…>      keys and key markers are percent-encoded; a server may leave them plain, and says so
      <Contents>                 or Version, DeleteMarker, Upload: one entry
        <Key>…  <Size>…  <LastModified>…  <VersionId>…  <IsLatest>…  <UploadId>…  <Initiated>…
      <CommonPrefixes><Prefix>…  with a delimiter: one "directory"

Expat calls back for each element and its text, and nothing is built but the fields above: no tree of the page. Names
without a namespace's prefix are what S3 and all its likes send. A document type, and with it every entity but XML's
own, is refused.
"""

from dataclasses import dataclass, field
from typing import Final, NoReturn
from xml.parsers import expat

from include.tiering.errors import RemoteStorageError
from include.tiering.remote_storage.listing import decoded_key

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
    """`entries`: element name and fields of each, keys decoded; `directories`: common prefixes, decoded."""

    entries: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def is_truncated(self) -> bool:
        return self.fields["IsTruncated"] == "true"

    def marker(self, name: str) -> str:
        """A field that tells where the next page begins, decoded if it is a key; empty if there is none."""
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
    """A whole page.

    Raises:
        RemoteStorageError: not XML, cut off, with a document type, an entry without its key, other entries than it
            counts, or nothing about whether it is the last.
    """
    page = ListPage()
    try:
        _parse(body, page)
    except (expat.ExpatError, LookupError) as error:
        raise RemoteStorageError(f"a page of the listing cannot be parsed: {error}") from error
    if any("Key" not in entry for _, entry in page.entries):
        raise RemoteStorageError("a page of the listing has an entry without a key")
    if page.fields.get("IsTruncated") not in ("true", "false"):
        raise RemoteStorageError("a page of the listing does not say whether it is the last: it is not believed")
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
        texts.clear()  # white space between elements

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
