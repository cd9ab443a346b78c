"""The reports of an audit and of its removals, and the question that a person answers to approve the removals."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.plan_removals import RemovalItem, RemovalOutcome, RemovalPlan, WithdrawnRemovals
from include.tiering.audit.record import AuditRecord, AuditTally, FindingState, RecordedFinding
from include.tiering.configs.rules import Loosening
from include.tiering.presentation import Presentation, Table, TopicNames, count
from include.tiering.remote_storage.store_ownership import unclaimed_withdrawal
from include.tiering.runs.approval import ApprovalQuestion, loosened_lines
from include.tiering.runs.deletion_limits import DeletionLimitReport
from include.tiering.units import format_bytes

_MOST_ROWS: Final = 200
_SHARES: Final = ("topic", "planned>", "share with last 24 h>", "last 24 h>")
HARMLESS: Final = (FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER)
"""Normal in a bucket that keeps versions: they use space and need no decision."""


class FindingDocument(TypedDict):
    """A difference between the store and the metadata; what is not known, or does not apply, is null."""

    kind: str
    key: str
    segment_id: str | None
    bytes: int
    message: str
    topic: str | None
    topic_id: str | None
    partition: int | None
    start_offset: int | None
    end_offset: int | None
    version_id: str | None
    upload_id: str | None
    last_modified_ms: int | None
    finding_id: int
    state: str
    first_seen_ms: int
    last_seen_ms: int


class AuditRefusalDocument(TypedDict):
    """The objection of a guard: why no object may be removed after this audit."""

    guard: str
    message: str


class TopicShareDocument(TypedDict):
    """Which share of a topic's bytes the removal and the deletions of the last 24 hours take together, 0 to 1."""

    topic: str
    topic_id: str
    share: float


class RemovalItemDocument(TypedDict):
    """A planned removal of an orphan object, open upload, old version or delete marker, and its outcome."""

    kind: str
    key: str
    segment_id: str
    bytes: int
    outcome: str
    message: str | None


class RemovalDocument(TypedDict):
    """The removal of orphan objects; `spared` counts, by reason, findings that the plan leaves out."""

    run_id: str
    plan_hash: str
    needs_approval: bool
    reasons: list[str]
    approved_by: str | None
    refusal: str | None
    bytes: int
    spared: dict[str, int]
    shares: list[TopicShareDocument]
    removals: list[RemovalItemDocument]


class AuditDocument(TypedDict):
    """An audit. `removal` is null if no removal was asked for.

    `new` counts the findings that are new or open again, `gone` those that this audit set to gone.
    """

    run_id: str
    source: str
    objects: int
    rows: int
    findings: list[FindingDocument]
    new: int | None
    gone: int | None
    passed_over: dict[str, int]
    refusals: list[AuditRefusalDocument]
    removal: RemovalDocument | None


class AcceptedDocument(TypedDict):
    """Findings that a person has just accepted: they do not fail later audits."""

    accepted: list[FindingDocument]


class UnsettledDocument(TypedDict):
    """An object of which it is not known whether it was removed."""

    key: str
    kind: str
    message: str | None


class WithdrawnRemovalsDocument(TypedDict):
    """A withdrawn run of removals.

    `not_claimed` says why the store could not be claimed for this database: then a copy of the database could still
    carry out the run. It is null if the store was claimed.
    """

    run_id: str
    plan_hash: str
    withdrawn_by: str | None
    withdrawn_at_ms: int | None
    kept: int
    removed: int
    unsettled: list[UnsettledDocument]
    not_claimed: str | None


@dataclass(frozen=True, slots=True)
class RemovalRun:
    """A removal run with its current outcomes. `refusal` says why nothing was removed; None if nothing was refused."""

    plan: RemovalPlan
    limit_report: DeletionLimitReport
    items: Sequence[RemovalItem] = ()
    refusal: str | None = None

    def of(self, outcome: RemovalOutcome) -> list[RemovalItem]:
        return [item for item in self.items if item.outcome is outcome]


@dataclass(frozen=True, slots=True)
class AuditRun:
    """One audit with the current state of its findings.

    `tally` has how many findings are new and how many are gone; it is None if the findings are not those of an audit
    that just ended, but were read again. `removal` is None if no removals were requested.
    """

    record: AuditRecord
    findings: Sequence[RecordedFinding]
    tally: AuditTally | None = None
    removal: RemovalRun | None = None

    @property
    def for_a_person(self) -> list[RecordedFinding]:
        """Return the open findings that need a decision."""
        return [
            finding
            for finding in self.findings
            if finding.state is FindingState.OPEN and finding.finding.kind not in HARMLESS
        ]


def present_audit(run: AuditRun) -> Presentation:
    """Present an audit.

    It is not `ok` if a finding needs a decision, if a guard forbids removals, or if a requested removal was refused or
    failed.
    """
    removal = run.removal
    refused = removal is not None and (removal.refusal is not None or bool(removal.of(RemovalOutcome.FAILED)))
    return Presentation(
        lambda: audit_document(run),
        lambda: _tables(run),
        _summary(run),
        ok=not refused and not run.for_a_person and not run.record.refusals,
    )


def present_accepted(accepted: Sequence[RecordedFinding]) -> Presentation:
    """Present findings that were just accepted."""
    rows = tuple((str(recorded.finding_id), str(recorded.finding.kind), recorded.finding.key) for recorded in accepted)
    return Presentation(
        lambda: AcceptedDocument(accepted=list(map(finding_document, accepted))),
        lambda: (Table("accepted", ("id>", "kind", "key"), rows),),
        f"{count(len(accepted), 'finding')} accepted: audits report them and no longer fail because of them",
    )


def removal_sentence(removals: int, size_bytes: int) -> str:
    """Return a text such as `3 objects (1.2 GiB)`."""
    return f"{count(removals, 'object')} ({format_bytes(size_bytes)})"


def _summary(run: AuditRun) -> str:
    seen = f"{count(run.record.objects, 'object')} compared with {count(run.record.rows, 'segment')}"
    kinds = Counter(finding.finding.kind for finding in run.findings if finding.state is FindingState.OPEN)
    found = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items())) or "no open finding"
    parts = [f"{seen}: {found}"]
    passed_over = sum(run.record.passed_over.values())
    if passed_over:
        reasons = ", ".join(f"{reason} {number}" for reason, number in sorted(run.record.passed_over.items()))
        parts.append(f"not classified: {reasons}")
    if adoptable := kinds[FindingKind.ADOPTABLE]:
        parts.append(
            f"{count(adoptable, 'complete copy', 'complete copies')} without metadata:"
            " ./tiering adopt --all --dry-run shows which can be adopted, and why others cannot"
        )
    if run.removal is not None:
        parts.append(_removal_summary(run.removal))
    return "; ".join(parts)


def _removal_summary(removal: RemovalRun) -> str:
    planned = removal_sentence(len(removal.plan.removals), removal.plan.size_bytes)
    if removal.refusal is not None:
        return f"nothing was removed: {removal.refusal}"
    if not removal.plan.removals:
        return "there is nothing to remove"
    removed = removal.of(RemovalOutcome.REMOVED)
    planned_still = len(removal.of(RemovalOutcome.PLANNED))
    return (
        f"of {planned} removed {len(removed)}, {len(removal.of(RemovalOutcome.GONE))} were gone,"
        f" {len(removal.of(RemovalOutcome.KEPT))} kept, {len(removal.of(RemovalOutcome.FAILED))} failed,"
        f" {planned_still} still planned"
    )


def audit_document(run: AuditRun) -> AuditDocument:
    return {
        "run_id": run.record.run_id,
        "source": str(run.record.source),
        "objects": run.record.objects,
        "rows": run.record.rows,
        "findings": [finding_document(finding) for finding in run.findings],
        "new": None if run.tally is None else run.tally.new,
        "gone": None if run.tally is None else run.tally.gone,
        "passed_over": {str(reason): number for reason, number in run.record.passed_over.items()},
        "refusals": [{"guard": str(refusal.guard), "message": refusal.sentence} for refusal in run.record.refusals],
        "removal": None if run.removal is None else _removal(run.removal),
    }


def finding_document(recorded: RecordedFinding) -> FindingDocument:
    """Return the JSON of a finding."""
    finding = recorded.finding
    return {
        "kind": str(finding.kind),
        "key": finding.key,
        "segment_id": None if finding.segment_id is None else str(finding.segment_id),
        "bytes": finding.size_bytes,
        "message": finding.message,
        "topic": finding.topic,
        "topic_id": None if finding.topic_id is None else str(finding.topic_id),
        "partition": finding.partition,
        "start_offset": finding.start_offset,
        "end_offset": finding.end_offset,
        "version_id": finding.version_id,
        "upload_id": finding.upload_id,
        "last_modified_ms": finding.last_modified_ms,
        "finding_id": recorded.finding_id,
        "state": str(recorded.state),
        "first_seen_ms": recorded.first_seen_ms,
        "last_seen_ms": recorded.last_seen_ms,
    }


def _removal(removal: RemovalRun) -> RemovalDocument:
    limit_report, plan = removal.limit_report, removal.plan
    return {
        "run_id": plan.run_id,
        "plan_hash": plan.plan_hash,
        "needs_approval": limit_report.needs_approval,
        "reasons": list(limit_report.reasons),
        "approved_by": None if limit_report.approval is None else limit_report.approval.author,
        "refusal": removal.refusal,
        "bytes": plan.size_bytes,
        "spared": {why.code: number for why, number in plan.spared.items()},
        "shares": [
            {"topic": action.topic, "topic_id": str(action.topic_id), "share": round(action.share, 6)}
            for action in limit_report.actions
        ],
        "removals": [
            {
                "kind": str(item.planned.kind),
                "key": item.planned.key,
                "segment_id": str(item.planned.segment_id.id),
                "bytes": item.planned.size_bytes,
                "outcome": str(item.outcome),
                "message": item.message,
            }
            for item in removal.items
        ],
    }


def _tables(run: AuditRun) -> tuple[Table, ...]:
    return (*_findings(run), *_refusals(run), *(_removal_tables(run.removal) if run.removal is not None else ()))


def _findings(run: AuditRun) -> tuple[Table, ...]:
    shown = [finding for finding in run.findings if finding.state in (FindingState.OPEN, FindingState.ACCEPTED)]
    rows = tuple(
        (
            str(recorded.finding_id),
            str(recorded.finding.kind)
            if recorded.state is FindingState.OPEN
            else f"{recorded.finding.kind} ({recorded.state})",
            recorded.finding.key,
            format_bytes(recorded.finding.size_bytes),
            recorded.finding.message,
        )
        for recorded in shown[:_MOST_ROWS]
    )
    if not rows:
        return ()
    more = f", the first {_MOST_ROWS} of {len(shown)} (all: --json)" if len(shown) > _MOST_ROWS else ""
    return (Table(f"findings{more}", ("id>", "kind", "key", "bytes>", "what"), rows),)


def _refusals(run: AuditRun) -> tuple[Table, ...]:
    rows = tuple((str(refusal.guard), refusal.sentence) for refusal in run.record.refusals)
    return (Table("nothing may be removed", ("guard", "why"), rows),) if rows else ()


def _removal_tables(removal: RemovalRun) -> tuple[Table, ...]:
    tables: list[Table] = []
    names = TopicNames()
    for action in removal.limit_report.actions:
        names.add(action.topic, action.topic_id)
    actions = tuple(
        (
            names.topic(action.topic, action.topic_id),
            format_bytes(action.planned_bytes),
            f"{action.share:.1%}",
            format_bytes(action.recent_bytes),
        )
        for action in removal.limit_report.actions
    )
    if actions:
        tables.append(Table(f"to remove, plan {removal.plan.plan_hash}", _SHARES, actions))
    if removal.limit_report.reasons and removal.limit_report.approval is None:
        reasons = tuple((reason,) for reason in removal.limit_report.reasons)
        tables.append(Table("needs an approval", ("because",), reasons))
    spared = tuple((str(why), str(number)) for why, number in removal.plan.spared.items())
    if spared:
        tables.append(Table("not planned", ("because", "findings>"), spared))
    stayed = (*removal.of(RemovalOutcome.KEPT), *removal.of(RemovalOutcome.FAILED))
    rows = tuple((str(item.outcome), item.planned.key, item.message or "") for item in stayed[:_MOST_ROWS])
    if rows:
        tables.append(Table("not removed", ("outcome", "key", "why"), rows))
    return tuple(tables)


_GONE = (RemovalOutcome.REMOVED, RemovalOutcome.GONE)


def present_withdrawn_removals(withdrawn: WithdrawnRemovals) -> Presentation:
    """Present a withdrawn run, always as `ok`. A running batch stops only before its next group of objects."""
    return Presentation(
        lambda: _withdrawal_document(withdrawn), lambda: _withdrawal_tables(withdrawn), _withdrawal_summary(withdrawn)
    )


def _withdrawal_summary(withdrawn: WithdrawnRemovals) -> str:
    stay, gone = _amount(withdrawn.of(RemovalOutcome.KEPT)), _amount(withdrawn.of(*_GONE))
    failed = withdrawn.of(RemovalOutcome.FAILED)
    begun = f"; the next audit reports what is left of {_amount(failed)}" if failed else ""
    unclaimed = unclaimed_withdrawal(withdrawn.not_claimed)
    return f"run {withdrawn.run.run_id} is withdrawn: {stay} stay, {gone} were already gone{begun}{unclaimed}"


def _withdrawal_document(withdrawn: WithdrawnRemovals) -> WithdrawnRemovalsDocument:
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


def _withdrawal_tables(withdrawn: WithdrawnRemovals) -> tuple[Table, ...]:
    rows = tuple(
        (str(item.planned.kind), item.planned.key, item.message or "") for item in withdrawn.of(RemovalOutcome.FAILED)
    )
    return (Table("removal may have begun", ("kind", "key", "why"), rows),) if rows else ()


def _amount(items: Sequence[RemovalItem]) -> str:
    return removal_sentence(len(items), sum(item.planned.size_bytes for item in items))


_MOST: Final = 50
_SHORT_HASH: Final = 12


def removal_question(
    plan: RemovalPlan, limit_report: DeletionLimitReport, loosened: Sequence[Loosening] = ()
) -> ApprovalQuestion:
    """Return the question for a plan.

    It has the plan's hash, at most 50 reasons for which the plan needs an approval, and the 50 topics with the most
    planned bytes, each topic with the key of one object. `loosened` are changes of deletion limits by which more may
    be deleted, oldest first.
    """
    what = removal_sentence(len(plan.removals), plan.size_bytes)
    segments = len({removal.segment_id for removal in plan.removals})
    headline = (
        f"Plan `{limit_report.plan_hash}` of run `{limit_report.run_id}` removes {what} of"
        f" {count(segments, 'segment id')} without metadata, found by audit `{plan.audit_run_id}`."
    )
    lines = [
        headline,
        "",
        *(f"* {reason}" for reason in limit_report.reasons[:_MOST]),
        "",
        *loosened_lines(loosened),
        *_topics_asked_about(plan, limit_report),
        "",
        "Each object is checked again before its removal: if it was written again or has metadata by then, it stays.",
        "**Approve** releases exactly this plan. **Reject**, or no answer in time, removes nothing.",
    ]
    return ApprovalQuestion(
        f"Remove {what} without metadata? Plan {limit_report.plan_hash[:_SHORT_HASH]}", "\n".join(lines)
    )


def _topics_asked_about(plan: RemovalPlan, limit_report: DeletionLimitReport) -> Iterator[str]:
    kinds: dict[object, Counter[str]] = {}
    example: dict[object, str] = {}
    for removal in plan.removals:
        topic_id = removal.segment_id.topic_id_partition.topic_id
        kinds.setdefault(topic_id, Counter())[str(removal.kind)] += 1
        example.setdefault(topic_id, removal.key)
    names = TopicNames(removal.segment_id.topic_id_partition for removal in plan.removals)
    yield "| topic | planned bytes | share with the last 24 h | kinds | example |"
    yield "| --- | --- | --- | --- | --- |"
    for action in sorted(limit_report.actions, key=lambda each: (-each.planned_bytes, each.topic))[:_MOST]:
        counted = ", ".join(f"{kind} {number}" for kind, number in kinds.get(action.topic_id, Counter()).items())
        yield (
            f"| `{names.topic(action.topic, action.topic_id)}` | {format_bytes(action.planned_bytes)}"
            f" | {action.share:.1%} | {counted} | `{example.get(action.topic_id, '')}` |"
        )
    if len(limit_report.actions) > _MOST:
        yield ""
        yield f"and {count(len(limit_report.actions) - _MOST, 'more topic')}"
