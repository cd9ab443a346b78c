"""Store rebuilt metadata and adopted segments, in SQL.

| step of a rebuild                        | a crash after it leaves                                              |
|------------------------------------------|----------------------------------------------------------------------|
| `begin` committed                        | an empty database with a mark: all other uses of it are refused      |
| some partitions added, each whole        | these and the mark; the next call leaves them and adds the others    |
| `finish` committed                       | a database like any other                                            |

A segment is adopted in one transaction, which adds its row as COPY_SEGMENT_STARTED and then changes it to
COPY_SEGMENT_FINISHED. Other processes never see the row in between. If they did, expiration would take it for an
abandoned copy.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, func, insert, select

from include.tiering.database.event_log import EventKind, Subject, record_event
from include.tiering.database.schema import partitions, segment_epochs, segments, skipped_offsets, topics
from include.tiering.database.store_identity import begin_rebuild, end_rebuild, rebuild_begun, require_rebuild
from include.tiering.database.transactions import (
    ClusterStore,
    hold_fence,
    lock_or_create_partition,
    of_partition,
    partition_from,
    reading,
    stored_text,
    writing,
)
from include.tiering.errors import StateConflictError
from include.tiering.model.histories import FIRST_HISTORY, Followed
from include.tiering.model.ownership import Fence, SegmentOrigin, StoreMarker, TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
)
from include.tiering.recovery.contract import RecoveredPartition, StoredSegment
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.sql_changes import SegmentChanges
from include.tiering.segments.sql_divergences import add_decided
from include.tiering.segments.sql_rows import (
    count_in,
    epoch_values_of,
    find_segment,
    learn_leader_epochs,
    owner_of,
    values_of,
)

_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_HOLE: Final = "found by a rebuild: the store has no complete copy of these offsets"
_REPLACED: Final = "found by a rebuild: the store has copies of both histories"
_NO_TOKEN: Final = 0
_ADD: Final = insert(segments).returning(segments.c.segment_key, sort_by_parameter_order=True)


class SqlMetadataRecovery(ClusterStore):
    """`MetadataRecovery` and `SegmentAdoption` of one cluster over the platform's database."""

    def begun(self, found: StoreMarker) -> StoreMarker | None:
        """Return the marker that an unfinished rebuild gives to the store; None if the database is empty.

        `found` is the marker that the store has now.

        Raises:
            StateConflictError: the database has rows, and no unfinished rebuild for the cluster of `found`.
        """
        with reading(self._engine) as connection:
            return rebuild_begun(connection, found)

    def begin(self, found: StoreMarker, wanted: StoreMarker, *, author: str) -> StoreMarker:
        """Record that the metadata of the store with the marker `found` are rebuilt here.

        Returns:
            The marker that the rebuild gives to the store: `wanted`, or that of an unfinished rebuild, which continues.

        Raises:
            StateConflictError: as `begun`.
        """
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            begun_before = begin_rebuild(connection, found, wanted, now_ms)
            if begun_before is not None:
                return begun_before
            self._record(connection, wanted.store_id, f"begun: {found} is replaced by {wanted}", author, now_ms)
            return wanted

    def recovered(self) -> Mapping[TopicIdPartition, int]:
        """Return each partition that the rebuild has stored, with the number of its segments."""
        same_topic = (topics.c.cluster_id == partitions.c.cluster_id) & (topics.c.topic_id == partitions.c.topic_id)
        same_partition = (
            (segments.c.cluster_id == partitions.c.cluster_id)
            & (segments.c.topic_id == partitions.c.topic_id)
            & (segments.c.partition == partitions.c.partition)
        )
        key = (partitions.c.topic_id, partitions.c.partition, topics.c.name)
        query = (
            select(*key, func.count(segments.c.segment_key))
            .select_from(partitions.join(topics, same_topic).outerjoin(segments, same_partition))
            .where(partitions.c.cluster_id == self._cluster_id)
            .group_by(*key)
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return {partition_from(topic_id, number, name): count for topic_id, number, name, count in rows}

    def add_partition(self, partition: RecoveredPartition, *, author: str) -> None:
        """Store a partition with its topic, segments, leader epochs, counters and decisions, and an event."""
        where = partition.topic_id_partition
        with writing(self._engine) as connection:
            require_rebuild(connection, self._cluster_id)
            known = select(partitions.c.partition).where(of_partition(partitions, self._cluster_id, where))
            if connection.execute(known).one_or_none() is not None:
                return
            lock_or_create_partition(connection, self._cluster_id, where)
            now_ms = self._now_ms(connection)
            self._add_segments(connection, partition, FIRST_HISTORY, now_ms)
            for divergence in partition.decided:
                followed = Followed(divergence.from_offset, _REPLACED, author, now_ms)
                add_decided(connection, self._cluster_id, where, divergence.number, divergence.seen, followed)
                self._add_segments(connection, partition, divergence.number, now_ms)
            history = partition.leader_epochs
            first = min(segment.metadata.start_offset for segment in partition.segments)
            learn_leader_epochs(connection, self._cluster_id, where, history, first, self._now_ms)
            self._add_holes(connection, partition, author, now_ms)
            self._record(connection, where, partition.detail, author, now_ms)

    def finish(self, *, author: str) -> None:
        """End the rebuild: from now on the database can be used as any other."""
        with writing(self._engine) as connection:
            require_rebuild(connection, self._cluster_id)
            end_rebuild(connection, self._cluster_id)
            self._record(connection, self._cluster_id, "finished", author, self._now_ms(connection))

    def adopt(self, segment: StoredSegment, *, fence: Fence, author: str) -> None:
        """Store the copy as a FINISHED segment, as a copy run does, with an event. Repeating it is harmless."""
        metadata = segment.metadata
        segment_id, where = metadata.remote_log_segment_id, metadata.topic_id_partition
        with writing(self._engine) as connection:
            owner = owner_of(connection, self._cluster_id, where)
            hold_fence(connection, self._cluster_id, fence)
            known = find_segment(connection, self._cluster_id, segment_id)
            if known is not None and known.metadata == replace(metadata, state=_FINISHED):
                return
            if owner not in (TopicOwner.NONE, TopicOwner.PLATFORM):
                raise StateConflictError(f"{where}: the topic's owner is {owner}, so its copies must not be adopted")
            changes = SegmentChanges(connection, self._cluster_id, self._now_ms)
            if known is None or not _is_begun(known, metadata):
                changes.add(metadata, fence, segment.log_crc32c, None)
            self._require_name(connection, metadata)
            finished = RemoteLogSegmentMetadataUpdate(
                segment_id, _FINISHED, metadata.event_timestamp_ms, metadata.broker_id, metadata.custom_metadata
            )
            changes.change_state(finished, _STARTED, fence, None)
            detail = f"{segment_id.id}: offsets {metadata.start_offset}..{metadata.end_offset}"
            now_ms = self._now_ms(connection)
            record_event(connection, self._cluster_id, EventKind.ADOPTION, where, detail, author, now_ms)

    def _require_name(self, connection: Connection, metadata: RemoteLogSegmentMetadata) -> None:
        """Raise StateConflictError if the database has the topic id under another name than the copy's keys.

        Keys are made with the name in the database, so the objects of this copy would not be found.
        """
        topic_id, name = str(metadata.topic_id_partition.topic_id), metadata.topic_id_partition.topic
        query = select(topics.c.name).where(topics.c.cluster_id == self._cluster_id, topics.c.topic_id == topic_id)
        known = connection.execute(query).scalar_one()
        if known != name:
            raise StateConflictError(f"the topic {topic_id} is known as {known}, the key says {name}")

    def _add_segments(self, connection: Connection, partition: RecoveredPartition, history: int, now_ms: int) -> None:
        """Insert the segments of one history, in the order of their end offsets."""
        of_history = [
            segment
            for segment in partition.segments
            if partition.histories.get(segment.metadata.remote_log_segment_id, FIRST_HISTORY) == history
        ]
        if not of_history:
            return
        finished = [replace(segment.metadata, state=_FINISHED) for segment in of_history]
        rows = [
            values_of(self._cluster_id, metadata)
            | {
                "verdict": Verdict.NONE,
                "verdict_detail": "",
                "log_crc32c": segment.log_crc32c,
                "fencing_token": _NO_TOKEN,
                "started_at_ms": metadata.event_timestamp_ms,
                "finished_at_ms": now_ms,
                "history": history,
            }
            for metadata, segment in zip(finished, of_history, strict=True)
        ]
        keys = connection.execute(_ADD, rows).scalars().all()
        epochs = [
            row
            for key, metadata in zip(keys, finished, strict=True)
            for row in epoch_values_of(self._cluster_id, key, metadata)
        ]
        connection.execute(insert(segment_epochs), epochs)
        count_in(connection, self._cluster_id, *finished)

    def _add_holes(self, connection: Connection, partition: RecoveredPartition, author: str, now_ms: int) -> None:
        where = partition.topic_id_partition
        rows = [
            {
                "cluster_id": self._cluster_id,
                "topic_id": str(where.topic_id),
                "partition": where.partition,
                "first_offset": hole.first,
                "last_offset": hole.last,
                "reason": _HOLE,
                "author": stored_text(author),
                "recorded_at_ms": now_ms,
            }
            for hole in partition.holes
        ]
        if rows:
            connection.execute(insert(skipped_offsets), rows)

    def _record(self, connection: Connection, subject: Subject, detail: str, author: str, now_ms: int) -> None:
        record_event(connection, self._cluster_id, EventKind.REBUILD, subject, detail, author, now_ms)


def _is_begun(known: SegmentRow, stored: RemoteLogSegmentMetadata) -> bool:
    """Return whether `known` is this copy, which the platform has begun and not finished."""
    began = known.metadata
    same = (began.start_offset, began.end_offset, began.segment_size_bytes, began.segment_leader_epochs) == (
        stored.start_offset,
        stored.end_offset,
        stored.segment_size_bytes,
        stored.segment_leader_epochs,
    )
    return same and began.state is _STARTED and known.origin is SegmentOrigin.PLATFORM
