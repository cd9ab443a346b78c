"""Reports of a verification plan, with its estimated cost, and of the findings of a verification."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from include.tiering.model.reasons import ReasonMembers, reason_members
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.presentation import Presentation, Table, TopicNames, count
from include.tiering.segments.failed_copies import (
    FailedCopy,
    FailedCopyDocument,
    failed_copies_table,
    failed_copy_document,
)
from include.tiering.units import format_bytes, format_duration
from include.tiering.verification.plan import VerificationPlan, VerificationReason
from include.tiering.verification.rules import NOT_OPENED, QualityFinding

if TYPE_CHECKING:
    from include.tiering.verification.verify_segments import VerifyReport


class ReasonShare(ReasonMembers):
    """How many segments are verified for one reason."""

    segments: int


class TopicShare(TypedDict):
    """How much of one topic is verified."""

    topic: str
    segments: int
    bytes: int


class VerificationPlanDocument(TypedDict):
    """What a verification would read. `of_segments` and `of_bytes` are what it chooses from.

    `bytes`, `requests` and `seconds` are estimates of what is read from the store, of the requests to it, and of the
    time at the fetch quota (null without a quota). `left_out` segments exceed the limit and wait for the next run.
    `read_back_bytes` are read in addition, for checksums that the store does not keep; no quota counts them.
    """

    depth: str
    segments: int
    of_segments: int
    bytes: int
    of_bytes: int
    requests: int
    read_back_bytes: int
    seconds: float | None
    left_out: int
    reasons: list[ReasonShare]
    topics: list[TopicShare]


class QualityFindingDocument(TypedDict):
    """A rule that a segment or a partition broke; `segment_id` is null if it is about a whole partition."""

    topic: str
    topic_id: str
    partition: int
    segment_id: str | None
    start_offset: int | None
    rule: str
    level: str
    message: str


class VerificationDocument(TypedDict):
    """The result of a verification; `not_served` are all segments that failed, in any run, without a new copy."""

    segments: int
    failed: list[QualityFindingDocument]
    warnings: list[QualityFindingDocument]
    not_opened: list[QualityFindingDocument]
    bytes_read: int
    not_served: list[FailedCopyDocument]


def present_plan(plan: VerificationPlan) -> Presentation:
    """Present a plan before its run starts."""
    return Presentation(lambda: _plan_document(plan), lambda: _plan_tables(plan), cost_sentence(plan))


def cost_sentence(plan: VerificationPlan) -> str:
    """Return a text such as `12 of 300 segments, deep: about 1.2 GiB in 72 requests, 3m 00s at the fetch quota`."""
    if not plan.planned:
        return f"nothing to verify: none of {count(plan.segments, 'segment')} is due or requested" + _left_out(plan)
    cost = plan.cost
    back = format_bytes(cost.read_back_bytes)
    read_back = f"; {back} more for checksums that the store does not keep" if cost.read_back_bytes else ""
    takes = "no fetch quota" if cost.seconds is None else f"{format_duration(cost.seconds)} at the fetch quota"
    return (
        f"{len(plan.planned):,} of {count(plan.segments, 'segment')}, {plan.depth}: about "
        f"{format_bytes(cost.read_bytes)} in {count(cost.requests, 'request')}, {takes}{read_back}" + _left_out(plan)
    )


def _left_out(plan: VerificationPlan) -> str:
    return f"; {count(plan.left_out, 'segment')} beyond the limit wait for the next run" if plan.left_out else ""


def _plan_document(plan: VerificationPlan) -> VerificationPlanDocument:
    return {
        "depth": str(plan.depth),
        "segments": len(plan.planned),
        "of_segments": plan.segments,
        "bytes": plan.cost.read_bytes,
        "of_bytes": plan.size_bytes,
        "requests": plan.cost.requests,
        "read_back_bytes": plan.cost.read_back_bytes,
        "seconds": None if plan.cost.seconds is None else round(plan.cost.seconds, 1),
        "left_out": plan.left_out,
        "reasons": [{**reason_members(reason), "segments": segments} for reason, segments, _ in _by_reason(plan)],
        "topics": [
            {"topic": topic, "segments": segments, "bytes": size_bytes}
            for topic, segments, size_bytes in _by_topic(plan)
        ],
    }


def _plan_tables(plan: VerificationPlan) -> tuple[Table, ...]:
    if not plan.planned:
        return ()
    columns = ("segments>", "to be read>")
    return tuple(
        Table(title, (head, *columns), tuple((str(name), f"{n:,}", format_bytes(size)) for name, n, size in rows))
        for title, head, rows in (
            ("why", "reason", _by_reason(plan)),
            ("to be verified", "topic", _by_topic(plan)),
        )
    )


def _by_reason(plan: VerificationPlan) -> list[tuple[VerificationReason, int, int]]:
    """Return reason, segments and bytes, the most urgent reason first."""
    segments: Counter[VerificationReason] = Counter()
    size_bytes: Counter[VerificationReason] = Counter()
    for verification in plan.planned:
        segments[verification.reason] += 1
        size_bytes[verification.reason] += verification.planned_bytes
    return [(reason, segments[reason], size_bytes[reason]) for reason in VerificationReason if segments[reason]]


def _by_topic(plan: VerificationPlan) -> list[tuple[str, int, int]]:
    names = TopicNames(verification.segment_id.topic_id_partition for verification in plan.planned)
    segments: Counter[str] = Counter()
    size_bytes: Counter[str] = Counter()
    for verification in plan.planned:
        partition = verification.segment_id.topic_id_partition
        topic = names.topic(partition.topic, partition.topic_id)
        segments[topic] += 1
        size_bytes[topic] += verification.planned_bytes
    return [(topic, segments[topic], size_bytes[topic]) for topic in sorted(segments)]


def present_verify(report: "VerifyReport", failed_copies: Sequence[FailedCopy] = ()) -> Presentation:
    """Present a verification. `failed_copies` are all segments that failed, in any run, and have no new copy yet."""
    failed = len({finding.segment_id for finding in report.failed}) - report.failed_beside
    rules = "by rules about whole partitions"
    only = f" ({report.failed_in_partition} only {rules})" if report.failed_in_partition else ""
    summary = (
        f"verified {count(report.segments, 'segment')}: {report.segments - failed} passed, {failed} failed{only}, "
        f"{count(len(report.warnings), 'warning')}; read {format_bytes(report.bytes_read)}"
    )
    if report.failed_beside:
        summary += f"; {count(report.failed_beside, 'segment')} beside these failed {rules}"
    if not_opened := _not_opened(report):
        summary += f"; {count(len(not_opened), 'segment')} with batches too large to be opened"
    if report.gone:
        summary += f"; {count(report.gone, 'segment')} deleted meanwhile"
    return Presentation(
        lambda: _document(report, failed_copies),
        lambda: (*_tables(report), *failed_copies_table(failed_copies)),
        summary,
        ok=not report.failed,
    )


def _document(report: "VerifyReport", failed_copies: Sequence[FailedCopy]) -> VerificationDocument:
    return {
        "segments": report.segments,
        "failed": [_finding(finding) for finding in report.failed],
        "warnings": [_finding(finding) for finding in report.warnings],
        "not_opened": [_finding(finding) for finding in _not_opened(report)],
        "bytes_read": report.bytes_read,
        "not_served": [failed_copy_document(copy) for copy in failed_copies],
    }


def _not_opened(report: "VerifyReport") -> list[QualityFinding]:
    """Return the warnings about batches too large to be opened. They fail no segment."""
    return [finding for finding in report.warnings if finding.rule == NOT_OPENED]


def _finding(finding: QualityFinding) -> QualityFindingDocument:
    return {
        "topic": finding.topic,
        "topic_id": finding.topic_id,
        "partition": finding.partition,
        "segment_id": finding.segment_id,
        "start_offset": finding.start_offset,
        "rule": finding.rule,
        "level": str(finding.level),
        "message": finding.message,
    }


def _tables(report: "VerifyReport") -> tuple[Table, ...]:
    named = (("failed", report.failed), ("warnings", report.warnings))
    names = TopicNames()
    for finding in (*report.failed, *report.warnings):
        names.add(finding.topic, finding.topic_id)
    return tuple(
        Table(title, _COLUMNS, tuple(_row(found, names) for found in findings)) for title, findings in named if findings
    )


_COLUMNS = ("partition", "start offset>", "segment id", "rule", "message")


def _row(finding: QualityFinding, names: TopicNames) -> tuple[str, ...]:
    topic_id = Uuid.parse(finding.topic_id)
    partition = names.partition(TopicIdPartition(topic_id, finding.partition, finding.topic))
    return (partition, str(finding.start_offset), finding.segment_id, finding.rule, finding.message)
