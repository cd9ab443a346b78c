"""Objections of audits that stand until a later audit clears them, in SQL."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from include.tiering.audit.guards import Guard, StandingGuard, stands
from include.tiering.audit.record_contract import AuditRecord, AuditSource
from include.tiering.database.schema import standing_guards
from include.tiering.database.statements import insert_if_absent


def raise_or_clear(connection: Connection, cluster_id: str, audit: AuditRecord, now_ms: int) -> None:
    """What this audit means for the guards that stand: in the transaction that records it. The first time of each
    stays, and what the database remembered then."""
    if not audit.refusals and audit.source is AuditSource.LISTING:
        connection.execute(delete(standing_guards).where(standing_guards.c.cluster_id == cluster_id))
    for refusal in filter(stands, audit.refusals):
        values = {
            "cluster_id": cluster_id,
            "guard": refusal.guard,
            "run_id": audit.run_id,
            "sentence": refusal.sentence,
            "memory_ms": refusal.memory_ms,
            "raised_at_ms": now_ms,
        }
        insert_if_absent(connection, standing_guards, values)


def standing(connection: Connection, cluster_id: str) -> Sequence[StandingGuard]:
    """By name."""
    query = select(standing_guards).where(standing_guards.c.cluster_id == cluster_id)
    return [
        StandingGuard(Guard(row.guard), row.sentence, row.raised_at_ms, row.memory_ms)
        for row in connection.execute(query.order_by(standing_guards.c.guard))
    ]
