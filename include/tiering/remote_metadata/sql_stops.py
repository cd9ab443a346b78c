"""When a partition is stopped: exactly while one of its FINISHED segments has the verdict failed."""

from sqlalchemy import Connection, select

from include.tiering.database.partition_rows import of_partition, set_stopped_reason
from include.tiering.database.schema import segments
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict


def refresh_stop(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Write the reason anew: the first such segment. The caller has locked the partition."""
    failed = (
        select(segments)
        .where(of_partition(segments, cluster_id, partition))
        .where(segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
        .where(segments.c.verdict == Verdict.FAILED)
        .order_by(segments.c.start_offset, segments.c.segment_key)
        .limit(1)
    )
    first = connection.execute(failed).one_or_none()
    reason = None
    if first is not None:
        reason = f"segment {first.segment_id} ({first.start_offset}..{first.end_offset}) failed: {first.verdict_detail}"
    set_stopped_reason(connection, cluster_id, partition, reason)
