"""What copied segments look like, as numbers: one in the remote store, and all of a partition side by side.

Nothing is verified here. The objects of a segment are asked of the store and the indexes are read back from it, so a
measure says what a reader will meet, not what a sender meant. A shallow measure takes the store's word for the records:
it computed their checksum when they arrived. A deep one reads them.

A segment is measured beside its predecessor when it is verified. The measure of a partition looks at all of its
FINISHED segments, whichever a run verified: what lies between two that passed long ago shows there alone.
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
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Depth, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition


@dataclass(frozen=True, slots=True)
class SegmentMeasure:
    """One FINISHED segment. Offsets are inclusive. Every number may be None: it could not be measured, or was not asked
    for at this `depth` (the last two groups). Which, say the rules: one of another depth is not verified.

    Columns that are not sizes, checksums or timestamps count faults; 0 is right. `*_untrimmed` counts bytes behind the
    last entry, `*_disorder` entries that do not ascend, `*_outside` entries that point out of the segment,
    `*_strays` entries that say of the batches what is not so. What has no predecessor, no manifest or no
    transaction index by right has no fault there.

    Attributes:
        segment_size_bytes, log_crc32c: the source's, as metadata and check pass recorded them; a checksum that nobody
            recorded is, in a deep measure, that of the batches that were read.
        stored_log_size_bytes, stored_log_crc32c: the store's own. Of a compressed or encrypted log: what comes out of
            it; a shallow measure, which does not read it, has the source's checksum there.
        objects_missing: objects that are not in the store, or have 0 bytes and should have some; None if the store
            refuses to say so.
        objects_unlike_contents: objects beside the log whose stored length or checksum is not that of what was read.
        manifest_differences: fields that differ between the manifest and the metadata.
        time_index_outside: also counts timestamps above the segment's maximum.
        time_index_unlike_maximum: 1 if the last entry has not the segment's largest timestamp.
        transaction_index_contradictions: 1 if the index is empty and the metadata denies it, or the reverse.
        producer_snapshot_beyond_end: producers whose last offset is after the segment.
        leader_epoch_differences: entries of the stored history that contradict the metadata or start after the end.
        leader_epochs_outside: entries of the metadata that do not begin in [start, end].
        missing_offsets: offsets between the previous segment's end and this start, without a decision to skip them.
        unexplained_overlap: offsets held twice although broker and leader epoch stayed the same.
        leader_epochs_back: by how many epochs this segment falls behind the one before it, at its first new offset.
        leader_epochs_unlike_previous: entries of the stored history that contradict the segment right before.
        batches_not_opened: batches of which more would come out than is opened. No fault is known of them.
        first_batch_faults, last_batch_faults: of the batches at either end, all kinds together. Shallow alone.
        read_log_crc32c, log_max_timestamp_ms: of the bytes and batches that were read; the metadata's maximum where no
            batch has a timestamp. This and all that follow: deep alone.
        log_unreadable_bytes: bytes from the first on that cannot begin a batch.
        log_wrong_crcs: batches whose CRC-32C is not that of their bytes.
        log_missing_offsets: offsets of the segment that no batch has.
        log_misplaced_batches: outside of the segment's offsets, or not after the batches before.
        log_wrong_epochs: batches with another leader epoch than the metadata has for them.
        log_impossible_headers: contradictions that no broker writes, in counts, flags, codec, producer or markers.
        log_thinned_batches: with fewer records than offsets: the topic was compacted once.
        log_unopened_batches: of those that were opened, the ones whose records are not what the header says.
        transaction_index_missing: aborted transactions of the batches that the index lacks.
        bytes_read: bytes fetched to take this measure.
        remarks: (column, sentence) for what a number alone does not explain.
    """

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    segment_size_bytes: int
    log_crc32c: int | None
    stored_log_size_bytes: int | None
    stored_log_crc32c: int | None
    objects_missing: int | None
    objects_unlike_contents: int | None
    manifest_differences: int | None
    offset_index_untrimmed: int | None
    offset_index_disorder: int | None
    offset_index_outside: int | None
    time_index_untrimmed: int | None
    time_index_disorder: int | None
    time_index_outside: int | None
    transaction_index_untrimmed: int | None
    transaction_index_disorder: int | None
    transaction_index_outside: int | None
    transaction_index_contradictions: int | None
    producer_snapshot_beyond_end: int | None
    leader_epoch_differences: int | None
    leader_epochs_outside: int | None
    missing_offsets: int | None
    unexplained_overlap: int | None
    leader_epochs_back: int | None
    time_index_unlike_maximum: int | None = None
    leader_epochs_unlike_previous: int | None = None
    batches_not_opened: int | None = 0
    first_batch_faults: int | None = None
    last_batch_faults: int | None = None
    read_log_crc32c: int | None = None
    max_timestamp_ms: int | None = None
    log_max_timestamp_ms: int | None = None
    log_unreadable_bytes: int | None = None
    log_wrong_crcs: int | None = None
    log_missing_offsets: int | None = None
    log_misplaced_batches: int | None = None
    log_wrong_epochs: int | None = None
    log_impossible_headers: int | None = None
    log_thinned_batches: int | None = None
    log_unopened_batches: int | None = None
    offset_index_strays: int | None = None
    time_index_strays: int | None = None
    transaction_index_strays: int | None = None
    transaction_index_missing: int | None = None
    producer_snapshot_strays: int | None = None
    depth: Depth = Depth.SHALLOW
    bytes_read: int = 0
    remarks: tuple[tuple[str, str], ...] = ()

    @property
    def is_missing(self) -> bool:
        """Whether the store does not show all of it: an object is not there, or not yet, or the store refuses."""
        return self.objects_missing != 0


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
    measurements = _PartitionMeasurements()
    held = sorted(
        _held(segments, histories, divergences),
        key=lambda segment_measure: (
            segment_measure.history,
            segment_measure.segment.end_offset,
            segment_measure.part.first,
        ),
    )
    _fill_missing(measurements, held, decisions, log_start_offset)
    for before, after in pairwise(held):
        if before.history == after.history:
            _fill_succession(measurements, before.segment, after.segment)
    for segment_measure in held:
        if segment_measure.part.last >= log_start_offset:
            _fill_other_history(measurements, segment_measure, divergences, leader_epochs)
    finished = [
        segment_measure.segment
        for segment_measure in sorted(held, key=lambda segment_measure: segment_measure.segment.end_offset)
    ]
    for segment in finished:
        if log_end_offset is not None and segment.end_offset >= log_end_offset:
            text = f"ends at offset {segment.end_offset}, and the log before offset {log_end_offset}"
            measurements.add("segments_above_log_end", 1, segment, text)
        if segment.end_offset < log_start_offset:
            text = f"ends at offset {segment.end_offset}, below the log start {log_start_offset}"
            measurements.add("segments_below_log_start", 1, segment, text)
    return PartitionMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        segments=len(finished),
        start_offset=min((s.start_offset for s in finished), default=None),
        end_offset=finished[-1].end_offset if finished else None,
        faults=tuple(measurements.faults()),
        **{column: measurements.counts[column] for column in _COUNTED},
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


class _PartitionMeasurements:
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
    measurements: _PartitionMeasurements,
    held: Sequence[_Held],
    decisions: Sequence[SkippedOffsets],
    log_start_offset: int,
) -> None:
    """Each hole is a fault of the segment behind it. What a later segment holds besides is no hole."""
    held_up_to = log_start_offset - 1
    for position, segment_measure in enumerate(sorted(held, key=lambda segment_measure: segment_measure.part)):
        if position:
            for hole in not_skipped(held_up_to + 1, segment_measure.part.first - 1, decisions):
                text = f"follows the offsets {hole}, which no segment holds"
                measurements.add("missing_offsets", hole.size, segment_measure.segment, text)
        held_up_to = max(held_up_to, segment_measure.part.last)


def _fill_other_history(
    measurements: _PartitionMeasurements, held: _Held, divergences: Sequence[Divergence], leader_epochs: LeaderEpochs
) -> None:
    for offsets in unexplained(held.segment, held.history, divergences, leader_epochs):
        text = f"holds the offsets {offsets} under other leader epochs than the partition's history has there"
        measurements.add("other_history", offsets.size, held.segment, text)


def _fill_succession(
    measurements: _PartitionMeasurements, before: RemoteLogSegmentMetadata, after: RemoteLogSegmentMetadata
) -> None:
    other = before.remote_log_segment_id.id
    if (before.start_offset, before.end_offset) == (after.start_offset, after.end_offset):
        offsets = OffsetRange(after.start_offset, after.end_offset)
        measurements.add("duplicate_segments", 1, after, f"has the offsets {offsets}, as segment {other} has")
        return
    if overlap := unexplained_overlap(before, after):
        measurements.add("unexplained_overlap", overlap, after, f"shares {overlap} offsets with segment {other}")
    if back := leader_epochs_back(before, after):
        epoch = before.segment_leader_epochs.entries[-1].epoch
        measurements.add(
            "leader_epoch_regressions", 1, after, f"begins {back} below leader epoch {epoch} of segment {other}"
        )
