"""What each quality rule said about each segment: the last result of a rule replaces the one before."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, select

from include.tiering.database.partition_rows import in_partition, key_of
from include.tiering.database.schema import quality_results
from include.tiering.database.statements import stored_text, upsert
from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.segments.values import QualityResult

_OF_SEGMENT: Final = (
    select(quality_results)
    .where(in_partition(quality_results), quality_results.c.segment_id == bindparam("of_segment"))
    .order_by(quality_results.c.rule)
)
_UNRESOLVED: Final = _OF_SEGMENT.where(quality_results.c.passed.is_(False))


def store_results(
    connection: Connection, cluster_id: str, results: Sequence[QualityResult], recorded_at_ms: int
) -> None:
    """Of a segment that is known, whose partition the caller has locked."""
    for result in results:
        partition = result.segment_id.topic_id_partition
        values = {
            "cluster_id": cluster_id,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            "segment_id": str(result.segment_id.id),
            "rule": result.rule,
            "level": result.level,
            "passed": result.passed,
            "message": stored_text(result.message),
            "recorded_at_ms": recorded_at_ms,
        }
        upsert(connection, quality_results, values)


def results_of(connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId) -> Sequence[QualityResult]:
    """By rule."""
    rows = connection.execute(_OF_SEGMENT, _key_of(cluster_id, segment_id))
    return [_result_of(segment_id, row) for row in rows]


def unresolved_of(
    connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId
) -> Sequence[tuple[QualityResult, int]]:
    """Results that did not pass, by rule, with the time of their recording."""
    rows = connection.execute(_UNRESOLVED, _key_of(cluster_id, segment_id))
    return [(_result_of(segment_id, row), row.recorded_at_ms) for row in rows]


def _key_of(cluster_id: str, segment_id: RemoteLogSegmentId) -> dict[str, Any]:
    return key_of(cluster_id, segment_id.topic_id_partition) | {"of_segment": str(segment_id.id)}


def _result_of(segment_id: RemoteLogSegmentId, row: Row[Any]) -> QualityResult:
    return QualityResult(segment_id, row.rule, row.level, row.passed, row.message)
