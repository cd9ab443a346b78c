"""Remote log segments in SQL: attempts, states, lookups, deletions in groups, and tombstones.

`SqlRemoteLogMetadata` adds partitions, divergences and verdicts from their modules; together they are
`RemoteLogMetadata`.

Each call of `SqlSegments` is one transaction. Its changes of a segment's state require the fence of the segment's
partition (`sql_changes`). They change no tombstone's state.

Lookups work as in Kafka's own metadata cache, with one exception. While a segment is FINISHED, lookups return it for
[start, end] of each of its leader epochs, both inclusive. Segments overlap after a leader change (the new leader's
segment that holds the next offset is copied whole) and when a longer copy covers shorter ones. Then the segment with
the highest end is returned; usually it became FINISHED last, because FINISHED ends ascend. The exception: Kafka forgets
covered segments; here they are returned again once the covering copy's deletion begins.

| step of removing tombstones             | a crash after it leaves                      |
|-----------------------------------------|----------------------------------------------|
| page of the oldest tombstones chosen    | nothing                                      |
| their results, epochs and rows deleted  | nothing: the transaction is rolled back      |
| committed                               | the other tombstones, for the next call      |

Counters, the log start and the history of leader epochs are stored apart from segments, so removing a tombstone changes
none of them. A tombstone stays while

- it is of the platform's own segment and the platform does not own the topic: a publication, or a broker that took the
  topic over, may still need to record the segment's deletion;
- it is of a segment about which the platform published a record: without the tombstone, an ingest would take the
  segment for one of a broker;
- a copy of its partition may still be running that began before the deletion: the tombstone may be of that copy's own
  attempt, and an id must never be begun again. A copy whose lease expired at least `older_than_ms` ago does not count
  as running.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, Select, and_, bindparam, case, delete, or_, select, tuple_, update

from include.tiering.database.schema import (
    PARTITION_TOTAL,
    leases,
    published_records,
    quality_results,
    segment_epochs,
    segments,
    size_counters,
    topics,
)
from include.tiering.database.transactions import (
    ClusterStore,
    NowMs,
    database_now_ms,
    hold_fence,
    in_partition,
    key_of,
    lock_partition,
    partition_from,
    reading,
    writing,
)
from include.tiering.errors import IllegalTransitionError, StateConflictError
from include.tiering.model.ownership import Fence, LeaseRole, SegmentOrigin, TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
)
from include.tiering.segments.selected_segments import SelectedSegments
from include.tiering.segments.sql_changes import TIME_OF_STATE, SegmentChanges, require_same_partition
from include.tiering.segments.sql_divergences import SqlDivergences
from include.tiering.segments.sql_partition_state import SqlPartitionState
from include.tiering.segments.sql_rows import (
    WITH_TOPIC,
    count_in,
    count_out,
    find_segment,
    highest_finished_offset,
    metadata_of,
    segment_row_of,
)
from include.tiering.segments.sql_selected import SqlSelectedSegments
from include.tiering.segments.sql_verdicts import SqlVerdicts, refresh_stop
from include.tiering.segments.values import SegmentRow

_FINISHED: Final = segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_TOMBSTONE: Final = segments.c.state == int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_OF_PARTITION: Final = WITH_TOPIC.where(in_partition(segments), ~_TOMBSTONE).order_by(
    segments.c.start_offset,
    case((_FINISHED, 0), else_=1),
    case((_FINISHED, -segments.c.end_offset), else_=0),
    segments.c.segment_key,
)
_SAME_SEGMENT: Final = segment_epochs.c.segment_key == segments.c.segment_key
_OF_EPOCH: Final = (in_partition(segment_epochs), segment_epochs.c.leader_epoch == bindparam("of_epoch"))
_OF_PARTITION_AND_EPOCH: Final = _OF_PARTITION.join(segment_epochs, _SAME_SEGMENT).where(*_OF_EPOCH)
_FOR_OFFSET: Final = (
    WITH_TOPIC.join(segment_epochs, _SAME_SEGMENT)
    .where(*_OF_EPOCH, _FINISHED)
    .where(segment_epochs.c.start_offset <= bindparam("at_offset"))
    .where(segment_epochs.c.end_offset >= bindparam("at_offset"))
    .order_by(segments.c.end_offset.desc(), segments.c.segment_key.desc())
    .limit(1)
)
_SAME_TOPIC_AS_COUNTER: Final = and_(
    topics.c.cluster_id == size_counters.c.cluster_id, topics.c.topic_id == size_counters.c.topic_id
)
_PARTITIONS: Final = (
    select(topics.c.topic_id, size_counters.c.partition, topics.c.name)
    .join(topics, _SAME_TOPIC_AS_COUNTER)
    .where(size_counters.c.cluster_id == bindparam("of_cluster"), size_counters.c.segments > 0)
    .where(size_counters.c.leader_epoch == PARTITION_TOTAL)
    .distinct()
    .order_by(topics.c.name, topics.c.topic_id, size_counters.c.partition)
)
_DELETION: Final = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_IDS_PER_STATEMENT: Final = 500
_AMONG: Final = (in_partition(segments), segments.c.segment_id.in_(bindparam("of_segments", expanding=True)))
_FIND: Final = select(
    segments.c.segment_id, segments.c.state, segments.c.verdict, segments.c.superseded_by, segments.c.origin
).where(*_AMONG)
_ADVANCE: Final = update(segments).where(*_AMONG, segments.c.state == bindparam("of_state"))
_SEGMENT: Final = ("cluster_id", "topic_id", "partition", "segment_id")


class SqlSegments(ClusterStore):
    """The part of `RemoteLogMetadata` about segments and their states."""

    def add_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        *,
        fence: Fence,
        log_crc32c: int | None = None,
        source_fingerprint: str | None = None,
    ) -> int | None:
        """Record a new attempt in COPY_SEGMENT_STARTED. Idempotent for equal arguments."""
        # A power failure may lose this row only until the segment is FINISHED, because that change is durable; no
        # reader relies on the segment's objects before.
        with writing(self._engine, durable=False) as connection:
            changes = SegmentChanges(connection, self._cluster_id, self._now_ms)
            changes.add(metadata, fence, log_crc32c, source_fingerprint)
            return highest_finished_offset(connection, self._cluster_id, metadata.topic_id_partition)

    def update_segment(
        self,
        update: RemoteLogSegmentMetadataUpdate,
        *,
        expected: RemoteLogSegmentState,
        fence: Fence,
        supersedes: RemoteLogSegmentId | None = None,
    ) -> RemoteLogSegmentMetadata:
        """Compare and set the state; return the new metadata. Idempotent: repeating a stored change has no effect."""
        with writing(self._engine) as connection:
            changes = SegmentChanges(connection, self._cluster_id, self._now_ms)
            return changes.change_state(update, expected, fence, supersedes)

    def advance_deletion(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        state: RemoteLogSegmentState,
        *,
        event_timestamp_ms: int,
        fence: Fence,
    ) -> Sequence[RemoteLogSegmentMetadata]:
        """Advance segments of the fence's partition to DELETE_SEGMENT_STARTED or _FINISHED. Idempotent."""
        cluster_id = self._cluster_id
        with writing(self._engine) as connection:
            for segment in segments:
                require_same_partition(segment.remote_log_segment_id, fence)
                if state not in _DELETION or not segment.state.may_become(state):
                    raise IllegalTransitionError(
                        f"{segment.remote_log_segment_id}: "
                        f"{segment.state.name} may not become {state.name} by a deletion"
                    )
            hold_fence(connection, cluster_id, fence)
            lock_partition(connection, cluster_id, fence.topic_id_partition)
            found = _found(connection, cluster_id, segments)
            matching = [each for each in segments if _may_advance(each, found.get(each.remote_log_segment_id), state)]
            changing = [segment for segment in matching if found[segment.remote_log_segment_id].state is not state]
            advanced = [replace(segment, state=state, event_timestamp_ms=event_timestamp_ms) for segment in changing]
            if changing:
                values = {
                    "state": int(state),
                    "event_timestamp_ms": event_timestamp_ms,
                    "fencing_token": fence.token,
                    TIME_OF_STATE[state]: self._now_ms(connection),
                }
                _write_deletions(connection, cluster_id, changing, values)
                count_out(connection, cluster_id, *changing)
                count_in(connection, cluster_id, *advanced)
                if any(found[segment.remote_log_segment_id].verdict is Verdict.FAILED for segment in changing):
                    refresh_stop(connection, cluster_id, fence.topic_id_partition)
            return [replace(segment, state=state, event_timestamp_ms=event_timestamp_ms) for segment in matching]

    def forget_tombstones(self, older_than_ms: int, *, at_most: int) -> int:
        """Remove at most `at_most` tombstones, oldest first, in one transaction; return their number."""
        cluster_id = self._cluster_id
        with writing(self._engine) as connection:
            deleted_before_ms = self._now_ms(connection) - older_than_ms
            copied_since = select(leases.c.token).where(
                leases.c.cluster_id == segments.c.cluster_id,
                leases.c.topic_id == segments.c.topic_id,
                leases.c.partition == segments.c.partition,
                leases.c.role == LeaseRole.COPY,
                leases.c.expires_at_ms > deleted_before_ms,
                leases.c.claimed_at_ms <= segments.c.deleted_at_ms,
            )
            is_ours = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
            query = (
                select(segments.c.segment_key, segments.c.topic_id, segments.c.partition, segments.c.segment_id)
                .join(topics, is_ours)
                .where(segments.c.cluster_id == cluster_id, segments.c.deleted_at_ms < deleted_before_ms)
                .where(_TOMBSTONE, ~copied_since.exists())
                .where(or_(topics.c.owner == TopicOwner.PLATFORM, segments.c.origin == str(SegmentOrigin.BROKER)))
                .where(segments.c.segment_id.not_in(_published(cluster_id)))
                .order_by(segments.c.deleted_at_ms, segments.c.segment_key)
                .limit(at_most)
                .with_for_update(of=segments, skip_locked=True)
            )
            page = connection.execute(query).all()
            if not page:
                return 0
            keys = [row.segment_key for row in page]
            of_segment = tuple_(*(quality_results.c[name] for name in _SEGMENT))
            ids = [(cluster_id, row.topic_id, row.partition, row.segment_id) for row in page]
            connection.execute(delete(quality_results).where(of_segment.in_(ids)))
            connection.execute(delete(segment_epochs).where(segment_epochs.c.segment_key.in_(keys)))
            connection.execute(delete(segments).where(segments.c.segment_key.in_(keys)))
            return len(page)

    def segment(self, segment_id: RemoteLogSegmentId) -> SegmentRow | None:
        """Return the segment with this id, in any state including tombstones; None if there is none."""
        with reading(self._engine) as connection:
            return find_segment(connection, self._cluster_id, segment_id)

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        """Return segments in every state except DELETE_SEGMENT_FINISHED, ordered by start offset."""
        query, key = _OF_PARTITION, key_of(self._cluster_id, partition)
        if leader_epoch is not None:
            query, key = _OF_PARTITION_AND_EPOCH, key | {"of_epoch": leader_epoch}
        with reading(self._engine) as connection:
            return [segment_row_of(row) for row in connection.execute(query, key)]

    def partitions(self) -> Sequence[TopicIdPartition]:
        """Return partitions with at least one segment that is not a tombstone, ordered by topic and partition."""
        # The counters do not include tombstones; reading every segment would take seconds with millions of segments.
        with reading(self._engine) as connection:
            found = connection.execute(_PARTITIONS, {"of_cluster": self._cluster_id})
            return [partition_from(row.topic_id, row.partition, row.name) for row in found]

    def segment_for_offset(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the FINISHED segment that holds `offset` under `leader_epoch`; None in a gap."""
        key = key_of(self._cluster_id, partition) | {"of_epoch": leader_epoch, "at_offset": offset}
        with reading(self._engine) as connection:
            row = connection.execute(_FOR_OFFSET, key).one_or_none()
            return None if row is None else metadata_of(row)

    def segments_of_run(self, run_id: str) -> Sequence[SegmentRow]:
        """Return segments whose copy began under a lease of this run, with tombstones, in the order of recording."""
        query = WITH_TOPIC.where(segments.c.cluster_id == self._cluster_id, segments.c.run_id == run_id)
        with reading(self._engine) as connection:
            return [segment_row_of(row) for row in connection.execute(query.order_by(segments.c.segment_key))]

    def unverified_segments(self) -> Sequence[SegmentRow]:
        """Return the platform's FINISHED segments without a verdict, of all runs, in the order of their recording."""
        query = (
            WITH_TOPIC.where(segments.c.cluster_id == self._cluster_id, _FINISHED)
            .where(segments.c.verdict == str(Verdict.NONE), segments.c.origin == str(SegmentOrigin.PLATFORM))
            .order_by(segments.c.segment_key)
        )
        with reading(self._engine) as connection:
            return [segment_row_of(row) for row in connection.execute(query)]


class SqlRemoteLogMetadata(SqlSegments, SqlPartitionState, SqlDivergences, SqlVerdicts):
    """`RemoteLogMetadata` of one cluster over the platform's database, made of one store for each part."""

    def __init__(self, engine: Engine, cluster_id: str, *, now_ms: NowMs = database_now_ms) -> None:
        super().__init__(engine, cluster_id, now_ms=now_ms)
        self.selected: SelectedSegments = SqlSelectedSegments(engine, cluster_id, now_ms=now_ms)


class _Found(NamedTuple):
    state: RemoteLogSegmentState
    verdict: Verdict
    is_superseded: bool
    is_ours: bool


def _published(cluster_id: str) -> Select[tuple[str]]:
    """Return the query for the segments with a published record, in topics that the platform owns."""
    same = and_(
        published_records.c.cluster_id == topics.c.cluster_id, published_records.c.topic_id == topics.c.topic_id
    )
    owned = and_(topics.c.cluster_id == cluster_id, topics.c.owner == TopicOwner.PLATFORM)
    return (
        select(published_records.c.segment_id)
        .select_from(topics)
        .join(published_records, same)
        .where(owned)
        .correlate(None)
    )


def _may_advance(segment: RemoteLogSegmentMetadata, found: _Found | None, target: RemoteLogSegmentState) -> bool:
    """Return whether the stored segment is in the state with which it was passed, or in the target state already.

    Return False as well if a new copy superseded the segment after it was read as FINISHED, or a broker began it.
    """
    if found is None or not found.is_ours or found.state not in (segment.state, target):
        return False
    return not (segment.is_finished and found.is_superseded)


def _found(
    connection: Connection, cluster_id: str, segments: Iterable[RemoteLogSegmentMetadata]
) -> dict[RemoteLogSegmentId, _Found]:
    found = {}
    for group in _groups(segments):
        ids = {str(segment.remote_log_segment_id.id): segment.remote_log_segment_id for segment in group}
        key = key_of(cluster_id, group[0].topic_id_partition) | {"of_segments": list(ids)}
        for row in connection.execute(_FIND, key):
            state, verdict = RemoteLogSegmentState(row.state), Verdict(row.verdict)
            found[ids[row.segment_id]] = _Found(
                state, verdict, row.superseded_by is not None, row.origin == SegmentOrigin.PLATFORM
            )
    return found


def _write_deletions(
    connection: Connection, cluster_id: str, segments: Sequence[RemoteLogSegmentMetadata], values: dict[str, int]
) -> None:
    by_state = defaultdict(list)
    for segment in segments:
        by_state[segment.state].append(segment)
    for state, of_state in by_state.items():
        for group in _groups(of_state):
            ids = [str(segment.remote_log_segment_id.id) for segment in group]
            partition = group[0].topic_id_partition
            key = key_of(cluster_id, partition) | {"of_segments": ids, "of_state": int(state)}
            if connection.execute(_ADVANCE, key | values).rowcount != len(ids):
                raise StateConflictError(f"{partition}: some of {len(ids)} segments are no longer {state.name}")


def _groups(segments: Iterable[RemoteLogSegmentMetadata]) -> Iterator[list[RemoteLogSegmentMetadata]]:
    left = iter(segments)
    while group := list(islice(left, _IDS_PER_STATEMENT)):
        yield group
