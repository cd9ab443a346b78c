"""A partition offset by offset: what waits, what is remote and verified, what expired, and what is missing.

The timeline is cut into pages of segments, the newest first, so that no read grows with the archive. What waits is what
the newest plan of a copy found; this module reads no log directory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypedDict

from include.tiering.errors import SettingError
from include.tiering.model.histories import OffsetRange, SkippedOffsets, not_skipped
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Verdict, is_legal_topic_name
from include.tiering.presentation import PartitionLabels, Presentation, Table, count, labels
from include.tiering.runs.contract import PlannedSegment, WorkStore
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.sizes_contract import RemoteLogSizes
from include.tiering.units import format_bytes, format_utc

SEGMENTS_OF_A_PAGE: Final = 200
_LAST_OFFSET: Final = 2**63 - 1


class PartKind(StrEnum):
    """What is known of a range of offsets."""

    WAITING = "waiting"
    """Only in the source, as of the newest plan of a copy."""
    COPYING = "copying"
    COPIED = "copied"
    """Copied, and without a verdict."""
    VERIFIED = "verified"
    VERDICT_EXPIRED = "verdict-expired"
    FAILED = "failed"
    REPLACED = "replaced"
    """Replaced by another copy of the same offsets, and not deleted yet."""
    DELETING = "deleting"
    EXPIRED = "expired"
    """Deleted; the tombstone is kept for `tiering.tombstone.ms`."""
    SKIPPED = "skipped"
    """Missing by a recorded decision."""
    GAP = "gap"
    """Missing without a decision."""


_OF_VERDICT: Final = {
    Verdict.NONE: PartKind.COPIED,
    Verdict.PASSED: PartKind.VERIFIED,
    Verdict.FAILED: PartKind.FAILED,
    Verdict.EXPIRED: PartKind.VERDICT_EXPIRED,
}
_DELETED: Final = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_OF_STATE: Final = {
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: PartKind.COPYING,
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: PartKind.DELETING,
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: PartKind.EXPIRED,
}


@dataclass(frozen=True, slots=True)
class TimelinePart:
    """A range of offsets (inclusive), and what is known of it; `row` is its segment, if it is or was remote."""

    kind: PartKind
    offsets: OffsetRange
    size_bytes: int | None = None
    row: SegmentRow | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A page of a partition.

    Attributes:
        partition: the partition.
        log_start_offset: nothing below it is served.
        parts: by ascending offset.
        planned_at_ms: when the plan was made that found what waits; None if no plan found anything.
        older_before: the start offset before which the next page lies; None if there is none.
    """

    partition: TopicIdPartition
    log_start_offset: int
    parts: tuple[TimelinePart, ...]
    planned_at_ms: int | None = None
    older_before: int | None = None


class TimelineService:
    """Reads a page with at most ten statements, of at most `SEGMENTS_OF_A_PAGE` remote and as many waiting segments."""

    def __init__(
        self,
        *,
        sizes: RemoteLogSizes,
        metadata: Callable[[], RemoteLogMetadata],
        work: WorkStore,
    ) -> None:
        self._sizes = sizes
        self._metadata = metadata
        self._work = work

    def of(self, topic: str, partition: int, *, topic_id: str | None = None, before: int | None = None) -> Timeline:
        """Return a page of a partition.

        Args:
            topic: its name.
            partition: its number.
            topic_id: of the topic, as Kafka prints it; None: the only one of this name.
            before: only segments that start below this offset; None: the newest.

        Raises:
            SettingError: nothing of this partition is remote, or several topics have this name.
            MetadataUnavailableError: the database cannot be read.
        """
        found = self._partition(topic, partition, topic_id)
        metadata = self._metadata()
        rows = metadata.selected.newest(
            found, before=_LAST_OFFSET if before is None else before, at_most=SEGMENTS_OF_A_PAGE + 1
        )
        page = rows[:SEGMENTS_OF_A_PAGE]
        waiting: Sequence[PlannedSegment] = ()
        planned_at_ms = None
        if before is None:
            after = max((row.metadata.end_offset + 1 for row in page if row.metadata.is_finished), default=0)
            planned_at_ms, waiting = self._work.newest_plan(found, from_offset=after, at_most=SEGMENTS_OF_A_PAGE)
        return Timeline(
            found,
            metadata.retention_state(found).log_start_offset,
            parts_of(page, waiting, metadata.skipped_offsets(found)),
            planned_at_ms,
            page[-1].metadata.start_offset if len(rows) > len(page) else None,
        )

    def _partition(self, topic: str, partition: int, topic_id: str | None) -> TopicIdPartition:
        if not is_legal_topic_name(topic):
            raise SettingError(f"{topic!r} is no topic: 1 to 249 of letters, digits, '.', '_' and '-'")
        found = [
            states.topic_id_partition
            for states in self._sizes.topic_states(topic)
            if states.topic_id_partition.partition == partition
            and topic_id in (None, str(states.topic_id_partition.topic_id))
        ]
        if not found:
            raise SettingError(f"nothing of {topic}-{partition} is in remote storage")
        if len(found) > 1:
            ids = ", ".join(str(one.topic_id) for one in found)
            raise SettingError(f"several topics have or had the name {topic}: name one of the ids {ids}")
        return found[0]


def parts_of(
    rows: Sequence[SegmentRow], waiting: Sequence[PlannedSegment], skipped: Sequence[SkippedOffsets]
) -> tuple[TimelinePart, ...]:
    """Return what is known of the offsets from the first of these segments on, ordered by offset.

    Args:
        rows: segments in any state and order.
        waiting: what waits for a copy, ordered by offset. What of it is being copied is no longer waiting: a plan
            has it until the run ends.
        skipped: decisions about the partition.
    """
    copying = [row for row in rows if row.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED]
    local_only = [
        segment
        for segment in waiting
        if not any(_overlap(row, OffsetRange(segment.base_offset, segment.end_offset)) for row in copying)
    ]
    known = [row for row in rows if not _is_aborted(row)]
    taken = [OffsetRange(row.metadata.start_offset, row.metadata.end_offset) for row in known]
    taken += [OffsetRange(segment.base_offset, segment.end_offset) for segment in local_only]
    # A copy that was given up was never remote: it is shown only while nothing else has its offsets.
    known += [row for row in rows if _is_aborted(row) and not any(_overlap(row, other) for other in taken)]
    remote = [
        TimelinePart(
            _kind(row),
            OffsetRange(row.metadata.start_offset, row.metadata.end_offset),
            row.metadata.segment_size_bytes,
            row,
        )
        for row in known
    ]
    local = [
        TimelinePart(PartKind.WAITING, OffsetRange(segment.base_offset, segment.end_offset), segment.size_bytes)
        for segment in local_only
    ]
    ordered = sorted([*remote, *local], key=lambda part: part.offsets)
    parts: list[TimelinePart] = []
    next_offset: int | None = None
    for part in ordered:
        if next_offset is not None and part.offsets.first > next_offset:
            parts += _missing(OffsetRange(next_offset, part.offsets.first - 1), skipped)
        parts.append(part)
        next_offset = max(next_offset or 0, part.offsets.last + 1)
    return tuple(parts)


def _is_aborted(row: SegmentRow) -> bool:
    """Return whether the copy was deleted, or is being deleted, before it was FINISHED."""
    return row.finished_at_ms is None and row.metadata.state in _DELETED


def _overlap(row: SegmentRow, other: OffsetRange) -> bool:
    return row.metadata.start_offset <= other.last and other.first <= row.metadata.end_offset


def _kind(row: SegmentRow) -> PartKind:
    if not row.metadata.is_finished:
        return _OF_STATE[row.metadata.state]
    return PartKind.REPLACED if row.superseded_by is not None else _OF_VERDICT[row.verdict]


def _missing(offsets: OffsetRange, skipped: Sequence[SkippedOffsets]) -> list[TimelinePart]:
    gaps = [TimelinePart(PartKind.GAP, gap) for gap in not_skipped(offsets.first, offsets.last, skipped)]
    decided = [
        TimelinePart(
            PartKind.SKIPPED,
            OffsetRange(max(offsets.first, decision.offsets.first), min(offsets.last, decision.offsets.last)),
            why=f"{decision.author} at {format_utc(decision.recorded_at_ms)}: {decision.reason}",
        )
        for decision in skipped
        if decision.offsets.first <= offsets.last and decision.offsets.last >= offsets.first
    ]
    return sorted([*gaps, *decided], key=lambda part: part.offsets)


class TimelinePartDocument(TypedDict):
    """A range of offsets. `kind` is a code; `bytes` and what follows are null where they do not apply.

    `copied_at_ms` is when the copy was FINISHED, `verdict_at_ms` when its verdict was recorded, `newest_ms` the largest
    timestamp of its records. `why` says who decided to skip the offsets, or what a verification found.
    """

    kind: str
    start_offset: int
    end_offset: int
    bytes: int | None
    segment_id: str | None
    copied_at_ms: int | None
    verdict_at_ms: int | None
    newest_ms: int | None
    why: str


class TimelineDocument(PartitionLabels):
    """A page of a partition, by ascending offset.

    `planned_at_ms` is when the plan was made that found what waits, null if there is none. `older_before` is the value
    of `--before` for the next older page, null if there is none.
    """

    log_start_offset: int
    planned_at_ms: int | None
    older_before: int | None
    parts: list[TimelinePartDocument]


def timeline_document(timeline: Timeline) -> TimelineDocument:
    """Return the JSON of a page."""
    return {
        **labels(timeline.partition),
        "log_start_offset": timeline.log_start_offset,
        "planned_at_ms": timeline.planned_at_ms,
        "older_before": timeline.older_before,
        "parts": list(map(_part, timeline.parts)),
    }


def _part(part: TimelinePart) -> TimelinePartDocument:
    row = part.row
    newest_ms = None if row is None or row.metadata.max_timestamp_ms < 0 else row.metadata.max_timestamp_ms
    return {
        "kind": str(part.kind),
        "start_offset": part.offsets.first,
        "end_offset": part.offsets.last,
        "bytes": part.size_bytes,
        "segment_id": None if row is None else str(row.metadata.remote_log_segment_id.id),
        "copied_at_ms": None if row is None else row.finished_at_ms,
        "verdict_at_ms": None if row is None else row.verdict_at_ms,
        "newest_ms": newest_ms,
        "why": row.verdict_detail if row is not None and part.kind is PartKind.FAILED else part.why,
    }


def present_timeline(timeline: Timeline) -> Presentation:
    """Present a page; it is not `ok` if offsets are missing without a decision, or a segment failed."""
    wrong = sum(part.kind in (PartKind.GAP, PartKind.FAILED) for part in timeline.parts)
    rows = tuple(
        (
            str(part.kind),
            str(part.offsets),
            "" if part.size_bytes is None else format_bytes(part.size_bytes),
            "" if part.row is None else str(part.row.metadata.remote_log_segment_id.id),
            _part(part)["why"],
        )
        for part in timeline.parts
    )
    older = "" if timeline.older_before is None else f"; older ones: --before {timeline.older_before}"
    return Presentation(
        lambda: timeline_document(timeline),
        lambda: (Table("segments", ("kind", "offsets", "bytes>", "segment id", "why"), rows),) if rows else (),
        f"{count(len(timeline.parts), 'range')}, log start offset {timeline.log_start_offset}{older}",
        ok=not wrong,
    )
