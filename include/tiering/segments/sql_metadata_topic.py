"""Positions in the metadata topic in SQL, and the changes that follow from having read it.

Once every metadata partition is read or stopped, the ingestion changes owners, and `follow_brokers`
advances the platform's segments that brokers delete. Once a metadata partition is read again, `forget_unread` removes
brokers' segments that no record named.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, bindparam, delete, func, insert, select, text, update

from include.tiering.database.event_log import EventKind, Subject, record_event
from include.tiering.database.schema import (
    broker_epochs,
    ingested_records,
    metadata_positions,
    metadata_topics,
    published_records,
    quality_results,
    segment_epochs,
    segments,
    topics,
)
from include.tiering.database.transactions import (
    NowMs,
    in_partition,
    insert_for,
    key_of,
    lock_partition,
    of_partition,
    partition_from,
    stored_text,
    upsert,
)
from include.tiering.errors import StateConflictError
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, OffsetBounds, metadata_partition_of
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid, Verdict
from include.tiering.segments.ingestion_contract import (
    LOST,
    IngestPosition,
    MetadataTopicIdentity,
    RecordOutcome,
    UnreadRecords,
)
from include.tiering.segments.sql_changes import TIME_OF_STATE
from include.tiering.segments.sql_rows import count_in, count_out, segment_row_of
from include.tiering.segments.sql_verdicts import refresh_stop
from include.tiering.segments.values import SegmentRow
from include.tiering.units import format_utc

INGESTER: Final = "ingest"
_FROM_BEGINNING: Final = "run ./tiering ingest --from-beginning"
_WAY_OUT: Final = f"find out what happened to the topic, then {_FROM_BEGINNING}"
_OF_CLUSTER: Final = metadata_positions.c.cluster_id == bindparam("of_cluster")
_ONE: Final = select(metadata_positions).where(
    _OF_CLUSTER, metadata_positions.c.metadata_partition == bindparam("of_number")
)
_LOCKED: Final = _ONE.with_for_update()
_ALL: Final = select(metadata_positions).where(_OF_CLUSTER).order_by(metadata_positions.c.metadata_partition)
_CHANGE_POSITION: Final = update(metadata_positions).where(
    _OF_CLUSTER, metadata_positions.c.metadata_partition == bindparam("of_number")
)
_TOPIC: Final = select(metadata_topics).where(metadata_topics.c.cluster_id == bindparam("of_cluster"))


def topic_read(connection: Connection, cluster_id: str) -> MetadataTopicIdentity | None:
    """Return the topic that was read; None if none was."""
    row = connection.execute(_TOPIC, {"of_cluster": cluster_id}).one_or_none()
    return None if row is None else MetadataTopicIdentity(Uuid.parse(row.topic_id), row.partition_count)


def positions_of(connection: Connection, cluster_id: str) -> list[IngestPosition]:
    """Return all positions, ordered by metadata partition."""
    return [_position_of(row) for row in connection.execute(_ALL, {"of_cluster": cluster_id})]


def lock_position(connection: Connection, cluster_id: str, number: int) -> IngestPosition:
    """Lock the position of a metadata partition until the transaction ends, and return it.

    Raises:
        StateConflictError: the partition was never read, so it has no position.
    """
    row = connection.execute(_LOCKED, {"of_cluster": cluster_id, "of_number": number}).one_or_none()
    if row is None:
        raise StateConflictError(f"{METADATA_TOPIC}-{number} was never read")
    return _position_of(row)


def move_position(connection: Connection, cluster_id: str, position: IngestPosition, next_offset: int) -> None:
    """Move a position; if it advances, clear the reason for which it was stopped."""
    values: dict[str, Any] = {"next_offset": next_offset}
    if next_offset > position.next_offset:
        values["stopped"] = None
    key = {"of_cluster": cluster_id, "of_number": position.metadata_partition}
    connection.execute(_CHANGE_POSITION, key | values)


def end_rereading(connection: Connection, cluster_id: str, number: int) -> None:
    """Record that the second reading of the metadata partition has reached its end."""
    connection.execute(_CHANGE_POSITION, {"of_cluster": cluster_id, "of_number": number, "rereading_to": None})


def count_outcomes(connection: Connection, cluster_id: str, number: int, outcomes: Mapping[RecordOutcome, int]) -> None:
    """Add to the counters of records by outcome."""
    statement = insert_for(connection.dialect.name, ingested_records)
    added = {"records": ingested_records.c.records + statement.excluded.records}
    key = [column.name for column in ingested_records.primary_key]
    rows = [
        {"cluster_id": cluster_id, "metadata_partition": number, "outcome": outcome, "records": records}
        for outcome, records in sorted(outcomes.items())
        if records
    ]
    if rows:
        connection.execute(statement.on_conflict_do_update(index_elements=key, set_=added), rows)


def record_bounds(
    connection: Connection,
    cluster_id: str,
    topic: MetadataTopicIdentity,
    bounds: Mapping[int, OffsetBounds],
    now_ms: int,
) -> str | None:
    """Record bounds; see `MetadataIngestion.record_bounds`.

    Return why every position was stopped; None if the topic is the first or the same, even if single positions were
    stopped.
    """
    known = topic_read(connection, cluster_id)
    if known is None:
        _store_topic(connection, cluster_id, topic)
    elif known != topic:
        reason = (
            f"{LOST}the topic {METADATA_TOPIC} was {known.topic_id} with {known.partition_count} partitions and is"
            f" {topic.topic_id} with {topic.partition_count}: {_WAY_OUT}"
        )
        for position in positions_of(connection, cluster_id):
            stop_position(connection, cluster_id, position, reason, now_ms)
        return reason
    positions = {position.metadata_partition: position for position in positions_of(connection, cluster_id)}
    for number, seen in sorted(bounds.items()):
        if number not in positions:
            _begin(connection, cluster_id, number, seen, now_ms)
        else:
            _record_bounds_of(connection, cluster_id, positions[number], seen, now_ms)
    return None


def _record_bounds_of(
    connection: Connection, cluster_id: str, position: IngestPosition, seen: OffsetBounds, now_ms: int
) -> None:
    lost = _loss(position, seen)
    key = {"of_cluster": cluster_id, "of_number": position.metadata_partition}
    connection.execute(_CHANGE_POSITION, key | {"end_offset": seen.end, "bounds_read_at_ms": now_ms})
    if lost is not None:
        stop_position(connection, cluster_id, position, lost, now_ms)
    elif position.is_lost:
        connection.execute(_CHANGE_POSITION, key | {"stopped": None})


def stop_position(connection: Connection, cluster_id: str, position: IngestPosition, reason: str, now_ms: int) -> None:
    """Store why a position is stopped, with an event if the reason is new."""
    reason = stored_text(reason)
    if position.stopped == reason:
        return
    key = {"of_cluster": cluster_id, "of_number": position.metadata_partition}
    connection.execute(_CHANGE_POSITION, key | {"stopped": reason})
    subject = f"{METADATA_TOPIC}-{position.metadata_partition}"
    record_ingestion(connection, cluster_id, subject, f"stopped: {reason}", now_ms)


def begin_again(
    connection: Connection,
    cluster_id: str,
    topic: MetadataTopicIdentity,
    bounds: Mapping[int, OffsetBounds],
    now_ms: int,
) -> None:
    """Set all positions to the beginning of a topic; forget the topic that was read before, and its counters."""
    connection.execute(delete(metadata_positions).where(metadata_positions.c.cluster_id == cluster_id))
    connection.execute(delete(ingested_records).where(ingested_records.c.cluster_id == cluster_id))
    _store_topic(connection, cluster_id, topic)
    for number, seen in sorted(bounds.items()):
        _begin(connection, cluster_id, number, seen, now_ms, rereading_to=seen.end)


def why_not_read(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """Return why the brokers' records about a partition are not completely read; None if they are.

    They are if the partition's metadata partition is complete (`IngestPosition.is_complete`). If nothing of the
    metadata topic was ever read, the result is None as well.
    """
    topic = topic_read(connection, cluster_id)
    if topic is None:
        return None
    number = metadata_partition_of(partition, topic.partition_count)
    row = connection.execute(_ONE, {"of_cluster": cluster_id, "of_number": number}).one_or_none()
    return why_incomplete({} if row is None else {number: _position_of(row)}, number)


def record_ingestion(
    connection: Connection, cluster_id: str, subject: Subject, detail: str, now_ms: int, author: str = INGESTER
) -> None:
    """Record an event of the ingestion in the event log."""
    record_event(connection, cluster_id, EventKind.INGEST, subject, detail, author, now_ms)


def unread_records(connection: Connection, cluster_id: str, since_ms: int, now_ms: int) -> UnreadRecords:
    """Return what is not read of all records that the metadata topic had until `since_ms`.

    Both times are by the database's clock. If `since_ms` is in the future, nothing counts as read since.
    """
    topic = topic_read(connection, cluster_id)
    if topic is None:
        return UnreadRecords((f"nothing of {METADATA_TOPIC} was read: run ./tiering ingest",))
    not_read, deleted = [], []
    if since_ms > now_ms:
        not_read.append(
            f"{format_utc(since_ms)} is in the future by the database's clock, which was ahead: {_FROM_BEGINNING},"
            " or wait until then"
        )
    positions = {position.metadata_partition: position for position in positions_of(connection, cluster_id)}
    for number in range(topic.partition_count):
        position, why, where = positions.get(number), why_incomplete(positions, number), f"{METADATA_TOPIC}-{number}"
        if why is None and position is not None:
            if position.bounds_read_at_ms < since_ms <= now_ms:
                why = f"{where} was read before that time: run ./tiering ingest"
            elif position.first_offset is None:
                why = f"at which offset the reading of {where} began is not known: {_FROM_BEGINNING}"
        if why is not None:
            not_read.append(why)
        if position is not None and position.first_offset:
            deleted.append(f"{where} begins at offset {position.first_offset}")
    return UnreadRecords(tuple(not_read), tuple(deleted))


def why_incomplete(positions: Mapping[int, IngestPosition], number: int) -> str | None:
    """Return why a metadata partition is not completely read (a stop, a lag and so on); None if it is."""
    position, where = positions.get(number), f"{METADATA_TOPIC}-{number}"
    if position is None:
        return f"{where} was never read: run ./tiering ingest"
    if position.stopped is not None:
        return f"{where} is stopped at offset {position.next_offset}: {position.stopped}"
    if position.rereading_to is not None:
        return f"{where} is read again up to offset {position.rereading_to}; {position.next_offset} is reached"
    if position.lag_records:
        return f"{position.lag_records} records of {where} are not read yet: run ./tiering ingest"
    return None


def _loss(position: IngestPosition, seen: OffsetBounds) -> str | None:
    where = f"{METADATA_TOPIC}-{position.metadata_partition}"
    if seen.begin > position.next_offset:
        gone = f"offsets {position.next_offset}..{seen.begin - 1}"
        return f"{LOST}{where} begins at {seen.begin}, and {gone} were not read: {_WAY_OUT}"
    if seen.end < position.next_offset:
        return f"{LOST}{where} ends at {seen.end}, but was read up to {position.next_offset}: {_WAY_OUT}"
    return None


def _begin(
    connection: Connection,
    cluster_id: str,
    number: int,
    seen: OffsetBounds,
    now_ms: int,
    rereading_to: int | None = None,
) -> None:
    values = {
        "cluster_id": cluster_id,
        "metadata_partition": number,
        "first_offset": seen.begin,
        "next_offset": seen.begin,
        "end_offset": seen.end,
        "bounds_read_at_ms": now_ms,
        "rereading_to": rereading_to,
    }
    connection.execute(insert(metadata_positions), values)
    if seen.begin:
        detail = f"it begins at offset {seen.begin}: the records before it are lost, also for new brokers"
        record_ingestion(connection, cluster_id, f"{METADATA_TOPIC}-{number}", detail, now_ms)


def _store_topic(connection: Connection, cluster_id: str, topic: MetadataTopicIdentity) -> None:
    values = {"cluster_id": cluster_id, "topic_id": str(topic.topic_id), "partition_count": topic.partition_count}
    upsert(connection, metadata_topics, values)


def _position_of(row: Row[Any]) -> IngestPosition:
    columns = row._asdict()
    del columns["cluster_id"]
    return IngestPosition(**columns)


_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_DELETED: Final = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_SAME_TOPIC: Final = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
# These repeat the conditions of the partial indexes word for word, so that SQLite uses these indexes.
_OF_BROKERS: Final = text("origin = 'broker'")
_BEHIND_BROKERS: Final = text("origin = 'platform' AND broker_state > state")
_CHANGE_SEGMENT: Final = update(segments).where(segments.c.segment_key == bindparam("of_key"))
_NEWEST_RECORDS: Final = (
    select(
        published_records.c.segment_id,
        published_records.c.state,
        func.row_number()
        .over(partition_by=published_records.c.segment_id, order_by=published_records.c.sequence.desc())
        .label("age"),
    )
    .where(in_partition(published_records), published_records.c.metadata_offset.is_not(None))
    .subquery()
)
WITHDRAWN: Final = select(_NEWEST_RECORDS.c.segment_id, _NEWEST_RECORDS.c.state).where(
    _NEWEST_RECORDS.c.age == 1,
    _NEWEST_RECORDS.c.state >= int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED),
)
"""Segments of a partition whose newest record of ours that is in the metadata topic is about their deletion.

A pending record does not count: it may never have been sent."""
_AT_ONCE: Final = 500
FOLLOWED_AT_ONCE: Final = 1_000


def follow_brokers(
    connection: Connection, cluster_id: str, now_ms: NowMs, author: str, after_key: int
) -> tuple[list[str], int | None]:
    """Advance the platform's segments in topics of the owner BROKER to the states of deletion that brokers recorded.

    Left out are segments whose deletion the platform published itself: their objects stay in the archive. If it had
    only begun to publish the deletion, brokers may finish it: then they deleted the objects, and the segment follows.
    A record of ours that was stored and not sent counts as not published.

    A call looks at the `FOLLOWED_AT_ONCE` segments with the lowest keys above `after_key`: brokers may have deleted a
    whole topic. The rows say what is behind, so the next reading goes on where a process ended between two calls.
    Return a sentence for each partition with such segments, and the last key, None if there was none.
    """
    behind = (
        select(segments, topics.c.name)
        .join(topics, _SAME_TOPIC)
        .where(_BEHIND_BROKERS, segments.c.cluster_id == cluster_id, topics.c.owner == TopicOwner.BROKER)
        .where(segments.c.broker_state >= int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
        .where(segments.c.segment_key > after_key)
    )
    keys = behind.with_only_columns(segments.c.segment_key).order_by(segments.c.segment_key).limit(FOLLOWED_AT_ONCE)
    to_key = max(connection.execute(keys).scalars(), default=after_key)
    sentences = []
    for partition, group in _locked_groups(connection, cluster_id, behind.where(segments.c.segment_key <= to_key)):
        withdrawn = _withdrawn(connection, cluster_id, partition)
        followed = [
            (row.segment_key, segment_row_of(row))
            for row in group
            if row.segment_id not in withdrawn or withdrawn[row.segment_id] < row.broker_state == _TOMBSTONE
        ]
        if not followed:
            continue
        _follow(connection, cluster_id, partition, followed, now_ms(connection))
        detail = f"brokers delete {len(followed)} of our segments"
        record_ingestion(connection, cluster_id, partition, detail, now_ms(connection), author)
        sentences.append(f"{partition}: {detail}")
    return sentences, None if to_key == after_key else to_key


def _withdrawn(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> Mapping[str, int]:
    """Return the segments of `WITHDRAWN` and the states of these records."""
    rows = connection.execute(WITHDRAWN, key_of(cluster_id, partition))
    return {row.segment_id: row.state for row in rows}


def _locked_groups(
    connection: Connection,
    cluster_id: str,
    rows: Select[Any],
    chosen: Callable[[TopicIdPartition], bool] = lambda _: True,
) -> Iterator[tuple[TopicIdPartition, Sequence[Row[Any]]]]:
    """Lock one partition after the other, and yield it with its rows as they are under the lock.

    Another run may have changed the rows between a read without the lock and the lock. `rows` selects from `segments`
    and `topics`.
    """
    keys = rows.with_only_columns(segments.c.topic_id, segments.c.partition, topics.c.name).distinct()
    for key in connection.execute(keys.order_by(segments.c.topic_id, segments.c.partition)).all():
        partition = partition_from(*key)
        if not chosen(partition):
            continue
        lock_partition(connection, cluster_id, partition)
        of_partition_only = (
            segments.c.topic_id == str(partition.topic_id),
            segments.c.partition == partition.partition,
        )
        found = connection.execute(rows.where(*of_partition_only).order_by(segments.c.segment_key)).all()
        if found:
            yield partition, found


def forget_unread(
    connection: Connection, cluster_id: str, metadata_partition: int, partition_count: int, now_ms: int
) -> list[str]:
    """Remove brokers' segments that no record named since the topic was read again.

    Only partitions whose records are in `metadata_partition` are affected. Return a sentence for each of them in which
    the removed segments included live ones.
    """
    unread = (
        select(segments, topics.c.name)
        .join(topics, _SAME_TOPIC)
        .where(_OF_BROKERS, segments.c.cluster_id == cluster_id, segments.c.broker_state.is_(None))
    )
    findings = []
    for partition, gone in _locked_groups(
        connection,
        cluster_id,
        unread,
        lambda found: metadata_partition_of(found, partition_count) == metadata_partition,
    ):
        live = [row for row in gone if row.state != _TOMBSTONE]
        if live:
            count_out(connection, cluster_id, *(segment_row_of(row).metadata for row in live))
            detail = f"{len(live)} segments of brokers are in no record any more, and were removed from the metadata"
            record_ingestion(connection, cluster_id, partition, detail, now_ms)
            findings.append(f"{partition}: {detail}")
        for first in range(0, len(gone), _AT_ONCE):
            _forget(connection, cluster_id, partition, gone[first : first + _AT_ONCE])
        refresh_stop(connection, cluster_id, partition)
    return findings


def forget_brokers_word(connection: Connection, cluster_id: str) -> None:
    """Clear the stored content of the brokers' caches (states, references, highest offsets) before a second reading."""
    of_brokers = and_(segments.c.cluster_id == cluster_id, segments.c.broker_state.is_not(None))
    referred = and_(segment_epochs.c.cluster_id == cluster_id, segment_epochs.c.broker_reference.is_not(None))
    connection.execute(update(segments).where(of_brokers).values(broker_state=None))
    connection.execute(update(segment_epochs).where(referred).values(broker_reference=None))
    connection.execute(delete(broker_epochs).where(broker_epochs.c.cluster_id == cluster_id))


def _follow(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    followed: list[tuple[int, SegmentRow]],
    now_ms: int,
) -> None:
    before = [row.metadata for _, row in followed if row.broker_state is not None]
    after = [replace(row.metadata, state=row.broker_state) for _, row in followed if row.broker_state is not None]
    for (key, row), advanced in zip(followed, after, strict=True):
        times = {TIME_OF_STATE[state]: now_ms for state in _DELETED if row.metadata.state < state <= advanced.state}
        connection.execute(_CHANGE_SEGMENT, {"of_key": key, "state": int(advanced.state)} | times)
    count_out(connection, cluster_id, *before)
    count_in(connection, cluster_id, *after)
    if any(row.verdict is Verdict.FAILED for _, row in followed):
        refresh_stop(connection, cluster_id, partition)


def _forget(connection: Connection, cluster_id: str, partition: TopicIdPartition, rows: Sequence[Row[Any]]) -> None:
    keys = [row.segment_key for row in rows]
    results = of_partition(quality_results, cluster_id, partition)
    ids = [row.segment_id for row in rows]
    connection.execute(delete(quality_results).where(results, quality_results.c.segment_id.in_(ids)))
    connection.execute(delete(segment_epochs).where(segment_epochs.c.segment_key.in_(keys)))
    connection.execute(delete(segments).where(segments.c.segment_key.in_(keys)))
