"""Inventories of both formats give what was in the bucket; what is damaged, or of another bucket, gives an error."""

import gzip
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.tiering.errors import FormatError, ObjectKeyError, RemoteStorageError, SettingError
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.inventory import (
    SETTLED_MS,
    BucketFiles,
    InventoryListing,
    LocalFiles,
    parse_inventory_manifest,
)
from include.tiering.remote_storage.location import open_inventory
from include.tiering.remote_storage.object_store import ListedObject
from tests.doubles.audit_stores import BUCKET, write_inventory, write_manifest

CREATED_MS = 1_795_000_000_000
OBJECTS = [
    ListedObject("p/a", 0, 1_700_000_000_000, "v2"),
    ListedObject("p/a", 7, 1_600_000_000_000, "v1", is_latest=False),
    ListedObject("p/gone", 0, 1_700_000_001_000, "m", is_delete_marker=True),
    ListedObject("p/odd &<ü>+%41\n'\",", 2**40, 1_700_000_002_000, "null"),
    ListedObject("beside", 1, 1_700_000_003_000, "v"),
]
BELOW_PREFIX = [one._replace(key=one.key.removeprefix("p/")) for one in OBJECTS[:-1]]

Change = Callable[[dict[str, Any]], None]


def listing_of(manifest: Path) -> InventoryListing:
    return InventoryListing(LocalFiles(manifest.parent, FileObjectStore), manifest.name, BUCKET, "p/")


def listed(manifest: Path) -> list[ListedObject]:
    listing = listing_of(manifest)
    return [one for part in listing.parts(9) for page in listing.pages(part) for one in page]


def changed(manifest: Path, change: Change) -> Path:
    """With a checksum that fits."""
    document = json.loads(manifest.read_text())
    change(document)
    write_manifest(manifest, document)
    return manifest


def data_file(tmp_path: Path, manifest: Path) -> Path:
    return tmp_path / str(json.loads(manifest.read_text())["files"][0]["key"])


def with_content(tmp_path: Path, manifest: Path, content: bytes) -> Path:
    """The first file holds `content`, and the manifest says so."""
    data_file(tmp_path, manifest).write_bytes(content)

    def change(document: dict[str, Any]) -> None:
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        document["files"][0] |= {"size": len(content), "MD5checksum": md5}

    return changed(manifest, change)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return write_inventory(tmp_path, CREATED_MS, OBJECTS, files=2)


@pytest.mark.parametrize("parquet", [False, True])
def test_what_was_below_the_prefix_comes_back(tmp_path: Path, parquet: bool) -> None:
    manifest = write_inventory(tmp_path, CREATED_MS, OBJECTS, files=2, parquet=parquet)
    assert listed(manifest) == BELOW_PREFIX
    properties = listing_of(manifest).properties()
    assert (properties.taken_at_ms, properties.settled_ms) == (CREATED_MS, SETTLED_MS)
    assert (properties.shows_versions, properties.shows_open_uploads) == (True, False)
    assert list(listing_of(manifest).open_uploads()) == []


def test_an_inventory_of_current_objects_says_so(tmp_path: Path, manifest: Path) -> None:
    rows = f'"{BUCKET}","p/a","5","2023-11-14T22:13:20.000Z","STANDARD"\n'.encode()
    with_content(tmp_path, manifest, gzip.compress(rows))
    changed(manifest, lambda document: document.update(fileSchema="Bucket, Key, Size, LastModifiedDate, StorageClass"))
    assert listed(manifest) == [ListedObject("a", 5, 1_700_000_000_000)]
    assert not listing_of(manifest).properties().shows_versions


def test_files_are_found_in_the_bucket_that_holds_them(tmp_path: Path, manifest: Path) -> None:
    """A file store stands for the bucket: what reads is the same contract."""
    files = BucketFiles(FileObjectStore(tmp_path))
    listing = InventoryListing(files, manifest.relative_to(tmp_path).as_posix(), BUCKET, "p/")
    assert [one for part in listing.parts(1) for page in listing.pages(part) for one in page] == BELOW_PREFIX


def test_an_inventory_can_be_named_by_a_path_or_a_url(tmp_path: Path, manifest: Path) -> None:
    for named in (str(manifest), manifest.as_uri()):
        listing = open_inventory(named, f"s3://{BUCKET}/p")
        assert [one for part in listing.parts(1) for page in listing.pages(part) for one in page] == BELOW_PREFIX
    with pytest.raises(SettingError, match="bucket"):
        open_inventory(str(manifest), "file:///somewhere")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document.update(sourceBucket="other"), "bucket other"),
        (lambda document: document.update(fileFormat="ORC"), "ORC"),
        (lambda document: document.update(fileSchema="Bucket, Key, LastModifiedDate"), "size"),
        (lambda document: document.update(fileSchema="Bucket, Key, Size, LastModifiedDate, IsLatest"), "IsLatest"),
        (lambda document: document.update(creationTimestamp="yesterday"), "creationTimestamp"),
        (lambda document: document.update(files="none"), "files"),
        (lambda document: document["files"][0].update(MD5checksum="x"), "MD5"),
        (lambda document: document["files"][0].update(size=-1), "size"),
        (lambda document: document.pop("files"), "files"),
    ],
)
def test_a_manifest_that_is_none_of_ours(manifest: Path, change: Change, said: str) -> None:
    with pytest.raises(RemoteStorageError, match=said):
        listed(changed(manifest, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["files"][0].update(size=document["files"][0]["size"] + 1),
        lambda document: document["files"][0].update(size=document["files"][0]["size"] - 1),
        lambda document: document["files"][0].update(MD5checksum="0" * 32),
        lambda document: document["files"][0].update(key="inventories/nothing.csv.gz"),
    ],
)
def test_a_file_that_is_not_what_the_manifest_says(manifest: Path, change: Change) -> None:
    with pytest.raises(RemoteStorageError):
        listed(changed(manifest, change))


@pytest.mark.parametrize("key", ["../../../../etc/passwd", "/etc/passwd", "a//b"])
def test_a_key_that_leads_elsewhere_is_refused(manifest: Path, key: str) -> None:
    with pytest.raises(ObjectKeyError):
        listed(changed(manifest, lambda document: document["files"][0].update(key=key)))


def test_a_manifest_without_its_checksum_or_with_another_is_not_believed(manifest: Path) -> None:
    beside = manifest.with_suffix(".checksum")
    beside.write_text("0" * 32)
    with pytest.raises(RemoteStorageError, match="MD5"):
        listed(manifest)
    beside.unlink()
    with pytest.raises(RemoteStorageError, match="not complete"):
        listed(manifest)


ROW = f'"{BUCKET}","p/a","v","true","false","5","2023-11-14T22:13:20.000Z"\n'


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        gzip.compress(ROW.encode() * 100)[:-9],
        gzip.compress(b'"too","few"\n'),
        gzip.compress(ROW.replace(BUCKET, "other").encode()),
        gzip.compress(ROW.replace('"5"', '"many"').encode()),
        gzip.compress(ROW.replace('"5"', '""').encode()),
        gzip.compress(ROW.replace("2023", "year").encode()),
        gzip.compress(ROW.replace('"true"', '"perhaps"').encode()),
    ],
    ids=["no gzip", "cut off", "columns", "bucket", "size", "no size", "time", "flag"],
)
def test_rows_that_cannot_be_believed_are_an_error(tmp_path: Path, manifest: Path, content: bytes) -> None:
    with pytest.raises(RemoteStorageError, match=r"manifest\.json"):
        listed(with_content(tmp_path, manifest, content))


def test_a_parquet_file_without_a_column_of_the_schema(tmp_path: Path) -> None:
    manifest = write_inventory(tmp_path, CREATED_MS, OBJECTS, files=1, parquet=True)

    def name_another(document: dict[str, Any]) -> None:
        document["fileSchema"] = document["fileSchema"].replace("}", "optional binary e_tag; }")

    with pytest.raises(RemoteStorageError, match="etag"):
        listed(changed(manifest, name_another))


def test_a_parquet_file_that_is_none(tmp_path: Path) -> None:
    manifest = write_inventory(tmp_path, CREATED_MS, OBJECTS, files=1, parquet=True)
    with pytest.raises(RemoteStorageError, match="cannot be read"):
        listed(with_content(tmp_path, manifest, b"PAR1 and nothing else"))


def test_a_long_value_that_is_repeated_is_refused_before_it_is_unfolded(tmp_path: Path) -> None:
    """A dictionary makes 4 KB of a column that has 20 GB."""
    rows = 200_000
    key = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["k" * 100_000]))
    table = {
        "bucket": pa.array([BUCKET] * rows),
        "key": key,
        "version_id": pa.array(["v"] * rows),
        "is_latest": pa.array([True] * rows),
        "is_delete_marker": pa.array([False] * rows),
        "size": pa.array([1] * rows),
        "last_modified_date": pa.array([0] * rows, pa.timestamp("ms")),
    }
    written = io.BytesIO()
    pq.write_table(pa.table(table), written, compression="zstd")
    manifest = write_inventory(tmp_path, CREATED_MS, OBJECTS, files=1, parquet=True)
    with pytest.raises(RemoteStorageError, match="a key of 100000 bytes, more than 4096"):
        listed(with_content(tmp_path, manifest, written.getvalue()))


def test_rows_over_several_blocks_come_back_whole(
    tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listed(manifest)
    monkeypatch.setattr("include.tiering.remote_storage.inventory._CSV_BLOCK_BYTES", 50)
    assert listed(manifest) == before


def test_a_manifest_is_bounded() -> None:
    with pytest.raises(FormatError, match="bytes of JSON"):
        parse_inventory_manifest(b" " * (2**24 + 1))
