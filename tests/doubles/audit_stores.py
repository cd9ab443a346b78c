"""Worlds for audits made real: rows in a database, objects of a bucket, files of an S3 Inventory."""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import insert

from include.tiering.audit.finding import AuditedSegment
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.database.schema import leases, partitions, segments, topics
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.location import place_of
from include.tiering.remote_storage.object_store import ListedObject
from tests.doubles.audit_worlds import DELETE_STARTED, FINISHED, TOMBSTONE, World

CLUSTER_ID: Final = "Yl6WqUHwTuy6EGbNGUOwhg"
BUCKET: Final = "archive"
_FAR_MS: Final = 2**52
_PAGE: Final = 20_000
_COLUMNS: Final = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate")
_PARQUET: Final = pa.schema(
    [
        ("bucket", pa.string()),
        ("key", pa.string()),
        ("version_id", pa.string()),
        ("is_latest", pa.bool_()),
        ("is_delete_marker", pa.bool_()),
        ("size", pa.int64()),
        ("last_modified_date", pa.timestamp("ms")),
    ]
)
_PARQUET_SCHEMA: Final = (
    "message s3.inventory { required binary bucket (UTF8); required binary key (UTF8);"
    " optional binary version_id (UTF8); optional boolean is_latest; optional boolean is_delete_marker;"
    " optional int64 size; optional int64 last_modified_date (TIMESTAMP_MILLIS); }"
)


def write_database(
    url: str, world: World, more: Iterable[AuditedSegment] = (), *, store_url: str, shift_ms: int = 0
) -> StoreMarker:
    """What the world's metadata says, and `more` segments; returns what the store's marker must say. Times are moved by
    `shift_ms`."""
    engine = open_engine(url)
    upgrade(engine)
    StoreIdentities(engine, CLUSTER_ID).create(
        Uuid.random(lambda size: bytes(range(size))), place=place_of(store_url, "aiven", "")
    )
    of_cluster = {"cluster_id": CLUSTER_ID}
    with engine.begin() as connection:
        connection.execute(
            insert(topics),
            [
                of_cluster | {"topic_id": key, "name": it.name, "owner": str(it.owner)}
                for key, it in world.topics.items()
            ],
        )
        known: set[tuple[str, int]] = set()
        rows = (audited for audited_segments in (world.segments, more) for audited in audited_segments)
        while page := list(islice(rows, _PAGE)):
            new = {(audited.topic_id, audited.partition) for audited in page} - known
            known |= new
            if new:
                connection.execute(insert(partitions), [of_cluster | _partition_row(*one) for one in sorted(new)])
            connection.execute(insert(segments), [of_cluster | _segment_row(audited, shift_ms) for audited in page])
        for topic_id, partition in world.leased_partitions:
            connection.execute(insert(leases), of_cluster | _lease_row(topic_id, partition))
    marker = StoreIdentities(engine, CLUSTER_ID).accepted().current
    engine.dispose()
    return marker


def write_inventory(
    directory: Path, created_ms: int, objects: Iterable[ListedObject], *, files: int = 4, parquet: bool = False
) -> Path:
    """An inventory of all versions of `BUCKET`, as S3 lays it out below `directory`; returns the path of its manifest.
    Objects go to the files in turns of `_PAGE`."""
    data = directory / "inventories" / BUCKET / "daily" / "data"
    data.mkdir(parents=True)
    suffix = "parquet" if parquet else "csv.gz"
    paths = [data / f"{number:08x}-0000-4000-8000-000000000000.{suffix}" for number in range(files)]
    (_write_parquet if parquet else _write_csv)(paths, objects)
    document = {
        "sourceBucket": BUCKET,
        "destinationBucket": "arn:aws:s3:::destination",
        "version": "2016-11-30",
        "creationTimestamp": str(created_ms),
        "fileFormat": "Parquet" if parquet else "CSV",
        "fileSchema": _PARQUET_SCHEMA if parquet else ", ".join(_COLUMNS),
        "files": [
            {
                "key": path.relative_to(directory).as_posix(),
                "size": path.stat().st_size,
                "MD5checksum": hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest(),
            }
            for path in paths
        ],
    }
    manifest = data.parent / "2026-11-18T01-00Z" / "manifest.json"
    manifest.parent.mkdir()
    write_manifest(manifest, document)
    return manifest


def write_manifest(path: Path, document: dict[str, Any]) -> None:
    """With its checksum beside it."""
    content = json.dumps(document).encode()
    path.write_bytes(content)
    path.with_suffix(".checksum").write_text(hashlib.md5(content, usedforsecurity=False).hexdigest())


def _write_csv(paths: list[Path], objects: Iterable[ListedObject]) -> None:
    with ExitStack() as stack:
        outputs = [stack.enter_context(gzip.open(path, "wt", compresslevel=1, newline="")) for path in paths]
        for number, page in enumerate(_pages(objects)):
            outputs[number % len(outputs)].writelines(map(_csv_line, page))


def _csv_line(listed: ListedObject) -> str:
    at = datetime.fromtimestamp(listed.last_modified_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    size = "" if listed.is_delete_marker else listed.size_bytes
    flags = f'"{str(listed.is_latest).lower()}","{str(listed.is_delete_marker).lower()}"'
    key = quote_plus(listed.key, safe="/-_.*~")
    return f'"{BUCKET}","{key}","{listed.version_id or ""}",{flags},"{size}","{at}"\n'


def _write_parquet(paths: list[Path], objects: Iterable[ListedObject]) -> None:
    with ExitStack() as stack:
        writers = [stack.enter_context(pq.ParquetWriter(path, _PARQUET)) for path in paths]
        for number, page in enumerate(_pages(objects)):
            keys, sizes, times, versions, latest, markers = zip(*page, strict=True)
            columns = ([BUCKET] * len(page), keys, versions, latest, markers, sizes, times)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, _PARQUET, strict=True)]
            writers[number % len(writers)].write_batch(pa.RecordBatch.from_arrays(arrays, schema=_PARQUET))


def _pages(objects: Iterable[ListedObject]) -> Iterator[list[ListedObject]]:
    rest = iter(objects)
    while page := list(islice(rest, _PAGE)):
        yield page


def _partition_row(topic_id: str, partition: int) -> dict[str, Any]:
    return {"topic_id": topic_id, "partition": partition, "log_start_offset": 0, "leader_epochs": ""}


def _segment_row(audited: AuditedSegment, shift_ms: int) -> dict[str, Any]:
    at_ms = audited.changed_at_ms + shift_ms
    return {
        "topic_id": audited.topic_id,
        "partition": audited.partition,
        "segment_id": audited.segment_id,
        "start_offset": audited.start_offset,
        "end_offset": audited.end_offset,
        "max_timestamp_ms": at_ms,
        "broker_id": 1,
        "event_timestamp_ms": at_ms,
        "size_bytes": audited.size_bytes,
        "leader_epochs": f"0:{audited.start_offset}",
        "txn_index_empty": True,
        "state": audited.state,
        "verdict": "none",
        "verdict_detail": "",
        "fencing_token": 1,
        "started_at_ms": at_ms,
        "finished_at_ms": at_ms if audited.state == FINISHED else None,
        "delete_started_at_ms": at_ms if audited.state in (DELETE_STARTED, TOMBSTONE) else None,
        "deleted_at_ms": at_ms if audited.state == TOMBSTONE else None,
    }


def _lease_row(topic_id: str, partition: int) -> dict[str, Any]:
    return {
        "topic_id": topic_id,
        "partition": partition,
        "role": "copy",
        "token": 1,
        "run_id": "r",
        "batch_id": "b",
        "claimed_at_ms": 1,
        "expires_at_ms": _FAR_MS,
        "lease_ms": _FAR_MS,
    }
