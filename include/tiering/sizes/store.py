"""Sizes and delete lags of the remote log, in SQL."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, case, func, literal_column, or_, select

from include.tiering.database.schema import (
    PARTITION_TOTAL,
    approvals,
    planned_deletions,
    runs,
    segments,
    size_counters,
    topics,
)
from include.tiering.database.transactions import ClusterStore, in_partition, key_of, partition_from, reading
from include.tiering.model.ownership import LeaseRole, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.model.sizes import EpochSize, PartitionLag, PartitionStates, StateSize, counted_states
from include.tiering.segments.sizes_contract import ArchiveSize, KeyRange, SizeRow, TopicTotal
from include.tiering.segments.sql_rows import PAGE_KEYS, export_segments, split_segments
from include.tiering.segments.sql_selected import UNDER_WAY

_PLANNED: Final = "planned"
_SAME_TOPIC_AS_COUNTER: Final = and_(
    topics.c.cluster_id == size_counters.c.cluster_id, topics.c.topic_id == size_counters.c.topic_id
)
_COUNTERS: Final = (
    select(size_counters, topics.c.name)
    .join(topics, _SAME_TOPIC_AS_COUNTER)
    .where(size_counters.c.cluster_id == bindparam("of_cluster"))
    .order_by(
        topics.c.name,
        size_counters.c.topic_id,
        size_counters.c.partition,
        size_counters.c.state,
        size_counters.c.leader_epoch,
    )
)
_COUNTERS_OF_PARTITION: Final = _COUNTERS.where(in_partition(size_counters))
_IDS_OF_NAMES: Final = select(topics.c.topic_id).where(
    topics.c.cluster_id == bindparam("of_cluster"), topics.c.name.in_(bindparam("of_names", expanding=True))
)
_COUNTERS_OF_TOPIC: Final = _COUNTERS.where(size_counters.c.topic_id.in_(_IDS_OF_NAMES))
_SEGMENTS_OF_PARTITION: Final = select(segments.c.state, segments.c.size_bytes, segments.c.leader_epochs).where(
    in_partition(segments), segments.c.state != int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
)
_DELETE_STARTED: Final = int(RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
_COPY_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_COPY_STARTED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_STARTED)

_IN_FINISHED: Final = size_counters.c.state == _COPY_FINISHED
_IS_STORED: Final = size_counters.c.state.in_((_COPY_FINISHED, _DELETE_STARTED))
# The number stands in the text, or SQLite would not use the index of these rows.
_IN_TOTALS: Final = (
    size_counters.c.cluster_id == bindparam("of_cluster"),
    size_counters.c.leader_epoch == literal_column(str(PARTITION_TOTAL)),
)
_SUMS: Final = (
    func.sum(case((_IN_FINISHED, size_counters.c.segments), else_=0)).label("segments"),
    func.sum(case((_IN_FINISHED, size_counters.c.size_bytes), else_=0)).label("finished_bytes"),
    func.sum(case((_IS_STORED, size_counters.c.size_bytes), else_=0)).label("stored_bytes"),
)


def _by_topic(*columns: Any) -> Select[Any]:
    return select(*columns).where(*_IN_TOTALS).group_by(size_counters.c.topic_id)


_BY_TOPIC: Final = _by_topic(
    size_counters.c.topic_id, func.count(size_counters.c.partition.distinct()).label("partitions"), *_SUMS
)


_topic_id: Final = lru_cache(maxsize=20_000)(Uuid.parse)


_IS_OURS: Final = topics.c.owner == TopicOwner.PLATFORM.value
"""A topic that the platform copies is listed before anything of it was copied, so that one can ask why."""


def _with_names(by_topic: Select[Any], *which: ColumnElement[bool]) -> Select[Any]:
    found = by_topic.subquery("found")
    numbers = (found.c.partitions, found.c.segments, found.c.finished_bytes, found.c.stored_bytes)
    return (
        select(topics.c.topic_id, *(func.coalesce(number, 0) for number in numbers), topics.c.name, topics.c.owner)
        .outerjoin(found, topics.c.topic_id == found.c.topic_id)
        .where(topics.c.cluster_id == bindparam("of_cluster"), or_(found.c.topic_id.is_not(None), _IS_OURS), *which)
        .order_by(topics.c.name, topics.c.topic_id)
    )


_TOPIC_TOTALS: Final = _with_names(_BY_TOPIC)
_TOTALS_OF_NAMES: Final = _with_names(
    _BY_TOPIC.where(size_counters.c.topic_id.in_(_IDS_OF_NAMES)),
    topics.c.name.in_(bindparam("of_names", expanding=True)),
)
_LISTED_TOPICS: Final = select(topics.c.topic_id, topics.c.name).where(
    topics.c.cluster_id == bindparam("of_cluster"),
    or_(
        _IS_OURS,
        select(size_counters.c.partition).where(*_IN_TOTALS, size_counters.c.topic_id == topics.c.topic_id).exists(),
    ),
)


def _added_up() -> Select[Any]:
    found = _by_topic(*_SUMS).subquery("found")
    return select(
        func.count(case((found.c.segments > 0, 1))).label("topics"),
        func.coalesce(func.sum(found.c.segments), 0).label("segments"),
        func.coalesce(func.sum(found.c.finished_bytes), 0).label("finished_bytes"),
        func.coalesce(func.sum(found.c.stored_bytes), 0).label("stored_bytes"),
    )


_ARCHIVE_SIZE: Final = _added_up()


class SqlRemoteLogSizes(ClusterStore):
    """`RemoteLogSizes` of one cluster over the platform's database."""

    def partition_states(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionStates]:
        """Return sizes by state from the counters, ordered by topic and partition."""
        query, key = _COUNTERS, {"of_cluster": self._cluster_id}
        if partition is not None:
            query, key = _COUNTERS_OF_PARTITION, key_of(self._cluster_id, partition)
        return self._states(query, key)

    def topic_states(self, topic: str) -> Sequence[PartitionStates]:
        """Return what `partition_states` has of the topics with this name."""
        return self._states(_COUNTERS_OF_TOPIC, {"of_cluster": self._cluster_id, "of_names": [topic]})

    def archive_size(self) -> ArchiveSize:
        """Return the sizes of all topics together. One statement, which reads one row of each partition and state."""
        with reading(self._engine) as connection:
            row = connection.execute(_ARCHIVE_SIZE, {"of_cluster": self._cluster_id}).one()
        return ArchiveSize(row.topics, int(row.segments), int(row.finished_bytes), int(row.stored_bytes))

    def listed_topics(self) -> Mapping[Uuid, str]:
        """Return the names of the topics that `topic_totals` has, by topic id. One statement."""
        with reading(self._engine) as connection:
            rows = connection.execute(_LISTED_TOPICS, {"of_cluster": self._cluster_id}).all()
        return {_topic_id(topic_id): name for topic_id, name in rows}

    def topic_totals(self, names: Collection[str] | None = None) -> Sequence[TopicTotal]:
        """Return the sizes of all topics of which anything was copied or is to be copied, or of those with these names.

        They are ordered by name and id. One statement.
        """
        key = {} if names is None else {"of_names": list(names)}
        statement = _TOPIC_TOTALS if names is None else _TOTALS_OF_NAMES
        with reading(self._engine) as connection:
            rows = connection.execute(statement, {"of_cluster": self._cluster_id, **key}).all()
        return [
            TopicTotal(
                _topic_id(topic_id), name, TopicOwner(owner), partitions, int(segments), int(finished), int(stored)
            )
            for topic_id, partitions, segments, finished, stored, name, owner in rows
        ]

    def recount(self, partition: TopicIdPartition) -> PartitionStates:
        """Count the sizes of one partition from its segments, as they are at one moment."""
        key = key_of(self._cluster_id, partition)
        with reading(self._engine) as connection:
            # One statement, whose rows the server hands out page by page: a partition may have millions.
            rows = connection.execute(_SEGMENTS_OF_PARTITION, key, execution_options={"yield_per": PAGE_KEYS})
            counted = ((RemoteLogSegmentState(state), size, _epochs(text)) for state, size, text in rows)
            return counted_states(partition, counted)

    def topic_names(self) -> Mapping[Uuid, str]:
        """Return the names of all topics in the database, by topic id."""
        query = select(topics.c.topic_id, topics.c.name).where(topics.c.cluster_id == self._cluster_id)
        with reading(self._engine) as connection:
            return {Uuid.parse(topic_id): name for topic_id, name in connection.execute(query)}

    def delete_lags(self) -> Sequence[PartitionLag]:
        """Return, for each partition, number, bytes and waiting time of the segments that wait for their deletion."""
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            waiting: dict[TopicIdPartition, list[Row[Any]]] = defaultdict(list)
            for row in (*self._begun(connection), *self._planned(connection)):
                waiting[partition_from(row.topic_id, row.partition, row.name)].append(row)
        lags = [_lag(partition, rows, now_ms) for partition, rows in waiting.items()]
        return sorted(lags, key=lambda lag: (lag.topic_id_partition.topic, lag.topic_id_partition.partition))

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """Return at most `ranges` key ranges that together contain each segment once; none without segments."""
        return split_segments(self._engine, self._cluster_id, ranges)

    def export(self, key_range: KeyRange) -> Iterator[Sequence[SizeRow]]:
        """Yield the segments of the range except tombstones, in pages. Each page is read in its own transaction."""
        return export_segments(self._engine, self._cluster_id, key_range)

    def _states(self, query: Any, key: Mapping[str, Any]) -> Sequence[PartitionStates]:
        with reading(self._engine) as connection:
            rows = connection.execute(query, key).all()
        return [
            PartitionStates(partition_from(*key), tuple(_state_sizes(counted)))
            for key, counted in groupby(rows, key=attrgetter("topic_id", "partition", "name"))
        ]

    def _begun(self, connection: Connection) -> Sequence[Row[Any]]:
        """Return a row for each partition with segments in DELETE_SEGMENT_STARTED.

        The counters find these partitions, so rows of other partitions are not read. Superseded segments are left out,
        because their deletion is delayed on purpose; `_planned` counts them.
        """
        counters = size_counters.c
        busy = select(counters.topic_id, counters.partition).where(
            counters.cluster_id == self._cluster_id, counters.state == _DELETE_STARTED, counters.segments > 0
        )
        groups = connection.execute(busy.distinct()).all()
        found: list[Row[Any]] = []
        for group in groups:
            query = (
                _waiting(func.min(segments.c.delete_started_at_ms))
                .where(segments.c.topic_id == group.topic_id, segments.c.partition == group.partition)
                .where(segments.c.cluster_id == self._cluster_id, UNDER_WAY, segments.c.state == _DELETE_STARTED)
                .where(segments.c.superseded_by.is_(None))
            )
            found += connection.execute(query).all()
        return found

    def _planned(self, connection: Connection) -> Sequence[Row[Any]]:
        """Return, for each partition, the segments that the newest plan may delete and has not begun to delete.

        Superseded segments count until the plan has deleted them.
        """
        run = _newest_permitted_plan(connection, self._cluster_id)
        if run is None:
            return []
        is_planned = and_(
            planned_deletions.c.cluster_id == segments.c.cluster_id,
            planned_deletions.c.topic_id == segments.c.topic_id,
            planned_deletions.c.partition == segments.c.partition,
            planned_deletions.c.segment_id == segments.c.segment_id,
        )
        is_superseded = and_(segments.c.state == _DELETE_STARTED, segments.c.superseded_by.is_not(None))
        query = (
            _waiting(func.min(runs.c.created_at_ms))
            .join(planned_deletions, is_planned)
            .join(runs, and_(runs.c.cluster_id == segments.c.cluster_id, runs.c.run_id == planned_deletions.c.run_id))
            .where(segments.c.cluster_id == self._cluster_id, planned_deletions.c.run_id == run)
            .where(planned_deletions.c.outcome == _PLANNED)
            .where(or_(segments.c.state.in_((_COPY_STARTED, _COPY_FINISHED)), is_superseded))
        )
        return connection.execute(query).all()


def _waiting(since_ms: Any) -> Any:
    """Select bytes, segments and the earliest `since_ms` by partition."""
    same_topic = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
    return (
        select(
            segments.c.topic_id,
            segments.c.partition,
            topics.c.name,
            func.sum(segments.c.size_bytes).label("size_bytes"),
            func.count().label("segments"),
            since_ms.label("since_ms"),
        )
        .join(topics, same_topic)
        .group_by(segments.c.topic_id, segments.c.partition, topics.c.name)
    )


def _newest_permitted_plan(connection: Connection, cluster_id: str) -> str | None:
    """Return the run of the newest expiration plan; None without a plan, or if the plan is not permitted yet.

    A plan that was neither compared with the deletion limits nor approved, such as that of a dry run, decides nothing
    and is passed over.
    """
    approved = approvals.c.run_id == runs.c.run_id
    query = (
        select(runs.c.run_id, or_(runs.c.needs_approval.is_(False), approvals.c.run_id.is_not(None)).label("permitted"))
        .outerjoin(approvals, and_(approvals.c.cluster_id == runs.c.cluster_id, approved))
        .where(runs.c.cluster_id == cluster_id, runs.c.kind == str(LeaseRole.EXPIRE))
        .where(or_(runs.c.needs_approval.is_not(None), approvals.c.run_id.is_not(None)))
        .order_by(runs.c.created_at_ms.desc(), runs.c.run_id.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return str(row.run_id) if row is not None and row.permitted else None


def _epochs(leader_epochs: str) -> list[int]:
    """Parse `epoch:start,epoch:start` to the epochs."""
    return [int(entry.partition(":")[0]) for entry in leader_epochs.split(",")]


def _state_sizes(rows: Iterator[Row[Any]]) -> Iterator[StateSize]:
    """Convert counters of one partition, ordered by state and leader epoch; the first row of a state is its total."""
    for state, counted in groupby(rows, key=attrgetter("state")):
        total, *epochs = counted
        sizes = [EpochSize(row.leader_epoch, row.size_bytes, row.segments) for row in epochs]
        sizes = [size for size in sizes if size.segments or size.size_bytes]
        if total.segments or total.size_bytes or sizes:
            yield StateSize(RemoteLogSegmentState(state), total.size_bytes, total.segments, tuple(sizes))


def _lag(partition: TopicIdPartition, rows: Sequence[Row[Any]], now_ms: int) -> PartitionLag:
    since = [row.since_ms for row in rows if row.since_ms is not None]
    seconds = max(0, now_ms - min(since)) / 1000 if since else 0.0
    return PartitionLag(partition, int(sum(row.size_bytes for row in rows)), sum(row.segments for row in rows), seconds)
