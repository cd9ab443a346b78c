"""An S3 Inventory as a listing: what was below a prefix of a bucket when the inventory was taken.

Everything is checked before it is used: the manifest by its checksum file, each file by the length and MD5 that the
manifest states for it, each row by the name of its bucket. An inventory cannot show open uploads, and shows old
versions only if it was configured with all versions. S3 writes an inventory once a day at most. An inventory is
eventually consistent: changes of the 24 hours before it was taken may be missing.

The manifest names the bucket, the files that hold the listing, and the time:

    {"sourceBucket": "orders-archive", "destinationBucket": "arn:aws:s3:::inventories", "version": "2016-11-30",
     "creationTimestamp": "1514944800000", "fileFormat": "CSV" or "Parquet",
     "fileSchema": "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, …" (CSV: the order of the
                   columns; Parquet: a message type, and the columns are named in the files),
     "files": [{"key": "inv/orders-archive/daily/data/….csv.gz", "size": 12345, "MD5checksum": "f111…"}, …]}

S3 writes the inventory to the destination bucket, and the keys of files are keys in that bucket. The files are read
from the bucket, or from a copy of it on this host. Next to the manifest is `manifest.checksum`, the MD5 of the
manifest's bytes in hex.

Rows are read in batches, so memory holds one batch, however long the file is. CSV: gzip, no header, every field in
quotes, keys percent-encoded, empty fields for absent values. Parquet: named columns, typed, keys as they are.

Source: Amazon S3 User Guide, "Amazon S3 Inventory list" and "Locating your inventory list".
"""

import gzip
import hashlib
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import IO, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from include.tiering.errors import FormatError, RemoteResourceNotFoundError, RemoteStorageError, printable
from include.tiering.formats import strict_json
from include.tiering.formats.strict_json import JsonObject
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import (
    ListedObject,
    ListedUpload,
    ListingProperties,
    ObjectStore,
    checked_key,
    decoded_key,
    milliseconds,
)
from include.tiering.units import KIB, MIB

MAX_MANIFEST_BYTES: Final = 16 * MIB
_LATEST_MS: Final = 2**53
_LARGEST_FILE_BYTES: Final = 2**50
_MD5: Final = re.compile(r"[0-9a-f]{32}\Z")
_PARQUET_COLUMN: Final = re.compile(r"(?:required|optional)\s+\w+\s+(\w+)")


class FileFormat(StrEnum):
    """Formats of the files that are read. S3's third format, ORC, is refused."""

    CSV = "CSV"
    PARQUET = "Parquet"


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """One file with rows of the inventory. As an `ObjectListing`, the inventory has one part for each such file."""

    key: str
    size_bytes: int
    md5: str


@dataclass(frozen=True, slots=True)
class InventoryManifest:
    """A parsed manifest. `columns` are those of the files, in order, as `plain_name` spells them."""

    source_bucket: str
    created_ms: int
    file_format: FileFormat
    columns: tuple[str, ...]
    files: tuple[InventoryFile, ...]

    @property
    def shows_versions(self) -> bool:
        return "islatest" in self.columns


def plain_name(column: str) -> str:
    """Return one spelling for both formats: ``LastModifiedDate``, ``last_modified_date`` -> ``lastmodifieddate``."""
    return column.strip().replace("_", "").lower()


def parse_inventory_manifest(content: bytes) -> InventoryManifest:
    """Parse a whole manifest.

    Raises:
        FormatError: not a manifest, files of a format that is not read here, or a missing column.
    """
    document = strict_json.parse_object(content, MAX_MANIFEST_BYTES)
    named = document.text("fileFormat")
    try:
        file_format = FileFormat(named)
    except ValueError as error:
        raise FormatError(f"fileFormat is {named[:20]!r}: CSV and Parquet are read here") from error
    columns = tuple(map(plain_name, _columns(document.text("fileSchema"), file_format)))
    if missing := {"bucket", "key", "size", "lastmodifieddate"} - set(columns):
        raise FormatError(f"fileSchema has no {', '.join(sorted(missing))}: add these fields to the inventory")
    if "islatest" in columns and not {"versionid", "isdeletemarker"} <= set(columns):
        raise FormatError("fileSchema has IsLatest, but lacks VersionId or IsDeleteMarker")
    return InventoryManifest(
        source_bucket=document.text("sourceBucket"),
        created_ms=_milliseconds(document.text("creationTimestamp")),
        file_format=file_format,
        columns=columns,
        files=tuple(map(_file, document.objects("files"))),
    )


def _columns(schema: str, file_format: FileFormat) -> list[str]:
    return schema.split(",") if file_format is FileFormat.CSV else _PARQUET_COLUMN.findall(schema)


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_LATEST_MS))):
        raise FormatError("creationTimestamp is not a number of milliseconds")
    return int(text)


def _file(document: JsonObject) -> InventoryFile:
    md5 = document.text("MD5checksum").lower()
    if _MD5.match(md5) is None:
        raise FormatError("MD5checksum is not an MD5 in hex")
    return InventoryFile(document.text("key"), document.integer("size", 0, _LARGEST_FILE_BYTES), md5)


_BATCH_ROWS: Final = 20_000
_CSV_BLOCK_BYTES: Final = 4 * MIB
_LONGEST_VALUE_BYTES: Final = 4_096
"""S3's keys have at most 1,024 bytes; in CSV they are URL-encoded."""
_LONGEST_ROW_BYTES: Final = 64 * KIB
_WANTED: Final = ("bucket", "key", "versionid", "islatest", "isdeletemarker", "size", "lastmodifieddate")

Columns = dict[str, list[Any]]
"""Values by plain name. In CSV all values are text. In Parquet they have the types of the file, except
`lastmodifieddate`, which is in UTC milliseconds."""


def file_columns(content: IO[bytes], manifest: InventoryManifest) -> Iterator[Columns]:
    """Read a file in batches. Raises RemoteStorageError if the file is damaged, or lacks columns of the manifest."""
    reading = _csv if manifest.file_format is FileFormat.CSV else _parquet
    try:
        yield from reading(content, manifest)
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise RemoteStorageError(f"a file of the inventory cannot be read ({type(error).__name__})") from error


def _csv(content: IO[bytes], manifest: InventoryManifest) -> Iterator[Columns]:
    # Arrow's reader of streams reads ahead in a thread, which aborts the process if reading ends early.
    wanted = [name for name in manifest.columns if name in _WANTED]
    converting = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(manifest.columns, pa.string()), include_columns=wanted
    )
    with gzip.GzipFile(fileobj=content) as unpacked:
        for rows in _whole_rows(unpacked):
            reading = pyarrow.csv.ReadOptions(
                use_threads=False, block_size=len(rows) + 1, column_names=list(manifest.columns)
            )
            table = pyarrow.csv.read_csv(pa.BufferReader(rows), read_options=reading, convert_options=converting)
            yield table.to_pydict()


def _whole_rows(unpacked: gzip.GzipFile) -> Iterator[bytes]:
    """Read blocks of whole rows. A line end always ends a row: values have none, because keys are URL-encoded."""
    rest = b""
    while block := unpacked.read(_CSV_BLOCK_BYTES):
        rows, newline, rest_of_block = block.rpartition(b"\n")
        if newline:
            yield rest + rows + newline
            rest = rest_of_block
        else:
            rest += block
        if len(rest) > _LONGEST_ROW_BYTES:
            raise RemoteStorageError(f"a file of the inventory has a row of more than {_LONGEST_ROW_BYTES} bytes")
    if rest.strip():
        yield rest


def _parquet(content: IO[bytes], manifest: InventoryManifest) -> Iterator[Columns]:
    names = {plain_name(name): name for name in pq.ParquetFile(content).schema_arrow.names}
    if missing := set(manifest.columns) - set(names):
        raise RemoteStorageError(f"a file of the inventory has no {', '.join(sorted(missing))}, named by fileSchema")
    wanted = {name: names[name] for name in manifest.columns if name in _WANTED}
    # A file of some kilobytes can repeat one long value a million times. As a dictionary it is in memory once.
    file = pq.ParquetFile(content, read_dictionary=list(wanted.values()))
    for batch in file.iter_batches(_BATCH_ROWS, columns=list(wanted.values()), use_threads=False):
        columns = {name: batch.column(stored) for name, stored in wanted.items()}
        for name, column in columns.items():
            _require_short(name, column)
        columns["lastmodifieddate"] = columns["lastmodifieddate"].cast(pa.timestamp("ms")).cast(pa.int64())
        yield {name: column.to_pylist() for name, column in columns.items()}


def _require_short(name: str, column: pa.Array) -> None:
    if pa.types.is_dictionary(column.type):
        longest = pc.max(pc.binary_length(column.dictionary)).as_py()
        if longest is not None and longest > _LONGEST_VALUE_BYTES:
            raise RemoteStorageError(
                f"a file of the inventory has a {name} of {longest} bytes, more than {_LONGEST_VALUE_BYTES}"
            )


class InventoryFiles(Protocol):
    """Files by the keys that a manifest gives them."""

    def describe(self) -> str: ...

    def read(self, key: str) -> Iterator[bytes]:
        """Read a file in blocks.

        Raises:
            RemoteResourceNotFoundError: no such file.
            ObjectKeyError: not a legal key.
        """
        ...


class BucketFiles:
    """Files in the destination bucket of the inventory."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def describe(self) -> str:
        return self._store.describe().rstrip("/")

    def read(self, key: str) -> Iterator[bytes]:
        return self._store.read(key, limiter=UnlimitedBytes())


class LocalFiles:
    """Files of a local copy of the destination bucket.

    A key is resolved against the manifest's directory and the directories above it; the nearest that has the file is
    used.

    Args:
        directory: the directory of the manifest.
        store_at: opens one of these directories as a store.
    """

    def __init__(self, directory: Path, store_at: Callable[[Path], ObjectStore]) -> None:
        self._directory = directory
        self._store_at = store_at

    def describe(self) -> str:
        return self._directory.as_uri()

    def read(self, key: str) -> Iterator[bytes]:
        checked_key(key)
        for root in (self._directory, *self._directory.parents):
            if (root / key).is_file():
                return self._store_at(root).read(key, limiter=UnlimitedBytes())
        raise RemoteResourceNotFoundError(f"{key} exists neither below {self._directory} nor below its parents")


SETTLED_MS: Final = 24 * 60 * 60 * 1000
_CHECKSUM_BYTES: Final = 256


class InventoryListing:
    """An `ObjectListing` of `bucket` below `prefix`, from the inventory whose manifest is `manifest_key` in `files`."""

    def __init__(self, files: InventoryFiles, manifest_key: str, bucket: str, prefix: str) -> None:
        self._files = files
        self._manifest_key = manifest_key
        self._bucket = bucket
        self._prefix = prefix

    def describe(self) -> str:
        return f"{self._files.describe()}/{self._manifest_key}"

    def properties(self) -> ListingProperties:
        return ListingProperties(
            shows_versions=self._manifest.shows_versions,
            shows_open_uploads=False,
            taken_at_ms=self._manifest.created_ms,
            settled_ms=SETTLED_MS,
        )

    def parts(self, wanted: int) -> Sequence[InventoryFile]:
        """Return the files of the inventory; `wanted` has no effect."""
        return self._manifest.files

    def pages(self, part: InventoryFile) -> Iterator[Sequence[ListedObject]]:
        with self._whole(part) as content:
            try:
                for columns in file_columns(content, self._manifest):
                    if page := list(self._below_prefix(columns)):
                        yield page
            except (RemoteStorageError, ValueError, TypeError) as error:
                raise RemoteStorageError(f"{self.describe()}: file {printable(part.key)}: {error}") from error

    def open_uploads(self) -> Iterator[Sequence[ListedUpload]]:
        """Return nothing: an inventory does not list uploads."""
        return iter(())

    @cached_property
    def _manifest(self) -> InventoryManifest:
        content = b"".join(self._bounded(self._manifest_key, MAX_MANIFEST_BYTES))
        self._check_manifest(content)
        try:
            manifest = parse_inventory_manifest(content)
        except FormatError as error:
            raise RemoteStorageError(f"{self.describe()}: {error}") from error
        if manifest.source_bucket != self._bucket:
            raise RemoteStorageError(
                f"{self.describe()} is an inventory of bucket {printable(manifest.source_bucket)[:80]},"
                f" the store is in bucket {self._bucket}"
            )
        return manifest

    def _check_manifest(self, content: bytes) -> None:
        """Compare the manifest with its checksum file, which S3 writes after all other files."""
        key = f"{self._manifest_key.rpartition('.')[0]}.checksum"
        try:
            expected = b"".join(self._bounded(key, _CHECKSUM_BYTES)).decode(errors="replace").strip().lower()
        except RemoteResourceNotFoundError as error:
            raise RemoteStorageError(f"{self.describe()}: {key} is missing: the inventory is not complete") from error
        if expected != hashlib.md5(content, usedforsecurity=False).hexdigest():
            raise RemoteStorageError(f"{self.describe()} does not have the MD5 that {key} says")

    def _bounded(self, key: str, most_bytes: int) -> Iterator[bytes]:
        size_bytes = 0
        for block in self._files.read(key):
            size_bytes += len(block)
            if size_bytes > most_bytes:
                raise RemoteStorageError(f"{self.describe()}: {key} has more than {most_bytes} bytes")
            yield block

    @contextmanager
    def _whole(self, part: InventoryFile) -> Iterator[IO[bytes]]:
        """Fetch a file into a temporary file, and check its length and MD5 before the caller reads a row."""
        digest = hashlib.md5(usedforsecurity=False)
        with tempfile.TemporaryFile() as content:
            for block in self._bounded(part.key, part.size_bytes):
                digest.update(block)
                content.write(block)
            if content.tell() != part.size_bytes or digest.hexdigest() != part.md5:
                raise RemoteStorageError(
                    f"{self.describe()}: file {printable(part.key)} does not have the length and MD5 of the manifest"
                )
            content.seek(0)
            yield content

    def _below_prefix(self, columns: Columns) -> Iterator[ListedObject]:
        if other := set(columns["bucket"]) - {self._bucket}:
            raise RemoteStorageError(f"it has rows of bucket {printable(str(min(map(str, other))))[:80]}")
        is_csv = self._manifest.file_format is FileFormat.CSV
        times = columns["lastmodifieddate"]
        nothing = repeat(None)
        for key, size, at, version, is_latest, is_marker in zip(
            columns["key"],
            columns["size"],
            map(milliseconds, times) if is_csv else times,
            columns.get("versionid", nothing),
            columns.get("islatest", nothing),
            columns.get("isdeletemarker", nothing),
            strict=False,
        ):
            full_key = decoded_key(key) if is_csv else key
            if full_key.startswith(self._prefix):
                yield ListedObject(
                    full_key[len(self._prefix) :],
                    int(size or 0) if _is(is_marker, default=False) else int(size),
                    at,
                    version or None,
                    _is(is_latest, default=True),
                    _is(is_marker, default=False),
                )


def _is(value: str | bool | None, *, default: bool) -> bool:
    """Parse a flag of either format; return `default` if there is no value, as in an inventory of current objects."""
    if value is None or value == "":
        return default
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError(f"{value!r} is neither true nor false")
