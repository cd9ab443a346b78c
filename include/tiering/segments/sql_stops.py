"""When a partition is stopped: exactly while a FINISHED segment of it has the verdict failed and was not given up.

A segment of which a decision left something, because another history is followed from an offset at or below its end,
stops nothing: no source has it any more, and what is followed does not wait for it (`model.divergence`).
"""

from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection, and_, exists, select

from include.tiering.database.partition_rows import of_partition, set_stopped_reason
from include.tiering.database.schema import divergences, segments
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict

NOTHING_LOST: Final = MappingProxyType({"lost_because": None, "given_up_at_ms": None})
"""Columns of a segment that passed: what was found and decided about it as a failed one is over."""

WAS_LEFT: Final = exists().where(
    and_(*(divergences.c[name] == segments.c[name] for name in ("cluster_id", "topic_id", "partition"))),
    divergences.c.number > segments.c.history,
    divergences.c.followed_from <= segments.c.end_offset,
)
"""Whether a decision left the segment, or the end of it. False where nobody decided: NULL is at or below nothing."""


def refresh_stop(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Write the reason anew: the first such segment. The caller has locked the partition."""
    failed = (
        select(segments)
        .where(of_partition(segments, cluster_id, partition))
        .where(segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
        .where(segments.c.verdict == Verdict.FAILED, segments.c.given_up_at_ms.is_(None), ~WAS_LEFT)
        .order_by(segments.c.start_offset, segments.c.segment_key)
        .limit(1)
    )
    first = connection.execute(failed).one_or_none()
    reason = None
    if first is not None:
        offsets = f"{first.start_offset}..{first.end_offset}"
        reason = f"segment {first.segment_id} ({offsets}) failed: {first.verdict_detail}"
        if first.lost_because is not None:
            reason += f"; lost: {first.lost_because}"
    set_stopped_reason(connection, cluster_id, partition, reason)
