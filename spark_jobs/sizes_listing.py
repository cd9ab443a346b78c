"""Compare the store's listing with the rows, segment by segment, and find suspects: segments that differ.

The listing is read first and stored as Parquet; the rows are read after it. Only suspects are sent to the driver.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, functions

from include.tiering.app import App, open_app
from include.tiering.errors import RemoteResourceNotFoundError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, SegmentObject
from include.tiering.segments.stored_copies import Suspicion, explains_length, manifest_suspicion
from include.tiering.settings import load_settings
from spark_jobs.shared import ParentWatch

MOST_SUSPECTS: Final = 10_000
SUSPECTS: Final = "topic string, topic_id string, partition int, segment_id string, suspicion string"
_PAGE_OBJECTS: Final = 20_000
_KEY: Final = ("topic_id", "partition", "segment_id")
_OBJECTS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("segment_id", pa.string()),
        ("kind", pa.string()),
        ("size_bytes", pa.int64()),
    ]
)
_SUSPECT: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("segment_id", pa.string()),
        ("suspicion", pa.string()),
    ]
)
SuspicionOf = Callable[[Mapping[str, Any], RemoteLogSegmentMetadata, bytes | None], Suspicion | None]
"""Arguments: joined row, metadata and manifest of a segment. Returns its suspicion, None if there is none."""

SUSPECT_COLUMNS: Final = tuple(_SUSPECT.names)


def write_listing(storage: RemoteStorage, target: Path) -> None:
    """Write one row for every object of every segment; memory holds 20,000 rows."""
    objects = storage.list_segment_objects()
    with pq.ParquetWriter(target, _OBJECTS) as writer:
        while page := [_listed(found) for found in islice(objects, _PAGE_OBJECTS)]:
            writer.write_batch(pa.RecordBatch.from_pylist(page, schema=_OBJECTS))


def stored_segments(listing: DataFrame, required: Collection[ObjectKind]) -> DataFrame:
    """Return one row per segment in the store, with the numbers of its objects and of its `missing` required objects.

    `log_bytes` is the size of the log object, null if it is missing.
    """
    is_log = functions.col("kind") == ObjectKind.LOG.value
    is_required = functions.col("kind").isin([kind.value for kind in required])
    return listing.groupBy(*_KEY).agg(
        functions.max("topic").alias("topic"),
        functions.count(functions.lit(1)).alias("objects"),
        (functions.lit(len(required)) - functions.count(functions.when(is_required, 1))).alias("missing"),
        functions.max(functions.when(is_log, functions.col("size_bytes"))).alias("log_bytes"),
        functions.sum("size_bytes").alias("stored_bytes"),
    )


def beside_rows(stored: DataFrame, rows: DataFrame) -> DataFrame:
    """Join the listing with the rows; return segments that are FINISHED or have no row, with their `suspicion`.

    `suspicion` is null if listing and row agree.
    """
    is_finished = functions.col("state") == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    return (
        stored.join(rows, on=list(_KEY), how="full_outer")
        .where(is_finished | functions.col("state").isNull())
        .withColumn("suspicion", _suspicion())
    )


def listed_suspects(compared: DataFrame, names: Mapping[Uuid, str], config: Path | None) -> DataFrame:
    """Return the suspects that the listing shows, with the columns of `SUSPECTS`.

    If the stored log is longer or shorter than the segment, a task reads the manifest: the log may be compressed or
    encrypted. The segment is a suspect unless the manifest explains the stored length.
    """
    is_other_size = functions.col("suspicion") == Suspicion.OTHER_SIZE.value
    others = compared.where(functions.col("suspicion").isNotNull() & ~is_other_size).select(*SUSPECT_COLUMNS)
    return others.unionByName(_with_manifests(compared.where(is_other_size), names, config, _length_suspicion))


def manifest_suspects(compared: DataFrame, names: Mapping[Uuid, str], config: Path | None) -> DataFrame:
    """Return the suspects among segments with all objects, with the columns of `SUSPECTS`; tasks read each manifest."""
    unsuspected = compared.where(functions.col("suspicion").isNull())
    return _with_manifests(unsuspected, names, config, _manifest_suspicion)


def _with_manifests(
    rows: DataFrame,
    names: Mapping[Uuid, str],
    config: Path | None,
    suspicion_of: SuspicionOf,
) -> DataFrame:
    """Return segments that `suspicion_of` suspects or whose manifest is missing, with the columns of `SUSPECTS`."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ParentWatch(), open_app(load_settings(config)) as app:
            for batch in batches:
                found = [_suspect(row, names, app, suspicion_of) for row in batch.to_pylist()]
                yield pa.RecordBatch.from_pylist([row for row in found if row is not None], schema=_SUSPECT)

    names_of_columns = ("topic", *_KEY, "start_offset", "end_offset", "size_bytes", "log_bytes", "epoch_starts")
    return rows.select(*names_of_columns).mapInArrow(read, SUSPECTS)


def _listed(found: SegmentObject) -> dict[str, Any]:
    partition = found.segment_id.topic_id_partition
    return {
        "topic": partition.topic,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "segment_id": str(found.segment_id.id),
        "kind": found.kind.value,
        "size_bytes": found.size_bytes,
    }


def _suspicion() -> Column:
    incomplete = functions.col("log_bytes").isNull() | (functions.col("missing") > 0)
    return (
        functions.when(functions.col("state").isNull(), Suspicion.UNKNOWN.value)
        .when(incomplete, Suspicion.MISSING.value)
        .when(functions.col("log_bytes") != functions.col("size_bytes"), Suspicion.OTHER_SIZE.value)
    )


def _length_suspicion(
    row: Mapping[str, Any], metadata: RemoteLogSegmentMetadata, manifest: bytes | None
) -> Suspicion | None:
    is_explained = explains_length(manifest, metadata.segment_size_bytes, row["log_bytes"])
    return None if is_explained else Suspicion.OTHER_SIZE


def _manifest_suspicion(
    row: Mapping[str, Any], metadata: RemoteLogSegmentMetadata, manifest: bytes | None
) -> Suspicion | None:
    return None if manifest is None else manifest_suspicion(metadata, manifest)


def _suspect(
    row: Mapping[str, Any],
    names: Mapping[Uuid, str],
    app: App,
    suspicion_of: SuspicionOf,
) -> dict[str, Any] | None:
    metadata = _metadata_of(row, names)
    try:
        manifest = app.adapters.storage.fetch_manifest(metadata)
    except RemoteResourceNotFoundError:
        suspicion: Suspicion | None = Suspicion.MISSING
    else:
        suspicion = suspicion_of(row, metadata, manifest)
    return (
        None if suspicion is None else {name: row[name] for name in ("topic", *_KEY)} | {"suspicion": suspicion.value}
    )


def _metadata_of(row: Mapping[str, Any], names: Mapping[Uuid, str]) -> RemoteLogSegmentMetadata:
    """Return metadata for the keys and the expected manifest of a segment; times and broker id are placeholders."""
    topic_id = Uuid.parse(row["topic_id"])
    partition = TopicIdPartition(topic_id, row["partition"], names[topic_id])
    epochs = (entry.split(":") for entry in row["epoch_starts"].split(","))
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, Uuid.parse(row["segment_id"])),
        start_offset=row["start_offset"],
        end_offset=row["end_offset"],
        max_timestamp_ms=-1,
        broker_id=-1,
        event_timestamp_ms=0,
        segment_size_bytes=row["size_bytes"],
        segment_leader_epochs=LeaderEpochs.of((int(epoch), int(start)) for epoch, start in epochs),
    )
