"""Ingestion of the brokers' metadata topic in SQL.

| step of a page                                | a crash after it leaves                             |
|-----------------------------------------------|-----------------------------------------------------|
| position locked, the caches' parts read       | nothing: the transaction is rolled back             |
| rows, references, counters, findings written  | nothing: the transaction is rolled back             |
| a journal's pending record found              | nothing: the transaction is rolled back             |
| position moved, committed                     | the page, once: the next one begins after it        |

| step of reading again                         | a crash after it leaves                             |
|-----------------------------------------------|-----------------------------------------------------|
| broker states cleared, positions reset, the   | a topic that is read from its beginning; no         |
| guard `unread-records` raised                 | partition that brokers own is ready, nothing expires|
| a page reaches the end that the metadata      | the page; in its transaction, brokers' segments     |
| partition had at the reset                    | without a record were removed, and the metadata     |
|                                               | partition's second reading has ended                |

Order of locks: position, partitions by topic id and number, segments, size_counters.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, and_, bindparam, exists, select, text, update

from include.tiering.database.event_log import EventKind, record_event, topic_subject
from include.tiering.database.schema import PARTITION_TOTAL, ingested_records, segments, size_counters, topics
from include.tiering.database.transactions import (
    ClusterStore,
    lock_or_create_partition,
    partition_from,
    reading,
    writing,
)
from include.tiering.database.unread_records import clear_unread, raise_unread, raised_unread_ms
from include.tiering.errors import MetadataTopicReplacedError, StateConflictError
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, OffsetBounds, metadata_partition_of
from include.tiering.metadata_sync.metadata_events import PageEffects, apply_in_memory, partition_of_event
from include.tiering.metadata_sync.sql_broker_rows import BROKER_SIZES, BrokerRows, LoadedCache, load_cache
from include.tiering.metadata_sync.sql_pending_record import settle_pending
from include.tiering.model.ownership import UNREAD_GUARD, TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from include.tiering.segments import sql_metadata_topic
from include.tiering.segments.ingestion_contract import (
    BrokerSize,
    BrokerView,
    IngestPage,
    IngestPosition,
    MetadataEvent,
    MetadataTopicIdentity,
    PageResult,
    PartitionRemoval,
    RecordOutcome,
    UnusableRecord,
)
from include.tiering.segments.values import SegmentRow

_PARTITIONS_OF_BROKERS: Final = (
    select(size_counters.c.topic_id, size_counters.c.partition, topics.c.name)
    .join(
        topics,
        and_(topics.c.cluster_id == size_counters.c.cluster_id, topics.c.topic_id == size_counters.c.topic_id),
    )
    .where(size_counters.c.cluster_id == bindparam("of_cluster"), topics.c.owner == TopicOwner.BROKER)
    .where(size_counters.c.leader_epoch == PARTITION_TOTAL, size_counters.c.segments > 0)
    .distinct()
    .order_by(topics.c.name, size_counters.c.topic_id, size_counters.c.partition)
)


class SqlMetadataIngestion(ClusterStore):
    """`MetadataIngestion` of one cluster over the platform's database."""

    def topic(self) -> MetadataTopicIdentity | None:
        """Return the topic that was read so far; None if none was."""
        with reading(self._engine) as connection:
            return sql_metadata_topic.topic_read(connection, self._cluster_id)

    def positions(self) -> Sequence[IngestPosition]:
        """Return all positions, ordered by metadata partition; empty if nothing was ever read."""
        with reading(self._engine) as connection:
            return sql_metadata_topic.positions_of(connection, self._cluster_id)

    def record_bounds(
        self, topic: MetadataTopicIdentity, bounds: Mapping[int, OffsetBounds]
    ) -> Sequence[IngestPosition]:
        """Record the current bounds and return every position. Idempotent."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            replaced = sql_metadata_topic.record_bounds(connection, self._cluster_id, topic, bounds, now_ms)
            positions = sql_metadata_topic.positions_of(connection, self._cluster_id)
        if replaced is not None:
            raise MetadataTopicReplacedError(replaced)
        return positions

    def apply(self, page: IngestPage) -> PageResult:
        """Apply the page as a broker's cache would, and move the position, in one transaction."""
        with writing(self._engine) as connection:
            position = self._require_position(connection, page)
            loaded = self._load(connection, page)
            effects = apply_in_memory(page, {partition: part.state for partition, part in loaded.items()})
            self._settle_journals(connection, page, effects, loaded)
            findings = self._write(connection, effects, loaded)
            sql_metadata_topic.count_outcomes(connection, self._cluster_id, page.metadata_partition, effects.outcomes)
            findings += self._move(connection, position, effects)
            return PageResult(effects.next_offset, effects.outcomes, tuple(findings), effects.stopped)

    def stop(self, metadata_partition: int, at_offset: int, reason: str) -> None:
        """Store why nothing is applied from the record at `at_offset` on, with an event if the reason is new."""
        with writing(self._engine) as connection:
            position = sql_metadata_topic.lock_position(connection, self._cluster_id, metadata_partition)
            if position.next_offset == at_offset:
                sql_metadata_topic.stop_position(
                    connection, self._cluster_id, position, reason, self._now_ms(connection)
                )

    def read_again(
        self, topic: MetadataTopicIdentity, bounds: Mapping[int, OffsetBounds], *, author: str
    ) -> Sequence[IngestPosition]:
        """Reset every position to the topic's current beginning, with an event."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            why = "the brokers' records are read again from the beginning"
            raise_unread(connection, self._cluster_id, why, now_ms)
            sql_metadata_topic.forget_brokers_word(connection, self._cluster_id)
            sql_metadata_topic.begin_again(connection, self._cluster_id, topic, bounds, now_ms)
            detail = f"read again from the beginning, as topic id {topic.topic_id}"
            sql_metadata_topic.record_ingestion(connection, self._cluster_id, METADATA_TOPIC, detail, now_ms, author)
            for number, seen in bounds.items():
                if seen.begin >= seen.end:
                    self._complete(connection, number)
            return sql_metadata_topic.positions_of(connection, self._cluster_id)

    def take_over(self, *, author: str) -> Sequence[str]:
        """Set the owner BROKER for topics with a live segment of a broker, unless a handover of them is under way."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            findings = list(_give_to_brokers(connection, self._cluster_id, now_ms, author))
        after_key: int | None = 0
        while after_key is not None:
            with writing(self._engine) as connection:
                said, after_key = sql_metadata_topic.follow_brokers(
                    connection, self._cluster_id, self._now_ms, author, after_key
                )
            findings += said
        # Last, since it says that all was taken over.
        with writing(self._engine) as connection:
            return [*findings, *self._clear_guard(connection, author)]

    def _clear_guard(self, connection: Connection, author: str) -> Iterator[str]:
        """Clear the guard `unread-records` if all records were read that the topic had when the guard was raised."""
        raised_at_ms = raised_unread_ms(connection, self._cluster_id)
        if raised_at_ms is None:
            return
        now_ms = self._now_ms(connection)
        if not sql_metadata_topic.unread_records(connection, self._cluster_id, raised_at_ms, now_ms):
            clear_unread(connection, self._cluster_id)
            detail = f"the guard {UNREAD_GUARD} is cleared: all records of brokers are read"
            sql_metadata_topic.record_ingestion(connection, self._cluster_id, METADATA_TOPIC, detail, now_ms, author)
            yield detail

    def unread(self) -> Mapping[TopicIdPartition, str]:
        """Return the partitions whose metadata is incomplete, each with the reason, ordered by topic and partition."""
        with reading(self._engine) as connection:
            topic = sql_metadata_topic.topic_read(connection, self._cluster_id)
            if topic is None:
                return {}
            known = sql_metadata_topic.positions_of(connection, self._cluster_id)
            if len(known) == topic.partition_count and all(position.is_complete for position in known):
                return {}
            rows = connection.execute(_PARTITIONS_OF_BROKERS, {"of_cluster": self._cluster_id}).all()
        positions, unread = {position.metadata_partition: position for position in known}, {}
        for row in rows:
            partition = partition_from(row.topic_id, row.partition, row.name)
            why = sql_metadata_topic.why_incomplete(positions, metadata_partition_of(partition, topic.partition_count))
            if why is not None:
                unread[partition] = why
        return unread

    def broker_view(self, partition: TopicIdPartition) -> BrokerView:
        """Return the brokers' view of a partition; empty if no applied record named the partition."""
        with reading(self._engine) as connection:
            return BrokerView(partition, load_cache(connection, self._cluster_id, partition, (), whole=True).state)

    def broker_sizes(self) -> Sequence[BrokerSize]:
        """Return the sizes of each partition with segments in the brokers' caches, ordered by topic and partition."""
        with reading(self._engine) as connection:
            return [
                BrokerSize(
                    partition_from(row.topic_id, row.partition, row.name),
                    int(row.size_bytes),
                    int(row.all_states_bytes),
                    row.segments,
                )
                for row in connection.execute(BROKER_SIZES, {"of_cluster": self._cluster_id})
            ]

    def outcomes(self) -> Mapping[int, Mapping[RecordOutcome, int]]:
        """Count records by outcome since the topic's first reading or last `read_again`, by metadata partition."""
        found: dict[int, dict[RecordOutcome, int]] = {}
        query = select(ingested_records).where(ingested_records.c.cluster_id == self._cluster_id)
        query = query.order_by(ingested_records.c.metadata_partition, ingested_records.c.outcome)
        with reading(self._engine) as connection:
            for row in connection.execute(query):
                found.setdefault(row.metadata_partition, {})[RecordOutcome(row.outcome)] = row.records
        return found

    def _require_position(self, connection: Connection, page: IngestPage) -> IngestPosition:
        position = sql_metadata_topic.lock_position(connection, self._cluster_id, page.metadata_partition)
        where = f"{METADATA_TOPIC}-{page.metadata_partition}"
        if position.next_offset != page.from_offset:
            raise StateConflictError(f"{where} was read up to {position.next_offset}, not {page.from_offset}")
        if position.is_lost:
            raise StateConflictError(f"{where} is stopped: {position.stopped}")
        return position

    def _load(self, connection: Connection, page: IngestPage) -> Mapping[TopicIdPartition, LoadedCache]:
        events: dict[TopicIdPartition, list[MetadataEvent]] = {}
        for _, event in page.events:
            where = partition_of_event(event)
            if where is not None:
                events.setdefault(where, []).append(event)
        loaded = {}
        for partition in sorted(events, key=lambda partition: (partition.topic_id.value, partition.partition)):
            lock_or_create_partition(connection, self._cluster_id, partition)
            loaded[partition] = load_cache(
                connection,
                self._cluster_id,
                partition,
                {
                    event.remote_log_segment_id
                    for event in events[partition]
                    if not isinstance(event, PartitionRemoval | UnusableRecord)
                },
                [event for event in events[partition] if isinstance(event, RemoteLogSegmentMetadata)],
                whole=any(isinstance(event, PartitionRemoval) for event in events[partition]),
            )
        return loaded

    def _write(
        self, connection: Connection, effects: PageEffects, loaded: Mapping[TopicIdPartition, LoadedCache]
    ) -> list[str]:
        now_ms = self._now_ms(connection)
        findings = list(effects.findings)
        for partition, applied in effects.partitions.items():
            rows = BrokerRows(connection, self._cluster_id, partition, loaded[partition], self._now_ms)
            findings += [(partition, difference) for difference in rows.write(applied)]
        for where, finding in findings:
            subject = METADATA_TOPIC if where is None else where
            sql_metadata_topic.record_ingestion(connection, self._cluster_id, subject, finding, now_ms)
        return [finding if where is None else f"{where}: {finding}" for where, finding in findings]

    def _settle_journals(
        self,
        connection: Connection,
        page: IngestPage,
        effects: PageEffects,
        loaded: Mapping[TopicIdPartition, LoadedCache],
    ) -> None:
        """Find the journals' pending records among those that move a segment to a state that it did not have."""
        moving: dict[TopicIdPartition, list[tuple[int, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate]]] = {}
        for offset, event in page.events:
            if offset >= effects.next_offset or not isinstance(
                event, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
            ):
                continue
            segment_id = event.remote_log_segment_id
            cache = loaded.get(segment_id.topic_id_partition)
            if cache is not None and not _is_reached(cache.rows.get(segment_id), event.state):
                moving.setdefault(segment_id.topic_id_partition, []).append((offset, event))
        for partition in filter(moving.__contains__, loaded):
            settle_pending(connection, self._cluster_id, partition, moving[partition])

    def _move(self, connection: Connection, position: IngestPosition, effects: PageEffects) -> list[str]:
        number = position.metadata_partition
        sql_metadata_topic.move_position(connection, self._cluster_id, position, effects.next_offset)
        if effects.stopped is not None:
            sql_metadata_topic.stop_position(
                connection, self._cluster_id, position, effects.stopped, self._now_ms(connection)
            )
        if position.rereading_to is not None and effects.next_offset >= position.rereading_to:
            return self._complete(connection, number)
        return []

    def _complete(self, connection: Connection, number: int) -> list[str]:
        """Complete the second reading of a metadata partition, at the end that it had when the reading began."""
        topic = sql_metadata_topic.topic_read(connection, self._cluster_id)
        count = 0 if topic is None else topic.partition_count
        now_ms = self._now_ms(connection)
        gone = sql_metadata_topic.forget_unread(connection, self._cluster_id, number, count, now_ms) if count else []
        sql_metadata_topic.end_rereading(connection, self._cluster_id, number)
        return gone


def _is_reached(row: SegmentRow | None, state: RemoteLogSegmentState) -> bool:
    """Return whether brokers have the segment in this state or a later one already."""
    return row is not None and row.broker_state is not None and row.broker_state >= state


def _give_to_brokers(connection: Connection, cluster_id: str, now_ms: int, author: str) -> Iterator[str]:
    """Set the owner BROKER for topics that have a live segment of a broker and the owner NONE or PLATFORM.

    Yield a sentence for each of these topics.
    """
    # The condition of the partial index word for word, so that SQLite uses this index.
    live = exists(
        select(segments.c.segment_key)
        .where(
            text("origin = 'broker'"),
            segments.c.cluster_id == topics.c.cluster_id,
            segments.c.topic_id == topics.c.topic_id,
        )
        .where(segments.c.state < int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED))
        .correlate(topics)
    )
    query = (
        select(topics.c.topic_id, topics.c.name, topics.c.owner)
        .where(topics.c.cluster_id == cluster_id, live)
        .where(topics.c.owner.in_((TopicOwner.NONE, TopicOwner.PLATFORM)))
        .order_by(topics.c.name, topics.c.topic_id)
        .with_for_update(of=topics)
    )
    for topic_id, name, owner in connection.execute(query).all():
        change = update(topics).where(topics.c.cluster_id == cluster_id, topics.c.topic_id == topic_id)
        connection.execute(change.values(owner=TopicOwner.BROKER))
        detail = f"{owner} -> {TopicOwner.BROKER}: a broker tiers it, by its metadata topic"
        record_event(connection, cluster_id, EventKind.OWNER, topic_subject(name, topic_id), detail, author, now_ms)
        yield f"topic {name}: owner {detail}"
