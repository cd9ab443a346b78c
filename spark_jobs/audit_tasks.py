"""An audit as DataFrames: listing and metadata are read, grouped by segment id, and classified.

The library makes the decisions, in plain Python; Spark groups and distributes rows. Rows of a task are sorted by their
group and processed one after another, so a task holds one group at a time.

The input is read first: the listing, then the rows of the metadata. Each task opens the library and reads its parts
page by page; a page is converted to columns before the next page is read (see `packed_rows`), so memory does not grow
with the number of pages. What was read is used several times, and does not change.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, functions

from include.tiering.app import App
from include.tiering.audit.compare import classify_same_range, classify_segment, classify_uploads
from include.tiering.audit.finding import AuditContext, AuditOutcome, FindingKind, ManifestReader
from include.tiering.audit.rules import classify_by_key
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.segments.sizes_contract import KeyRange
from spark_jobs.audit_frames import (
    FINDINGS,
    FINDINGS_SCHEMA,
    LISTED_SCHEMA,
    SEGMENTS_SCHEMA,
    Row,
    batch_of,
    finding_batches,
    finding_of,
    listed_row,
    object_of,
    rows_of,
    segment_of_row,
    upload_of,
    upload_row,
)
from spark_jobs.packed_rows import read_once
from spark_jobs.shared import Batches, ParentWatch
from spark_jobs.task_errors import ERROR_COLUMNS, telling
from spark_jobs.task_settings import TaskSettings

OpenManifests = Callable[[], AbstractContextManager[ManifestReader]]
"""Opens a task's reader of manifests. Must be picklable, as Spark sends it to the tasks."""

_OUTPUT_COLUMNS: Final = FINDINGS + ERROR_COLUMNS
_RANGE: Final = ("topic_id", "partition", "start_offset", "end_offset")
_IS_SEGMENT: Final = "is_segment"


def classified_alone(listed: DataFrame, context: AuditContext) -> DataFrame:
    """Return `FINDINGS` that need no metadata: old versions, delete markers, keys and uploads without a segment id.

    The rows also have `ERROR_COLUMNS`.
    """

    def classify(batches: Batches) -> Batches:
        return finding_batches(_outcome_alone(row, context) for row in rows_of(batches))

    return listed.where(~_is_object_of_a_segment() & ~_is_upload_of_a_segment()).mapInArrow(
        _findings_of(classify), _OUTPUT_COLUMNS
    )


def classified_segments(
    listed: DataFrame, segments: DataFrame, context: AuditContext, manifests: OpenManifests, *, tasks: int
) -> DataFrame:
    """Return `FINDINGS` about objects and uploads with a segment id, and about the segments of the metadata.

    The rows also have `ERROR_COLUMNS`. Findings of the kind adoptable are provisional, see `classified_ranges`.
    """

    def classify(batches: Batches) -> Batches:
        with manifests() as read_manifest:
            reading = replace(context, read_manifest=read_manifest)
            groups = groupby(rows_of(batches), key=itemgetter("segment_id"))
            yield from finding_batches(_outcome_of_segment(rows, reading) for _, rows in groups)

    of_segments = listed.where(_is_object_of_a_segment() | _is_upload_of_a_segment())
    together = of_segments.withColumn(_IS_SEGMENT, functions.lit(False)).unionByName(
        segments.withColumn(_IS_SEGMENT, functions.lit(True)), allowMissingColumns=True
    )
    return _grouped(together, tasks, "segment_id").mapInArrow(_findings_of(classify), _OUTPUT_COLUMNS)


def classified_ranges(segments: DataFrame, findings: DataFrame, context: AuditContext, *, tasks: int) -> DataFrame:
    """Return `findings` with duplicates added.

    FINISHED segments and adoptable findings with the same offsets are classified together: a superfluous one becomes a
    duplicate.
    """

    def classify(batches: Batches) -> Batches:
        groups = groupby(rows_of(batches), key=itemgetter(*_RANGE))
        return finding_batches(_outcome_of_range(rows, context) for _, rows in groups)

    is_provisional = (functions.col("kind") == FindingKind.ADOPTABLE.value) & functions.col("end_offset").isNotNull()
    finished = segments.where(functions.col("state") == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
    together = finished.withColumn(_IS_SEGMENT, functions.lit(True)).unionByName(
        findings.where(is_provisional).withColumn(_IS_SEGMENT, functions.lit(False)), allowMissingColumns=True
    )
    twice = together.groupBy(*_RANGE).count().where(functions.col("count") > 1).select(*_RANGE)
    shared = together.join(twice, on=list(_RANGE), how="left_semi")
    alone = findings.where(functions.coalesce(is_provisional, functions.lit(False))).join(
        twice, on=list(_RANGE), how="left_anti"
    )
    settled = findings.where(~functions.coalesce(is_provisional, functions.lit(False)))
    classified = _grouped(shared, tasks, *_RANGE).mapInArrow(classify, FINDINGS)
    return settled.unionByName(alone.select(*settled.columns)).unionByName(classified)


def _findings_of(classify: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    return telling(classify, FINDINGS_SCHEMA)


def _grouped(rows: DataFrame, tasks: int, *names: str) -> DataFrame:
    return rows.repartition(tasks, *names).sortWithinPartitions(*names)


def _is_current() -> Column:
    return functions.col("is_latest") & ~functions.col("is_delete_marker") & functions.col("upload_id").isNull()


def _is_object_of_a_segment() -> Column:
    return _is_current() & functions.col("segment_id").isNotNull()


def _is_upload_of_a_segment() -> Column:
    return functions.col("upload_id").isNotNull() & functions.col("segment_id").isNotNull()


def _outcome_alone(row: Row, context: AuditContext) -> AuditOutcome:
    if row["upload_id"] is not None:
        return classify_uploads((), (upload_of(row),), context)
    finding = classify_by_key(object_of(row), context.layout)
    return AuditOutcome(() if finding is None else (finding,))


def _outcome_of_segment(rows: Iterator[Row], context: AuditContext) -> AuditOutcome:
    segments, objects, uploads = [], [], []
    for row in rows:
        if row[_IS_SEGMENT]:
            segments.append(segment_of_row(row))
        elif row["upload_id"] is not None:
            uploads.append(upload_of(row))
        else:
            objects.append(object_of(row))
    return classify_segment(segments, objects, uploads, context)


def _outcome_of_range(rows: Iterator[Row], context: AuditContext) -> AuditOutcome:
    segments, adoptable = [], []
    for row in rows:
        if row[_IS_SEGMENT]:
            segments.append(segment_of_row(row))
        else:
            adoptable.append(finding_of(row))
    return AuditOutcome(tuple(classify_same_range(segments, adoptable, context)))


_UPLOADS: Final = None
"""The part that stands for the listing of open uploads."""


def read_listing(
    session: SparkSession, parts: Sequence[Any], inventory: str | None, *, settings: TaskSettings
) -> DataFrame:
    """List all parts of the store and its open uploads; return the rows packed, with the columns of `LISTED`.

    Raises:
        TaskStoppedError: a part could not be listed.
    """
    work = (*parts, _UPLOADS)

    def read(app: App, part: Any) -> Batches:
        listing = app.audit.listing_of(inventory)
        if part is _UPLOADS:
            pages = ([upload_row(upload) for upload in page] for page in listing.open_uploads())
        else:
            pages = ([listed_row(listed) for listed in page] for page in listing.pages(part))
        return (batch_of(page, LISTED_SCHEMA) for page in pages)

    return read_once(session, work, LISTED_SCHEMA, read, settings=settings)


def read_segments(session: SparkSession, app: App, ranges: int, *, settings: TaskSettings) -> DataFrame:
    """Read every segment in the metadata, tombstones included; return the rows packed, with the columns of `FACTS`.

    Raises:
        TaskStoppedError: a range could not be read.
    """

    def read(reader: App, key_range: KeyRange) -> Batches:
        pages = reader.adapters.stores.audited_metadata.export(key_range)
        return (batch_of(page, SEGMENTS_SCHEMA) for page in pages)

    work = app.adapters.stores.audited_metadata.split(ranges)
    return read_once(session, work, SEGMENTS_SCHEMA, read, settings=settings)


def manifests_of_the_store(settings: TaskSettings) -> OpenManifests:
    """Return an opener of manifests in the store. A task that reads no manifest does not open the library."""

    @contextmanager
    def opened() -> Iterator[ManifestReader]:
        with ParentWatch(), ExitStack() as stack:
            found: list[App] = []

            def read(key: str) -> bytes | None:
                if not found:
                    found.append(stack.enter_context(settings.open_app()))
                return found[0].adapters.orphans.manifest(key)

            yield read

    return opened
