"""Planned removals as rows, and what a withdrawal leaves of them."""

from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, update

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.removal_contract import PlannedRemoval, RemovalOutcome
from include.tiering.database.partition_rows import partition_from
from include.tiering.database.schema import planned_removals
from include.tiering.database.statements import stored_text
from include.tiering.model.ids import RemoteLogSegmentId, Uuid

_LEFT: Final = update(planned_removals).where(
    and_(
        planned_removals.c.cluster_id == bindparam("of_cluster"),
        planned_removals.c.run_id == bindparam("of_run"),
        planned_removals.c.outcome == str(RemovalOutcome.PLANNED),
    )
)


def withdraw_left(connection: Connection, cluster_id: str, run_id: str, author: str, now_ms: int) -> None:
    """See `RemovalStore.withdraw`."""
    key = {"of_cluster": cluster_id, "of_run": run_id}
    begun = f"withdrawn by {author} while it was removed: the next audit says what is left of it"
    for left, outcome, message in (
        (_LEFT.where(planned_removals.c.condemned_at_ms.is_not(None)), RemovalOutcome.FAILED, begun),
        (_LEFT, RemovalOutcome.KEPT, f"withdrawn by {author}"),
    ):
        values = {"outcome": str(outcome), "message": stored_text(message), "recorded_at_ms": now_ms}
        connection.execute(left.values(**values), key)


def removal_of(row: Row[Any]) -> PlannedRemoval:
    partition = partition_from(row.topic_id, row.partition, row.topic)
    return PlannedRemoval(
        RemoteLogSegmentId(partition, Uuid.parse(row.segment_id)),
        FindingKind(row.kind),
        row.key,
        row.token or None,
        row.size_bytes,
        row.last_modified_ms,
    )
