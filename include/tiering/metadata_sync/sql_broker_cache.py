"""As much of brokers' caches as a page of records can touch, read from SQL.

A record touches its own segment and, where it finishes one, what the same leader epochs refer to at or behind its
starts. So a page is applied without a look at the rest of its partitions, however many segments they have.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Row, and_, bindparam, case, func, or_, select

from include.tiering.database.partitions import in_partition, key_of, partition_from
from include.tiering.database.schema import broker_epochs, segment_epochs, segments, topics
from include.tiering.model.broker_cache import BROKER_COUNTED_STATES, BrokerCacheState, EpochReference, Reference
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from include.tiering.segments.ingestion_contract import BrokerSize
from include.tiering.segments.sql_queries import segment_row_of
from include.tiering.segments.values import SegmentRow

_AT_ONCE: Final = 500
"""Values in one IN."""

_EPOCHS_AT_ONCE: Final = 50
_T = TypeVar("_T")
_LIVE: Final = tuple(map(int, (s for s in RemoteLogSegmentState if s is not s.DELETE_SEGMENT_FINISHED)))
_SAME_TOPIC: Final = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
_ROWS: Final = select(segments, topics.c.name).join(topics, _SAME_TOPIC).where(in_partition(segments))
_BY_ID: Final = _ROWS.where(segments.c.segment_id.in_(bindparam("ids", expanding=True)))
_KNOWN_TO_BROKERS: Final = _ROWS.where(segments.c.broker_state.in_(_LIVE))
_EPOCHS: Final = select(
    segment_epochs.c.segment_key, segment_epochs.c.leader_epoch, segment_epochs.c.broker_reference
).where(
    segment_epochs.c.segment_key.in_(bindparam("keys", expanding=True)), segment_epochs.c.broker_reference.is_not(None)
)
_BEHIND: Final = (
    _ROWS.add_columns(segment_epochs.c.leader_epoch.label("referring_epoch"))
    .join(segment_epochs, segment_epochs.c.segment_key == segments.c.segment_key)
    .where(in_partition(segment_epochs), segment_epochs.c.broker_reference == str(Reference.REFERENCED))
)
_HIGHEST: Final = select(broker_epochs.c.leader_epoch, broker_epochs.c.highest_offset).where(
    in_partition(broker_epochs)
)


_COUNTED: Final = case((segments.c.broker_state.in_(sorted(map(int, BROKER_COUNTED_STATES))), segments.c.size_bytes))
_SIZES: Final = (
    select(
        segments.c.topic_id,
        segments.c.partition,
        topics.c.name,
        func.coalesce(func.sum(_COUNTED), 0).label("size_bytes"),
        func.sum(segments.c.size_bytes).label("all_states_bytes"),
        func.count().label("segments"),
    )
    .join(topics, _SAME_TOPIC)
    .where(segments.c.cluster_id == bindparam("of_cluster"), segments.c.broker_state.in_(_LIVE))
    .group_by(segments.c.topic_id, segments.c.partition, topics.c.name)
    .order_by(topics.c.name, segments.c.topic_id, segments.c.partition)
)


@dataclass(slots=True)
class LoadedCache:
    """What was read of one partition: the cache's part, and the rows behind it by segment, whatever brokers know."""

    state: BrokerCacheState
    rows: Mapping[RemoteLogSegmentId, SegmentRow]
    keys: Mapping[RemoteLogSegmentId, int]


@dataclass(slots=True)
class _Loading:
    rows: dict[RemoteLogSegmentId, SegmentRow] = field(default_factory=dict)
    keys: dict[RemoteLogSegmentId, int] = field(default_factory=dict)
    references: dict[EpochReference, Reference] = field(default_factory=dict)

    def take(self, row: Row[Any]) -> RemoteLogSegmentId:
        found = segment_row_of(row)
        segment_id = found.metadata.remote_log_segment_id
        self.rows[segment_id], self.keys[segment_id] = found, row.segment_key
        return segment_id


def load_cache(
    connection: Connection,
    cluster_id: str,
    partition: TopicIdPartition,
    segment_ids: Collection[RemoteLogSegmentId],
    shapes: Iterable[RemoteLogSegmentMetadata] = (),
    *,
    whole: bool = False,
) -> LoadedCache:
    """The part for records about `segment_ids`, of which those in `shapes` are new. `whole`: all that brokers know."""
    key = key_of(cluster_id, partition)
    loading = _Loading()
    for ids in _chunks(sorted(str(one.id) for one in segment_ids)):
        for row in connection.execute(_BY_ID, key | {"ids": ids}):
            loading.take(row)
    if whole:
        for row in connection.execute(_KNOWN_TO_BROKERS, key):
            loading.take(row)
    _load_references(connection, loading)
    if not whole:
        _load_behind(connection, key, loading, _lowest_starts(loading, shapes))
    highest = {row.leader_epoch: row.highest_offset for row in connection.execute(_HIGHEST, key)}
    known = {
        segment_id: replace(row.metadata, state=row.broker_state)
        for segment_id, row in loading.rows.items()
        if row.broker_state is not None and row.broker_state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    }
    references = {pair: reference for pair, reference in loading.references.items() if pair[1] in known}
    return LoadedCache(BrokerCacheState(known, references, highest), loading.rows, loading.keys)


def broker_sizes(connection: Connection, cluster_id: str) -> list[BrokerSize]:
    """See `MetadataIngestion.broker_sizes`."""
    return [
        BrokerSize(
            partition_from(row.topic_id, row.partition, row.name),
            int(row.size_bytes),
            int(row.all_states_bytes),
            row.segments,
        )
        for row in connection.execute(_SIZES, {"of_cluster": cluster_id})
    ]


def _lowest_starts(loading: _Loading, shapes: Iterable[RemoteLogSegmentMetadata]) -> Mapping[int, int]:
    """The lowest offset at which each epoch begins in any of the segments."""
    starts: dict[int, int] = {}
    for metadata in (*(row.metadata for row in loading.rows.values()), *shapes):
        for epoch, start in metadata.segment_leader_epochs:
            starts[epoch] = min(start, starts.get(epoch, start))
    return starts


def _load_references(connection: Connection, loading: _Loading) -> None:
    by_key = {key: segment_id for segment_id, key in loading.keys.items()}
    for keys in _chunks(sorted(by_key)):
        for row in connection.execute(_EPOCHS, {"keys": keys}):
            pair = (row.leader_epoch, by_key[row.segment_key])
            loading.references[pair] = Reference(row.broker_reference)


def _load_behind(
    connection: Connection, key: Mapping[str, Any], loading: _Loading, lowest_starts: Mapping[int, int]
) -> None:
    for epochs in _chunks(sorted(lowest_starts.items()), _EPOCHS_AT_ONCE):
        behind = or_(
            *(
                and_(segment_epochs.c.leader_epoch == epoch, segment_epochs.c.start_offset >= start)
                for epoch, start in epochs
            )
        )
        for row in connection.execute(_BEHIND.where(behind), dict(key)).all():
            loading.references[row.referring_epoch, loading.take(row)] = Reference.REFERENCED


def _chunks(values: Iterable[_T], at_once: int = _AT_ONCE) -> Iterator[list[_T]]:
    left = iter(values)
    while chunk := list(islice(left, at_once)):
        yield chunk
