"""Reports of expiration: a run with the result of its deletion limits, a withdrawal, and a raised log start."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from include.tiering.errors import UnprovedReplacementError
from include.tiering.expiration.documents import (
    DecisionDocument,
    ExpirationDocument,
    SegmentDocument,
    ShareDocument,
    TruncationDocument,
    WithdrawalDocument,
)
from include.tiering.expiration.plan import HeldSegments, Unknown, WaitingPartition
from include.tiering.expiration.truncation import Truncation
from include.tiering.model.reasons import reason_members
from include.tiering.model.segments import TopicIdPartition
from include.tiering.presentation import Presentation, Table, TopicNames, count, labels
from include.tiering.remote_storage.store_ownership import unclaimed_withdrawal
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from include.tiering.runs.deletion_run import (
    DeletionItem,
    DeletionOutcome,
    DeletionRun,
    PlannedExpiration,
    WithdrawnRun,
)
from include.tiering.units import format_bytes, format_utc


@dataclass(frozen=True, slots=True)
class ExpireRun:
    """The state of a run. `items` holds every planned deletion once.

    `limit_report` is None if only the stored result of the limits is known. `refusal` says why nothing may be deleted;
    None if nothing was refused. `shared_names` are names that several topics of the database have.
    """

    run: DeletionRun
    expirations: Sequence[PlannedExpiration]
    items: Sequence[DeletionItem]
    limit_report: DeletionLimitReport | None = None
    unknowns: Sequence[Unknown] = ()
    waiting: Sequence[WaitingPartition] = ()
    refusal: str | None = None
    held: Sequence[HeldSegments] = ()
    shared_names: Collection[str] = ()

    def of(self, outcome: DeletionOutcome) -> list[DeletionItem]:
        return [item for item in self.items if item.outcome is outcome]

    @property
    def unproved(self) -> list[DeletionItem]:
        """Superseded segments and abandoned copies whose deletion `ReplacementCheck` forbade."""
        return [item for item in self.of(DeletionOutcome.SKIPPED) if item.error == UnprovedReplacementError.__name__]

    @property
    def needs_approval(self) -> bool:
        """Whether the run needs an approval, as recorded; as `limit_report` says if nothing is recorded (a dry run).

        True if neither is known.
        """
        if self.run.needs_approval is None and self.limit_report is not None:
            return self.limit_report.needs_approval
        return self.run.needs_approval is not False

    @property
    def reasons(self) -> Sequence[str]:
        return () if self.limit_report is None else self.limit_report.reasons


def present_expire(run: ExpireRun) -> Presentation:
    """Present a run. It is not `ok` if it was refused or withdrawn, a deletion failed, or segments are `unproved`."""
    ok = run.refusal is None and run.run.withdrawal is None
    ok = ok and not run.of(DeletionOutcome.FAILED) and not run.unproved
    return Presentation(lambda: _document(run), lambda: _tables(run), _summary(run), ok=ok)


def planned_sentence(run: ExpireRun) -> str:
    """Return a text such as `3 segments (1.2 GiB) of 2 partitions`."""
    partitions = count(len(run.expirations), "partition")
    return f"{count(len(run.items), 'segment')} ({format_bytes(_bytes(run.items))}) of {partitions}"


def _summary(run: ExpireRun) -> str:
    if not run.items:
        return "nothing expires" if run.refusal is None else f"nothing expires by this plan, and {run.refusal}"
    if run.refusal is not None:
        return f"{planned_sentence(run)} would be deleted, nothing was deleted: {run.refusal}"
    if run.run.withdrawal is not None:
        deleted = run.of(DeletionOutcome.DELETED)
        gone = f"{count(len(deleted), 'segment')}, {format_bytes(_bytes(deleted))}"
        return f"withdrawn by {run.run.withdrawal.author}: {gone}, of {planned_sentence(run)}, had been deleted"
    deleted, failed = run.of(DeletionOutcome.DELETED), run.of(DeletionOutcome.FAILED)
    if not deleted and not failed:
        waits = ", and needs an approval" if run.needs_approval else ""
        return f"expires: {planned_sentence(run)}{waits} (plan {run.run.plan_hash})"
    return (
        f"deleted {count(len(deleted), 'segment')}, {format_bytes(_bytes(deleted))}; {len(failed)} failed,"
        f" {len(run.of(DeletionOutcome.SKIPPED))} skipped, {len(run.of(DeletionOutcome.PLANNED))} still planned"
    )


def _document(run: ExpireRun) -> ExpirationDocument:
    approval = run.run.approval
    return {
        "run_id": run.run.run_id,
        "plan_hash": run.run.plan_hash,
        "decisions": [_decision(item) for item in run.items],
        "log_start_offsets": [
            {
                **labels(expiration.topic_id_partition),
                "from": expiration.log_start_before,
                "to": expiration.log_start_offset,
            }
            for expiration in run.expirations
            if expiration.log_start_offset != expiration.log_start_before
        ],
        "shares": [] if run.limit_report is None else [_share(action) for action in run.limit_report.actions],
        "needs_approval": run.needs_approval,
        "reasons": list(run.reasons),
        "approved_by": None if approval is None else approval.author,
        "withdrawn_by": None if run.run.withdrawal is None else run.run.withdrawal.author,
        "refusal": run.refusal,
        "unknowns": [
            {**labels(partition.topic_id_partition), "message": partition.sentence} for partition in run.unknowns
        ],
        "waiting": [
            {**labels(partition.topic_id_partition), **reason_members(partition.reason), "detail": partition.detail}
            for partition in run.waiting
        ],
        "held": [
            {
                **labels(partition.topic_id_partition),
                "segments": partition.segments,
                "bytes": partition.size_bytes,
                "until_ms": partition.until_ms,
            }
            for partition in run.held
        ],
        "bytes": _bytes(run.items),
        "deleted_bytes": _bytes(run.of(DeletionOutcome.DELETED)),
    }


def _decision(item: DeletionItem) -> DecisionDocument:
    planned = item.planned
    partition = planned.segment_id.topic_id_partition
    document: DecisionDocument = {
        "topic": partition.topic,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "segment_id": str(planned.segment_id.id),
        "start_offset": planned.start_offset,
        "end_offset": planned.end_offset,
        "bytes": planned.size_bytes,
        "reason": planned.reason,
        "detail": planned.detail,
        "outcome": str(item.outcome),
    }
    if item.error is not None or item.message is not None:
        document["error"], document["message"] = item.error, item.message
    return document


def _share(action: TopicAction) -> ShareDocument:
    return {
        "topic": action.topic,
        "topic_id": str(action.topic_id),
        "share": round(action.share, 6),
        "planned_bytes": action.planned_bytes,
        "recent_bytes": action.recent_bytes,
        "remote_bytes": action.remote_bytes,
    }


def _tables(run: ExpireRun) -> tuple[Table, ...]:
    names = _names(run)
    parts = (_partitions, _shares, _failures, _skipped, _waiting, _held, _unknowns)
    return tuple(table for part in parts for table in part(run, names))


def _names(run: ExpireRun) -> TopicNames:
    partitions = (
        *(expiration.topic_id_partition for expiration in run.expirations),
        *(partition.topic_id_partition for partition in run.waiting),
        *(partition.topic_id_partition for partition in run.held),
        *(partition.topic_id_partition for partition in run.unknowns),
    )
    return TopicNames(partitions, shared=run.shared_names)


def _partitions(run: ExpireRun, names: TopicNames) -> tuple[Table, ...]:
    by_partition: dict[TopicIdPartition, list[DeletionItem]] = {}
    for item in run.items:
        by_partition.setdefault(item.planned.segment_id.topic_id_partition, []).append(item)
    rows = tuple(_row(expiration, by_partition[expiration.topic_id_partition], names) for expiration in run.expirations)
    columns = ("partition", "segments>", "bytes>", "why", "log start>", "deleted>")
    return (Table(f"expires, run {run.run.run_id}", columns, rows),) if rows else ()


def _row(planned: PlannedExpiration, items: Sequence[DeletionItem], names: TopicNames) -> tuple[str, ...]:
    reasons = Counter(item.planned.reason for item in items)
    moved = planned.log_start_offset != planned.log_start_before
    return (
        names.partition(planned.topic_id_partition),
        str(len(items)),
        format_bytes(_bytes(items)),
        ", ".join(f"{reason} {number}" for reason, number in reasons.items()),
        f"{planned.log_start_before} -> {planned.log_start_offset}" if moved else str(planned.log_start_offset),
        str(sum(item.outcome is DeletionOutcome.DELETED for item in items)),
    )


def _shares(run: ExpireRun, names: TopicNames) -> tuple[Table, ...]:
    if run.limit_report is None or not run.limit_report.actions:
        return ()
    rows = tuple(
        (
            names.topic(action.topic, action.topic_id),
            f"{action.share:.1%}",
            format_bytes(action.planned_bytes),
            format_bytes(action.recent_bytes),
            format_bytes(action.remote_bytes),
        )
        for action in run.limit_report.actions
    )
    shares = Table("share of each topic", ("topic", "share>", "planned>", "last 24 h>", "remote now>"), rows)
    reasons = tuple((reason,) for reason in run.reasons)
    return (shares, Table("needs an approval", ("because",), reasons)) if reasons else (shares,)


def _failures(run: ExpireRun, names: TopicNames) -> tuple[Table, ...]:
    return _of_outcome(run, names, DeletionOutcome.FAILED, "could not be deleted", "message")


def _skipped(run: ExpireRun, names: TopicNames) -> tuple[Table, ...]:
    return _of_outcome(run, names, DeletionOutcome.SKIPPED, "planned, and kept", "because")


def _of_outcome(run: ExpireRun, names: TopicNames, outcome: DeletionOutcome, title: str, why: str) -> tuple[Table, ...]:
    rows = tuple(
        (
            names.partition(item.planned.segment_id.topic_id_partition),
            f"{item.planned.start_offset}..{item.planned.end_offset}",
            item.message or item.error or "",
        )
        for item in run.of(outcome)
    )
    return (Table(title, ("partition", "offsets", why), rows),) if rows else ()


def _waiting(run: ExpireRun, names: TopicNames) -> tuple[Table, ...]:
    rows = tuple(
        (names.partition(partition.topic_id_partition), f"{partition.reason}: {partition.detail}")
        for partition in run.waiting
    )
    return (Table("waiting", ("partition", "why"), rows),) if rows else ()


def _held(run: ExpireRun, names: TopicNames) -> tuple[Table, ...]:
    rows = tuple(
        (
            names.partition(partition.topic_id_partition),
            str(partition.segments),
            format_bytes(partition.size_bytes),
            format_utc(partition.until_ms),
        )
        for partition in run.held
    )
    columns = ("partition", "segments>", "bytes>", "until")
    return (Table("superseded, held as evidence", columns, rows),) if rows else ()


def _unknowns(run: ExpireRun, names: TopicNames) -> tuple[Table, ...]:
    rows = tuple((names.partition(partition.topic_id_partition), partition.sentence) for partition in run.unknowns)
    return (Table("unknown, so less is deleted", ("partition", "what"), rows),) if rows else ()


def _bytes(items: Sequence[DeletionItem]) -> int:
    return sum(item.planned.size_bytes for item in items)


def present_withdrawal(withdrawn: WithdrawnRun) -> Presentation:
    """Present a withdrawal. It is always `ok`. A running batch stops only before its next group of segments."""
    return Presentation(
        lambda: _withdrawal_document(withdrawn), lambda: _withdrawal_tables(withdrawn), _withdrawal_summary(withdrawn)
    )


def _withdrawal_summary(withdrawn: WithdrawnRun) -> str:
    begun = f"; {_amount(withdrawn.begun)} begun: the next run completes them" if withdrawn.begun else ""
    stay, gone = _amount(withdrawn.kept), _amount(withdrawn.deleted)
    unclaimed = unclaimed_withdrawal(withdrawn.not_claimed)
    return f"run {withdrawn.run.run_id} is withdrawn: {stay} stay, {gone} had gone already{begun}{unclaimed}"


def _withdrawal_document(withdrawn: WithdrawnRun) -> WithdrawalDocument:
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


def _withdrawal_tables(withdrawn: WithdrawnRun) -> tuple[Table, ...]:
    rows = tuple(
        (
            str(item.planned.segment_id.topic_id_partition),
            f"{item.planned.start_offset}..{item.planned.end_offset}",
            format_bytes(item.planned.size_bytes),
        )
        for item in withdrawn.begun
    )
    return (Table("begun: the next run completes them", ("partition", "offsets", "bytes>"), rows),) if rows else ()


def _segment(item: DeletionItem) -> SegmentDocument:
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


def present_truncation(truncation: Truncation, refusal: str | None) -> Presentation:
    """Present a raised log start. It is not `ok` if it was refused; then nothing changed."""
    return Presentation(
        lambda: _truncation_document(truncation, refusal),
        lambda: (_truncation_table(truncation),),
        _truncation_summary(truncation, refusal),
        ok=refusal is None,
    )


def truncation_question(truncation: Truncation) -> str:
    return (
        f"Raise the log start of {truncation.topic_id_partition} from {truncation.log_start_before} to"
        f" {truncation.log_start_offset} for good? {_below(truncation)} the next expire"
    )


def _truncation_summary(truncation: Truncation, refusal: str | None) -> str:
    partition = truncation.topic_id_partition
    if refusal is not None:
        return f"the log start of {partition} stays at {truncation.log_start_before}: {refusal}"
    if truncation.log_start_offset == truncation.log_start_before:
        return f"the log start of {partition} is {truncation.log_start_before} already"
    return f"the log start of {partition} is {truncation.log_start_offset} now; {_below(truncation)} the next expire"


def _below(truncation: Truncation) -> str:
    verb = "goes" if truncation.segments == 1 else "go"
    return f"{count(truncation.segments, 'segment')} ({format_bytes(truncation.size_bytes)}) {verb} with"


def _truncation_document(truncation: Truncation, refusal: str | None) -> TruncationDocument:
    return {
        **labels(truncation.topic_id_partition),
        "from": truncation.log_start_before,
        "to": truncation.log_start_offset if refusal is None else truncation.log_start_before,
        "segments": truncation.segments,
        "bytes": truncation.size_bytes,
        "refusal": refusal,
    }


def _truncation_table(truncation: Truncation) -> Table:
    row = (
        str(truncation.topic_id_partition),
        str(truncation.log_start_before),
        str(truncation.log_start_offset),
        str(truncation.segments),
        format_bytes(truncation.size_bytes),
    )
    return Table("log start", ("partition", "before>", "requested>", "segments below>", "bytes>"), (row,))
