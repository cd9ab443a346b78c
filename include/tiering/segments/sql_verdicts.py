"""Verdicts in SQL: verifications, the results of each rule, and when a partition is stopped.

A verification is recorded with the verdict that follows, under the lock of the partition's row:

| step                                          | a crash after it leaves               |
|-----------------------------------------------|---------------------------------------|
| partition locked, row and broken rules read   | nothing                               |
| results, verdict and the partition's stop     | nothing: the transaction is rolled    |
| written                                       | back                                  |
| committed                                     | all of it; repeating is harmless      |

Two verifications of the same segment are recorded one after the other: the second reads what the first wrote. The last
result of a rule for a segment replaces the previous one.

A partition is stopped exactly while it has a FINISHED segment with the verdict FAILED that was neither given up nor
*left*. A segment is left if, by a decision, the archive follows a later history of the source from an offset at or
below the segment's last offset (`model.histories`): from the decision's offset on, the later history is archived.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final, TypeGuard

from sqlalchemy import Connection, Row, Subquery, and_, bindparam, case, exists, func, null, or_, select, update

from include.tiering.database.schema import divergences, quality_results, segments
from include.tiering.database.transactions import (
    ClusterStore,
    in_partition,
    key_of,
    lock_partition,
    of_partition,
    reading,
    set_stopped_reason,
    stored_text,
    upsert,
    writing,
)
from include.tiering.errors import UnknownSegmentError
from include.tiering.model.segments import (
    AgedSegments,
    Depth,
    RemoteLogSegmentId,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
    VerdictAge,
    VerdictTotal,
)
from include.tiering.segments.sql_rows import find_segment
from include.tiering.segments.values import (
    QualityResult,
    RecordedVerdict,
    SegmentRow,
    Verification,
    conclude,
    deep_passed_at_ms,
    verdict_time_ms,
)

_CHANGE: Final = update(segments).where(in_partition(segments), segments.c.segment_id == bindparam("of_segment"))
_FINISHED: Final = segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


class SqlVerdicts(ClusterStore):
    """The part of `RemoteLogMetadata` about verdicts and the results of rules."""

    def record_verdict(self, segment_id: RemoteLogSegmentId, verdict: Verdict, *, detail: str = "") -> None:
        """Store a verdict without any results of rules; a later verification may replace the verdict."""
        with writing(self._engine) as connection:
            lock_partition(connection, self._cluster_id, segment_id.topic_id_partition)
            known = find_segment(connection, self._cluster_id, segment_id)
            if known is None:
                raise UnknownSegmentError(f"no remote log segment {segment_id}")
            at_ms = verdict_time_ms(known, self._now_ms(connection))
            store_verdict(connection, self._cluster_id, known, verdict, detail, at_ms=at_ms)

    def record_verification(self, verification: Verification) -> RecordedVerdict | None:
        """Store the results of a verification and the verdict that follows, in one transaction. Idempotent."""
        with writing(self._engine) as connection:
            lock_partition(connection, self._cluster_id, verification.segment_id.topic_id_partition)
            known = find_segment(connection, self._cluster_id, verification.segment_id)
            if not _is_finished(known):
                return None
            at_ms = verdict_time_ms(known, self._now_ms(connection))
            conclusion = conclude(verification, unresolved_of(connection, self._cluster_id, verification.segment_id))
            store_results(connection, self._cluster_id, conclusion.results, at_ms)
            if conclusion.verdict is not None:
                store_verdict(
                    connection,
                    self._cluster_id,
                    known,
                    conclusion.verdict,
                    conclusion.detail,
                    at_ms=at_ms,
                    is_deep=verification.is_deep,
                )
            return RecordedVerdict(conclusion.verdict or known.verdict, conclusion.broken)

    def expire_verdicts(self, older_than_ms: int, *, at_most: int) -> int:
        """Change PASSED verdicts of FINISHED segments to EXPIRED, at most `at_most`; return their number."""
        # A verdict that changes from PASSED to EXPIRED neither stops nor resumes a partition. So only the rows of the
        # chosen segments are locked, and no partition. A row that another transaction verifies at the same time is
        # skipped; the update checks the conditions again.
        with writing(self._engine) as connection:
            has_expired = (
                segments.c.cluster_id == self._cluster_id,
                _FINISHED,
                segments.c.verdict == str(Verdict.PASSED),
                segments.c.verdict_at_ms < self._now_ms(connection) - older_than_ms,
            )
            chosen = (
                select(segments.c.segment_key)
                .where(*has_expired)
                .order_by(segments.c.verdict_at_ms)
                .limit(at_most)
                .with_for_update(skip_locked=True)
                .cte("chosen")
                # Without this, PostgreSQL may evaluate the query for every row, and choose other rows each time.
                .prefix_with("MATERIALIZED", dialect="postgresql")
            )
            statement = update(segments).where(segments.c.segment_key.in_(select(chosen.c.segment_key)), *has_expired)
            expired = statement.values(verdict=str(Verdict.EXPIRED)).returning(segments.c.segment_key)
            return len(connection.execute(expired).all())

    def verdict_totals(self) -> Sequence[VerdictTotal]:
        """Return totals of FINISHED segments for every verdict, in the order of `Verdict`, also by depth and age."""
        with reading(self._engine) as connection:
            now_ms = self._now_ms(connection)
            aged = _aged(self._cluster_id, now_ms)
            query = select(
                aged.c.verdict,
                aged.c.depth,
                aged.c.age,
                func.count().label("number"),
                func.sum(aged.c.size_bytes).label("size_bytes"),
                func.min(aged.c.verdict_at_ms).label("oldest_ms"),
            ).group_by(aged.c.verdict, aged.c.depth, aged.c.age)
            rows = connection.execute(query).all()
        return [_total(verdict, [row for row in rows if row.verdict == verdict], now_ms) for verdict in Verdict]

    def quality_results(self, segment_id: RemoteLogSegmentId) -> Sequence[QualityResult]:
        """Return the last result of each rule that this segment was ever found to break, ordered by rule."""
        with reading(self._engine) as connection:
            rows = connection.execute(_OF_SEGMENT, _key_of(self._cluster_id, segment_id)).all()
        return [_result_of(segment_id, row) for row in rows]


def _aged(cluster_id: str, now_ms: int) -> Subquery:
    """Return the FINISHED segments with the depth and the range of ages of their verdicts."""
    has_depth = segments.c.verdict.in_([Verdict.PASSED, Verdict.EXPIRED])
    is_deep = segments.c.deep_passed_at_ms.is_not(None)
    since = case((and_(has_depth, is_deep), segments.c.deep_passed_at_ms), else_=segments.c.verdict_at_ms)
    ranges = [(since > now_ms - below, str(age)) for age in VerdictAge if (below := age.below_ms) is not None]
    return (
        select(
            segments.c.verdict,
            segments.c.verdict_at_ms,
            segments.c.size_bytes,
            case((and_(has_depth, is_deep), str(Depth.DEEP)), (has_depth, str(Depth.SHALLOW))).label("depth"),
            case(
                (or_(segments.c.verdict == Verdict.NONE, since.is_(None)), null()), *ranges, else_=str(VerdictAge.OLDER)
            ).label("age"),
        )
        .where(segments.c.cluster_id == cluster_id, _FINISHED)
        .subquery()
    )


def _total(verdict: Verdict, rows: Sequence[Row[Any]], now_ms: int) -> VerdictTotal:
    oldest_ms = min((row.oldest_ms for row in rows if row.oldest_ms is not None), default=None)
    by_age = sorted(
        (
            AgedSegments(
                row.depth and Depth(row.depth), row.age and VerdictAge(row.age), row.number, int(row.size_bytes)
            )
            for row in rows
        ),
        key=lambda aged: (aged.depth or "", list(VerdictAge).index(aged.age) if aged.age else -1),
    )
    return VerdictTotal(
        verdict,
        sum(aged.segments for aged in by_age),
        sum(aged.size_bytes for aged in by_age),
        None if oldest_ms is None or verdict is Verdict.NONE else max(0, now_ms - oldest_ms),
        tuple(by_age),
    )


def store_verdict(
    connection: Connection,
    cluster_id: str,
    known: SegmentRow,
    verdict: Verdict,
    detail: str,
    *,
    at_ms: int,
    is_deep: bool = False,
) -> None:
    """Store a verdict; if it or the previous one is FAILED, refresh the reason why the partition is stopped.

    The caller has locked the partition, and then read the segment's row (`known`).
    """
    partition = known.metadata.topic_id_partition
    verdict_columns = {
        "verdict": verdict,
        "verdict_detail": stored_text(detail),
        "verdict_at_ms": at_ms,
        "deep_passed_at_ms": deep_passed_at_ms(known, verdict, at_ms, is_deep=is_deep),
    }
    if verdict is Verdict.PASSED:
        verdict_columns |= NOTHING_LOST
    key = key_of(cluster_id, partition) | {"of_segment": str(known.metadata.remote_log_segment_id.id)}
    connection.execute(_CHANGE, key | verdict_columns)
    if Verdict.FAILED in (verdict, known.verdict):
        refresh_stop(connection, cluster_id, partition)


def _is_finished(known: SegmentRow | None) -> TypeGuard[SegmentRow]:
    return known is not None and known.metadata.is_finished


_OF_SEGMENT: Final = (
    select(quality_results)
    .where(in_partition(quality_results), quality_results.c.segment_id == bindparam("of_segment"))
    .order_by(quality_results.c.rule)
)
_UNRESOLVED: Final = _OF_SEGMENT.where(quality_results.c.passed.is_(False))


def store_results(
    connection: Connection, cluster_id: str, results: Sequence[QualityResult], recorded_at_ms: int
) -> None:
    """Store results of an existing segment, whose partition the caller has locked."""
    for result in results:
        partition = result.segment_id.topic_id_partition
        values = {
            "cluster_id": cluster_id,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            "segment_id": str(result.segment_id.id),
            "rule": result.rule,
            "level": result.level,
            "passed": result.passed,
            "message": stored_text(result.message),
            "recorded_at_ms": recorded_at_ms,
        }
        upsert(connection, quality_results, values)


def unresolved_of(
    connection: Connection, cluster_id: str, segment_id: RemoteLogSegmentId
) -> Sequence[tuple[QualityResult, int]]:
    """Return the segment's failed results, ordered by rule, each with the time of its recording."""
    rows = connection.execute(_UNRESOLVED, _key_of(cluster_id, segment_id))
    return [(_result_of(segment_id, row), row.recorded_at_ms) for row in rows]


def _key_of(cluster_id: str, segment_id: RemoteLogSegmentId) -> dict[str, Any]:
    return key_of(cluster_id, segment_id.topic_id_partition) | {"of_segment": str(segment_id.id)}


def _result_of(segment_id: RemoteLogSegmentId, row: Row[Any]) -> QualityResult:
    return QualityResult(segment_id, row.rule, row.level, row.passed, row.message)


NOTHING_LOST: Final = MappingProxyType({"lost_because": None, "given_up_at_ms": None})
"""Column values for a segment that passed: they remove the reason why it was lost, and the decision to give it up."""

WAS_LEFT: Final = exists().where(
    and_(*(divergences.c[name] == segments.c[name] for name in ("cluster_id", "topic_id", "partition"))),
    divergences.c.number > segments.c.history,
    divergences.c.followed_from <= segments.c.end_offset,
)
"""Whether a later history is followed from an offset at or below the segment's last offset.

False for an open divergence, where `followed_from` is NULL: a comparison with NULL is not true."""


def refresh_stop(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
    """Store which segment stops the partition, and why it failed; None without such a segment.

    If several segments stop the partition, the one with the lowest start offset is stored.

    The caller has locked the partition.
    """
    failed = (
        select(segments)
        .where(of_partition(segments, cluster_id, partition))
        .where(segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
        .where(segments.c.verdict == Verdict.FAILED, segments.c.given_up_at_ms.is_(None), ~WAS_LEFT)
        .order_by(segments.c.start_offset, segments.c.segment_key)
        .limit(1)
    )
    first = connection.execute(failed).one_or_none()
    reason = None
    if first is not None:
        offsets = f"{first.start_offset}..{first.end_offset}"
        reason = f"segment {first.segment_id} ({offsets}) failed: {first.verdict_detail}"
        if first.lost_because is not None:
            reason += f"; lost: {first.lost_because}"
    set_stopped_reason(connection, cluster_id, partition, reason)
