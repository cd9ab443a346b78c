"""Segments from brokers' records in SQL: read the part of the caches that a page can change, and write the changes.

A record changes its own segment. If it makes the segment FINISHED, it also changes other segments to which a leader
epoch of this segment refers, from the offset on at which the epoch begins in this segment. So a page is applied without
reading the rest of its partitions, however many segments they have; only the removal of a whole partition reads all of
the partition.

| segment                                    | effect of a broker's record on its row                           |
|--------------------------------------------|------------------------------------------------------------------|
| unknown                                    | a row of origin broker, counted under its state unless deleted   |
| a broker's                                 | state, times, custom metadata; counted under the new state       |
| a broker's, begun again with other values, | the same, and the row is rewritten: other values, no verdict, no |
| or after its deletion                      | results of rules                                                 |
| the platform's                             | only `broker_state` and the epochs' references; differences to   |
|                                            | our metadata are findings (`_differences`)                       |

All changes are in the transaction of the page: a crash leaves all of them or none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Row, and_, bindparam, case, delete, func, insert, or_, select, update

from include.tiering.database.schema import broker_epochs, quality_results, segment_epochs, segments, topics
from include.tiering.database.transactions import NowMs, in_partition, key_of, upsert
from include.tiering.metadata_sync.metadata_events import AppliedPartition
from include.tiering.model.broker_cache import BROKER_COUNTED_STATES, BrokerCacheState, EpochReference, Reference
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
)
from include.tiering.segments.sql_changes import TIME_OF_STATE
from include.tiering.segments.sql_rows import (
    count_in,
    count_out,
    epoch_values_of,
    learn_leader_epochs,
    segment_row_of,
    values_of,
)
from include.tiering.segments.sql_verdicts import NOTHING_LOST, refresh_stop
from include.tiering.segments.values import SegmentRow

_AT_ONCE: Final = 500
"""The most values in one IN."""

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
_REFERENCED: Final = (
    _ROWS.add_columns(segment_epochs.c.leader_epoch.label("referring_epoch"))
    .join(segment_epochs, segment_epochs.c.segment_key == segments.c.segment_key)
    .where(in_partition(segment_epochs), segment_epochs.c.broker_reference == str(Reference.REFERENCED))
)
_HIGHEST: Final = select(broker_epochs.c.leader_epoch, broker_epochs.c.highest_offset).where(
    in_partition(broker_epochs)
)


_COUNTED: Final = case((segments.c.broker_state.in_(sorted(map(int, BROKER_COUNTED_STATES))), segments.c.size_bytes))
BROKER_SIZES: Final = (
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
"""Sizes of the segments that brokers have in their caches, by topic and partition."""


@dataclass(slots=True)
class LoadedCache:
    """The loaded part of a partition's cache (`state`), and rows and keys of its segments.

    `rows` and `keys` also have the segments that were looked up and are not in the cache.
    """

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
    whole: bool,
) -> LoadedCache:
    """Load the part of a partition's cache that records about `segment_ids` can change.

    Args:
        connection: a transaction.
        cluster_id: the cluster.
        partition: the partition.
        segment_ids: segments that the records are about.
        shapes: the metadata of the segments that the records begin.
        whole: whether to load the whole cache instead.
    """
    key = key_of(cluster_id, partition)
    loading = _Loading()
    for ids in _chunks(sorted(str(segment_id.id) for segment_id in segment_ids)):
        for row in connection.execute(_BY_ID, key | {"ids": ids}):
            loading.take(row)
    if whole:
        for row in connection.execute(_KNOWN_TO_BROKERS, key):
            loading.take(row)
    _load_references(connection, loading)
    if not whole:
        _load_above(connection, key, loading, _lowest_starts(loading, shapes))
    highest = {row.leader_epoch: row.highest_offset for row in connection.execute(_HIGHEST, key)}
    known = {
        segment_id: replace(row.metadata, state=row.broker_state)
        for segment_id, row in loading.rows.items()
        if row.broker_state is not None and row.broker_state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    }
    references = {pair: reference for pair, reference in loading.references.items() if pair[1] in known}
    return LoadedCache(BrokerCacheState(known, references, highest), loading.rows, loading.keys)


def _lowest_starts(loading: _Loading, shapes: Iterable[RemoteLogSegmentMetadata]) -> Mapping[int, int]:
    """Return, for each leader epoch, the lowest offset at which it begins in any of these segments."""
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


def _load_above(
    connection: Connection, key: Mapping[str, Any], loading: _Loading, lowest_starts: Mapping[int, int]
) -> None:
    for epochs in _chunks(sorted(lowest_starts.items()), _EPOCHS_AT_ONCE):
        at_or_above = or_(
            *(
                and_(segment_epochs.c.leader_epoch == epoch, segment_epochs.c.start_offset >= start)
                for epoch, start in epochs
            )
        )
        for row in connection.execute(_REFERENCED.where(at_or_above), dict(key)).all():
            loading.references[row.referring_epoch, loading.take(row)] = Reference.REFERENCED


def _chunks(values: Iterable[_T], at_once: int = _AT_ONCE) -> Iterator[list[_T]]:
    left = iter(values)
    while chunk := list(islice(left, at_once)):
        yield chunk


_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_TOMBSTONE: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_NO_TOKEN: Final = 0
_ADD: Final = insert(segments).returning(segments.c.segment_key, sort_by_parameter_order=True)
_CHANGE: Final = update(segments).where(segments.c.segment_key == bindparam("of_key"))
_FORGET_EPOCHS: Final = delete(segment_epochs).where(segment_epochs.c.segment_key == bindparam("of_key"))
_REFER: Final = (
    update(segment_epochs)
    .where(segment_epochs.c.segment_key == bindparam("of_key"), segment_epochs.c.leader_epoch == bindparam("of_epoch"))
    .values(broker_reference=bindparam("reference"))
)
_FORGET_HIGHEST: Final = delete(broker_epochs).where(
    in_partition(broker_epochs), broker_epochs.c.leader_epoch == bindparam("of_epoch")
)
_FORGET_RESULTS: Final = delete(quality_results).where(
    in_partition(quality_results), quality_results.c.segment_id == bindparam("of_segment")
)
_NO_VERDICT: Final = {
    "verdict": Verdict.NONE,
    "verdict_detail": "",
    "verdict_at_ms": None,
    "deep_passed_at_ms": None,
    "log_crc32c": None,
}
_NO_TIMES: Final = dict.fromkeys(TIME_OF_STATE.values())


class BrokerRows:
    """Writes what one page changes in one partition, whose row is locked."""

    def __init__(
        self, connection: Connection, cluster_id: str, partition: TopicIdPartition, loaded: LoadedCache, now_ms: NowMs
    ) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._partition = partition
        self._loaded = loaded
        self._keys = dict(loaded.keys)
        self._now_ms = now_ms

    def write(self, applied: AppliedPartition) -> Iterator[str]:
        """Write all changes; yield the differences between the brokers' records and the platform's metadata."""
        fresh: list[RemoteLogSegmentMetadata] = []
        gone: list[RemoteLogSegmentMetadata] = []
        come: list[RemoteLogSegmentMetadata] = []
        rewritten: set[RemoteLogSegmentId] = set()
        for segment_id, published in applied.last.items():
            row = self._loaded.rows.get(segment_id)
            if row is None:
                fresh.append(published)
            elif row.origin is SegmentOrigin.PLATFORM:
                self._connection.execute(_CHANGE, self._key(segment_id) | {"broker_state": int(published.state)})
                yield from _differences(row, published)
            else:
                if self._change(row, published, applied):
                    rewritten.add(segment_id)
                gone.append(row.metadata)
                come.append(published)
        self._insert(fresh, applied)
        self._refer(applied, rewritten | {segment.remote_log_segment_id for segment in fresh})
        self._store_highest(applied)
        self._count(gone, [*come, *fresh], applied)
        self._learn([*come, *fresh])
        if any(row.verdict is Verdict.FAILED for row in self._loaded.rows.values()):
            refresh_stop(self._connection, self._cluster_id, self._partition)

    def _key(self, segment_id: RemoteLogSegmentId) -> dict[str, Any]:
        return {"of_key": self._keys[segment_id]}

    def _insert(self, fresh: list[RemoteLogSegmentMetadata], applied: AppliedPartition) -> None:
        if not fresh:
            return
        rows = [
            values_of(self._cluster_id, segment)
            | _NO_VERDICT
            | _NO_TIMES
            | self._times(segment, applied)
            | {"fencing_token": _NO_TOKEN, "origin": SegmentOrigin.BROKER, "broker_state": int(segment.state)}
            for segment in fresh
        ]
        keys = self._connection.execute(_ADD, rows).scalars().all()
        for key, segment in zip(keys, fresh, strict=True):
            self._keys[segment.remote_log_segment_id] = key
        self._insert_epochs(fresh, applied)

    def _insert_epochs(self, fresh: Iterable[RemoteLogSegmentMetadata], applied: AppliedPartition) -> None:
        references = applied.after.references
        rows = [
            row | {"broker_reference": references.get((row["leader_epoch"], segment.remote_log_segment_id))}
            for segment in fresh
            for row in epoch_values_of(self._cluster_id, self._keys[segment.remote_log_segment_id], segment)
        ]
        self._connection.execute(insert(segment_epochs), rows)

    def _change(self, row: SegmentRow, published: RemoteLogSegmentMetadata, applied: AppliedPartition) -> bool:
        """Update the row of a broker's segment; return whether its leader epochs were written again."""
        was, segment_id = row.metadata, published.remote_log_segment_id
        values = (
            values_of(self._cluster_id, published)
            | self._times(published, applied)
            | {"broker_state": int(published.state)}
        )
        is_another = _shape(was) != _shape(published)
        if is_another or (was.state is _TOMBSTONE and row.broker_state is _TOMBSTONE):
            values = _NO_TIMES | values | _NO_VERDICT | NOTHING_LOST
            key = key_of(self._cluster_id, self._partition)
            self._connection.execute(_FORGET_RESULTS, key | {"of_segment": str(segment_id.id)})
        self._connection.execute(_CHANGE, self._key(segment_id) | values)
        if is_another:
            self._connection.execute(_FORGET_EPOCHS, self._key(segment_id))
            self._insert_epochs([published], applied)
        return is_another

    def _times(self, segment: RemoteLogSegmentMetadata, applied: AppliedPartition) -> dict[str, int]:
        """Return the columns of the times at which a segment entered its states.

        A time in the future of the database's clock is replaced by the present time.
        """
        now_ms = self._now_ms(self._connection)
        times_ms = applied.times_ms[segment.remote_log_segment_id]
        times = {TIME_OF_STATE[state]: min(at_ms, now_ms) for state, at_ms in times_ms.items()}
        return times if segment.remote_log_segment_id in self._loaded.rows else {"started_at_ms": now_ms} | times

    def _refer(self, applied: AppliedPartition, written: set[RemoteLogSegmentId]) -> None:
        before, after = applied.before.references, applied.after.references
        rows = [
            self._key(segment_id) | {"of_epoch": epoch, "reference": after.get((epoch, segment_id))}
            for epoch, segment_id in {**before, **after}
            if segment_id not in written and before.get((epoch, segment_id)) != after.get((epoch, segment_id))
        ]
        if rows:
            self._connection.execute(_REFER, rows)

    def _store_highest(self, applied: AppliedPartition) -> None:
        key = key_of(self._cluster_id, self._partition)
        for epoch in applied.before.highest.keys() - applied.after.highest.keys():
            self._connection.execute(_FORGET_HIGHEST, key | {"of_epoch": epoch})
        for epoch, highest in applied.after.highest.items():
            if applied.before.highest.get(epoch) != highest:
                values = {
                    "cluster_id": self._cluster_id,
                    "topic_id": str(self._partition.topic_id),
                    "partition": self._partition.partition,
                    "leader_epoch": epoch,
                    "highest_offset": highest,
                }
                upsert(self._connection, broker_epochs, values)

    def _count(
        self,
        gone: Iterable[RemoteLogSegmentMetadata],
        come: Iterable[RemoteLogSegmentMetadata],
        applied: AppliedPartition,
    ) -> None:
        """Update the counters.

        A segment that became FINISHED and then got another state within the page is counted as FINISHED and subtracted
        again, because that raises the highest copied offset.
        """
        counted = [segment for segment in gone if segment.state is not _TOMBSTONE]
        if counted:
            count_out(self._connection, self._cluster_id, *counted)
        new = list(come)
        passed = [
            _as_finished(segment)
            for segment in new
            if _FINISHED in applied.times_ms[segment.remote_log_segment_id] and segment.state is not _FINISHED
        ]
        if passed:
            count_in(self._connection, self._cluster_id, *passed)
            count_out(self._connection, self._cluster_id, *passed)
        if new:
            count_in(self._connection, self._cluster_id, *new)

    def _learn(self, changed: Iterable[RemoteLogSegmentMetadata]) -> None:
        for segment in changed:
            if segment.is_finished:
                learn_leader_epochs(
                    self._connection,
                    self._cluster_id,
                    self._partition,
                    segment.segment_leader_epochs,
                    segment.start_offset,
                    self._now_ms,
                )


def _as_finished(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    return replace(metadata, state=_FINISHED)


def _shape(metadata: RemoteLogSegmentMetadata) -> tuple[Any, ...]:
    """Return the fields that no update record changes."""
    return (
        metadata.start_offset,
        metadata.end_offset,
        metadata.max_timestamp_ms,
        metadata.segment_size_bytes,
        metadata.segment_leader_epochs,
        metadata.txn_index_empty,
    )


def _differences(row: SegmentRow, published: RemoteLogSegmentMetadata) -> Iterator[str]:
    """Yield differences between the brokers' records about a segment of the platform and our metadata."""
    ours = row.metadata
    segment = f"our segment {ours.remote_log_segment_id.id}"
    if _shape(ours) != _shape(published):
        theirs = f"{published.start_offset}..{published.end_offset}, {published.segment_size_bytes} bytes"
        yield (
            f"{segment} ({ours.start_offset}..{ours.end_offset}, {ours.segment_size_bytes} bytes) has other values on"
            f" brokers ({theirs})"
        )
    if published.state is _FINISHED and ours.state is not _FINISHED:
        yield f"{segment} is {ours.state.name} here and COPY_SEGMENT_FINISHED on brokers"
