"""Lookups of remote log segments, with the meaning of Kafka's own metadata cache.

A segment answers for [start, end] of each of its leader epochs, both inclusive, while it is FINISHED. Segments overlap
after a leader change (the new leader's segment that holds the next offset is copied whole) and when a longer copy
covers shorter ones: the one that was FINISHED last answers, and as FINISHED ends ascend, that is the one with the
highest end. Kafka forgets what was covered; here it answers again once the covering copy is deleted.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, and_, bindparam, case, select

from include.tiering.database.partition_rows import in_partition, key_of, partition_from
from include.tiering.database.schema import PARTITION_TOTAL, segment_epochs, segments, size_counters, topics
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.segment_origin import SegmentOrigin
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.sql_rows import metadata_of, segment_row_of

_FINISHED: Final = segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_NOT_TOMBSTONE: Final = segments.c.state != int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_SAME_TOPIC: Final = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
_WITH_TOPIC: Final = select(segments, topics.c.name).join(topics, _SAME_TOPIC)
_OF_PARTITION: Final = _WITH_TOPIC.where(in_partition(segments), _NOT_TOMBSTONE).order_by(
    segments.c.start_offset,
    case((_FINISHED, 0), else_=1),
    case((_FINISHED, -segments.c.end_offset), else_=0),
    segments.c.segment_key,
)
_SAME_SEGMENT: Final = segment_epochs.c.segment_key == segments.c.segment_key
_OF_EPOCH: Final = (in_partition(segment_epochs), segment_epochs.c.leader_epoch == bindparam("of_epoch"))
_OF_PARTITION_AND_EPOCH: Final = _OF_PARTITION.join(segment_epochs, _SAME_SEGMENT).where(*_OF_EPOCH)
_FOR_OFFSET: Final = (
    _WITH_TOPIC.join(segment_epochs, _SAME_SEGMENT)
    .where(*_OF_EPOCH, _FINISHED)
    .where(segment_epochs.c.start_offset <= bindparam("at_offset"))
    .where(segment_epochs.c.end_offset >= bindparam("at_offset"))
    .order_by(segments.c.end_offset.desc(), segments.c.segment_key.desc())
    .limit(1)
)
_SAME_TOPIC_AS_COUNTER: Final = and_(
    topics.c.cluster_id == size_counters.c.cluster_id, topics.c.topic_id == size_counters.c.topic_id
)
_PARTITIONS: Final = (
    select(topics.c.topic_id, size_counters.c.partition, topics.c.name)
    .join(topics, _SAME_TOPIC_AS_COUNTER)
    .where(size_counters.c.cluster_id == bindparam("of_cluster"), size_counters.c.segments > 0)
    .where(size_counters.c.leader_epoch == PARTITION_TOTAL)
    .distinct()
    .order_by(topics.c.name, topics.c.topic_id, size_counters.c.partition)
)
_ONE: Final = _WITH_TOPIC.where(in_partition(segments), segments.c.segment_id == bindparam("of_segment"))


def find_segment(connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
    """One attempt in any state."""
    key = key_of(cluster_id, segment_id.topic_id_partition)
    row = connection.execute(_ONE, key | {"of_segment": str(segment_id.id)}).one_or_none()
    return None if row is None else segment_row_of(row)


def list_of_partition(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, leader_epoch: int | None
) -> Sequence[SegmentRow]:
    """In the order that `RemoteLogMetadata.list_segments` promises."""
    query, key = _OF_PARTITION, key_of(cluster_id, partition)
    if leader_epoch is not None:
        query, key = _OF_PARTITION_AND_EPOCH, key | {"of_epoch": leader_epoch}
    return [segment_row_of(row) for row in connection.execute(query, key)]


def find_for_offset(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, leader_epoch: int, offset: int
) -> RemoteLogSegmentMetadata | None:
    """The FINISHED segment with the highest end that holds `offset` under the epoch."""
    key = key_of(cluster_id, partition) | {"of_epoch": leader_epoch, "at_offset": offset}
    row = connection.execute(_FOR_OFFSET, key).one_or_none()
    return None if row is None else metadata_of(row)


def list_partitions(connection: Connection, cluster_id: str) -> Sequence[TopicIdPartition]:
    """Partitions with a segment that is not a tombstone, by topic and partition.

    From the counters, which tombstones are not in: a look at every segment would take seconds where there are millions.
    """
    found = connection.execute(_PARTITIONS, {"of_cluster": cluster_id})
    return [partition_from(row.topic_id, row.partition, row.name) for row in found]


def list_of_run(connection: Connection, cluster_id: str, run_id: str) -> Sequence[SegmentRow]:
    """Attempts that began under a lease of this run, in any state, by arrival."""
    query = _WITH_TOPIC.where(segments.c.cluster_id == cluster_id, segments.c.run_id == run_id)
    return [segment_row_of(row) for row in connection.execute(query.order_by(segments.c.segment_key))]


def list_unjudged(connection: Connection, cluster_id: str) -> Sequence[SegmentRow]:
    """See `RemoteLogMetadata.unjudged_segments`."""
    query = _WITH_TOPIC.where(segments.c.cluster_id == cluster_id, segments.c.verdict == str(Verdict.NONE), _FINISHED)
    query = query.where(segments.c.origin == str(SegmentOrigin.PLATFORM))
    return [segment_row_of(row) for row in connection.execute(query.order_by(segments.c.segment_key))]
