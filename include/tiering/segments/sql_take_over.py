"""What follows once everything was read: whose a topic is, what brokers deleted of ours, what is told of no more."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, delete, exists, select, text, update

from include.tiering.database.clock import NowMs
from include.tiering.database.events import record_event
from include.tiering.database.partition_rows import lock_partition, of_partition, partition_from
from include.tiering.database.schema import (
    broker_epochs,
    quality_results,
    segment_epochs,
    segments,
    topics,
)
from include.tiering.kafka.metadata_topic.partitioner import metadata_partition_of
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.model.verdict import Verdict
from include.tiering.segments.sql_changes import TIME_OF_STATE
from include.tiering.segments.sql_counters import count_in, count_out
from include.tiering.segments.sql_metadata_positions import say
from include.tiering.segments.sql_rows import segment_row_of
from include.tiering.segments.sql_stops import refresh_stop
from include.tiering.segments.values import SegmentRow

_TOMBSTONE: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_DELETED: Final = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_SAME_TOPIC: Final = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
# The conditions of the partial indexes, word for word: SQLite uses them for nothing else.
_OF_BROKERS: Final = text("origin = 'broker'")
_BEHIND_BROKERS: Final = text("origin = 'platform' AND broker_state > state")
_IN_ORDER: Final = (segments.c.topic_id, segments.c.partition, segments.c.segment_key)
_CHANGE: Final = update(segments).where(segments.c.segment_key == bindparam("of_key"))
_AT_ONCE: Final = 500


def give_to_brokers(connection: Connection, cluster_id: str, now_ms: int, author: str) -> Iterator[str]:
    """Topics with a live segment of a broker's that we, or nobody, own."""
    live = exists(
        select(segments.c.segment_key)
        .where(_OF_BROKERS, segments.c.cluster_id == topics.c.cluster_id, segments.c.topic_id == topics.c.topic_id)
        .where(segments.c.state < _TOMBSTONE)
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
        record_event(connection, cluster_id, "owner", f"{name} ({topic_id})", detail, author, now_ms)
        yield f"topic {name}: owner {detail}"


def follow_brokers(connection: Connection, cluster_id: str, now_ms: NowMs, author: str) -> Iterator[str]:
    """Our segments of topics that brokers own, in the states that brokers brought them to."""
    query = (
        select(segments, topics.c.name)
        .join(topics, _SAME_TOPIC)
        .where(_BEHIND_BROKERS, segments.c.cluster_id == cluster_id, topics.c.owner == TopicOwner.BROKER)
        .where(segments.c.broker_state >= int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
        .order_by(*_IN_ORDER)
    )
    rows = connection.execute(query).all()
    for key, group in groupby(rows, key=lambda row: (row.topic_id, row.partition, row.name)):
        partition = partition_from(*key)
        lock_partition(connection, cluster_id, partition)
        followed = [(row.segment_key, segment_row_of(row)) for row in group]
        _follow(connection, cluster_id, partition, followed, now_ms(connection))
        told = f"brokers delete {len(followed)} of our segments"
        say(connection, cluster_id, f"{partition} ({partition.topic_id})", told, now_ms(connection), author)
        yield f"{partition}: {told}"


def forget_untold(
    connection: Connection, cluster_id: str, metadata_partition: int, partition_count: int, now_ms: int
) -> list[str]:
    """Remove segments of brokers that no record told of since the topic was read again, of the user partitions that
    belong to a metadata partition."""
    untold = (
        select(segments, topics.c.name)
        .join(topics, _SAME_TOPIC)
        .where(_OF_BROKERS, segments.c.cluster_id == cluster_id, segments.c.broker_state.is_(None))
        .order_by(*_IN_ORDER)
    )
    rows = connection.execute(untold).all()
    findings = []
    for key, group in groupby(rows, key=lambda row: (row.topic_id, row.partition, row.name)):
        partition = partition_from(*key)
        if metadata_partition_of(partition, partition_count) != metadata_partition:
            continue
        lock_partition(connection, cluster_id, partition)
        gone = list(group)
        live = [row for row in gone if row.state != _TOMBSTONE]
        if live:
            count_out(connection, cluster_id, *(segment_row_of(row).metadata for row in live))
            told = f"{len(live)} segments of brokers are told of no more, and were removed from the metadata"
            say(connection, cluster_id, f"{partition} ({partition.topic_id})", told, now_ms)
            findings.append(f"{partition}: {told}")
        for first in range(0, len(gone), _AT_ONCE):
            _forget(connection, cluster_id, partition, gone[first : first + _AT_ONCE])
        refresh_stop(connection, cluster_id, partition)
    return findings


def forget_brokers_word(connection: Connection, cluster_id: str) -> None:
    """What brokers said of any segment: it is read again."""
    told = and_(segments.c.cluster_id == cluster_id, segments.c.broker_state.is_not(None))
    referred = and_(segment_epochs.c.cluster_id == cluster_id, segment_epochs.c.broker_reference.is_not(None))
    connection.execute(update(segments).where(told).values(broker_state=None))
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
    for (key, row), one in zip(followed, after, strict=True):
        times = {TIME_OF_STATE[state]: now_ms for state in _DELETED if row.metadata.state < state <= one.state}
        connection.execute(_CHANGE, {"of_key": key, "state": int(one.state)} | times)
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
