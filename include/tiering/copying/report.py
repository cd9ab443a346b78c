"""Reports of a scan (why segments may not be copied), of a plan (which partitions wait), and of a run's outcomes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from include.tiering.copying.documents import (
    CopiedSegmentDocument,
    CopyDocument,
    CopyPlanDocument,
    FailedSegmentDocument,
    HeldBackDocument,
    LeftSegmentDocument,
    LossDocument,
    OffsetsDocument,
    PlannedPartitionDocument,
    ScanDocument,
    ScannedReplicaDocument,
    ScannedSegmentDocument,
    unread_member,
    why_not_copied,
)
from include.tiering.copying.plan import CopyPlan, HeldBackPartition, LeftBecause, LeftPartition
from include.tiering.errors import QuotaExceededError
from include.tiering.kafka.log_dirs.contract import (
    BoundsQuality,
    LogSegment,
    Replica,
    ScanError,
    ScanReport,
    error_document,
    error_tables,
    notes_member,
)
from include.tiering.kafka.log_dirs.rules import DAMAGE
from include.tiering.model.reasons import reason_members
from include.tiering.model.segments import TopicIdPartition
from include.tiering.presentation import Presentation, Table, TopicNames, count, epoch_pairs, labels
from include.tiering.runs.contract import ANYWHERE, PlannedPartition, SegmentOutcome, WorkItem
from include.tiering.segments.failed_copies import Loss
from include.tiering.units import format_bytes, format_duration


def present_scan(report: ScanReport) -> Presentation:
    """Present every replica of a scan; only the chosen replica of a partition has eligible segments."""
    segments = [segment for replica in report.replicas for segment in replica.segments]
    eligible = [segment for segment in segments if segment.eligible]
    summary = (
        f"{count(len(report.replicas), 'replica')}, {count(len(segments), 'segment')}, {len(eligible):,} eligible "
        f"({format_bytes(sum(segment.size_bytes for segment in eligible))}), {count(len(report.errors), 'error')}"
    )
    return Presentation(
        lambda: scan_document(report),
        lambda: _scan_tables(report),
        summary,
        ok=not report.errors and not _is_damaged(segments),
    )


def scan_document(report: ScanReport) -> ScanDocument:
    return {
        "cluster_id": report.cluster_id,
        "partitions": [_scanned_replica(replica) for replica in report.replicas],
        "errors": [error_document(error) for error in report.errors],
        **notes_member(report.notes),
    }


def _scanned_replica(replica: Replica) -> ScannedReplicaDocument:
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
        "segments": [_scanned_segment(segment) for segment in replica.segments],
        **unread_member(replica),
    }


def _scanned_segment(segment: LogSegment) -> ScannedSegmentDocument:
    document: ScannedSegmentDocument = {
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "size_bytes": segment.size_bytes,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "leader_epochs": epoch_pairs(segment.leader_epochs),
        "active": segment.active,
        "eligible": segment.eligible,
        "reason": None if segment.reason is None else segment.reason.code,
        "reason_message": None if segment.reason is None else segment.reason.message,
    }
    if segment.batch_count is not None:
        document["batch_count"] = segment.batch_count
    return document


_SCAN_COLUMNS = (
    "partition",
    "broker>",
    "log start>",
    "high watermark>",
    "last stable>",
    "eligible>",
    "bytes>",
    "not eligible",
)


def _scan_tables(report: ScanReport) -> tuple[Table, ...]:
    are_mixed = len({replica.found_to is None for replica in report.replicas}) > 1
    columns = (*_SCAN_COLUMNS, "read from")[: None if are_mixed else -1]
    origins = ("log dir" if replica.found_to is None else "leader" for replica in report.replicas)
    rows = tuple((*_scan_row(r), origin)[: len(columns)] for r, origin in zip(report.replicas, origins, strict=True))
    return (Table("partitions", columns, rows), *error_tables(report.errors, report.notes))


def _scan_row(replica: Replica) -> tuple[str, ...]:
    """Return the row of a replica. Bounds that are only known to be at least a value are marked `>=`."""
    eligible = [segment for segment in replica.segments if segment.eligible]
    at_least = ">=" if replica.bounds is BoundsQuality.LOWER else ""
    return (
        str(replica.topic_id_partition),
        str(replica.replica_id.broker_id),
        str(replica.log_start_offset),
        f"{at_least}{replica.high_watermark}",
        f"{at_least}{replica.last_stable_offset}",
        f"{len(eligible)} of {len(replica.segments)}",
        format_bytes(sum(segment.size_bytes for segment in eligible)),
        why_not_copied(replica),
    )


def _is_damaged(segments: list[LogSegment]) -> bool:
    return any(segment.reason in DAMAGE for segment in segments)


def present_plan(plan: CopyPlan) -> Presentation:
    summary = (
        f"{count(plan.segments, 'segment')} ({format_bytes(plan.size_bytes)}) to copy of "
        f"{count(len(plan.partitions), 'partition')}, {len(waiting(plan.held_back))} waiting, "
        f"{count(len(plan.errors), 'error')}"
    )
    ok = not plan.errors and not needs_a_person(plan.held_back)
    return Presentation(lambda: _plan_document(plan), lambda: _plan_tables(plan), summary, ok=ok)


def needs_a_person(held_back: Iterable[HeldBackPartition]) -> bool:
    return any(item.needs_a_person for item in held_back)


def held_back_document(item: HeldBackPartition) -> HeldBackDocument:
    return {
        **labels(item.topic_id_partition),
        "next_offset": item.next_offset,
        **reason_members(item.reason),
        "segment_reason": None if item.ineligible is None else item.ineligible.code,
        "detail": item.detail,
        "lost": [loss_document(loss) for loss in item.lost],
        "follow_from": item.follow_from,
    }


def loss_document(loss: Loss) -> LossDocument:
    return {
        "segment_id": str(loss.segment_id.id),
        "start_offset": loss.offsets.first,
        "end_offset": loss.offsets.last,
        "in_source": loss.in_source,
        "why": loss.why,
    }


def held_back_table(items: Sequence[HeldBackPartition], names: TopicNames | None = None) -> tuple[Table, ...]:
    """Return a table of the waiting partitions and one of those that are never copied, if there are any.

    `names` are the topic names of the whole report.
    """
    names = names or TopicNames(i.topic_id_partition for i in items)
    tables = []
    for title, held in (("waiting", waiting(items)), ("never copied", [i for i in items if i.is_never_copied])):
        rows = tuple(
            (names.partition(i.topic_id_partition), str(i.next_offset), f"{i.reason}: {i.detail}") for i in held
        )
        if rows:
            tables.append(Table(title, ("partition", "next offset>", "why"), rows))
    return tuple(tables)


def waiting(items: Iterable[HeldBackPartition]) -> list[HeldBackPartition]:
    """Return the partitions that a later run may copy: not those of topics that are never tiered."""
    return [item for item in items if not item.is_never_copied]


def _plan_tables(plan: CopyPlan) -> tuple[Table, ...]:
    names = TopicNames(
        (
            *(partition.replica_id.topic_id_partition for partition in plan.partitions),
            *(held.topic_id_partition for held in plan.held_back),
        )
    )
    columns: tuple[str, ...] = ("partition", "broker>", "offsets", "segments>", "bytes>", "urgency>")
    rows: tuple[tuple[str, ...], ...] = tuple(_plan_row(partition, names) for partition in plan.partitions)
    if any(partition.placement != ANYWHERE for partition in plan.partitions):
        columns += ("queue", "Spark resource")
        rows = tuple((*row, *_where(partition)) for row, partition in zip(rows, plan.partitions, strict=True))
    return (
        Table("to copy", columns, rows),
        *_again(plan, names),
        *held_back_table(plan.held_back, names),
        *error_tables(plan.errors, plan.notes),
    )


def _again(plan: CopyPlan, names: TopicNames) -> tuple[Table, ...]:
    rows = tuple(
        (
            names.partition(partition.replica_id.topic_id_partition),
            f"{s.base_offset}..{s.end_offset}",
            str(s.supersedes),
        )
        for partition in plan.partitions
        for s in partition.segments
        if s.supersedes is not None
    )
    return (
        (Table("copied again, as they failed the quality gate", ("partition", "offsets", "segment id"), rows),)
        if rows
        else ()
    )


def _plan_document(plan: CopyPlan) -> CopyPlanDocument:
    return {
        "run_id": plan.run_id,
        "partitions": [_partition(partition) for partition in plan.partitions],
        "held_back": [held_back_document(item) for item in plan.held_back],
        "errors": [error_document(error) for error in plan.errors],
        **notes_member(plan.notes),
        "segments": plan.segments,
        "bytes": plan.size_bytes,
    }


def _partition(partition: PlannedPartition) -> PlannedPartitionDocument:
    return {
        "broker_id": partition.replica_id.broker_id,
        **labels(partition.replica_id.topic_id_partition),
        "urgency": round(partition.urgency, 6),
        "placement": {"queue": partition.placement.queue, "spark_resource": partition.placement.spark_resource},
        "segments": [
            {
                "base_offset": s.base_offset,
                "end_offset": s.end_offset,
                "size_bytes": s.size_bytes,
                "supersedes": None if s.supersedes is None else str(s.supersedes),
            }
            for s in partition.segments
        ],
    }


def _where(partition: PlannedPartition) -> tuple[str, str]:
    return (partition.placement.queue or "", partition.placement.spark_resource or "")


def _plan_row(partition: PlannedPartition, names: TopicNames) -> tuple[str, ...]:
    first, last = partition.segments[0].base_offset, partition.segments[-1].end_offset
    return (
        names.partition(partition.replica_id.topic_id_partition),
        str(partition.replica_id.broker_id),
        f"{first}..{last}",
        str(len(partition.segments)),
        format_bytes(partition.size_bytes),
        f"{partition.urgency:.2f}",
    )


@dataclass(frozen=True, slots=True)
class CopyRun:
    """The state of a run. `items` holds every planned segment once.

    `seconds` is the sum of the times of all batches if one command ran them one after another. Otherwise it is the time
    from the start of the first batch to the last report of a batch.
    """

    run_id: str
    items: Sequence[WorkItem]
    seconds: float
    held_back: Sequence[HeldBackPartition] = ()
    errors: tuple[ScanError, ...] = ()
    notes: tuple[ScanError, ...] = ()
    left: Sequence[LeftPartition] = ()

    def of(self, outcome: SegmentOutcome) -> list[WorkItem]:
        return [item for item in self.items if item.outcome is outcome]

    @property
    def throttled(self) -> list[WorkItem]:
        """Segments left because of their topic's quota: another batch or run may take them."""
        return [item for item in self.of(SegmentOutcome.PLANNED) if item.error == QuotaExceededError.__name__]

    @property
    def unexplained(self) -> list[LeftPartition]:
        """Partitions that were left without an explanation."""
        return [partition for partition in self.left if not partition.is_explained]

    @property
    def copied_bytes(self) -> int:
        return sum(item.segment.size_bytes for item in self.of(SegmentOutcome.COPIED))


def present_copy(run: CopyRun) -> Presentation:
    copied, failed = run.of(SegmentOutcome.COPIED), run.of(SegmentOutcome.FAILED)
    summary = (
        f"copied {count(len(copied), 'segment')}, {format_bytes(run.copied_bytes)} in {format_duration(run.seconds)}"
        f"{_rate(run)}; {len(failed)} failed, {len(run.of(SegmentOutcome.PLANNED))} still planned"
        f"{_throttled(run)}{_why_left(run)}"
    )
    ok = not failed and not run.errors and not needs_a_person(run.held_back) and not run.unexplained
    return Presentation(lambda: _document(run), lambda: _tables(run), summary, ok=ok)


def _document(run: CopyRun) -> CopyDocument:
    why = {partition.topic_id_partition: partition for partition in run.left}
    return {
        "run_id": run.run_id,
        "copied": [_copied(item) for item in run.of(SegmentOutcome.COPIED)],
        "failed": [_failed(item) for item in run.of(SegmentOutcome.FAILED)],
        "skipped": [_offsets(item) for item in run.of(SegmentOutcome.SKIPPED)],
        "left": [_left(item, why) for item in run.of(SegmentOutcome.PLANNED)],
        "held_back": [held_back_document(item) for item in run.held_back],
        "errors": [error_document(error) for error in run.errors],
        **notes_member(run.notes),
        "bytes": run.copied_bytes,
        "seconds": round(run.seconds, 3),
    }


def _offsets(item: WorkItem) -> OffsetsDocument:
    segment = item.segment
    return {
        **labels(item.topic_id_partition),
        "start_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "bytes": segment.size_bytes,
    }


def _copied(item: WorkItem) -> CopiedSegmentDocument:
    supersedes = item.segment.supersedes
    return {
        **_offsets(item),
        "segment_id": item.segment_id,
        "supersedes": None if supersedes is None else str(supersedes),
    }


def _left(item: WorkItem, why: Mapping[TopicIdPartition, LeftPartition]) -> LeftSegmentDocument:
    """Return a segment that was left, with the reason, and with the error of the last batch if there was an error."""
    partition = item.topic_id_partition
    document: LeftSegmentDocument = {
        "topic": partition.topic,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "start_offset": item.segment.base_offset,
        "end_offset": item.segment.end_offset,
        "bytes": item.segment.size_bytes,
    }
    if (left := why.get(partition)) is not None:
        reason = reason_members(left.reason)
        document["reason"], document["reason_message"] = reason["reason"], reason["reason_message"]
        document["detail"] = left.detail
    if item.error is not None:
        document["error"], document["message"] = item.error, item.message
    return document


def _failed(item: WorkItem) -> FailedSegmentDocument:
    return {
        **labels(item.topic_id_partition),
        "base_offset": item.segment.base_offset,
        "path": item.path,
        "position": item.position,
        "error": item.error,
        "message": item.message,
    }


def _tables(run: CopyRun) -> tuple[Table, ...]:
    by_partition: dict[TopicIdPartition, list[WorkItem]] = {}
    for item in run.items:
        by_partition.setdefault(item.topic_id_partition, []).append(item)
    names = TopicNames((*by_partition, *(held.topic_id_partition for held in run.held_back)))
    rows = tuple(_row(partition, items, names) for partition, items in by_partition.items())
    columns = ("partition", "copied>", "bytes>", "skipped>", "failed>", "left>")
    copied = (Table(f"run {run.run_id}", columns, rows),) if rows else ()
    return (
        *copied,
        *_failures(run, names),
        *_throttled_table(run, names),
        *_left_table(run, names),
        *held_back_table(run.held_back, names),
        *error_tables(run.errors, run.notes),
    )


def _row(partition: TopicIdPartition, items: list[WorkItem], names: TopicNames) -> tuple[str, ...]:
    def number(outcome: SegmentOutcome) -> str:
        return str(sum(item.outcome is outcome for item in items))

    size_bytes = sum(item.segment.size_bytes for item in items if item.outcome is SegmentOutcome.COPIED)
    return (
        names.partition(partition),
        number(SegmentOutcome.COPIED),
        format_bytes(size_bytes),
        number(SegmentOutcome.SKIPPED),
        number(SegmentOutcome.FAILED),
        number(SegmentOutcome.PLANNED),
    )


def _failures(run: CopyRun, names: TopicNames) -> tuple[Table, ...]:
    failed = run.of(SegmentOutcome.FAILED)
    if not failed:
        return ()
    rows = tuple(
        (
            names.partition(item.topic_id_partition),
            str(item.segment.base_offset),
            item.path or "",
            "" if item.position is None else str(item.position),
            item.message or item.error or "",
        )
        for item in failed
    )
    return (Table("failed", ("partition", "base offset>", "path", "byte>", "message"), rows),)


def _throttled_table(run: CopyRun, names: TopicNames) -> tuple[Table, ...]:
    reasons = {item.topic_id_partition: item.message or "" for item in run.throttled}
    rows = tuple((names.partition(partition), message) for partition, message in reasons.items())
    return (Table("throttled by topic quota", ("partition", "message"), rows),) if rows else ()


def _left_table(run: CopyRun, names: TopicNames) -> tuple[Table, ...]:
    rows = tuple(
        (
            names.partition(partition.topic_id_partition),
            str(partition.segments),
            format_bytes(partition.size_bytes),
            str(partition),
        )
        for partition in run.left
        if partition.reason is not LeftBecause.THROTTLED
    )
    return (Table("still planned", ("partition", "segments>", "bytes>", "why"), rows),) if rows else ()


def _why_left(run: CopyRun) -> str:
    """Return how many segments another batch holds, and how many are left without an explanation."""
    held = sum(partition.segments for partition in run.left if partition.reason is LeftBecause.HELD)
    unexplained = sum(partition.segments for partition in run.unexplained)
    words = [f"{held} held by another batch"] if held else []
    words += [f"{unexplained} without a reason"] if unexplained else []
    return f" ({', '.join(words)})" if words else ""


def _throttled(run: CopyRun) -> str:
    return f" ({len(run.throttled)} throttled by topic quota)" if run.throttled else ""


def _rate(run: CopyRun) -> str:
    if run.seconds <= 0 or not run.copied_bytes:
        return ""
    return f" ({format_bytes(round(run.copied_bytes / run.seconds))}/s)"
