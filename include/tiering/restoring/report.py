"""The report of a restore: what it reads, what is in the target, and what is not."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from include.tiering.clock import Clock
from include.tiering.presentation import PartitionLabels, Presentation, Table, count, labels
from include.tiering.restoring.plan import PartitionRestore, ReadingCost, RestorePlan
from include.tiering.restoring.restore_segments import FailedPart
from include.tiering.units import format_bytes, format_duration


class ReadingCostDocument(TypedDict):
    """What is read of the store: the fetch quota holds it for `least_seconds` at least; `price` is that of requests."""

    segments: int
    bytes: int
    requests: int
    least_seconds: float
    price: str | None
    currency: str


class RestoredPartitionDocument(PartitionLabels):
    """One partition: the wanted offsets (inclusive), its segments and their bytes, and how much of it is restored."""

    first_offset: int
    last_offset: int
    segments: int
    bytes: int
    restored_segments: int
    restored_bytes: int
    records: int
    complete: bool


class UnrestoredSegmentDocument(PartitionLabels):
    """A segment that cannot be restored, and why."""

    segment_id: str
    start_offset: int
    end_offset: int
    message: str


class RestorePlanDocument(TypedDict):
    """What a restore would read. `said` are sentences about offsets that are not restored."""

    target: str
    form: str
    cost: ReadingCostDocument
    partitions: list[RestoredPartitionDocument]
    said: list[str]


class RestoreDocument(RestorePlanDocument):
    """A restore. `cost` is that of this run, `complete` says whether all that was wanted is in the target."""

    failed: list[UnrestoredSegmentDocument]
    seconds: float
    complete: bool


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The result of a run.

    Attributes:
        plan: what was left when the run began.
        directory: the target.
        partitions: with all that is restored now.
        failed: segments that could not be restored.
    """

    plan: RestorePlan
    directory: Path
    partitions: tuple[PartitionRestore, ...]
    failed: tuple[FailedPart, ...]
    seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether all wanted offsets are in the target."""
        return bool(self.partitions) and not self.plan.said and not any(each.left for each in self.partitions)


def said_of_cost(cost: ReadingCost) -> str:
    """Return a sentence about what a restore will read."""
    sentence = f"reads {count(cost.segments, 'segment')}, {format_bytes(cost.size_bytes)}, in about"
    sentence += f" {count(cost.requests, 'request')}"
    if cost.price is not None:
        sentence += f", which cost about {cost.price:f} {cost.currency}"
    if cost.least_seconds:
        sentence += f"; the fetch quota holds it for {format_duration(cost.least_seconds)} at least"
    return sentence


def present_plan(plan: RestorePlan, directory: Path) -> Presentation:
    """Present what a restore would do. It is not `ok` if some of the wanted offsets cannot be restored."""
    return Presentation(
        lambda: _plan_document(plan, directory),
        lambda: _tables(plan.partitions, (), plan.said),
        f"a restore into {directory} {said_of_cost(plan.cost)}",
        ok=bool(plan.partitions) and not plan.said,
    )


def present_restore(report: RestoreReport) -> Presentation:
    """Present a restore. It is `ok` only if all wanted offsets are in the target."""
    return Presentation(
        lambda: _document(report),
        lambda: _tables(report.partitions, report.failed, report.plan.said),
        _summary(report),
        ok=report.is_complete,
    )


def _summary(report: RestoreReport) -> str:
    parts = sum(len(each.restored) for each in report.partitions)
    size = format_bytes(sum(map(_restored_bytes, report.partitions)))
    words = [f"{report.directory} has {count(parts, 'segment')} with {size}"]
    words.append(f"{format_bytes(report.plan.cost.size_bytes)} were left, {format_duration(report.seconds)}")
    if report.failed:
        words.append(f"{count(len(report.failed), 'segment')} could not be restored")
    if not report.is_complete:
        words.append("NOT complete")
    return "; ".join(words)


_LINE_SECONDS: Final = 10.0


class ByteProgress:
    """Says how far a restore is, every ten seconds, in a sentence for a log. Thread-safe."""

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._say = say
        self._lock = threading.Lock()
        self._total_bytes = self._done_bytes = 0
        self._began = self._due = 0.0

    def begin(self, total_bytes: int) -> None:
        """Begin to count towards a total."""
        self._total_bytes = total_bytes
        self._began = self._clock.monotonic()
        self._due = self._began + _LINE_SECONDS

    def advance(self, more_bytes: int) -> None:
        """Count more bytes, and say it if it is time."""
        with self._lock:
            self._done_bytes += more_bytes
            now = self._clock.monotonic()
            if now < self._due:
                return
            self._due = now + _LINE_SECONDS
            sentence = self._sentence(now)
        self._say(sentence)

    def _sentence(self, now: float) -> str:
        rate = self._done_bytes / (now - self._began)
        words = f"{format_bytes(self._done_bytes)} of {format_bytes(self._total_bytes)}, {format_bytes(int(rate))}/s"
        left_bytes = self._total_bytes - self._done_bytes
        return words + (f", {format_duration(left_bytes / rate)} left" if rate > 0 else "")


_COLUMNS: Final = ("partition", "offsets", "segments>", "restored>", "bytes>", "records>", "state")


def _tables(
    partitions: Sequence[PartitionRestore], failed: Sequence[FailedPart], said: Sequence[str]
) -> tuple[Table, ...]:
    tables = (
        Table("partitions", _COLUMNS, tuple(map(_row, partitions))),
        Table("segments that could not be restored", ("segment", "why"), tuple(map(_failed_row, failed))),
        Table("offsets that are not restored", ("what",), tuple((sentence,) for sentence in said)),
    )
    return tuple(table for table in tables if table.rows)


def _row(each: PartitionRestore) -> tuple[str, ...]:
    left = len(each.left)
    return (
        str(each.partition),
        str(each.offsets),
        str(left + len(each.restored)),
        str(len(each.restored)),
        format_bytes(_restored_bytes(each)),
        f"{_records(each):,}",
        "complete" if not left else f"{count(left, 'segment')} left",
    )


def _failed_row(failed: FailedPart) -> tuple[str, ...]:
    segment = failed.part.segment
    where = f"{failed.part.partition}, offsets {segment.start_offset}..{segment.end_offset}"
    return (f"{where}, segment {segment.remote_log_segment_id.id}", failed.reason)


def _restored_bytes(each: PartitionRestore) -> int:
    return sum(part.size_bytes for part in each.restored)


def _records(each: PartitionRestore) -> int:
    return sum(part.records for part in each.restored)


def _document(report: RestoreReport) -> RestoreDocument:
    return {
        "target": str(report.directory),
        "form": report.plan.request.form.value,
        "cost": _cost(report.plan.cost),
        "partitions": list(map(_partition, report.partitions)),
        "said": list(report.plan.said),
        "failed": list(map(_failed, report.failed)),
        "seconds": round(report.seconds, 3),
        "complete": report.is_complete,
    }


def _plan_document(plan: RestorePlan, directory: Path) -> RestorePlanDocument:
    return {
        "target": str(directory),
        "form": plan.request.form.value,
        "cost": _cost(plan.cost),
        "partitions": list(map(_partition, plan.partitions)),
        "said": list(plan.said),
    }


def _cost(cost: ReadingCost) -> ReadingCostDocument:
    return {
        "segments": cost.segments,
        "bytes": cost.size_bytes,
        "requests": cost.requests,
        "least_seconds": round(cost.least_seconds, 3),
        "price": None if cost.price is None else f"{cost.price:f}",
        "currency": cost.currency,
    }


def _partition(each: PartitionRestore) -> RestoredPartitionDocument:
    return {
        **labels(each.partition),
        "first_offset": each.offsets.first,
        "last_offset": each.offsets.last,
        "segments": len(each.left) + len(each.restored),
        "bytes": sum(part.size_bytes for part in each.left) + sum(part.log_bytes for part in each.restored),
        "restored_segments": len(each.restored),
        "restored_bytes": _restored_bytes(each),
        "records": _records(each),
        "complete": not each.left,
    }


def _failed(failed: FailedPart) -> UnrestoredSegmentDocument:
    segment = failed.part.segment
    return {
        **labels(failed.part.partition),
        "segment_id": str(segment.remote_log_segment_id.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "message": failed.reason,
    }
