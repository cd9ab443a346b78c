"""Compare the store's listing with the rows, segment by segment, and find suspects: segments that differ.

The listing is read first, in parts, and kept by Spark; the rows are read after it. Only suspects are sent to the
driver.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from operator import add
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions

from include.tiering.app import App
from include.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.remote_storage.object_store import ListedObject
from include.tiering.segments.stored_copies import Suspicion, explains_length, manifest_suspicion
from spark_jobs.packed_rows import read_once
from spark_jobs.shared import Batches, ParentWatch
from spark_jobs.task_errors import ERROR_COLUMNS, telling
from spark_jobs.task_settings import TaskSettings

MOST_SUSPECTS: Final = 10_000
SUSPECTS: Final = "topic string, topic_id string, partition int, segment_id string, suspicion string"
OBJECTS: Final = "topic string, topic_id string, partition int, segment_id string, kind string, size_bytes bigint"
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
SUSPECT_COLUMNS: Final = tuple(_SUSPECT.names)


def read_listing(session: SparkSession, parts: Sequence[Any], *, settings: TaskSettings) -> DataFrame:
    """Return every object of every segment as a packed row with the columns of `OBJECTS`.

    Args:
        session: the session whose tasks list the store.
        parts: parts of the store's listing; each is listed by a task of its own, as their lengths are not known.
        settings: the settings with which a task opens the library.

    Raises:
        TaskStoppedError: a part could not be listed.
    """

    def read(app: App, part: Any) -> Batches:
        for page in app.adapters.object_listing.pages(part):
            found = (_listed(app.adapters.storage, listed) for listed in page if listed.is_current)
            yield pa.RecordBatch.from_pylist([row for row in found if row is not None], schema=_OBJECTS)

    return read_once(session, parts, _OBJECTS, read, settings=settings)


def stored_segments(listing: DataFrame, required: Collection[ObjectKind]) -> DataFrame:
    """Return one row per segment in the store, with the numbers of its objects and of its `missing` required objects.

    An object that the listing has twice counts once. `log_bytes` is the size of the log object, null if it is missing.
    """
    sizes = {
        kind: functions.max(functions.when(functions.col("kind") == kind.value, functions.col("size_bytes")))
        for kind in ObjectKind
    }
    nothing = functions.lit(0)
    return listing.groupBy(*_KEY).agg(
        functions.max("topic").alias("topic"),
        reduce(add, (functions.when(size.isNotNull(), 1).otherwise(nothing) for size in sizes.values())).alias(
            "objects"
        ),
        reduce(add, (functions.when(sizes[kind].isNull(), 1).otherwise(nothing) for kind in required), nothing).alias(
            "missing"
        ),
        sizes[ObjectKind.LOG].alias("log_bytes"),
        reduce(add, (functions.coalesce(size, nothing) for size in sizes.values())).alias("stored_bytes"),
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


def suspects(
    compared: DataFrame, names: Mapping[Uuid, str], settings: TaskSettings, *, with_manifests: bool
) -> DataFrame:
    """Return the suspects among the segments of `beside_rows`, with the columns of `SUSPECTS` and `ERROR_COLUMNS`.

    If the stored log is longer or shorter than the segment, a task reads the manifest: the log may be compressed or
    encrypted. The segment is a suspect unless the manifest explains the stored length. With `with_manifests` tasks also
    read the manifests of all segments that the listing does not make suspects.
    """

    def check(batches: Batches) -> Batches:
        with ParentWatch(), ExitStack() as stack:
            storage: list[RemoteStorage] = []
            for batch in batches:
                found = []
                for row in batch.to_pylist():
                    suspicion = row["suspicion"]
                    if suspicion in _BY_MANIFEST:
                        # A task that reads no manifest does not open the library.
                        if not storage:
                            storage.append(stack.enter_context(settings.open_app()).adapters.storage)
                        suspicion = _suspicion_of_manifest(row, names, storage[0])
                    if suspicion is not None:
                        found.append({name: row[name] for name in ("topic", *_KEY)} | {"suspicion": suspicion})
                yield pa.RecordBatch.from_pylist(found, schema=_SUSPECT)

    rows = compared if with_manifests else compared.where(functions.col("suspicion").isNotNull())
    return rows.select(*_CHECKED).mapInArrow(telling(check, _SUSPECT), SUSPECTS + ERROR_COLUMNS)


_BY_MANIFEST: Final = (None, Suspicion.OTHER_SIZE.value)
_CHECKED: Final = (*SUSPECT_COLUMNS, "start_offset", "end_offset", "size_bytes", "log_bytes", "epoch_starts")


def _listed(storage: RemoteStorage, listed: ListedObject) -> dict[str, Any] | None:
    found = storage.segment_object(listed.key, listed.size_bytes)
    if found is None:
        return None
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


def _suspicion_of_manifest(row: Mapping[str, Any], names: Mapping[Uuid, str], storage: RemoteStorage) -> str | None:
    """Read the manifest of a segment whose objects are listed; None if it agrees with the row.

    Raises:
        RemoteStorageUnavailableError: the store does not answer (retriable).
    """
    metadata = _metadata_of(row, names)
    try:
        manifest = storage.fetch_manifest(metadata)
    except RemoteResourceNotFoundError:
        return Suspicion.MISSING.value
    except RemoteStorageError as error:
        if error.retriable:
            raise
        return row["suspicion"] or Suspicion.UNREADABLE.value
    if row["suspicion"] is not None:
        is_explained = explains_length(manifest, metadata.segment_size_bytes, row["log_bytes"])
        return None if is_explained else Suspicion.OTHER_SIZE.value
    found = None if manifest is None else manifest_suspicion(metadata, manifest)
    return None if found is None else found.value


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
