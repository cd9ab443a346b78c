"""Tombstones that nobody needs any more leave the database, a page in each transaction of the caller.

    step                                                   a crash after it leaves
    page chosen: the oldest of those that may go           nothing
    results, epochs and rows of the page deleted           nothing: the transaction is rolled back
    committed                                              the rest, for the next call

Counters, the log start and the history of leader epochs are kept apart from segments: none of them changes. A tombstone
stays while

- it is ours and its topic is not the platform's: whoever publishes or took over may still have to say that it was
  deleted;
- a copy may work on its partition since before it was deleted: the attempt may be that copy's own, and an id is never
  begun again. A lease that ran out longer ago than tombstones are kept does not count.
"""

from typing import Final

from sqlalchemy import Connection, and_, delete, or_, select, tuple_

from include.tiering.database.schema import leases, quality_results, segment_epochs, segments, topics
from include.tiering.model.fence import LeaseRole
from include.tiering.model.segment_origin import SegmentOrigin
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.topic_owner import TopicOwner

_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_SEGMENT: Final = ("cluster_id", "topic_id", "partition", "segment_id")


def forget_tombstones(connection: Connection, cluster_id: str, *, deleted_before_ms: int, at_most: int) -> int:
    """See `RemoteLogMetadata.forget_tombstones`. `deleted_before_ms` is exclusive, a time of the database."""
    copied_since = select(leases.c.token).where(
        leases.c.cluster_id == segments.c.cluster_id,
        leases.c.topic_id == segments.c.topic_id,
        leases.c.partition == segments.c.partition,
        leases.c.role == LeaseRole.COPY,
        leases.c.expires_at_ms > deleted_before_ms,
        leases.c.claimed_at_ms <= segments.c.deleted_at_ms,
    )
    is_ours = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
    query = (
        select(segments.c.segment_key, segments.c.topic_id, segments.c.partition, segments.c.segment_id)
        .join(topics, is_ours)
        .where(segments.c.cluster_id == cluster_id, segments.c.deleted_at_ms < deleted_before_ms)
        .where(segments.c.state == _TOMBSTONE, ~copied_since.exists())
        .where(or_(topics.c.owner == TopicOwner.PLATFORM, segments.c.origin == str(SegmentOrigin.BROKER)))
        .order_by(segments.c.deleted_at_ms, segments.c.segment_key)
        .limit(at_most)
        .with_for_update(of=segments, skip_locked=True)
    )
    page = connection.execute(query).all()
    if not page:
        return 0
    keys = [row.segment_key for row in page]
    of_segment = tuple_(*(quality_results.c[name] for name in _SEGMENT))
    ids = [(cluster_id, row.topic_id, row.partition, row.segment_id) for row in page]
    connection.execute(delete(quality_results).where(of_segment.in_(ids)))
    connection.execute(delete(segment_epochs).where(segment_epochs.c.segment_key.in_(keys)))
    connection.execute(delete(segments).where(segments.c.segment_key.in_(keys)))
    return len(page)
