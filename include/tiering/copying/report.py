"""What a run copied and what failed, from the outcome of every planned segment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from include.tiering.copying.copy_plan import HeldBackPartition
from include.tiering.copying.left_work import LeftBecause, LeftPartition
from include.tiering.copying.plan_report import held_back_document, held_back_table, needs_a_person
from include.tiering.errors import QuotaExceededError
from include.tiering.kafka.log_dirs.contract import ScanError, error_document, error_table, note_table, notes_member
from include.tiering.model.ids import TopicIdPartition
from include.tiering.presentation import Document, Presentation, Table, TopicNames, count, labels
from include.tiering.runs.contract import SegmentOutcome, WorkItem
from include.tiering.units import format_bytes, format_duration


@dataclass(frozen=True, slots=True)
class CopyRun:
    """A run as it stands. `items` holds every planned segment once; `seconds` is the time that copying took."""

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
        """Left because of their topic's quota: another run may take them."""
        return [item for item in self.of(SegmentOutcome.PLANNED) if item.error == QuotaExceededError.__name__]

    @property
    def unexplained(self) -> list[LeftPartition]:
        """Left though nothing says why."""
        return [one for one in self.left if not one.is_explained]

    @property
    def copied_bytes(self) -> int:
        return sum(item.segment.size_bytes for item in self.of(SegmentOutcome.COPIED))


def present_copy(run: CopyRun) -> Presentation:
    copied, failed = run.of(SegmentOutcome.COPIED), run.of(SegmentOutcome.FAILED)
    summary = (
        f"copied {count(len(copied), 'segment')}, {format_bytes(run.copied_bytes)} in {format_duration(run.seconds)}"
        f"{_rate(run)}; {len(failed)} failed, {len(run.of(SegmentOutcome.PLANNED))} left"
        f"{_throttled(run)}{_why_left(run)}"
    )
    ok = not failed and not run.errors and not needs_a_person(run.held_back) and not run.unexplained
    return Presentation(lambda: _document(run), lambda: _tables(run), summary, ok=ok)


def _document(run: CopyRun) -> Document:
    why = {one.topic_id_partition: one for one in run.left}
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


def _offsets(item: WorkItem) -> Document:
    segment = item.segment
    return {
        **labels(item.topic_id_partition),
        "start_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "bytes": segment.size_bytes,
    }


def _copied(item: WorkItem) -> Document:
    supersedes = item.segment.supersedes
    return {
        **_offsets(item),
        "segment_id": item.segment_id,
        "supersedes": None if supersedes is None else str(supersedes),
    }


def _left(item: WorkItem, why: Mapping[TopicIdPartition, LeftPartition]) -> Document:
    """With the reason, and with the error that the last batch gave, if it gave one."""
    document = _offsets(item)
    if (left := why.get(item.topic_id_partition)) is not None:
        document |= {"reason": str(left.reason), "detail": left.detail}
    return document if item.error is None else {**document, "error": item.error, "message": item.message}


def _failed(item: WorkItem) -> Document:
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
    names = TopicNames((*by_partition, *(one.topic_id_partition for one in run.held_back)))
    rows = tuple(_row(partition, items, names) for partition, items in by_partition.items())
    columns = ("partition", "copied>", "bytes>", "skipped>", "failed>", "left>")
    copied = (Table(f"run {run.run_id}", columns, rows),) if rows else ()
    return (
        *copied,
        *_failures(run, names),
        *_throttled_table(run, names),
        *_left_table(run, names),
        *held_back_table(run.held_back, names),
        *error_table(run.errors),
        *note_table(run.notes),
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
        (names.partition(one.topic_id_partition), str(one.segments), format_bytes(one.size_bytes), str(one))
        for one in run.left
        if one.reason is not LeftBecause.THROTTLED
    )
    return (Table("left", ("partition", "segments>", "bytes>", "why"), rows),) if rows else ()


def _why_left(run: CopyRun) -> str:
    """What a person should know of it: that another batch has it, or that nothing says why."""
    held = sum(one.segments for one in run.left if one.reason is LeftBecause.HELD)
    unexplained = sum(one.segments for one in run.unexplained)
    words = [f"{held} held by another batch"] if held else []
    words += [f"{unexplained} without a reason"] if unexplained else []
    return f" ({', '.join(words)})" if words else ""


def _throttled(run: CopyRun) -> str:
    return f" ({len(run.throttled)} throttled by topic quota)" if run.throttled else ""


def _rate(run: CopyRun) -> str:
    if run.seconds <= 0 or not run.copied_bytes:
        return ""
    return f" ({format_bytes(round(run.copied_bytes / run.seconds))}/s)"
