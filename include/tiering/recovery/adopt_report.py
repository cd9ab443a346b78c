"""Copies that became segments without having been copied by this database, and those that did not."""

from collections.abc import Sequence
from typing import Final

from include.tiering.presentation import Document, Presentation, Table, count, labels
from include.tiering.recovery.adopt import AdoptionReport
from include.tiering.recovery.plan_adoption import AdoptionPlan, RefusedAttempt
from include.tiering.recovery.recovery_contract import StoredSegment
from include.tiering.units import format_bytes


def present_adopt(plan: AdoptionPlan, report: AdoptionReport | None, refusal: str | None) -> Presentation:
    """`report` is None where nothing was tried: a dry run (without `refusal`), or a refusal. Not `ok`: refused, or
    something that was asked for was not adopted."""
    refused = plan.refused if report is None else report.refused
    return Presentation(
        lambda: _document(plan, report, refusal),
        lambda: _tables(plan, report),
        _summary(plan, report, refusal),
        ok=refusal is None and not refused,
    )


def question(plan: AdoptionPlan) -> str:
    """What a person is to agree to."""
    return f"Adopt {_planned(plan)}?"


def _planned(plan: AdoptionPlan) -> str:
    partitions = count(len(plan.partitions), "partition")
    return f"{count(plan.segments, 'segment')} ({format_bytes(plan.size_bytes)}) of {partitions}"


def _summary(plan: AdoptionPlan, report: AdoptionReport | None, refusal: str | None) -> str:
    if refusal is not None:
        return f"nothing is adopted: {refusal}. {_planned(plan)} could be"
    if report is None:
        return f"{_planned(plan)} could be adopted, {len(plan.refused)} could not; nothing was changed"
    served = "; nothing of it is served before ./tiering verify passed it" if report.adopted else ""
    return f"adopted {count(len(report.adopted), 'segment')}, {len(report.refused)} refused{served}"


def _document(plan: AdoptionPlan, report: AdoptionReport | None, refusal: str | None) -> Document:
    return {
        "adoptable": [_segment(one) for one in _adoptable(plan)],
        "adopted": [] if report is None else [_segment(one) for one in report.adopted],
        "refused": [_refused(one) for one in (plan.refused if report is None else report.refused)],
        "refusal": refusal,
    }


def _adoptable(plan: AdoptionPlan) -> list[StoredSegment]:
    return [each for one in plan.partitions for each in one.segments]


def _segment(one: StoredSegment) -> Document:
    metadata = one.metadata
    return {
        **labels(metadata.topic_id_partition),
        "segment_id": str(metadata.remote_log_segment_id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "bytes": metadata.segment_size_bytes,
    }


def _refused(one: RefusedAttempt) -> Document:
    where = one.topic_id_partition
    named = {"topic": None, "topic_id": None, "partition": None} if where is None else labels(where)
    return {
        **named,
        "segment_id": str(one.segment_id),
        "start_offset": one.start_offset,
        "error": one.error,
        "message": one.message,
    }


def _tables(plan: AdoptionPlan, report: AdoptionReport | None) -> tuple[Table, ...]:
    title, segments = ("adoptable", _adoptable(plan)) if report is None else ("adopted", report.adopted)
    refused = plan.refused if report is None else report.refused
    tables = (Table(title, _COLUMNS, _rows(segments)), Table("refused", _REFUSED_COLUMNS, _refused_rows(refused)))
    return tuple(table for table in tables if table.rows)


_COLUMNS: Final = ("partition", "segment id", "offsets", "bytes>")
_REFUSED_COLUMNS: Final = ("partition", "segment id", "start offset>", "why")


def _rows(segments: Sequence[StoredSegment]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            str(one.metadata.topic_id_partition),
            str(one.metadata.remote_log_segment_id.id),
            f"{one.metadata.start_offset}..{one.metadata.end_offset}",
            format_bytes(one.metadata.segment_size_bytes),
        )
        for one in segments
    )


def _refused_rows(refused: Sequence[RefusedAttempt]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            "" if one.topic_id_partition is None else str(one.topic_id_partition),
            str(one.segment_id),
            "" if one.start_offset is None else str(one.start_offset),
            one.message,
        )
        for one in refused
    )
