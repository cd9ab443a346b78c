"""Columns of an audit's DataFrames, and conversions from and to values of the library.

LISTED     content of the store: objects, versions and open uploads. Only an open upload has an `upload_id`; its
           `last_modified_ms` is the time at which it began. `segment_id` is taken from the key; it is null if the key
           has none. The columns between `segment_id` and `upload_id` are the fields of `ListedObject`, in their order.
FACTS      segments of the metadata: the fields of `AuditedSegment`
FINDINGS   findings: the fields of `AuditFinding`. A row whose `kind` is null is no finding: `objects` is the number of
           objects that were not classified, `passed_over` says why.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from include.tiering.audit.finding import AuditedSegment, AuditFinding, AuditOutcome, FindingKind
from include.tiering.audit.rules import named_segment_id
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.object_store import ListedObject, ListedUpload
from spark_jobs.shared import Batches

LISTED: Final = (
    "segment_id string, key string, size_bytes bigint, last_modified_ms bigint, version_id string, is_latest boolean,"
    " is_delete_marker boolean, upload_id string"
)
FACTS: Final = (
    "segment_id string, topic_id string, partition int, state int, start_offset bigint, end_offset bigint,"
    " size_bytes bigint, changed_at_ms bigint, arrival bigint, leader_epochs string"
)
FINDINGS: Final = (
    "kind string, key string, message string, size_bytes bigint, segment_id string, topic_id string, topic string,"
    " partition int, start_offset bigint, end_offset bigint, last_modified_ms bigint, version_id string,"
    " upload_id string, leader_epochs string, passed_over string, objects bigint"
)

_TYPES: Final = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}
_BATCH_ROWS: Final = 10_000
_object_members: Final = itemgetter(*ListedObject._fields)
_fact_members: Final = itemgetter(*AuditedSegment._fields)

Row = dict[str, Any]


def arrow_schema(columns: str) -> pa.Schema:
    """Return the Arrow schema of one of the column lists above."""
    named = (column.split() for column in columns.split(","))
    return pa.schema([(name, _TYPES[kind]) for name, kind in named])


LISTED_SCHEMA: Final = arrow_schema(LISTED)
SEGMENTS_SCHEMA: Final = arrow_schema(FACTS)
FINDINGS_SCHEMA: Final = arrow_schema(FINDINGS)


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Build a batch from rows of values in the order of the columns."""
    # Column after column: to unpack 20,000 rows at once takes several times as long.
    arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def listed_row(listed: ListedObject) -> Sequence[Any]:
    return (named_segment_id(listed.key), *listed, None)


def upload_row(upload: ListedUpload) -> Sequence[Any]:
    named = named_segment_id(upload.key)
    return (named, upload.key, upload.size_bytes, upload.initiated_ms, None, True, False, upload.upload_id)


def object_of(row: Mapping[str, Any]) -> ListedObject:
    return ListedObject._make(_object_members(row))


def upload_of(row: Mapping[str, Any]) -> ListedUpload:
    return ListedUpload(row["key"], row["upload_id"], row["last_modified_ms"], row["size_bytes"])


def segment_of_row(row: Mapping[str, Any]) -> AuditedSegment:
    return AuditedSegment._make(_fact_members(row))


def rows_of(batches: Batches) -> Iterator[Row]:
    for batch in batches:
        yield from batch.to_pylist()


def finding_batches(outcomes: Iterable[AuditOutcome]) -> Batches:
    """Yield the findings of `outcomes` as `FINDINGS`, and at the end the numbers of passed-over objects, added up."""
    rows: list[Row] = []
    passed_over: dict[str, int] = {}
    for outcome in outcomes:
        rows += (_finding_row(finding) for finding in outcome.findings)
        for why, objects in outcome.passed_over.items():
            passed_over[why.value] = passed_over.get(why.value, 0) + objects
        if len(rows) >= _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema=FINDINGS_SCHEMA)
            rows = []
    rows += ({"passed_over": why, "objects": objects} for why, objects in passed_over.items())
    yield pa.RecordBatch.from_pylist(rows, schema=FINDINGS_SCHEMA)


def finding_of(row: Mapping[str, Any]) -> AuditFinding:
    """Parse a row that `finding_batches` wrote for one finding."""
    return AuditFinding(
        kind=FindingKind(row["kind"]),
        segment_id=_uuid(row["segment_id"]),
        topic_id=_uuid(row["topic_id"]),
        **{name: row[name] for name in _PLAIN_MEMBERS},
    )


_PLAIN_MEMBERS: Final = (
    "key",
    "message",
    "size_bytes",
    "topic",
    "partition",
    "start_offset",
    "end_offset",
    "last_modified_ms",
    "version_id",
    "upload_id",
    "leader_epochs",
)


def _finding_row(finding: AuditFinding) -> Row:
    return {
        "kind": finding.kind.value,
        "segment_id": None if finding.segment_id is None else str(finding.segment_id),
        "topic_id": None if finding.topic_id is None else str(finding.topic_id),
        **{name: getattr(finding, name) for name in _PLAIN_MEMBERS},
    }


def _uuid(text: str | None) -> Uuid | None:
    return None if text is None else Uuid.parse(text)
