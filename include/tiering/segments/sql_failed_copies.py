"""Failed segments in SQL: their verdicts, their columns `lost_because` and `given_up_at_ms`, and the decisions.

    step of giving up a segment                                        a crash after it leaves
    owner read, partition locked, segment's state compared             nothing: the transaction is rolled back
    decisions, `given_up_at_ms`, the partition's stop, event written   nothing: the transaction is rolled back
    committed                                                          the whole decision; repeating it is harmless

No lease is taken. A new copy that replaces the segment meanwhile locks the same partition row: if the copy is first,
giving up is refused; if the decision is first, the copy replaces the segment in spite of the decision.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, func, select, tuple_, update

from include.tiering.database.event_log import EventKind, record_event
from include.tiering.database.schema import quality_results, segments, topics
from include.tiering.database.transactions import (
    ClusterStore,
    lock_partition,
    of_partition,
    partition_from,
    reading,
    stored_text,
    writing,
)
from include.tiering.errors import StateConflictError, UnknownSegmentError
from include.tiering.model.histories import SkippedOffsets, not_skipped
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.segments.failed_copies import MEMORY_MS, FailedCopy
from include.tiering.segments.sql_rows import metadata_of, owner_of, skipped_of, store_decision
from include.tiering.segments.sql_verdicts import WAS_LEFT, refresh_stop
from include.tiering.segments.values import CRITICAL, QualityResult

_PLANNER: Final = "copy plan"
_FAILED: Final = and_(
    segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED), segments.c.verdict == str(Verdict.FAILED)
)

_Segment = tuple[str, int, str]
_before = segments.alias("before")
_SUPERSEDED: Final = (
    select(func.count())
    .where(
        _before.c.cluster_id == segments.c.cluster_id,
        _before.c.topic_id == segments.c.topic_id,
        _before.c.partition == segments.c.partition,
        _before.c.start_offset == segments.c.start_offset,
        _before.c.end_offset == segments.c.end_offset,
        _before.c.superseded_by.is_not(None),
        _before.c.delete_started_at_ms > bindparam("kept_since_ms"),
    )
    .correlate(segments)
    .scalar_subquery()
)
_SAME_TOPIC: Final = and_(topics.c.cluster_id == segments.c.cluster_id, topics.c.topic_id == segments.c.topic_id)
_ALL: Final = (
    select(segments, topics.c.name, _SUPERSEDED.label("superseded"), WAS_LEFT.label("was_left"))
    .join(topics, _SAME_TOPIC)
    .where(segments.c.cluster_id == bindparam("of_cluster"), _FAILED)
    .order_by(
        topics.c.name,
        topics.c.topic_id,
        segments.c.partition,
        segments.c.start_offset,
        segments.c.end_offset,
        segments.c.segment_key,
    )
)
_SAME_SEGMENT: Final = and_(
    *(quality_results.c[name] == segments.c[name] for name in ("cluster_id", "topic_id", "partition", "segment_id"))
)
_FAILED_BY: Final = (
    select(topics.c.topic_id, topics.c.name, segments.c.partition, func.count().label("failed"))
    .join(topics, _SAME_TOPIC)
    .join(quality_results, _SAME_SEGMENT)
    .where(segments.c.cluster_id == bindparam("of_cluster"), _FAILED, segments.c.given_up_at_ms.is_(None))
    .where(quality_results.c.rule == bindparam("of_rule"), quality_results.c.passed.is_(False))
    .group_by(topics.c.topic_id, topics.c.name, segments.c.partition)
)


class SqlFailedCopies(ClusterStore):
    """`FailedCopies` of one cluster over the platform's database. Every call is one transaction."""

    def all(self) -> Sequence[FailedCopy]:
        """Return every FINISHED segment that failed, given up or not, ordered by topic, partition and start offset."""
        with reading(self._engine) as connection:
            since_ms = self._now_ms(connection) - MEMORY_MS
            rows = connection.execute(_ALL, {"of_cluster": self._cluster_id, "kept_since_ms": since_ms}).all()
            broken = self._broken_rules(connection) if rows else {}
        return [_copy_of(row, broken.get((row.topic_id, row.partition, row.segment_id), [])) for row in rows]

    def failed_by(self, rule: str) -> Mapping[TopicIdPartition, int]:
        """Count, for each partition, FINISHED failed segments that break this rule and were not given up."""
        with reading(self._engine) as connection:
            rows = connection.execute(_FAILED_BY, {"of_cluster": self._cluster_id, "of_rule": rule}).all()
        return {partition_from(row.topic_id, row.partition, row.name): row.failed for row in rows}

    def broken(
        self, segment_ids: Collection[RemoteLogSegmentId]
    ) -> Mapping[RemoteLogSegmentId, Sequence[QualityResult]]:
        """Return, for some segments, the results of the rules that they break now, with warnings, ordered by rule."""
        results = quality_results.c
        by_key = {
            (
                str(segment_id.topic_id_partition.topic_id),
                segment_id.topic_id_partition.partition,
                str(segment_id.id),
            ): segment_id
            for segment_id in segment_ids
        }
        key = tuple_(results.topic_id, results.partition, results.segment_id)
        query = (
            select(
                results.topic_id, results.partition, results.segment_id, results.rule, results.level, results.message
            )
            .where(results.cluster_id == self._cluster_id, key.in_(list(by_key)), results.passed.is_(False))
            .order_by(results.rule)
        )
        found: dict[RemoteLogSegmentId, list[QualityResult]] = defaultdict(list)
        with reading(self._engine) as connection:
            for row in connection.execute(query):
                segment_id = by_key[row.topic_id, row.partition, row.segment_id]
                found[segment_id].append(
                    QualityResult(segment_id, row.rule, row.level, passed=False, message=row.message)
                )
        return found

    def note_losses(self, partition: TopicIdPartition, losses: Mapping[RemoteLogSegmentId, str]) -> None:
        """Store which failed segments the source cannot replace, and why; clear the reasons of the others."""
        reasons = {str(segment_id.id): stored_text(why) for segment_id, why in losses.items()}
        with writing(self._engine) as connection:
            lock_partition(connection, self._cluster_id, partition)
            stopping = and_(
                of_partition(segments, self._cluster_id, partition), _FAILED, segments.c.given_up_at_ms.is_(None)
            )
            changed = [
                row
                for row in connection.execute(select(segments).where(stopping).order_by(segments.c.start_offset))
                if row.lost_because != reasons.get(row.segment_id)
            ]
            for row in changed:
                self._note(connection, partition, row, reasons.get(row.segment_id))
            if changed:
                refresh_stop(connection, self._cluster_id, partition)

    def give_up(self, segment_id: RemoteLogSegmentId, *, reason: str, author: str) -> Sequence[SkippedOffsets]:
        """Record the decision to continue without the records of a failed segment, with an event. Idempotent."""
        partition = segment_id.topic_id_partition
        with writing(self._engine) as connection:
            owner = owner_of(connection, self._cluster_id, partition)
            lock_partition(connection, self._cluster_id, partition)
            found = select(segments, WAS_LEFT.label("was_left")).where(self._is_segment(segment_id))
            row = connection.execute(found).one_or_none()
            if row is None:
                raise UnknownSegmentError(f"no remote log segment {segment_id}")
            if row.given_up_at_ms is not None:
                return []
            if owner is not TopicOwner.PLATFORM:
                raise StateConflictError(f"{partition}: its owner is {owner}, so no segment of it can be given up here")
            state = RemoteLogSegmentState(row.state)
            if state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED or row.verdict != Verdict.FAILED:
                raise StateConflictError(f"{segment_id} is {state.name} and {row.verdict}: it cannot be given up")
            if row.was_left:
                raise StateConflictError(
                    f"{segment_id} is of a history that a decision replaced: it stops no partition"
                )
            return self._give_up(connection, segment_id, row, reason, author)

    def _broken_rules(self, connection: Connection) -> Mapping[_Segment, Sequence[str]]:
        """Return the broken critical rules of all failed segments, ascending."""
        results = quality_results.c
        query = (
            select(results.topic_id, results.partition, results.segment_id, results.rule)
            .join(segments, _SAME_SEGMENT)
            .where(segments.c.cluster_id == self._cluster_id, _FAILED)
            .where(results.passed.is_(False), results.level == CRITICAL)
            .order_by(results.rule)
        )
        broken: dict[_Segment, list[str]] = defaultdict(list)
        for topic_id, partition, segment_id, rule in connection.execute(query):
            broken[topic_id, partition, segment_id].append(rule)
        return broken

    def _give_up(
        self, connection: Connection, segment_id: RemoteLogSegmentId, row: Row[Any], reason: str, author: str
    ) -> Sequence[SkippedOffsets]:
        partition, now_ms = segment_id.topic_id_partition, self._now_ms(connection)
        known = skipped_of(connection, self._cluster_id, partition)
        decisions = [
            store_decision(connection, self._cluster_id, partition, SkippedOffsets(offsets, reason, author, now_ms))
            for offsets in not_skipped(row.start_offset, row.end_offset, known)
        ]
        given_up = update(segments).where(self._is_segment(segment_id)).values(given_up_at_ms=now_ms)
        connection.execute(given_up)
        refresh_stop(connection, self._cluster_id, partition)
        detail = f"{row.start_offset}..{row.end_offset}: {row.segment_id}: {reason}"
        record_event(connection, self._cluster_id, EventKind.GIVEN_UP_SEGMENT, partition, detail, author, now_ms)
        return decisions

    def _note(self, connection: Connection, partition: TopicIdPartition, row: Row[Any], why: str | None) -> None:
        is_row = segments.c.segment_key == row.segment_key
        connection.execute(update(segments).where(is_row).values(lost_because=why))
        if why is not None and row.lost_because is None:
            detail, now_ms = f"{row.start_offset}..{row.end_offset}: {why}", self._now_ms(connection)
            record_event(connection, self._cluster_id, EventKind.LOST_OFFSETS, partition, detail, _PLANNER, now_ms)

    def _is_segment(self, segment_id: RemoteLogSegmentId) -> ColumnElement[bool]:
        is_in = of_partition(segments, self._cluster_id, segment_id.topic_id_partition)
        return and_(is_in, segments.c.segment_id == str(segment_id.id))


def _copy_of(row: Row[Any], broken_rules: Sequence[str]) -> FailedCopy:
    return FailedCopy(
        metadata_of(row),
        verdict_detail=row.verdict_detail,
        broken_rules=tuple(broken_rules),
        superseded=row.superseded,
        given_up=row.given_up_at_ms is not None,
        was_left=row.was_left,
        lost_because=row.lost_because,
    )
