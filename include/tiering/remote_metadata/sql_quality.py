"""What each quality rule said about each segment: the last result of a rule replaces the one before."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from include.tiering.database.partition_rows import of_partition
from include.tiering.database.schema import quality_results
from include.tiering.database.statements import stored_text, upsert
from include.tiering.errors import UnknownSegmentError
from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.remote_metadata.contract import QualityResult
from include.tiering.remote_metadata.sql_queries import find_segment


def store_results(connection: Connection, cluster_id: str, results: Sequence[QualityResult], now_ms: int) -> None:
    """See `RemoteLogMetadata.record_quality_results`."""
    for segment_id in {result.segment_id for result in results}:
        if find_segment(connection, cluster_id, segment_id) is None:
            raise UnknownSegmentError(f"no remote log segment {segment_id}")
    for result in sorted(results, key=_key):
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
            "recorded_at_ms": now_ms,
        }
        upsert(connection, quality_results, values)


def results_of(connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId) -> Sequence[QualityResult]:
    """By rule."""
    query = (
        select(quality_results)
        .where(of_partition(quality_results, cluster_id, segment_id.topic_id_partition))
        .where(quality_results.c.segment_id == str(segment_id.id))
        .order_by(quality_results.c.rule)
    )
    return [
        QualityResult(segment_id, row.rule, row.level, row.passed, row.message) for row in connection.execute(query)
    ]


def _key(result: QualityResult) -> tuple[str, int, str, str]:
    """One order for all, so that two transactions never wait for each other."""
    partition = result.segment_id.topic_id_partition
    return str(partition.topic_id), partition.partition, str(result.segment_id.id), result.rule
