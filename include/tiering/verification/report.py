"""What the quality gate found."""

from collections.abc import Sequence

from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.presentation import Document, Presentation, Table, TopicNames, count
from include.tiering.segments.failed_copies import FailedCopy, failed_copies_table, failed_copy_document
from include.tiering.units import format_bytes
from include.tiering.verification.judge import QualityFinding
from include.tiering.verification.rules import NOT_OPENED
from include.tiering.verification.verify_segments import VerifyReport


def present_verify(report: VerifyReport, failed_copies: Sequence[FailedCopy] = ()) -> Presentation:
    """`failed_copies` are all segments that failed and have no new copy yet, whoever verified them."""
    bad = {finding.segment_id for finding in report.failed}
    summary = (
        f"verified {count(report.segments, 'segment')}: {report.segments - len(bad)} passed, {len(bad)} failed, "
        f"{count(len(report.warnings), 'warning')}; read {format_bytes(report.bytes_read)}"
    )
    if not_opened := _not_opened(report):
        summary += f"; {count(len(not_opened), 'segment')} with batches too large to be opened"
    if report.gone:
        summary += f"; {count(report.gone, 'segment')} went meanwhile"
    return Presentation(
        lambda: _document(report, failed_copies),
        lambda: (*_tables(report), *failed_copies_table(failed_copies)),
        summary,
        ok=not report.failed,
    )


def _document(report: VerifyReport, failed_copies: Sequence[FailedCopy]) -> Document:
    return {
        "segments": report.segments,
        "failed": [_finding(finding) for finding in report.failed],
        "warnings": [_finding(finding) for finding in report.warnings],
        "not_opened": [_finding(finding) for finding in _not_opened(report)],
        "bytes_read": report.bytes_read,
        "not_served": [failed_copy_document(copy) for copy in failed_copies],
    }


def _not_opened(report: VerifyReport) -> list[QualityFinding]:
    """Those of the warnings that name batches too large to be opened. No segment fails by that."""
    return [finding for finding in report.warnings if finding.rule == NOT_OPENED]


def _finding(finding: QualityFinding) -> Document:
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


def _tables(report: VerifyReport) -> tuple[Table, ...]:
    named = (("failed", report.failed), ("warnings", report.warnings))
    names = TopicNames()
    for finding in (*report.failed, *report.warnings):
        names.add(finding.topic, finding.topic_id)
    return tuple(
        Table(title, _COLUMNS, tuple(_row(one, names) for one in findings)) for title, findings in named if findings
    )


_COLUMNS = ("partition", "start offset>", "segment id", "rule", "message")


def _row(finding: QualityFinding, names: TopicNames) -> tuple[str, ...]:
    topic_id = Uuid.parse(finding.topic_id)
    partition = names.partition(TopicIdPartition(topic_id, finding.partition, finding.topic))
    return (partition, str(finding.start_offset), finding.segment_id, finding.rule, finding.message)
