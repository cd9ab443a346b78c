"""What a withdrawal of a run that deletes left of it."""

from collections.abc import Sequence

from include.tiering.presentation import Document, Presentation, Table, count, labels
from include.tiering.remote_storage.unclaimed import unclaimed_withdrawal
from include.tiering.runs.deletion_contract import DeletionItem, WithdrawnRun
from include.tiering.units import format_bytes


def present_withdrawal(withdrawn: WithdrawnRun) -> Presentation:
    """Always `ok`: whatever had gone, nothing more does."""
    return Presentation(lambda: _document(withdrawn), lambda: _tables(withdrawn), _summary(withdrawn))


def _summary(withdrawn: WithdrawnRun) -> str:
    begun = f"; {_amount(withdrawn.begun)} begun: the next run ends them" if withdrawn.begun else ""
    stay, gone = _amount(withdrawn.kept), _amount(withdrawn.deleted)
    unclaimed = unclaimed_withdrawal(withdrawn.not_claimed)
    return f"run {withdrawn.run.run_id} is withdrawn: {stay} stay, {gone} had gone already{begun}{unclaimed}"


def _document(withdrawn: WithdrawnRun) -> Document:
    run = withdrawn.run
    return {
        "run_id": run.run_id,
        "plan_hash": run.plan_hash,
        "withdrawn_by": None if run.withdrawal is None else run.withdrawal.author,
        "withdrawn_at_ms": None if run.withdrawal is None else run.withdrawal.withdrawn_at_ms,
        "kept": len(withdrawn.kept),
        "kept_bytes": _bytes(withdrawn.kept),
        "deleted": len(withdrawn.deleted),
        "deleted_bytes": _bytes(withdrawn.deleted),
        "begun": [_segment(item) for item in withdrawn.begun],
        "begun_bytes": _bytes(withdrawn.begun),
        "not_claimed": withdrawn.not_claimed,
    }


def _tables(withdrawn: WithdrawnRun) -> tuple[Table, ...]:
    rows = tuple(
        (
            str(item.planned.segment_id.topic_id_partition),
            f"{item.planned.start_offset}..{item.planned.end_offset}",
            format_bytes(item.planned.size_bytes),
        )
        for item in withdrawn.begun
    )
    return (Table("begun: the next run ends them", ("partition", "offsets", "bytes>"), rows),) if rows else ()


def _segment(item: DeletionItem) -> Document:
    planned = item.planned
    return {
        **labels(planned.segment_id.topic_id_partition),
        "segment_id": str(planned.segment_id.id),
        "start_offset": planned.start_offset,
        "end_offset": planned.end_offset,
        "bytes": planned.size_bytes,
    }


def _amount(items: Sequence[DeletionItem]) -> str:
    return f"{count(len(items), 'segment')} ({format_bytes(_bytes(items))})"


def _bytes(items: Sequence[DeletionItem]) -> int:
    return sum(item.planned.size_bytes for item in items)
