"""Journals of published records in SQL.

| step                  | a crash after it leaves                        | what clears it up                        |
|-----------------------|------------------------------------------------|------------------------------------------|
| `intend`              | a pending record, which was sent or not        | the next publisher of the partition,     |
|                       |                                                | which reads the metadata topic from      |
|                       |                                                | `next_offset` (inclusive) on;            |
|                       |                                                | or an ingestion that reads the record    |
| `advance` with `found`| a record whose offset is known                 | no cleanup needed                        |
"""

from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, insert, literal_column, or_, select, update

from include.tiering.database.schema import publications, published_records, segments, topics
from include.tiering.database.transactions import (
    DatedStore,
    ensure_partition,
    hold_fence,
    in_partition,
    insert_if_absent,
    key_of,
    partition_from,
    reading,
    writing,
)
from include.tiering.errors import PublicationRefusedError
from include.tiering.metadata_sync.publication_contract import (
    Intent,
    Journal,
    JournalRecord,
    PublicationTotal,
    owners_that_publish,
)
from include.tiering.metadata_sync.sql_pending_record import FOUND, LAST_RECORD, PENDING
from include.tiering.model.ownership import Fence, LeaseRole, PartitionLease, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.runs import sql_batches
from include.tiering.segments.sql_metadata_topic import WITHDRAWN

_OWNER: Final = (
    select(topics.c.owner)
    .where(topics.c.cluster_id == bindparam("of_cluster"), topics.c.topic_id == bindparam("of_topic"))
    .with_for_update(read=True)
)
_JOURNAL: Final = select(publications).where(in_partition(publications))
_LOCKED_JOURNAL: Final = _JOURNAL.with_for_update()
_RECORDS: Final = (
    select(published_records).where(in_partition(published_records)).order_by(published_records.c.sequence)
)
_WITHDRAWN_IDS: Final = WITHDRAWN.with_only_columns(WITHDRAWN.selected_columns.segment_id)
_HELD: Final = (
    select(published_records.c.segment_id)
    .where(in_partition(published_records))
    .where(or_(published_records.c.metadata_offset.is_(None), published_records.c.segment_id.not_in(_WITHDRAWN_IDS)))
    .union(
        select(segments.c.segment_id)
        # The condition of the index `ix_segments_known_to_brokers`: SQLite uses the index only for this very text.
        .where(in_partition(segments), segments.c.origin == literal_column("'platform'"))
        .where(segments.c.broker_state < literal_column("3"))
        .where(segments.c.segment_id.not_in(_WITHDRAWN_IDS))
    )
)
_AGAIN: Final = update(published_records).where(*PENDING).values(intended_at_ms=bindparam("again_at_ms"))
_FORGET: Final = delete(published_records).where(*PENDING)
_MOVE: Final = (
    update(publications)
    .where(in_partition(publications), publications.c.next_offset < bindparam("read_to"))
    .values(next_offset=bindparam("read_to"))
)
_WRITE: Final = insert(published_records)


class SqlPublicationStore(DatedStore):
    """`PublicationStore` of one cluster over the platform's database."""

    def claim(self, partition: TopicIdPartition, *, run_id: str, batch_id: str, lease_ms: int) -> PartitionLease | None:
        """Take the lease to publish about this partition. A live lease of the same run and batch is taken over."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            fence = sql_batches.take(
                connection,
                self._cluster_id,
                partition,
                LeaseRole.PUBLISH,
                run_id=run_id,
                batch_id=batch_id,
                now_ms=now_ms,
                lease_ms=lease_ms,
            )
        if fence is None:
            return None
        return PartitionLease(run_id=run_id, batch_id=batch_id, fence=fence, expires_at_ms=now_ms + lease_ms)

    def journal(self, partition: TopicIdPartition) -> Journal | None:
        """Return the journal of a partition; None if its publication never began."""
        with reading(self._engine) as connection:
            return self._journal(connection, partition)

    def begin(self, fence: Fence, *, metadata_partition: int, partition_count: int, next_offset: int) -> Journal:
        """Create an empty journal, or leave an existing one unchanged; return the stored one. Idempotent."""
        partition = fence.topic_id_partition
        with writing(self._engine) as connection:
            hold_fence(connection, self._cluster_id, fence)
            ensure_partition(connection, self._cluster_id, partition)
            values = self._columns_of(partition) | {
                "metadata_partition": metadata_partition,
                "partition_count": partition_count,
                "next_offset": next_offset,
                "begun_at_ms": self._now_ms(connection),
            }
            insert_if_absent(connection, publications, values)
            journal = self._journal(connection, partition)
        if journal is None:
            raise PublicationRefusedError(f"{partition}: the journal was deleted while the publication was begun")
        return journal

    def intend(self, fence: Fence, sequence: int, intent: Intent) -> JournalRecord:
        """Store the record that is to be sent next, before it is sent."""
        partition = fence.topic_id_partition
        key = key_of(self._cluster_id, partition)
        with writing(self._engine) as connection:
            self._hold(connection, fence)
            self._require_owner(connection, partition, intent.state)
            row = connection.execute(LAST_RECORD, key).one_or_none()
            last = None if row is None else _record_from(row)
            if last is not None and last.sequence == sequence and last.intent == intent:
                if last.offset is None:
                    last = replace(last, intended_at_ms=self._now_ms(connection))
                    connection.execute(_AGAIN, key | {"again_at_ms": last.intended_at_ms})
                return last
            expected = 0 if last is None else last.sequence + 1
            if sequence != expected:
                raise PublicationRefusedError(f"{partition}: the next record is number {expected}, not {sequence}")
            if last is not None and last.offset is None:
                raise PublicationRefusedError(
                    f"{partition}: record {last.sequence} was not read back yet: the metadata topic may lack it"
                )
            record = JournalRecord(sequence, intent, self._now_ms(connection), None)
            connection.execute(_WRITE, self._columns_of(partition) | _columns_from(record))
        return record

    def advance(self, fence: Fence, next_offset: int, *, found: int | None = None) -> None:
        """Store that everything below `next_offset` (exclusive) was read. Idempotent; a lower one is ignored."""
        key = key_of(self._cluster_id, fence.topic_id_partition)
        if found is not None and not 0 <= found < next_offset:
            raise PublicationRefusedError(f"{fence.topic_id_partition}: {found} is no offset below {next_offset}")
        with writing(self._engine) as connection:
            self._hold(connection, fence)
            if found is not None and connection.execute(FOUND, key | {"found_at": found}).rowcount == 0:
                self._require_found_before(connection, fence, found)
            connection.execute(_MOVE, key | {"read_to": next_offset})

    def forget_pending(self, fence: Fence) -> None:
        """Remove the pending record, if there is one."""
        with writing(self._engine) as connection:
            self._hold(connection, fence)
            connection.execute(_FORGET, key_of(self._cluster_id, fence.topic_id_partition))

    def held_segments(self, partition: TopicIdPartition) -> frozenset[Uuid]:
        """Return the segments that brokers may have, so their objects must not be deleted."""
        with reading(self._engine) as connection:
            found = connection.execute(_HELD, key_of(self._cluster_id, partition)).scalars().all()
        return frozenset(map(Uuid.parse, found))

    def totals(self) -> tuple[PublicationTotal, ...]:
        """Return the totals of every partition with a journal, ordered by topic and partition."""
        with reading(self._engine) as connection:
            rows = connection.execute(_totals(), {"of_cluster": self._cluster_id}).all()
        return tuple(
            PublicationTotal(partition_from(row.topic_id, row.partition, row.name), row.live or 0, row.end_offset)
            for row in rows
        )

    def _journal(self, connection: Connection, partition: TopicIdPartition) -> Journal | None:
        key = key_of(self._cluster_id, partition)
        row = connection.execute(_JOURNAL, key).one_or_none()
        if row is None:
            return None
        records = tuple(_record_from(row) for row in connection.execute(_RECORDS, key))
        return Journal(row.metadata_partition, row.partition_count, row.next_offset, records)

    def _hold(self, connection: Connection, fence: Fence) -> None:
        hold_fence(connection, self._cluster_id, fence)
        if (
            connection.execute(_LOCKED_JOURNAL, key_of(self._cluster_id, fence.topic_id_partition)).one_or_none()
            is None
        ):
            raise PublicationRefusedError(f"{fence.topic_id_partition}: no publication was begun")

    def _require_owner(self, connection: Connection, partition: TopicIdPartition, state: RemoteLogSegmentState) -> None:
        key = {"of_cluster": self._cluster_id, "of_topic": str(partition.topic_id)}
        stored = connection.execute(_OWNER, key).scalar_one_or_none()
        owner = TopicOwner.NONE if stored is None else TopicOwner(stored)
        if owner not in owners_that_publish(state):
            raise PublicationRefusedError(f"{partition}: its topic's owner is {owner}, not {TopicOwner.HANDING_OVER}")

    def _require_found_before(self, connection: Connection, fence: Fence, found: int) -> None:
        """Accept a repeated `advance`. Raises PublicationRefusedError unless the last record was found at `found`."""
        row = connection.execute(LAST_RECORD, key_of(self._cluster_id, fence.topic_id_partition)).one_or_none()
        if row is None or row.metadata_offset != found:
            raise PublicationRefusedError(f"{fence.topic_id_partition}: no pending record for offset {found}")

    def _columns_of(self, partition: TopicIdPartition) -> dict[str, Any]:
        return {
            "cluster_id": self._cluster_id,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
        }


def _columns_from(record: JournalRecord) -> dict[str, Any]:
    return {
        "sequence": record.sequence,
        "segment_id": str(record.intent.segment_id),
        "state": record.intent.state,
        "start_offset": record.intent.start_offset,
        "end_offset": record.intent.end_offset,
        "value": record.intent.value,
        "intended_at_ms": record.intended_at_ms,
        "metadata_offset": record.offset,
    }


def _record_from(row: Any) -> JournalRecord:
    intent = Intent(
        Uuid.parse(row.segment_id),
        RemoteLogSegmentState(row.state),
        row.start_offset,
        row.end_offset,
        bytes(row.value),
    )
    return JournalRecord(row.sequence, intent, row.intended_at_ms, row.metadata_offset)


def _totals() -> Any:
    """Return the query of `totals`. A segment is live if the last of its records that was read back is FINISHED."""
    records, journals = published_records.c, publications.c
    latest = (
        select(
            records.cluster_id,
            records.topic_id,
            records.partition,
            records.state,
            records.end_offset,
            func.row_number()
            .over(
                partition_by=(records.cluster_id, records.topic_id, records.partition, records.segment_id),
                order_by=records.sequence.desc(),
            )
            .label("age"),
        )
        .where(records.cluster_id == bindparam("of_cluster"), records.metadata_offset.is_not(None))
        .subquery()
    )
    live = (
        select(
            latest.c.topic_id,
            latest.c.partition,
            func.count().label("live"),
            func.max(latest.c.end_offset).label("end_offset"),
        )
        .where(latest.c.age == 1, latest.c.state == RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        .group_by(latest.c.topic_id, latest.c.partition)
        .subquery()
    )
    same = (live.c.topic_id == journals.topic_id) & (live.c.partition == journals.partition)
    named = (topics.c.cluster_id == journals.cluster_id) & (topics.c.topic_id == journals.topic_id)
    return (
        select(journals.topic_id, journals.partition, topics.c.name, live.c.live, live.c.end_offset)
        .join(topics, named)
        .outerjoin(live, same)
        .where(journals.cluster_id == bindparam("of_cluster"))
        .order_by(topics.c.name, journals.topic_id, journals.partition)
    )
