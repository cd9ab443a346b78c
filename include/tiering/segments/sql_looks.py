"""Looks in SQL: what a look found and the verdict that follows, behind the lock of the partition's row.

| step                                          | a crash after it leaves               |
|-----------------------------------------------|---------------------------------------|
| partition locked, row and broken rules read   | nothing                               |
| results, verdict and the partition's stop     | nothing: the transaction is rolled    |
| written                                       | back                                  |
| committed                                     | the whole look; repeating is harmless |

Two looks at one segment are recorded one after the other: the second one reads what the first one wrote.
"""

from typing import TypeGuard

from sqlalchemy import Connection

from include.tiering.database.clock import NowMs
from include.tiering.database.partition_rows import lock_partition
from include.tiering.segments.looks import Judgement, Look, conclude, verdict_time_ms
from include.tiering.segments.sql_quality import store_results, unresolved_of
from include.tiering.segments.sql_queries import find_segment
from include.tiering.segments.sql_verdicts import store_verdict
from include.tiering.segments.values import SegmentRow


def record_look(connection: Connection, cluster_id: str, look: Look, now_ms: NowMs) -> Judgement | None:
    """See `RemoteLogMetadata.record_look`."""
    lock_partition(connection, cluster_id, look.segment_id.topic_id_partition)
    known = find_segment(connection, cluster_id, look.segment_id)
    if not _is_finished(known):
        return None
    at_ms = verdict_time_ms(known, now_ms(connection))
    conclusion = conclude(look, unresolved_of(connection, cluster_id, look.segment_id))
    store_results(connection, cluster_id, conclusion.results, at_ms)
    if conclusion.verdict is not None:
        store_verdict(
            connection, cluster_id, known, conclusion.verdict, conclusion.detail, at_ms=at_ms, is_deep=look.is_deep
        )
    return Judgement(conclusion.verdict or known.verdict, conclusion.broken)


def _is_finished(known: SegmentRow | None) -> TypeGuard[SegmentRow]:
    return known is not None and known.metadata.is_finished
