"""What the source holds, segment by segment, and why a segment may not be copied."""

from collections import Counter

from include.tiering.kafka.log_dirs.contract import (
    BoundsQuality,
    IneligibleReason,
    LogSegment,
    Replica,
    ScanReport,
    error_document,
    error_table,
    note_table,
    notes_member,
)
from include.tiering.presentation import Document, Presentation, Table, count, epoch_pairs, labels
from include.tiering.units import format_bytes


def present_scan(report: ScanReport) -> Presentation:
    """Every replica is listed; only the chosen one of a partition has eligible segments."""
    segments = [segment for replica in report.replicas for segment in replica.segments]
    eligible = [segment for segment in segments if segment.eligible]
    summary = (
        f"{count(len(report.replicas), 'replica')}, {count(len(segments), 'segment')}, {len(eligible):,} eligible "
        f"({format_bytes(sum(segment.size_bytes for segment in eligible))}), {count(len(report.errors), 'error')}"
    )
    return Presentation(
        lambda: scan_document(report),
        lambda: _tables(report),
        summary,
        ok=not report.errors and not _is_damaged(segments),
    )


def scan_document(report: ScanReport) -> Document:
    return {
        "cluster_id": report.cluster_id,
        "partitions": [_replica(replica) for replica in report.replicas],
        "errors": [error_document(error) for error in report.errors],
        **notes_member(report.notes),
    }


def _replica(replica: Replica) -> Document:
    return {
        "broker_id": replica.replica_id.broker_id,
        "directory_id": replica.replica_id.directory_id,
        **labels(replica.topic_id_partition),
        "chosen": replica.chosen,
        "log_start_offset": replica.log_start_offset,
        "log_end_offset": replica.log_end_offset,
        "high_watermark": replica.high_watermark,
        "last_stable_offset": replica.last_stable_offset,
        "bounds": str(replica.bounds),
        "leader_epochs": epoch_pairs(replica.leader_epochs),
        "segments": [_segment(segment) for segment in replica.segments],
    }


def _segment(segment: LogSegment) -> Document:
    document: Document = {
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "size_bytes": segment.size_bytes,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "leader_epochs": epoch_pairs(segment.leader_epochs),
        "active": segment.active,
        "eligible": segment.eligible,
        "reason": None if segment.reason is None else str(segment.reason),
    }
    if segment.batch_count is not None:
        document["batch_count"] = segment.batch_count
    return document


_COLUMNS = (
    "partition",
    "broker>",
    "log start>",
    "high watermark>",
    "last stable>",
    "eligible>",
    "bytes>",
    "not eligible",
)


def _tables(report: ScanReport) -> tuple[Table, ...]:
    partitions = Table("partitions", _COLUMNS, tuple(map(_row, report.replicas)))
    return (partitions, *error_table(report.errors), *note_table(report.notes))


def _row(replica: Replica) -> tuple[str, ...]:
    """Bounds that may be higher in truth are marked `>=`."""
    eligible = [segment for segment in replica.segments if segment.eligible]
    reasons = Counter(str(segment.reason) for segment in replica.segments if segment.reason is not None)
    at_least = ">=" if replica.bounds is BoundsQuality.LOWER else ""
    return (
        str(replica.topic_id_partition),
        str(replica.replica_id.broker_id),
        str(replica.log_start_offset),
        f"{at_least}{replica.high_watermark}",
        f"{at_least}{replica.last_stable_offset}",
        f"{len(eligible)} of {len(replica.segments)}",
        format_bytes(sum(segment.size_bytes for segment in eligible)),
        ", ".join(f"{number} {reason}" for reason, number in reasons.items()),
    )


def _is_damaged(segments: list[LogSegment]) -> bool:
    return any(segment.reason in (IneligibleReason.CORRUPT, IneligibleReason.AFTER_CORRUPT) for segment in segments)
