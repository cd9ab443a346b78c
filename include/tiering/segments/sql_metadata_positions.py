"""Which metadata topic was read, and how far each of its partitions."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, delete, insert, select, update

from include.tiering.database.events import record_event
from include.tiering.database.partition_rows import partition_from
from include.tiering.database.schema import (
    PARTITION_TOTAL,
    ingested_records,
    metadata_positions,
    metadata_topics,
    size_counters,
    topics,
)
from include.tiering.database.statements import insert_for, stored_text, upsert
from include.tiering.errors import StateConflictError
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, OffsetBounds
from include.tiering.kafka.metadata_topic.partitioner import metadata_partition_of
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.segments.ingestion_contract import (
    LOST,
    IngestPosition,
    MetadataTopicIdentity,
    RecordOutcome,
)

EVENT: Final = "ingest"
INGESTER: Final = "ingest"
_WAY_OUT: Final = "look at what happened to the topic, then ./tiering ingest --from-beginning"
_OF_CLUSTER: Final = metadata_positions.c.cluster_id == bindparam("of_cluster")
_ONE: Final = select(metadata_positions).where(
    _OF_CLUSTER, metadata_positions.c.metadata_partition == bindparam("of_number")
)
_LOCKED: Final = _ONE.with_for_update()
_ALL: Final = select(metadata_positions).where(_OF_CLUSTER).order_by(metadata_positions.c.metadata_partition)
_CHANGE: Final = update(metadata_positions).where(
    _OF_CLUSTER, metadata_positions.c.metadata_partition == bindparam("of_number")
)
_TOPIC: Final = select(metadata_topics).where(metadata_topics.c.cluster_id == bindparam("of_cluster"))
_OWNER: Final = select(topics.c.owner).where(
    topics.c.cluster_id == bindparam("of_cluster"), topics.c.topic_id == bindparam("of_topic")
)

_OF_BROKERS: Final = (
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


def topic_read(connection: Connection, cluster_id: str) -> MetadataTopicIdentity | None:
    """None if none was read."""
    row = connection.execute(_TOPIC, {"of_cluster": cluster_id}).one_or_none()
    return None if row is None else MetadataTopicIdentity(Uuid.parse(row.topic_id), row.partition_count)


def positions_of(connection: Connection, cluster_id: str) -> list[IngestPosition]:
    """By metadata partition."""
    return [_position_of(row) for row in connection.execute(_ALL, {"of_cluster": cluster_id})]


def lock_position(connection: Connection, cluster_id: str, number: int) -> IngestPosition:
    """Lock it until the transaction ends.

    Raises:
        StateConflictError: nobody ever looked at this partition.
    """
    row = connection.execute(_LOCKED, {"of_cluster": cluster_id, "of_number": number}).one_or_none()
    if row is None:
        raise StateConflictError(f"{METADATA_TOPIC}-{number} was never looked at")
    return _position_of(row)


def move_position(connection: Connection, cluster_id: str, position: IngestPosition, next_offset: int) -> None:
    """What stood in the way of records that are applied now does so no more."""
    values: dict[str, Any] = {"next_offset": next_offset}
    if next_offset > position.next_offset:
        values["stopped"] = None
    key = {"of_cluster": cluster_id, "of_number": position.metadata_partition}
    connection.execute(_CHANGE, key | values)


def end_rereading(connection: Connection, cluster_id: str, number: int) -> None:
    """It was read again to the end."""
    connection.execute(_CHANGE, {"of_cluster": cluster_id, "of_number": number, "rereading_to": None})


def count_outcomes(connection: Connection, cluster_id: str, number: int, outcomes: Mapping[RecordOutcome, int]) -> None:
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


def outcomes_of(connection: Connection, cluster_id: str) -> Mapping[int, Mapping[RecordOutcome, int]]:
    """By metadata partition."""
    found: dict[int, dict[RecordOutcome, int]] = {}
    query = select(ingested_records).where(ingested_records.c.cluster_id == cluster_id)
    for row in connection.execute(query.order_by(ingested_records.c.metadata_partition, ingested_records.c.outcome)):
        found.setdefault(row.metadata_partition, {})[RecordOutcome(row.outcome)] = row.records
    return found


def look_at(
    connection: Connection,
    cluster_id: str,
    topic: MetadataTopicIdentity,
    bounds: Mapping[int, OffsetBounds],
    now_ms: int,
) -> str | None:
    """See `MetadataIngestion.look`; returns why all of it was stopped, None if it was not."""
    known = topic_read(connection, cluster_id)
    if known is None:
        _remember_topic(connection, cluster_id, topic)
    elif known != topic:
        reason = (
            f"{LOST}the topic {METADATA_TOPIC} was {known.topic_id} with {known.partition_count} partitions and is"
            f" {topic.topic_id} with {topic.partition_count}: {_WAY_OUT}"
        )
        for position in positions_of(connection, cluster_id):
            stop_position(connection, cluster_id, position, reason, now_ms)
        return reason
    positions = {one.metadata_partition: one for one in positions_of(connection, cluster_id)}
    for number, seen in sorted(bounds.items()):
        if number not in positions:
            _begin(connection, cluster_id, number, seen, now_ms)
        else:
            _look_at_partition(connection, cluster_id, positions[number], seen, now_ms)
    return None


def _look_at_partition(
    connection: Connection, cluster_id: str, position: IngestPosition, seen: OffsetBounds, now_ms: int
) -> None:
    lost = _loss(position, seen)
    key = {"of_cluster": cluster_id, "of_number": position.metadata_partition}
    connection.execute(_CHANGE, key | {"end_offset": seen.end, "looked_at_ms": now_ms})
    if lost is not None:
        stop_position(connection, cluster_id, position, lost, now_ms)
    elif position.is_lost:
        connection.execute(_CHANGE, key | {"stopped": None})


def stop_position(connection: Connection, cluster_id: str, position: IngestPosition, reason: str, now_ms: int) -> None:
    """With an event if it is news."""
    reason = stored_text(reason)
    if position.stopped == reason:
        return
    key = {"of_cluster": cluster_id, "of_number": position.metadata_partition}
    connection.execute(_CHANGE, key | {"stopped": reason})
    say(connection, cluster_id, f"{METADATA_TOPIC}-{position.metadata_partition}", f"stopped: {reason}", now_ms)


def begin_again(
    connection: Connection,
    cluster_id: str,
    topic: MetadataTopicIdentity,
    bounds: Mapping[int, OffsetBounds],
    now_ms: int,
) -> None:
    """Positions at the beginning of a topic, whichever was read before."""
    connection.execute(delete(metadata_positions).where(metadata_positions.c.cluster_id == cluster_id))
    connection.execute(delete(ingested_records).where(ingested_records.c.cluster_id == cluster_id))
    _remember_topic(connection, cluster_id, topic)
    for number, seen in sorted(bounds.items()):
        _begin(connection, cluster_id, number, seen, now_ms, rereading_to=seen.end)


def not_ready_reason(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> str | None:
    """See `MetadataIngestion.not_ready`."""
    owner = connection.execute(_OWNER, {"of_cluster": cluster_id, "of_topic": str(partition.topic_id)}).scalar()
    topic = topic_read(connection, cluster_id) if owner == TopicOwner.BROKER else None
    if topic is None:
        return None
    number = metadata_partition_of(partition, topic.partition_count)
    row = connection.execute(_ONE, {"of_cluster": cluster_id, "of_number": number}).one_or_none()
    return _why_incomplete({} if row is None else {number: _position_of(row)}, number)


def unread_partitions(connection: Connection, cluster_id: str) -> dict[TopicIdPartition, str]:
    """See `MetadataIngestion.unread`."""
    topic = topic_read(connection, cluster_id)
    if topic is None:
        return {}
    positions = {one.metadata_partition: one for one in positions_of(connection, cluster_id)}
    if len(positions) == topic.partition_count and all(one.is_complete for one in positions.values()):
        return {}
    unread = {}
    for row in connection.execute(_OF_BROKERS, {"of_cluster": cluster_id}):
        partition = partition_from(row.topic_id, row.partition, row.name)
        why = _why_incomplete(positions, metadata_partition_of(partition, topic.partition_count))
        if why is not None:
            unread[partition] = why
    return unread


def say(
    connection: Connection, cluster_id: str, subject: str, detail: str, now_ms: int, author: str = INGESTER
) -> None:
    record_event(connection, cluster_id, EVENT, subject, detail, author, now_ms)


def _why_incomplete(positions: Mapping[int, IngestPosition], number: int) -> str | None:
    position, where = positions.get(number), f"{METADATA_TOPIC}-{number}"
    if position is None:
        return f"{where} was never looked at: ./tiering ingest"
    if position.stopped is not None:
        return f"{where} is stopped at offset {position.next_offset}: {position.stopped}"
    if position.rereading_to is not None:
        return f"{where} is read again up to offset {position.rereading_to}, {position.next_offset} is reached"
    if position.lag_records:
        return f"{position.lag_records} records of {where} are not read yet: ./tiering ingest"
    return None


def _loss(position: IngestPosition, seen: OffsetBounds) -> str | None:
    where = f"{METADATA_TOPIC}-{position.metadata_partition}"
    if seen.begin > position.next_offset:
        gone = f"offsets {position.next_offset}..{seen.begin - 1}"
        return f"{LOST}{where} begins at {seen.begin}, {gone} were not read: {_WAY_OUT}"
    if seen.end < position.next_offset:
        return f"{LOST}{where} ends at {seen.end}, it was read up to {position.next_offset}: {_WAY_OUT}"
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
        "next_offset": seen.begin,
        "end_offset": seen.end,
        "looked_at_ms": now_ms,
        "rereading_to": rereading_to,
    }
    connection.execute(insert(metadata_positions), values)
    if seen.begin:
        detail = f"it begins at offset {seen.begin}: what was before is known to nobody, brokers included"
        say(connection, cluster_id, f"{METADATA_TOPIC}-{number}", detail, now_ms)


def _remember_topic(connection: Connection, cluster_id: str, topic: MetadataTopicIdentity) -> None:
    values = {"cluster_id": cluster_id, "topic_id": str(topic.topic_id), "partition_count": topic.partition_count}
    upsert(connection, metadata_topics, values)


def _position_of(row: Row[Any]) -> IngestPosition:
    return IngestPosition(
        row.metadata_partition, row.next_offset, row.end_offset, row.looked_at_ms, row.stopped, row.rereading_to
    )
