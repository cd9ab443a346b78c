"""An S3 Inventory as a listing: what was below a prefix of a bucket when it was made.

Nothing of it is believed before it was checked: the manifest against its checksum, each file against length and MD5 of
the manifest, each row against the bucket's name. An inventory cannot show open uploads, and old versions only if it was
set up with all versions. It is made once a day at most and lists what S3 had settled by then, so what changed within a
day before it may be missing.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import repeat
from typing import IO, Final

from include.tiering.errors import FormatError, RemoteResourceNotFoundError, RemoteStorageError, printable
from include.tiering.remote_storage.inventory.file_rows import Columns, file_columns
from include.tiering.remote_storage.inventory.files import InventoryFiles
from include.tiering.remote_storage.inventory.manifest import (
    MAX_MANIFEST_BYTES,
    FileFormat,
    InventoryFile,
    InventoryManifest,
    parse_inventory_manifest,
)
from include.tiering.remote_storage.listing import ListedObject, ListedUpload, ListingFacts, decoded_key, milliseconds

SETTLED_MS: Final = 24 * 60 * 60 * 1000
_CHECKSUM_BYTES: Final = 256


class InventoryListing:
    """An `ObjectListing` of `bucket` below `prefix`, from the inventory whose manifest is `manifest_key` of `files`."""

    def __init__(self, files: InventoryFiles, manifest_key: str, bucket: str, prefix: str) -> None:
        self._files = files
        self._manifest_key = manifest_key
        self._bucket = bucket
        self._prefix = prefix

    def describe(self) -> str:
        return f"{self._files.describe()}/{self._manifest_key}"

    def facts(self) -> ListingFacts:
        return ListingFacts(
            shows_versions=self._manifest.shows_versions,
            shows_open_uploads=False,
            taken_at_ms=self._manifest.created_ms,
            settled_ms=SETTLED_MS,
        )

    def parts(self, wanted: int) -> Sequence[InventoryFile]:
        """The files, whatever is wanted."""
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
        """None: no inventory shows them."""
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
        """Against the checksum that lies beside it; S3 writes it last."""
        beside = f"{self._manifest_key.rpartition('.')[0]}.checksum"
        try:
            said = b"".join(self._bounded(beside, _CHECKSUM_BYTES)).decode(errors="replace").strip().lower()
        except RemoteResourceNotFoundError as error:
            raise RemoteStorageError(
                f"{self.describe()}: {beside} is missing: the inventory is not complete"
            ) from error
        if said != hashlib.md5(content, usedforsecurity=False).hexdigest():
            raise RemoteStorageError(f"{self.describe()} does not have the MD5 that {beside} says")

    def _bounded(self, key: str, most_bytes: int) -> Iterator[bytes]:
        size_bytes = 0
        for block in self._files.read(key):
            size_bytes += len(block)
            if size_bytes > most_bytes:
                raise RemoteStorageError(f"{self.describe()}: {key} has more than {most_bytes} bytes")
            yield block

    @contextmanager
    def _whole(self, part: InventoryFile) -> Iterator[IO[bytes]]:
        """The file, fetched and checked before a row of it is read."""
        digest = hashlib.md5(usedforsecurity=False)
        with tempfile.TemporaryFile() as content:
            for block in self._bounded(part.key, part.size_bytes):
                digest.update(block)
                content.write(block)
            if content.tell() != part.size_bytes or digest.hexdigest() != part.md5:
                raise RemoteStorageError(
                    f"{self.describe()}: file {printable(part.key)} has not the length and MD5 of the manifest"
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
    """A flag of either format; what an inventory of current objects does not say is the default."""
    if value is None or value == "":
        return default
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError(f"{value!r} is neither true nor false")
