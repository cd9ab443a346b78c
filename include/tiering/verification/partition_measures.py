"""What the FINISHED segments of one partition look like side by side, as numbers. Nothing is judged here.

A segment is measured beside its predecessor when it is verified. This measure looks at a whole partition, whichever
segments a run verified: what lies between two that passed long ago shows here alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from include.tiering.model.histories import (
    FIRST_HISTORY,
    Divergence,
    OffsetRange,
    SkippedOffsets,
    leader_epochs_back,
    not_skipped,
    part_of_history,
    unexplained,
    unexplained_overlap,
)
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata

MAX_NAMED_FAULTS: Final = 100
"""Faults of one kind that are named; all are counted."""


UNKNOWN_HISTORY: Final = LeaderEpochs()
FIRST_HISTORIES: Final[Mapping[RemoteLogSegmentId, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SegmentFault:
    """Where a fault of `column` shows: at this segment, in these words."""

    column: str
    segment_id: str
    start_offset: int
    text: str


@dataclass(frozen=True, slots=True)
class PartitionMeasure:
    """One partition. Offsets are inclusive, None without a FINISHED segment; every other column counts faults.

    What cannot be asked has no fault: nobody knows the end of a log whose broker is away.

    Attributes:
        segments: FINISHED ones.
        missing_offsets: from the log start on, up to the last offset: held by no segment, skipped by no decision.
        duplicate_segments: segments with exactly the offsets of another one.
        unexplained_overlap: offsets held twice by segments with other offsets, though no change of the leader says why.
        leader_epoch_regressions: segments whose leader epoch falls behind that of the one before.
        segments_above_log_end: segments with offsets that the leader's log has not.
        segments_below_log_start: segments wholly below our log start, which no reader sees.
        other_history: offsets held under other leader epochs than the partition's history has, though no decision left
            the history that they are of.
        faults: at most `MAX_NAMED_FAULTS` of each column, by offset.
    """

    topic: str
    topic_id: str
    partition: int
    segments: int
    start_offset: int | None
    end_offset: int | None
    missing_offsets: int
    duplicate_segments: int
    unexplained_overlap: int
    leader_epoch_regressions: int
    segments_above_log_end: int
    segments_below_log_start: int
    other_history: int = 0
    faults: tuple[SegmentFault, ...] = ()


def measure_partition(
    partition: TopicIdPartition,
    segments: Sequence[RemoteLogSegmentMetadata],
    *,
    histories: Mapping[RemoteLogSegmentId, int] = FIRST_HISTORIES,
    decisions: Sequence[SkippedOffsets] = (),
    divergences: Sequence[Divergence] = (),
    leader_epochs: LeaderEpochs = UNKNOWN_HISTORY,
    log_start_offset: int = 0,
    log_end_offset: int | None = None,
) -> PartitionMeasure:
    """Measure a partition by its segments; those that are not FINISHED are left out.

    What a decision left, of an older history, is side by side with nothing: see `model.histories`. `histories` names
    them where they are not the first; `leader_epochs` is the merged history. `log_start_offset` (inclusive) is ours,
    `log_end_offset` (exclusive) that of the leader's log, None if nobody knows.
    """
    sheet = _Sheet()
    held = sorted(
        _held(segments, histories, divergences), key=lambda one: (one.history, one.segment.end_offset, one.part.first)
    )
    _fill_missing(sheet, held, decisions, log_start_offset)
    for before, after in pairwise(held):
        if before.history == after.history:
            _fill_succession(sheet, before.segment, after.segment)
    for one in held:
        if one.part.last >= log_start_offset:
            _fill_other_history(sheet, one, divergences, leader_epochs)
    finished = [one.segment for one in sorted(held, key=lambda one: one.segment.end_offset)]
    for segment in finished:
        if log_end_offset is not None and segment.end_offset >= log_end_offset:
            text = f"ends at offset {segment.end_offset}, and the log before offset {log_end_offset}"
            sheet.add("segments_above_log_end", 1, segment, text)
        if segment.end_offset < log_start_offset:
            text = f"ends at offset {segment.end_offset}, below the log start {log_start_offset}"
            sheet.add("segments_below_log_start", 1, segment, text)
    return PartitionMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        segments=len(finished),
        start_offset=min((s.start_offset for s in finished), default=None),
        end_offset=finished[-1].end_offset if finished else None,
        faults=tuple(sheet.faults()),
        **{column: sheet.counts[column] for column in _COUNTED},
    )


_COUNTED: Final = (
    "missing_offsets",
    "duplicate_segments",
    "unexplained_overlap",
    "leader_epoch_regressions",
    "segments_above_log_end",
    "segments_below_log_start",
    "other_history",
)


class _Held(NamedTuple):
    """A FINISHED segment and what its history answers for of it."""

    segment: RemoteLogSegmentMetadata
    history: int
    part: OffsetRange


def _held(
    segments: Sequence[RemoteLogSegmentMetadata],
    histories: Mapping[RemoteLogSegmentId, int],
    divergences: Sequence[Divergence],
) -> Iterator[_Held]:
    for segment in segments:
        history = histories.get(segment.remote_log_segment_id, FIRST_HISTORY)
        part = part_of_history(segment, history, divergences) if segment.is_finished else None
        if part is not None:
            yield _Held(segment, history, part)


class _Sheet:
    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self._faults: dict[str, list[SegmentFault]] = defaultdict(list)

    def add(self, column: str, count: int, at: RemoteLogSegmentMetadata, text: str) -> None:
        self.counts[column] += count
        named = self._faults[column]
        if len(named) < MAX_NAMED_FAULTS:
            named.append(SegmentFault(column, str(at.remote_log_segment_id.id), at.start_offset, text))

    def faults(self) -> Iterator[SegmentFault]:
        for column in _COUNTED:
            yield from self._faults[column]


def _fill_missing(
    sheet: _Sheet,
    held: Sequence[_Held],
    decisions: Sequence[SkippedOffsets],
    log_start_offset: int,
) -> None:
    """Each hole is a fault of the segment behind it. What a later segment holds besides is no hole."""
    held_up_to = log_start_offset - 1
    for position, one in enumerate(sorted(held, key=lambda one: one.part)):
        if position:
            for hole in not_skipped(held_up_to + 1, one.part.first - 1, decisions):
                text = f"follows the offsets {hole}, which no segment holds"
                sheet.add("missing_offsets", hole.size, one.segment, text)
        held_up_to = max(held_up_to, one.part.last)


def _fill_other_history(
    sheet: _Sheet, held: _Held, divergences: Sequence[Divergence], leader_epochs: LeaderEpochs
) -> None:
    for offsets in unexplained(held.segment, held.history, divergences, leader_epochs):
        text = f"holds the offsets {offsets} under other leader epochs than the partition's history has there"
        sheet.add("other_history", offsets.size, held.segment, text)


def _fill_succession(sheet: _Sheet, before: RemoteLogSegmentMetadata, after: RemoteLogSegmentMetadata) -> None:
    other = before.remote_log_segment_id.id
    if (before.start_offset, before.end_offset) == (after.start_offset, after.end_offset):
        offsets = OffsetRange(after.start_offset, after.end_offset)
        sheet.add("duplicate_segments", 1, after, f"has the offsets {offsets}, as segment {other} has")
        return
    if overlap := unexplained_overlap(before, after):
        sheet.add("unexplained_overlap", overlap, after, f"shares {overlap} offsets with segment {other}")
    if back := leader_epochs_back(before, after):
        epoch = before.segment_leader_epochs.entries[-1].epoch
        sheet.add("leader_epoch_regressions", 1, after, f"begins {back} below leader epoch {epoch} of segment {other}")
