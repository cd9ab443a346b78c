"""Rows of runs that wait for a release: the run, what the limit said of it, who approved or withdrew its plan.

A withdrawal locks the run's row before it takes the leases away, and a claim reads it under that lock: a batch that
claims at the same moment either finds the run withdrawn, or loses its lease with the others.
"""

from typing import Final

from sqlalchemy import Connection, and_, bindparam, insert, select, update

from include.tiering.database.events import record_event
from include.tiering.database.schema import approvals, leases, runs
from include.tiering.database.statements import insert_if_absent, stored_text
from include.tiering.errors import StateConflictError
from include.tiering.model.ownership import LeaseRole
from include.tiering.runs.deletion_contract import Approval, DeletionRun, Withdrawal

_IS_RUN: Final = and_(runs.c.cluster_id == bindparam("of_cluster"), runs.c.run_id == bindparam("of_run"))
_APPROVED: Final = and_(approvals.c.cluster_id == runs.c.cluster_id, approvals.c.run_id == runs.c.run_id)
_RUN: Final = (
    select(runs, approvals.c.plan_hash.label("approved_hash"), approvals.c.author, approvals.c.approved_at_ms)
    .outerjoin(approvals, _APPROVED)
    .where(_IS_RUN, runs.c.kind == bindparam("of_kind"))
)
_RUN_LOCKED: Final = _RUN.with_for_update(of=runs)
_KNOWN: Final = select(runs.c.kind, runs.c.plan_hash).where(_IS_RUN)
_RECORD_BRAKE: Final = update(runs).where(_IS_RUN)
_APPROVE: Final = insert(approvals)
_WITHDRAW: Final = update(runs).where(_IS_RUN, runs.c.withdrawn_at_ms.is_(None))
_TAKE_LEASES_AWAY: Final = (
    update(leases)
    .where(leases.c.cluster_id == bindparam("of_cluster"), leases.c.run_id == bindparam("of_run"))
    .where(leases.c.role == str(LeaseRole.EXPIRE), leases.c.expires_at_ms != 0)
    .values(expires_at_ms=0)
)


def begin(connection: Connection, cluster_id: str, run_id: str, kind: str, plan_hash: str, now_ms: int) -> bool:
    """Whether the run is new. Raises StateConflictError if it is known with another plan, or of another kind."""
    values = {"cluster_id": cluster_id, "run_id": run_id, "kind": kind, "plan_hash": plan_hash}
    if insert_if_absent(connection, runs, values | {"created_at_ms": now_ms}):
        return True
    if tuple(connection.execute(_KNOWN, _key_of(cluster_id, run_id)).one()) != (kind, plan_hash):
        raise StateConflictError(f"run {run_id} has another plan already: use a new run id")
    return False


def find(connection: Connection, cluster_id: str, run_id: str, kind: str, *, lock: bool = False) -> DeletionRun:
    """Raises StateConflictError if no such run was planned. `lock`: it stays as it is until the transaction ends."""
    query = _RUN_LOCKED if lock else _RUN
    row = connection.execute(query, _key_of(cluster_id, run_id) | {"of_kind": kind}).one_or_none()
    if row is None:
        raise _unknown(run_id)
    is_approved = row.approved_hash == row.plan_hash
    approval = Approval(row.approved_hash, row.author, row.approved_at_ms) if is_approved else None
    withdrawal = None if row.withdrawn_at_ms is None else Withdrawal(row.withdrawn_by, row.withdrawn_at_ms)
    return DeletionRun(run_id, row.plan_hash, row.needs_approval, approval, withdrawal)


def record_brake(
    connection: Connection,
    cluster_id: str,
    run_id: str,
    *,
    needs_approval: bool,
    detail: str,
    author: str,
    now_ms: int,
) -> None:
    """See `DeletionStore.record_brake`."""
    values = _key_of(cluster_id, run_id) | {"needs_approval": needs_approval}
    if connection.execute(_RECORD_BRAKE, values).rowcount == 0:
        raise _unknown(run_id)
    record_event(connection, cluster_id, "brake", f"run {run_id}", detail, author, now_ms)


def approve(
    connection: Connection, cluster_id: str, run: DeletionRun, plan_hash: str, *, author: str, now_ms: int
) -> None:
    """See `DeletionStore.approve`."""
    if run.plan_hash != plan_hash:
        raise StateConflictError(f"run {run.run_id} has the plan {run.plan_hash}, approved was {plan_hash}")
    run.require_not_withdrawn()
    if run.approval is not None:
        return
    values = {
        "cluster_id": cluster_id,
        "run_id": run.run_id,
        "plan_hash": plan_hash,
        "author": stored_text(author),
        "approved_at_ms": now_ms,
    }
    connection.execute(_APPROVE, values)
    record_event(connection, cluster_id, "approval", f"run {run.run_id}", plan_hash, author, now_ms)


def withdraw(connection: Connection, cluster_id: str, run: DeletionRun, *, author: str, now_ms: int) -> bool:
    """Whether it was not withdrawn before; see `DeletionStore.withdraw`. What it planned is left to the caller."""
    if run.withdrawal is not None:
        return False
    key = _key_of(cluster_id, run.run_id)
    connection.execute(_WITHDRAW, key | {"withdrawn_at_ms": now_ms, "withdrawn_by": stored_text(author)})
    connection.execute(_TAKE_LEASES_AWAY, key)
    record_event(connection, cluster_id, "withdrawal", f"run {run.run_id}", run.plan_hash, author, now_ms)
    return True


def _unknown(run_id: str) -> StateConflictError:
    return StateConflictError(f"no run {run_id} that deletes was planned")


def _key_of(cluster_id: str, run_id: str) -> dict[str, str]:
    return {"of_cluster": cluster_id, "of_run": run_id}
