"""The manifest of an S3 Inventory: which files hold the listing of which bucket, and of when it is.

    {"sourceBucket": "orders-archive", "destinationBucket": "arn:aws:s3:::inventories", "version": "2016-11-30",
     "creationTimestamp": "1514944800000", "fileFormat": "CSV" or "Parquet",
     "fileSchema": "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, …" (CSV: the order of the
                   columns; Parquet: a message type, and the columns are named in the files),
     "files": [{"key": "inv/orders-archive/daily/data/….csv.gz", "size": 12345, "MD5checksum": "f111…"}, …]}

Keys of files are relative to the destination bucket. Beside it lies `manifest.checksum`, the MD5 of these bytes in hex.
Source: Amazon S3 User Guide, "Amazon S3 Inventory list" and "Locating your inventory list".
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.formats import strict_json
from include.tiering.formats.strict_json import JsonObject
from include.tiering.units import MIB

MAX_MANIFEST_BYTES: Final = 16 * MIB
_LATEST_MS: Final = 2**53
_LARGEST_FILE_BYTES: Final = 2**50
_MD5: Final = re.compile(r"[0-9a-f]{32}\Z")
_PARQUET_COLUMN: Final = re.compile(r"(?:required|optional)\s+\w+\s+(\w+)")


class FileFormat(StrEnum):
    """ORC is a third; it is refused."""

    CSV = "CSV"
    PARQUET = "Parquet"


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """One file of the listing. A part of an inventory."""

    key: str
    size_bytes: int
    md5: str


@dataclass(frozen=True, slots=True)
class InventoryManifest:
    """`columns` are those of the files, in order, by `plain_name`: the formats spell them differently."""

    source_bucket: str
    created_ms: int
    file_format: FileFormat
    columns: tuple[str, ...]
    files: tuple[InventoryFile, ...]

    @property
    def shows_versions(self) -> bool:
        return "islatest" in self.columns


def plain_name(column: str) -> str:
    """``LastModifiedDate`` and ``last_modified_date`` -> ``lastmodifieddate``."""
    return column.strip().replace("_", "").lower()


def parse_inventory_manifest(content: bytes) -> InventoryManifest:
    """A whole manifest.

    Raises:
        FormatError: not one, of a format that is not read here, or without a column that is needed.
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
        raise FormatError("fileSchema has IsLatest and not VersionId and IsDeleteMarker")
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
