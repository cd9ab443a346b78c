"""Rows of remote log segments and of their partitions in SQL, for the transactions of several stores.

**Segments**: conversion between rows and values, and all segments of a cluster in pages. Pages hold plain columns, for
jobs that split a scan among many tasks; as no objects are made of the rows, a million rows are read in seconds. A page
is an interval of keys: the database finds its rows by the primary key and sorts nothing, and the length of the interval
bounds the memory of the reader.

**Partitions**: counters, the log start, the history of leader epochs, and skipped offsets. There is a counter for each
(partition, leader epoch, state), updated in the transaction of each state change (KIP-852). A segment counts once under
each of its leader epochs and once under `PARTITION_TOTAL`. Tombstones do not count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, Row, Select, and_, bindparam, case, func, insert, or_, select, update
from sqlalchemy.exc import DBAPIError

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import (
    PARTITION_TOTAL,
    divergences,
    partitions,
    segments,
    size_counters,
    skipped_offsets,
    topics,
)
from include.tiering.database.transactions import (
    NowMs,
    in_partition,
    insert_for,
    key_of,
    lock_or_create_partition,
    partition_from,
    reading,
    stored_text,
)
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.leader_epochs import (
    Contradiction,
    LeaderEpochs,
    MergedHistory,
    followed,
    merged,
    of_followed,
)
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from include.tiering.segments.sizes_contract import KeyRange, SizeRow

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


def encode_leader_epochs(leader_epochs: LeaderEpochs) -> str:
    """Return ``epoch:start`` pairs, ascending, separated by commas."""
    return ",".join(f"{epoch}:{start_offset}" for epoch, start_offset in leader_epochs)


def decode_leader_epochs(text: str) -> LeaderEpochs:
    """Parse the text of `encode_leader_epochs`.

    Raises:
        ValueError: the text is malformed.
    """
    pairs = (entry.split(":") for entry in text.split(",")) if text else ()
    return LeaderEpochs.of((int(epoch), int(start_offset)) for epoch, start_offset in pairs)


def metadata_of(row: Row[Any]) -> RemoteLogSegmentMetadata:
    """Return the metadata of a row with the columns of `segments` and the topic's `name`."""
    partition = partition_from(row.topic_id, row.partition, row.name)
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, Uuid.parse(row.segment_id)),
        start_offset=row.start_offset,
        end_offset=row.end_offset,
        max_timestamp_ms=row.max_timestamp_ms,
        broker_id=row.broker_id,
        event_timestamp_ms=row.event_timestamp_ms,
        segment_size_bytes=row.size_bytes,
        segment_leader_epochs=decode_leader_epochs(row.leader_epochs),
        state=RemoteLogSegmentState(row.state),
        custom_metadata=row.custom_metadata,
        txn_index_empty=row.txn_index_empty,
    )


def segment_row_of(row: Row[Any]) -> SegmentRow:
    """Return the value of a row of `WITH_TOPIC`."""
    return SegmentRow(
        metadata=metadata_of(row),
        verdict=Verdict(row.verdict),
        log_crc32c=row.log_crc32c,
        verdict_detail=row.verdict_detail,
        source_fingerprint=row.source_fingerprint,
        finished_at_ms=row.finished_at_ms,
        verdict_at_ms=row.verdict_at_ms,
        deep_passed_at_ms=row.deep_passed_at_ms,
        superseded_by=None if row.superseded_by is None else Uuid.parse(row.superseded_by),
        delete_started_at_ms=row.delete_started_at_ms,
        origin=SegmentOrigin(row.origin),
        broker_state=None if row.broker_state is None else RemoteLogSegmentState(row.broker_state),
        history=row.history,
    )


def values_of(cluster_id: str, metadata: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """Return the columns of `segments` that Kafka's metadata fills."""
    partition = metadata.topic_id_partition
    return {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "segment_id": str(metadata.remote_log_segment_id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "broker_id": metadata.broker_id,
        "event_timestamp_ms": metadata.event_timestamp_ms,
        "size_bytes": metadata.segment_size_bytes,
        "leader_epochs": encode_leader_epochs(metadata.segment_leader_epochs),
        "custom_metadata": metadata.custom_metadata,
        "txn_index_empty": metadata.txn_index_empty,
        "state": int(metadata.state),
    }


def epoch_values_of(cluster_id: str, segment_key: int, metadata: RemoteLogSegmentMetadata) -> list[dict[str, Any]]:
    """Return the rows of `segment_epochs` of one segment."""
    partition = metadata.topic_id_partition
    return [
        {
            "segment_key": segment_key,
            "leader_epoch": epoch,
            "cluster_id": cluster_id,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            "start_offset": start_offset,
            "end_offset": metadata.end_offset_of_epoch(epoch),
        }
        for epoch, start_offset in metadata.segment_leader_epochs
    ]


_SAME_TOPIC: Final = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
WITH_TOPIC: Final = select(segments, topics.c.name).join(topics, _SAME_TOPIC)
"""Selects rows for `segment_row_of`."""
_ONE: Final = WITH_TOPIC.where(in_partition(segments), segments.c.segment_id == bindparam("of_segment"))


def find_segment(connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
    """Return the segment in any state; None if there is none."""
    key = key_of(cluster_id, segment_id.topic_id_partition)
    row = connection.execute(_ONE, key | {"of_segment": str(segment_id.id)}).one_or_none()
    return None if row is None else segment_row_of(row)


PAGE_KEYS: Final = 20_000
_PAGE: Final = select(
    segments.c.topic_id,
    segments.c.partition,
    segments.c.state,
    segments.c.size_bytes,
    segments.c.start_offset,
    segments.c.end_offset,
    segments.c.leader_epochs,
    segments.c.segment_id,
).where(segments.c.state != int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED))


def split_segments(engine: Engine, cluster_id: str, ranges: int) -> Sequence[KeyRange]:
    """Implement `RemoteLogSizes.split`."""
    if ranges < 1:
        raise ValueError(f"a scan has at least one range, not {ranges}")
    bounds = select(func.min(segments.c.segment_key), func.max(segments.c.segment_key))
    with reading(engine) as connection:
        first, last = connection.execute(bounds.where(segments.c.cluster_id == cluster_id)).one()
    return [] if first is None else list(_cut(KeyRange(first, last), -(-(last - first + 1) // ranges)))


def export_segments(
    engine: Engine, cluster_id: str, key_range: KeyRange, *, page_keys: int = PAGE_KEYS
) -> Iterator[Sequence[SizeRow]]:
    """Implement `RemoteLogSizes.export`."""
    return pages_of(engine, _PAGE, cluster_id, key_range, page_keys=page_keys)


def pages_of(
    engine: Engine, columns: Select[Any], cluster_id: str, key_range: KeyRange, *, page_keys: int = PAGE_KEYS
) -> Iterator[Sequence[Any]]:
    """Yield the rows of `columns`, a query of texts and integers of segments, in pages, each a transaction of its own.

    Rows of a page are the driver's own tuples, in no particular order; empty pages are left out.
    """
    page = columns.where(
        segments.c.segment_key.between(bindparam("first_key"), bindparam("last_key")),
        segments.c.cluster_id == cluster_id,
    )
    for keys in _cut(key_range, page_keys):
        with reading(engine) as connection:
            rows = _driver_rows(connection, page, {"first_key": keys.first_key, "last_key": keys.last_key})
        if rows:
            yield rows


def _driver_rows(connection: Connection, query: Select[Any], parameters: Mapping[str, Any]) -> Sequence[Any]:
    """Return the driver's own tuples: to make rows of SQLAlchemy of them takes as long again as reading does."""
    result = connection.execute(query, parameters)
    cursor: Any = result.cursor
    dialect = connection.dialect
    try:
        rows: Sequence[Any] = cursor.fetchall()
    except dialect.loaded_dbapi.Error as error:
        # SQLAlchemy translates the driver's errors only while it makes rows of its own.
        raise DBAPIError.instance(None, None, error, dialect.loaded_dbapi.Error, dialect=dialect) from error
    finally:
        result.close()
    return rows


def _cut(key_range: KeyRange, width: int) -> Iterator[KeyRange]:
    for key in range(key_range.first_key, key_range.last_key + 1, width):
        yield KeyRange(key, min(key + width - 1, key_range.last_key))


_TAKE_AWAY: Final = (
    update(size_counters)
    .where(in_partition(size_counters), size_counters.c.state == bindparam("of_state"))
    .where(size_counters.c.leader_epoch == bindparam("of_epoch"))
    .values(
        size_bytes=size_counters.c.size_bytes - bindparam("segment_bytes"),
        segments=size_counters.c.segments - bindparam("segment_count"),
    )
)
_HIGHEST_FINISHED: Final = select(size_counters.c.highest_offset).where(
    in_partition(size_counters),
    size_counters.c.leader_epoch == bindparam("of_epoch"),
    size_counters.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
)


@dataclass(slots=True)
class _Counted:
    """Sums over segments of one partition in one state, under one leader epoch or in total."""

    size_bytes: int = 0
    segments: int = 0
    highest_offset: int | None = None


def count_in(connection: Connection, cluster_id: str, *segments: RemoteLogSegmentMetadata) -> None:
    """Add segments of one partition, except tombstones, to the counters of their states; raise the highest offsets."""
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
def _add(dialect_name: str) -> "sqlite.Insert | postgresql.Insert":
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
    """Subtract segments of one partition from the counters of their states; the highest offsets stay."""
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


def highest_finished_offset(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, leader_epoch: int = PARTITION_TOTAL
) -> int | None:
    """Return the highest offset (inclusive) that FINISHED segments ever had under the epoch; None if they had none.

    For `PARTITION_TOTAL`, the default, it is the highest end offset that they ever had under any epoch, except that a
    decision to follow another history may have lowered it.
    """
    key = key_of(cluster_id, partition) | {"of_epoch": leader_epoch}
    return connection.execute(_HIGHEST_FINISHED, key).scalar_one_or_none()


def _added_up(
    segments: Iterable[RemoteLogSegmentMetadata],
) -> dict[tuple[int, RemoteLogSegmentState], _Counted]:
    """Return sums by leader epoch and state, in the order in which rows of counters are locked."""
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
    """Yield (leader epoch, last offset inclusive), the partition's total first; None for an epoch without a record."""
    yield PARTITION_TOTAL, segment.end_offset
    for epoch, start_offset in segment.segment_leader_epochs:
        end_offset = segment.end_offset_of_epoch(epoch)
        yield epoch, end_offset if end_offset is not None and end_offset >= start_offset else None


_OBSERVER: Final = "what brokers and segments say"
_RETAINED: Final = select(partitions.c.log_start_offset, partitions.c.leader_epochs).where(in_partition(partitions))
_CHANGE: Final = update(partitions).where(in_partition(partitions))
_FIRST_BEGIN: Final = select(func.min(divergences.c.followed_from)).where(in_partition(divergences))
"""Selects the lowest offset (inclusive) from which a decision follows another history; NULL without a decision."""


def retention_state_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> PartitionRetentionState:
    """Return the stored state of a partition; the defaults if there is none."""
    row = connection.execute(_RETAINED, key_of(cluster_id, partition)).one_or_none()
    return PartitionRetentionState() if row is None else PartitionRetentionState(row[0], decode_leader_epochs(row[1]))


def learn_leader_epochs(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    seen: LeaderEpochs,
    seen_log_start: int,
    now_ms: NowMs,
    *,
    is_followed: bool = True,
) -> Sequence[Contradiction]:
    """Merge leader epochs into a partition's history; return contradictions.

    If the history changes and there are contradictions, they are recorded as an event. Usually nothing is new: then one
    row is read and none is locked. `is_followed` says that `seen` certainly belongs to the followed history, as the
    epochs of a segment that becomes FINISHED do.
    """
    known, found = learnt(connection, cluster_id, partition, seen, seen_log_start, is_followed=is_followed)
    if found.history == known:
        return found.contradictions
    lock_or_create_partition(connection, cluster_id, partition)
    _, found = learnt(connection, cluster_id, partition, seen, seen_log_start, is_followed=is_followed)
    _store(connection, cluster_id, partition, found.history)
    if found.contradictions:
        detail = "; ".join(map(str, found.contradictions))
        record_event(connection, cluster_id, EventKind.LEADER_EPOCHS, partition, detail, _OBSERVER, now_ms(connection))
    return found.contradictions


def learnt(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    seen: LeaderEpochs,
    seen_log_start: int,
    *,
    is_followed: bool,
) -> tuple[LeaderEpochs, MergedHistory]:
    """Return the stored leader epochs, and the history after `seen` is merged into them.

    After a decision, a source whose newest epoch is not later than the newest stored one may be an old leader's
    directory. From the lowest offset of any decision on, its epochs are either stored already or belong to a replaced
    history, so those that are not stored are ignored. With `is_followed`, no epoch is ignored: `seen` then comes from a
    segment, which may be older than the first epoch that the source of the followed history still has.
    """
    known = retention_state_of(connection, cluster_id, partition).leader_epochs
    found = merged(known, seen, seen_log_start)
    if is_followed or found.history == known or not known.entries or seen.entries[-1].epoch > known.entries[-1].epoch:
        return known, found
    begin = connection.execute(_FIRST_BEGIN, key_of(cluster_id, partition)).scalar_one()
    if begin is None:
        return known, found
    return known, merged(known, of_followed(seen, known, begin), seen_log_start)


def follow_leader_epochs(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, source: LeaderEpochs, from_offset: int
) -> None:
    """Store the leader epochs that `followed` returns for the source. The caller has locked the partition."""
    known = retention_state_of(connection, cluster_id, partition).leader_epochs
    _store(connection, cluster_id, partition, followed(known, source, from_offset))


def _store(connection: Connection, cluster_id: str, partition: TopicIdPartition, history: LeaderEpochs) -> None:
    connection.execute(_CHANGE, key_of(cluster_id, partition) | {"leader_epochs": encode_leader_epochs(history)})


_SKIPPED: Final = select(skipped_offsets).where(in_partition(skipped_offsets)).order_by(skipped_offsets.c.first_offset)
_OWNER: Final = (
    select(topics.c.owner)
    .where(topics.c.cluster_id == bindparam("of_cluster"), topics.c.topic_id == bindparam("of_topic"))
    .with_for_update(read=True)
)


def skipped_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> list[SkippedOffsets]:
    """Return every decision to skip offsets, ordered by offset."""
    return [
        SkippedOffsets(OffsetRange(row.first_offset, row.last_offset), row.reason, row.author, row.recorded_at_ms)
        for row in connection.execute(_SKIPPED, key_of(cluster_id, partition))
    ]


def owner_of(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> TopicOwner:
    """Return the owner, locked against changes until the transaction ends. Call it before locking the partition.

    A topic that is not registered has the owner NONE, and nothing is locked.
    """
    key = key_of(cluster_id, partition)
    owner = connection.execute(_OWNER, {name: key[name] for name in ("of_cluster", "of_topic")}).scalar_one_or_none()
    return TopicOwner(owner or TopicOwner.NONE)


def store_decision(
    connection: Connection, cluster_id: str, partition: TopicIdPartition, decision: SkippedOffsets
) -> SkippedOffsets:
    """Store a decision to skip offsets, and return it as stored. No stored decision may begin at its first offset."""
    decision = replace(decision, reason=stored_text(decision.reason), author=stored_text(decision.author))
    values = {
        "cluster_id": cluster_id,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "first_offset": decision.offsets.first,
        "last_offset": decision.offsets.last,
        "reason": decision.reason,
        "author": decision.author,
        "recorded_at_ms": decision.recorded_at_ms,
    }
    connection.execute(insert(skipped_offsets).values(**values))
    return decision
