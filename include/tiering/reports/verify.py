"""What the quality gate found."""

from collections.abc import Sequence
from typing import Protocol

from include.tiering.reports.presentation import Document, Presentation, Table, count
from include.tiering.units import format_bytes


class Finding(Protocol):
    """One broken rule of one segment. Ids as Kafka prints them; `start_offset` is inclusive."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def segment_id(self) -> str: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def rule(self) -> str: ...
    @property
    def level(self) -> str: ...
    @property
    def message(self) -> str: ...


class Verification(Protocol):
    """One call of the gate: segments judged, rules that fail a segment, rules that only warn, bytes read back."""

    @property
    def segments(self) -> int: ...
    @property
    def failed(self) -> Sequence[Finding]: ...
    @property
    def warnings(self) -> Sequence[Finding]: ...
    @property
    def bytes_read(self) -> int: ...


def present_verify(report: Verification) -> Presentation:
    bad = {finding.segment_id for finding in report.failed}
    summary = (
        f"verified {count(report.segments, 'segment')}: {report.segments - len(bad)} passed, {len(bad)} failed, "
        f"{count(len(report.warnings), 'warning')}; read {format_bytes(report.bytes_read)}"
    )
    return Presentation(lambda: _document(report), lambda: _tables(report), summary, ok=not report.failed)


def _document(report: Verification) -> Document:
    return {
        "segments": report.segments,
        "failed": [_finding(finding) for finding in report.failed],
        "warnings": [_finding(finding) for finding in report.warnings],
        "bytes_read": report.bytes_read,
    }


def _finding(finding: Finding) -> Document:
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


def _tables(report: Verification) -> tuple[Table, ...]:
    named = (("failed", report.failed), ("warnings", report.warnings))
    return tuple(Table(title, _COLUMNS, tuple(map(_row, findings))) for title, findings in named if findings)


_COLUMNS = ("partition", "start offset>", "segment id", "rule", "message")


def _row(finding: Finding) -> tuple[str, ...]:
    partition = f"{finding.topic}-{finding.partition}"
    return (partition, str(finding.start_offset), finding.segment_id, finding.rule, finding.message)
