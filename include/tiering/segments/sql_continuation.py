"""Whether a source continues what is remote, in one statement: what is asked before each segment is copied."""

from typing import Final

from sqlalchemy import Connection, bindparam, exists, func, or_, select

from include.tiering.database.partition_rows import in_partition, key_of
from include.tiering.database.schema import divergences, segment_epochs, segments, size_counters
from include.tiering.model.divergence import FIRST_HISTORY
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_state import RemoteLogSegmentState

_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_LATEST_OF_SEGMENT: Final = (
    select(func.max(segment_epochs.c.leader_epoch))
    .where(segment_epochs.c.segment_key == segments.c.segment_key)
    .scalar_subquery()
)
_HISTORY_THERE: Final = (
    select(func.coalesce(func.max(divergences.c.number), FIRST_HISTORY))
    .where(in_partition(divergences), divergences.c.followed_from <= bindparam("of_last"))
    .scalar_subquery()
)
_IN_HISTORY_THERE: Final = exists().where(
    in_partition(segments),
    segments.c.state == _FINISHED,
    segments.c.end_offset == bindparam("of_last"),
    segments.c.history == _HISTORY_THERE,
    bindparam("of_epoch") == _LATEST_OF_SEGMENT,
)
"""Counters know no histories: what a decision left may end at the same offset, under the epoch that is asked for."""
_CONTINUED: Final = select(size_counters.c.leader_epoch).where(
    in_partition(size_counters),
    size_counters.c.leader_epoch == bindparam("of_epoch"),
    size_counters.c.state == _FINISHED,
    size_counters.c.highest_offset == bindparam("of_last"),
    ~exists().where(in_partition(divergences), divergences.c.followed_from.is_(None)),
    or_(~exists().where(in_partition(divergences)), _IN_HISTORY_THERE),
)


def is_continued(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, leader_epoch: int, highest_copied: int
) -> bool:
    """See `Divergences.is_continued`. One that nobody decided about counts, though nothing of it be remote any more."""
    key = key_of(cluster_id, partition) | {"of_epoch": leader_epoch, "of_last": highest_copied}
    return connection.execute(_CONTINUED, key).one_or_none() is not None
