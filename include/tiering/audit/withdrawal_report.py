"""What a withdrawal of a run that removes orphans left of it."""

from collections.abc import Sequence

from include.tiering.audit.removal_contract import RemovalItem, RemovalOutcome, WithdrawnRemovals
from include.tiering.audit.report import removal_sentence
from include.tiering.presentation import Document, Presentation, Table
from include.tiering.remote_storage.unclaimed import unclaimed_withdrawal

_GONE = (RemovalOutcome.REMOVED, RemovalOutcome.GONE)


def present_withdrawn_removals(withdrawn: WithdrawnRemovals) -> Presentation:
    """Always `ok`: whatever had gone, nothing more does."""
    return Presentation(lambda: _document(withdrawn), lambda: _tables(withdrawn), _summary(withdrawn))


def _summary(withdrawn: WithdrawnRemovals) -> str:
    stay, gone = _amount(withdrawn.of(RemovalOutcome.KEPT)), _amount(withdrawn.of(*_GONE))
    failed = withdrawn.of(RemovalOutcome.FAILED)
    begun = f"; of {_amount(failed)} the next audit says what is left" if failed else ""
    unclaimed = unclaimed_withdrawal(withdrawn.not_claimed)
    return f"run {withdrawn.run.run_id} is withdrawn: {stay} stay, {gone} had gone already{begun}{unclaimed}"


def _document(withdrawn: WithdrawnRemovals) -> Document:
    run = withdrawn.run
    return {
        "run_id": run.run_id,
        "plan_hash": run.plan_hash,
        "withdrawn_by": None if run.withdrawal is None else run.withdrawal.author,
        "withdrawn_at_ms": None if run.withdrawal is None else run.withdrawal.withdrawn_at_ms,
        "kept": len(withdrawn.of(RemovalOutcome.KEPT)),
        "removed": len(withdrawn.of(*_GONE)),
        "unsettled": [
            {"key": item.planned.key, "kind": str(item.planned.kind), "message": item.message}
            for item in withdrawn.of(RemovalOutcome.FAILED)
        ],
        "not_claimed": withdrawn.not_claimed,
    }


def _tables(withdrawn: WithdrawnRemovals) -> tuple[Table, ...]:
    rows = tuple(
        (str(item.planned.kind), item.planned.key, item.message or "") for item in withdrawn.of(RemovalOutcome.FAILED)
    )
    return (Table("not settled", ("kind", "key", "why"), rows),) if rows else ()


def _amount(items: Sequence[RemovalItem]) -> str:
    return removal_sentence(len(items), sum(item.planned.size_bytes for item in items))
