"""Counters by (partition, leader epoch, state), moved in the transaction of each state change (KIP-852).

A segment counts once under each of its leader epochs and once under `PARTITION_TOTAL`. Tombstones do not count.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Final

from sqlalchemy import Connection, and_, bindparam, case, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from include.tiering.database.partition_rows import in_partition, key_of, of_partition, partition_from
from include.tiering.database.schema import PARTITION_TOTAL, size_counters, topics
from include.tiering.database.statements import insert_for
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.segments.contract import EpochSize, PartitionSize

_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_TAKE_AWAY: Final = (
    update(size_counters)
    .where(in_partition(size_counters), size_counters.c.state == bindparam("of_state"))
    .where(size_counters.c.leader_epoch == bindparam("of_epoch"))
    .values(
        size_bytes=size_counters.c.size_bytes - bindparam("segment_bytes"),
        segments=size_counters.c.segments - bindparam("segment_count"),
    )
)
_FINISHED_OF_EPOCH: Final = (
    in_partition(size_counters),
    size_counters.c.leader_epoch == bindparam("of_epoch"),
    size_counters.c.state == _FINISHED,
)
_FINISHED_BYTES: Final = select(size_counters.c.size_bytes).where(*_FINISHED_OF_EPOCH)
_HIGHEST_FINISHED: Final = select(size_counters.c.highest_offset).where(*_FINISHED_OF_EPOCH)


@dataclass(slots=True)
class _Counted:
    """What segments of one partition in one state add up to, under one leader epoch or in all."""

    size_bytes: int = 0
    segments: int = 0
    highest_offset: int | None = None


def count_in(connection: Connection, cluster_id: str, *segments: RemoteLogSegmentMetadata) -> None:
    """Count segments of one partition under their states."""
    rows = [
        {
            "cluster_id": cluster_id,
            "topic_id": str(segments[0].topic_id_partition.topic_id),
            "partition": segments[0].topic_id_partition.partition,
            "leader_epoch": leader_epoch,
            "state": int(state),
            "size_bytes": counted.size_bytes,
            "segments": counted.segments,
            "highest_offset": counted.highest_offset,
        }
        for (leader_epoch, state), counted in _added_up(segments).items()
        if state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    ]
    if rows:
        connection.execute(_add(connection.dialect.name), rows)


@cache
def _add(dialect_name: str) -> sqlite.Insert | postgresql.Insert:
    statement = insert_for(dialect_name, size_counters)
    new, old = statement.excluded, size_counters.c
    raised = case(
        (or_(old.highest_offset.is_(None), new.highest_offset > old.highest_offset), new.highest_offset),
        else_=old.highest_offset,
    )
    changed = {
        "size_bytes": old.size_bytes + new.size_bytes,
        "segments": old.segments + new.segments,
        "highest_offset": raised,
    }
    key = [column.name for column in size_counters.primary_key]
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


def count_out(connection: Connection, cluster_id: str, *segments: RemoteLogSegmentMetadata) -> None:
    """Take segments of one partition away from their states; the highest offsets stay."""
    key = key_of(cluster_id, segments[0].topic_id_partition)
    rows = [
        key
        | {
            "of_state": int(state),
            "of_epoch": leader_epoch,
            "segment_bytes": counted.size_bytes,
            "segment_count": counted.segments,
        }
        for (leader_epoch, state), counted in _added_up(segments).items()
    ]
    connection.execute(_TAKE_AWAY, rows)


def finished_bytes(connection: Connection, cluster_id: str, partition: TopicIdPartition, leader_epoch: int) -> int:
    """One row by its primary key."""
    key = key_of(cluster_id, partition) | {"of_epoch": leader_epoch}
    return connection.execute(_FINISHED_BYTES, key).scalar_one_or_none() or 0


def highest_finished_offset(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, leader_epoch: int = PARTITION_TOTAL
) -> int | None:
    """Highest end offset (inclusive) ever FINISHED under the epoch; by default under any."""
    key = key_of(cluster_id, partition) | {"of_epoch": leader_epoch}
    return connection.execute(_HIGHEST_FINISHED, key).scalar_one_or_none()


def finished_sizes(connection: Connection, cluster_id: str, partition: TopicIdPartition | None) -> list[PartitionSize]:
    """Partitions and epochs with FINISHED segments, by topic, partition and epoch."""
    counters = size_counters.c
    same_topic = and_(topics.c.cluster_id == counters.cluster_id, topics.c.topic_id == counters.topic_id)
    query = (
        select(size_counters, topics.c.name)
        .join(topics, same_topic)
        .where(counters.cluster_id == cluster_id, counters.state == _FINISHED, counters.segments > 0)
        .order_by(topics.c.name, counters.topic_id, counters.partition, counters.leader_epoch)
    )
    if partition is not None:
        query = query.where(of_partition(size_counters, cluster_id, partition))
    rows = connection.execute(query).all()
    sizes = []
    for (topic_id, number, name), grouped in groupby(rows, key=lambda row: (row.topic_id, row.partition, row.name)):
        total, *epochs = grouped  # the total's epoch is the lowest
        sizes.append(
            PartitionSize(
                partition_from(topic_id, number, name),
                total.size_bytes,
                total.segments,
                tuple(EpochSize(row.leader_epoch, row.size_bytes, row.segments) for row in epochs),
            )
        )
    return sizes


def _added_up(
    segments: Iterable[RemoteLogSegmentMetadata],
) -> dict[tuple[int, RemoteLogSegmentState], _Counted]:
    """By leader epoch and state, in the order in which rows of counters are locked."""
    sums: dict[tuple[int, RemoteLogSegmentState], _Counted] = {}
    for segment in segments:
        for leader_epoch, highest_offset in _epochs_with_total(segment):
            counted = sums.setdefault((leader_epoch, segment.state), _Counted())
            counted.size_bytes += segment.segment_size_bytes
            counted.segments += 1
            if highest_offset is not None:
                counted.highest_offset = max(highest_offset, counted.highest_offset or 0)
    return dict(sorted(sums.items()))


def _epochs_with_total(segment: RemoteLogSegmentMetadata) -> Iterator[tuple[int, int | None]]:
    """(leader epoch, last offset inclusive), the partition's total first; None for an epoch without a record."""
    yield PARTITION_TOTAL, segment.end_offset
    for epoch, start_offset in segment.segment_leader_epochs:
        end_offset = segment.end_offset_of_epoch(epoch)
        yield epoch, end_offset if end_offset is not None and end_offset >= start_offset else None
