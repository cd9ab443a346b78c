"""`SelectedSegments` in SQL: every statement finds its rows by an index, and none reads a whole partition.

SQLite uses a partial index only if the statement has the condition of the index in its text. So states are written into
these statements, not passed as parameters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from sqlalchemy import BindParameter, Connection, Row, Select, and_, bindparam, func, literal_column, or_, select

from include.tiering.database.schema import PARTITION_TOTAL, partitions, segment_epochs, segments, size_counters
from include.tiering.database.transactions import ClusterStore, in_partition, key_of, reading, snapshot
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.retention import NO_EPOCH, RestOfLog
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.segments.selected_segments import EpochExtent, OldestSegments
from include.tiering.segments.sql_rows import WITH_TOPIC, metadata_of, segment_row_of
from include.tiering.segments.values import SegmentRow, listing_order
from include.tiering.telemetry import get_logger

# The text of the partial indexes in `database.schema.segments`.
_FINISHED: Final = segments.c.state == literal_column("1")
UNDER_WAY: Final = segments.c.state.in_((literal_column("0"), literal_column("2")))
"""Selects segments in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED; a condition on one of them may be added."""
_OF_BROKERS: Final = segments.c.origin == literal_column("'broker'")
_OURS: Final = segments.c.origin == str(SegmentOrigin.PLATFORM)
_TOMBSTONE: Final = segments.c.state == int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_FINISHED_STATE: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_IDS_PER_STATEMENT: Final = 500
_IDS_PER_PAGE: Final = 10_000
_log: Final = get_logger(__name__)

_OF_PARTITION: Final = WITH_TOPIC.where(in_partition(segments))
_BY_START: Final = (segments.c.start_offset, segments.c.segment_key)
_SELECT_UNDER_WAY: Final = _OF_PARTITION.where(UNDER_WAY).order_by(*_BY_START)
_BY_ID: Final = _OF_PARTITION.where(segments.c.segment_id.in_(bindparam("of_segments", expanding=True)), ~_TOMBSTONE)
_FROM_END: Final = _OF_PARTITION.where(_FINISHED, segments.c.end_offset >= bindparam("from_offset"))
_NEWEST: Final = (
    _OF_PARTITION.where(segments.c.start_offset < bindparam("before_offset"))
    .order_by(segments.c.start_offset.desc(), segments.c.segment_key.desc())
    .limit(bindparam("at_most"))
)
_FINISHED_IDS: Final = select(segments.c.segment_id).where(in_partition(segments), _FINISHED)
_OUR_FINISHED: Final = _OF_PARTITION.where(_FINISHED, _OURS).order_by(*_BY_START)
_BELOW: Final = _OUR_FINISHED.where(segments.c.start_offset < bindparam("from_offset"))
_FROM: Final = _OUR_FINISHED.where(segments.c.start_offset >= bindparam("from_offset")).limit(bindparam("at_most"))
_KEY: Final = (
    select(segments.c.segment_key)
    .where(in_partition(segments), segments.c.segment_id == bindparam("of_segment"))
    .scalar_subquery()
)
_end: Final[BindParameter[int]] = bindparam("of_end")
_start: Final[BindParameter[int]] = bindparam("of_start")
_IS_BEFORE: Final = or_(
    segments.c.end_offset < _end,
    segments.c.start_offset < _start,
    and_(segments.c.start_offset == _start, segments.c.segment_key < _KEY),
)
_BEFORE: Final = (
    _OF_PARTITION.where(_FINISHED, segments.c.history == bindparam("of_history"))
    .where(segments.c.end_offset <= _end, _IS_BEFORE)
    .order_by(segments.c.end_offset.desc(), segments.c.start_offset.desc(), segments.c.segment_key.desc())
    .limit(1)
)
_COUNTERS: Final = (
    select(
        size_counters.c.leader_epoch,
        size_counters.c.size_bytes,
        size_counters.c.highest_offset,
    )
    .where(in_partition(size_counters), size_counters.c.state == _FINISHED_STATE, size_counters.c.segments > 0)
    .order_by(size_counters.c.leader_epoch)
)
_BY_TRIGGERS: Final = select(partitions.c.finished_bytes).where(in_partition(partitions))
_ADDED_UP: Final = select(func.coalesce(func.sum(segments.c.size_bytes), 0)).where(in_partition(segments), _FINISHED)
_COUNTED: Final = select(func.coalesce(func.sum(size_counters.c.size_bytes), 0)).where(
    in_partition(size_counters),
    size_counters.c.state == _FINISHED_STATE,
    size_counters.c.leader_epoch == PARTITION_TOTAL,
)
_BROKERS_BYTES: Final = select(func.coalesce(func.sum(segments.c.size_bytes), 0)).where(
    in_partition(segments), _OF_BROKERS, segments.c.state == _FINISHED_STATE
)
_OF_EPOCH: Final = (in_partition(segment_epochs), segment_epochs.c.leader_epoch == bindparam("of_epoch"))
_IS_AFTER: Final = segments.c.start_offset > bindparam("after_offset")
_HAS_EPOCH_AFTER: Final = (
    select(segments.c.segment_key)
    .join(segment_epochs, segment_epochs.c.segment_key == segments.c.segment_key)
    .where(*_OF_EPOCH, segment_epochs.c.start_offset > bindparam("after_offset"))
    .where(_FINISHED, _OURS, _IS_AFTER)
    .limit(1)
)
_LOWEST_OF_EPOCH: Final = select(func.min(segment_epochs.c.start_offset)).where(*_OF_EPOCH)
_UNDATED: Final = select(func.count()).where(
    in_partition(segments), _FINISHED, _OURS, segments.c.max_timestamp_ms < 0, _IS_AFTER
)
_LATEST: Final = (
    select(segments.c.max_timestamp_ms)
    .where(in_partition(segments), _FINISHED, _OURS, segments.c.max_timestamp_ms > bindparam("from_ms"), _IS_AFTER)
    .order_by(segments.c.max_timestamp_ms.desc())
    .limit(1)
)
_WITH_VERDICT: Final = WITH_TOPIC.where(
    segments.c.cluster_id == bindparam("of_cluster"),
    segments.c.state == _FINISHED_STATE,
    segments.c.verdict == bindparam("of_verdict"),
)
_WITH_OLD_VERDICT: Final = _WITH_VERDICT.where(segments.c.verdict_at_ms <= bindparam("at_or_before_ms"))
# Apart: with OR, SQLite would read every segment with the verdict.
_WITH_UNDATED_VERDICT: Final = _WITH_VERDICT.where(segments.c.verdict_at_ms.is_(None))


class SqlSelectedSegments(ClusterStore):
    """`SelectedSegments` of one cluster over the platform's database."""

    def segments_under_way(self, partition: TopicIdPartition) -> Sequence[SegmentRow]:
        """Return segments in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED, in the order of `list_segments`."""
        with reading(self._engine) as connection:
            rows = connection.execute(_SELECT_UNDER_WAY, key_of(self._cluster_id, partition))
            return [segment_row_of(row) for row in rows]

    def segments_with_ids(
        self, partition: TopicIdPartition, ids: Iterable[Uuid], *, finished_from: int | None = None
    ) -> Sequence[SegmentRow]:
        """Return the segments with these ids that exist, in the order of `list_segments`, in one consistent read."""
        key = key_of(self._cluster_id, partition)
        with snapshot(self._engine) as connection:
            found = [*_with_ids(connection, key, ids)]
            if finished_from is not None:
                found += connection.execute(_FROM_END, key | {"from_offset": finished_from})
        return _as_listed(found)

    def newest(self, partition: TopicIdPartition, *, before: int, at_most: int) -> Sequence[SegmentRow]:
        """Return at most `at_most` segments in any state that start below `before`, the highest start offset first."""
        key = key_of(self._cluster_id, partition) | {"before_offset": before, "at_most": at_most}
        with reading(self._engine) as connection:
            return [segment_row_of(row) for row in connection.execute(_NEWEST, key)]

    def finished_from(self, partition: TopicIdPartition, offset: int) -> Sequence[SegmentRow]:
        """Return FINISHED segments that end at or above `offset`, in the order of `list_segments`."""
        key = key_of(self._cluster_id, partition) | {"from_offset": offset}
        with reading(self._engine) as connection:
            return _as_listed(connection.execute(_FROM_END, key))

    def finished_ids(self, partition: TopicIdPartition) -> Iterator[Uuid]:
        """Yield the ids of all FINISHED segments, in any order. Reads all of them, but nothing else of them."""
        with reading(self._engine) as connection:
            found = connection.execute(
                _FINISHED_IDS, key_of(self._cluster_id, partition), execution_options={"yield_per": _IDS_PER_PAGE}
            )
            yield from map(Uuid.parse, found.scalars())

    def counters_agree(self, partition: TopicIdPartition) -> bool:
        """Return whether the platform's counter is the size of all FINISHED segments, in bytes."""
        key = key_of(self._cluster_id, partition)
        with snapshot(self._engine) as connection:
            counted = connection.execute(_COUNTED, key).scalar_one()
            by_triggers = connection.execute(_BY_TRIGGERS, key).scalar_one_or_none()
            if by_triggers == counted:
                return True
            added_up = connection.execute(_ADDED_UP, key).scalar_one()
        _log.warning(
            "%s: FINISHED segments have %s bytes; the platform counted %s, the triggers of the database %s",
            partition,
            added_up,
            counted,
            by_triggers,
        )
        return bool(added_up == counted)

    def finished_before(self, row: SegmentRow) -> RemoteLogSegmentMetadata | None:
        """Return the FINISHED segment right before this one in the history `row.history`; None if there is none."""
        segment = row.metadata
        of_row = {
            "of_segment": str(segment.remote_log_segment_id.id),
            "of_history": row.history,
            "of_end": segment.end_offset,
            "of_start": segment.start_offset,
        }
        with reading(self._engine) as connection:
            found = connection.execute(_BEFORE, key_of(self._cluster_id, segment.topic_id_partition) | of_row)
            before = found.one_or_none()
            return None if before is None else metadata_of(before)

    def oldest_segments(
        self,
        partition: TopicIdPartition,
        finished: int | None,
        *,
        log_start_offset: int,
        with_size: bool = False,
        future_from_ms: int | None = None,
    ) -> OldestSegments:
        """Return the segments of the platform that retention may concern, in one consistent read."""
        key = key_of(self._cluster_id, partition)
        with snapshot(self._engine) as connection:
            rows = [row for row in _rows(connection, _SELECT_UNDER_WAY, key) if row.origin is SegmentOrigin.PLATFORM]
            if finished is None:
                return OldestSegments((*rows, *_rows(connection, _OUR_FINISHED, key)), None)
            if log_start_offset > 0:
                rows += _rows(connection, _BELOW, key | {"from_offset": log_start_offset})
            page = _rows(connection, _FROM, key | {"from_offset": log_start_offset, "at_most": finished + 1})
            if len(page) <= finished:
                return OldestSegments((*rows, *page), None)
            after_offset = page[-1].metadata.start_offset - 1
            rows += (row for row in page if row.metadata.start_offset <= after_offset)
            counters = connection.execute(_COUNTERS, key).all()
            epochs = [counted.leader_epoch for counted in counters if counted.leader_epoch != PARTITION_TOTAL]
            rest = _rest(connection, key | {"after_offset": after_offset}, epochs, future_from_ms)
            if not with_size:
                return OldestSegments(tuple(rows), rest)
            all_bytes = sum(counted.size_bytes for counted in counters if counted.leader_epoch == PARTITION_TOTAL)
            read_bytes = sum(row.metadata.segment_size_bytes for row in rows if row.metadata.is_finished)
            rest_bytes = all_bytes - connection.execute(_BROKERS_BYTES, key).scalar_one() - read_bytes
            return OldestSegments(
                tuple(rows), replace(rest, size_bytes=rest_bytes), tuple(_extents(connection, key, counters))
            )

    def finished_with_verdicts(self, verdicts: Mapping[Verdict, int | None]) -> Sequence[SegmentRow]:
        """Return all FINISHED segments with these verdicts, ordered by topic, partition and start offset."""
        rows: list[SegmentRow] = []
        with snapshot(self._engine) as connection:
            for verdict, at_or_before_ms in verdicts.items():
                values = {"of_cluster": self._cluster_id, "of_verdict": str(verdict)}
                if at_or_before_ms is None:
                    rows += _rows(connection, _WITH_VERDICT, values)
                else:
                    rows += _rows(connection, _WITH_OLD_VERDICT, values | {"at_or_before_ms": at_or_before_ms})
                    rows += _rows(connection, _WITH_UNDATED_VERDICT, values)
        return sorted(rows, key=_place)


def _place(row: SegmentRow) -> tuple[object, ...]:
    partition = row.metadata.topic_id_partition
    return partition.topic, str(partition.topic_id), partition.partition, *listing_order(row)


def _rows(connection: Connection, query: Select[Any], values: dict[str, Any]) -> list[SegmentRow]:
    return [segment_row_of(row) for row in connection.execute(query, values)]


def _with_ids(connection: Connection, key: dict[str, Any], ids: Iterable[Uuid]) -> Iterator[Row[Any]]:
    left = iter(ids)
    while group := [str(segment_id) for segment_id in islice(left, _IDS_PER_STATEMENT)]:
        yield from connection.execute(_BY_ID, key | {"of_segments": group})


def _as_listed(found: Iterable[Row[Any]]) -> list[SegmentRow]:
    """Return each segment once, in the order of `list_segments`; of equal ones the one recorded first is the first."""
    rows = {row.segment_key: segment_row_of(row) for row in found}
    return [row for _, row in sorted(rows.items(), key=lambda item: (listing_order(item[1]), item[0]))]


def _rest(
    connection: Connection, after: dict[str, Any], epochs: Iterable[int], future_from_ms: int | None
) -> RestOfLog:
    """Return what can be read by indexes about the platform's FINISHED segments above the offset in `after`.

    `epochs` are those of FINISHED segments, ascending. The size is not read: it is 0 in the result.
    """
    listed = (epoch for epoch in epochs if connection.execute(_HAS_EPOCH_AFTER, after | {"of_epoch": epoch}).first())
    lowest_epoch, undated, latest_ms = next(listed, NO_EPOCH), 0, None
    if future_from_ms is not None:
        undated = connection.execute(_UNDATED, after).scalar_one()
        latest_ms = connection.execute(_LATEST, after | {"from_ms": future_from_ms}).scalar_one_or_none()
    return RestOfLog(after["after_offset"], lowest_epoch, 0, undated, -1 if latest_ms is None else latest_ms)


def _extents(connection: Connection, key: dict[str, Any], counters: Iterable[Any]) -> Iterator[EpochExtent]:
    for counted in counters:
        if counted.leader_epoch != PARTITION_TOTAL and counted.highest_offset is not None:
            lowest = connection.execute(_LOWEST_OF_EPOCH, key | {"of_epoch": counted.leader_epoch}).scalar_one()
            if lowest is not None:  # else the counter is wrong: no segment has the epoch
                yield EpochExtent(counted.leader_epoch, lowest, counted.highest_offset)
