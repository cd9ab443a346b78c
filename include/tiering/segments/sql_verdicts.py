"""Verdicts: of one segment as it is given, of all at once how many there are, and those that have become too old."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, func, select, update

from include.tiering.database.clock import NowMs
from include.tiering.database.partition_rows import in_partition, key_of, lock_partition
from include.tiering.database.schema import segments
from include.tiering.database.statements import stored_text
from include.tiering.errors import UnknownSegmentError
from include.tiering.model.ids import RemoteLogSegmentId
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict, VerdictTotal
from include.tiering.segments.looks import deep_passed_at_ms, verdict_time_ms
from include.tiering.segments.sql_queries import find_segment
from include.tiering.segments.sql_stops import NOTHING_LOST, refresh_stop
from include.tiering.segments.values import SegmentRow

_CHANGE: Final = update(segments).where(in_partition(segments), segments.c.segment_id == bindparam("of_segment"))
_FINISHED: Final = segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


def record_verdict(
    connection: Connection,
    cluster_id: str,
    segment_id: RemoteLogSegmentId,
    verdict: Verdict,
    *,
    detail: str,
    now_ms: NowMs,
) -> None:
    """See `RemoteLogMetadata.record_verdict`."""
    lock_partition(connection, cluster_id, segment_id.topic_id_partition)
    known = find_segment(connection, cluster_id, segment_id)
    if known is None:
        raise UnknownSegmentError(f"no remote log segment {segment_id}")
    store_verdict(connection, cluster_id, known, verdict, detail, at_ms=verdict_time_ms(known, now_ms(connection)))


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
    """With the stop of the partition, which the caller has locked. `known` is the row as it is stored."""
    partition = known.metadata.topic_id_partition
    judged = {
        "verdict": verdict,
        "verdict_detail": stored_text(detail),
        "verdict_at_ms": at_ms,
        "deep_passed_at_ms": deep_passed_at_ms(known, verdict, at_ms, is_deep=is_deep),
    }
    if verdict is Verdict.PASSED:
        judged |= NOTHING_LOST
    key = key_of(cluster_id, partition) | {"of_segment": str(known.metadata.remote_log_segment_id.id)}
    connection.execute(_CHANGE, key | judged)
    if Verdict.FAILED in (verdict, known.verdict):
        refresh_stop(connection, cluster_id, partition)


def expire_verdicts(connection: Connection, cluster_id: str, *, judged_before_ms: int, at_most: int) -> int:
    """See `RemoteLogMetadata.expire_verdicts`. `judged_before_ms` is exclusive, a time of the database.

    Nothing stops or starts by it, so no partition is locked. The rows that are chosen are: one that is being judged in
    another transaction is passed over, and looked at again once it was waited for.
    """
    has_expired = (
        segments.c.cluster_id == cluster_id,
        _FINISHED,
        segments.c.verdict == str(Verdict.PASSED),
        segments.c.verdict_at_ms < judged_before_ms,
    )
    chosen = (
        select(segments.c.segment_key)
        .where(*has_expired)
        .order_by(segments.c.verdict_at_ms)
        .limit(at_most)
        .with_for_update(skip_locked=True)
        .cte("chosen")
        # Chosen once: PostgreSQL would choose again for every row, and take others each time.
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    statement = update(segments).where(segments.c.segment_key.in_(select(chosen.c.segment_key)), *has_expired)
    expired = statement.values(verdict=str(Verdict.EXPIRED)).returning(segments.c.segment_key)
    return len(connection.execute(expired).all())


def verdict_totals(connection: Connection, cluster_id: str, now_ms: int) -> Sequence[VerdictTotal]:
    """See `RemoteLogMetadata.verdict_totals`."""
    query = (
        select(
            segments.c.verdict,
            func.count(),
            func.sum(segments.c.size_bytes),
            func.min(segments.c.verdict_at_ms),
        )
        .where(segments.c.cluster_id == cluster_id, _FINISHED)
        .group_by(segments.c.verdict)
    )
    found = {verdict: rest for verdict, *rest in connection.execute(query)}
    totals = []
    for verdict in Verdict:
        count, size_bytes, oldest_ms = found.get(str(verdict), (0, 0, None))
        age_ms = None if oldest_ms is None or verdict is Verdict.NONE else max(0, now_ms - oldest_ms)
        totals.append(VerdictTotal(verdict, count, int(size_bytes), age_ms))
    return totals
