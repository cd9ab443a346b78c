"""Measures: numbers about one segment in the remote store, and about all segments of a partition.

Nothing is evaluated here. A measure describes what a reader of the store gets: objects are listed and indexes are read
back. A shallow measure checks only the batches at both ends of the log, and relies on a checksum for the rest: the
store's, or one computed by reading the log if the store keeps none, or the source's if the log is compressed or
encrypted. A deep measure reads the whole log.

A segment that is verified is compared with its predecessor. The measure of a partition covers its FINISHED segments,
whichever of them the run verified: only this measure shows a gap between two segments that passed long ago.
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
    """The measure of one FINISHED segment. Offsets are inclusive.

    A number is None if it could not be measured, or is not measured at this `depth`; `batches_not_opened` is 0 then. A
    column is measured at the depths of the rules that read it.

    The columns from `objects_missing` on count faults, and 0 is right, except for checksums, timestamps,
    `batches_not_opened` and the last three.
    `*_untrimmed` counts bytes after the last entry, `*_disorder` entries that do not ascend, `*_outside` entries that
    point outside of the segment, `*_wrong_entries` (only deep) entries that contradict the batches. A segment that
    rightly has no predecessor, manifest or transaction index has no faults in the columns about them.

    Attributes:
        segment_size_bytes, log_crc32c: length and checksum of the source's log, from the metadata and the checks before
            the copy. If no checksum was recorded, a deep measure has the checksum of the bytes that were read here.
        stored_log_size_bytes: length of the stored log; for a compressed or encrypted log the length of its decoded
            bytes, by its manifest.
        stored_log_crc32c: checksum of the stored log: the store's, or one computed from its bytes if the store keeps
            none. For a compressed or encrypted log a deep measure has the checksum of the decoded bytes, and a shallow
            measure the source's checksum.
        objects_missing: objects that are not in the store, or wrongly have 0 bytes; None if that is not known.
        objects_unlike_contents: objects other than the log whose stored length or checksum differs from what was read.
        manifest_differences: fields that differ between the manifest and the metadata.
        offset_index_outside: also counts entries at position 0, which no broker writes.
        transaction_index_outside: also counts first offsets that are negative or not below the marker.
        time_index_outside: also counts timestamps that are negative or above the segment's maximum.
        time_index_unlike_maximum: 1 if the last entry does not have the segment's largest timestamp.
        transaction_index_contradictions: 1 if only one of index and metadata says that the index is empty; 0 if the
            segment has no recorded checksum and the metadata do not say so, because old brokers never say so.
        producer_snapshot_beyond_end: producers whose last offset is after the segment.
        leader_epoch_differences: entries within the segment that only one of the stored history and the metadata has,
            and entries of the stored history that start after the segment's end.
        leader_epochs_outside: entries of the metadata that do not begin in [start, end].
        missing_offsets: offsets between the previous segment's end and this start, without a decision to skip them.
        unexplained_overlap: offsets that this segment and its predecessor both hold; 0 if this segment has new offsets
            and another broker or a later leader epoch.
        leader_epochs_back: by how many epochs this segment, at its first new offset, is below its predecessor's last.
        leader_epochs_unlike_previous: entries that differ between the stored history and the predecessor's metadata, if
            the predecessor ends right before this segment and the history does not begin after the predecessor's start.
        batches_not_opened: batches above a limit of decompressed bytes or records; the part that was read is right.
        first_batch_faults, last_batch_faults: faults in the first batch, and in all batches from the last entry of the
            offset index to the end of the log; a batch with fewer records than offsets is no fault here. Only shallow.
        read_log_crc32c: checksum of the bytes that were read. Like all columns below up to transaction_index_missing,
            only deep.
        log_max_timestamp_ms: largest timestamp of the batches that were read; the metadata's if none has a timestamp.
        log_unreadable_bytes: bytes from the first position where no batch can be read to the end of the log.
        log_wrong_crcs: batches whose CRC-32C is not that of their bytes.
        log_missing_offsets: offsets of the segment that no batch has.
        log_misplaced_batches: batches outside of the segment's offsets, or not after the batches before them.
        log_wrong_epochs: batches whose leader epoch is not the metadata's.
        log_impossible_headers: contradictions that no broker writes, in counts, flags, codec, producer or markers.
        log_thinned_batches: batches with fewer records than offsets: the topic was compacted once.
        log_unopened_batches: batches that cannot be decompressed, or whose records contradict the header; at most 1,
            because no batch is opened after it.
        transaction_index_missing: aborted transactions that the batches show and the index lacks.
        producer_snapshot_wrong_entries: also counts open transactions whose producer the snapshot lacks.
        bytes_read: bytes fetched to take this measure, without those that a shallow measure reads only to compute
            checksums that the store lacks.
        remarks: (column, sentence) pairs that explain a number.
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
    offset_index_wrong_entries: int | None = None
    time_index_wrong_entries: int | None = None
    transaction_index_wrong_entries: int | None = None
    transaction_index_missing: int | None = None
    producer_snapshot_wrong_entries: int | None = None
    depth: Depth = Depth.SHALLOW
    bytes_read: int = 0
    remarks: tuple[tuple[str, str], ...] = ()

    @property
    def is_missing(self) -> bool:
        """Return whether an object is absent or wrongly empty (perhaps for now), or could not be listed or accessed."""
        return self.objects_missing != 0


MAX_NAMED_FAULTS: Final = 100
"""The most faults of one column that a partition's measure describes; all are counted."""


UNKNOWN_HISTORY: Final = LeaderEpochs()
FIRST_HISTORIES: Final[Mapping[RemoteLogSegmentId, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SegmentFault:
    """A fault that `column` counts: the segment where it shows, and its description."""

    column: str
    segment_id: str
    start_offset: int
    text: str


@dataclass(frozen=True, slots=True)
class PartitionMeasure:
    """The measure of one partition.

    The columns from `missing_offsets` on count faults. A column whose input cannot be read, such as the log end of an
    unavailable broker, is 0.

    Attributes:
        segments: the number of FINISHED segments, without those whose offsets all belong to later histories.
        start_offset, end_offset: the lowest and the highest offset of these segments, inclusive; None without any.
        missing_offsets: offsets that no segment has and no decision skips. They are counted from the remote log start
            or the first segment, whichever is higher, to the last offset.
        duplicate_segments: segments with exactly the offsets of the segment before them.
        unexplained_overlap: offsets that a segment shares with the one before it, as for `SegmentMeasure`; duplicates
            are not counted again.
        leader_epoch_regressions: segments whose leader epoch is below that of their predecessor.
        segments_above_log_end: segments with offsets at or above the leader's log end (exclusive).
        segments_below_log_start: segments wholly below the remote log start, which no reader gets.
        other_history: offsets of segments whose leader epochs there are not those of the partition's history, except
            offsets that a decision left to an older history, and segments wholly below the remote log start.
        faults: the first `MAX_NAMED_FAULTS` faults of each column.
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

    A segment is compared with the one before it in the same history (see `model.histories`); segments of all histories
    fill gaps. `histories` has the history number of each segment that is not of the first history; `leader_epochs` is
    the merged leader epoch history. `log_start_offset` (inclusive) is the remote log start, `log_end_offset`
    (exclusive) the end of the leader's log, None if it is unknown.
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
            text = f"ends at offset {segment.end_offset}, but the log ends before offset {log_end_offset}"
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
    """A FINISHED segment, the number of its history, and its offsets that count in that history."""

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
    """Count each gap as a fault of the segment after it. Nothing is counted before the segment that begins first."""
    held_up_to = log_start_offset - 1
    for position, segment_measure in enumerate(sorted(held, key=lambda segment_measure: segment_measure.part)):
        if position:
            for gap in not_skipped(held_up_to + 1, segment_measure.part.first - 1, decisions):
                text = f"follows the offsets {gap}, which no segment holds"
                measurements.add("missing_offsets", gap.size, segment_measure.segment, text)
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
        measurements.add("duplicate_segments", 1, after, f"has the same offsets {offsets} as segment {other}")
        return
    if overlap := unexplained_overlap(before, after):
        measurements.add("unexplained_overlap", overlap, after, f"shares {overlap} offsets with segment {other}")
    if back := leader_epochs_back(before, after):
        epoch = before.segment_leader_epochs.entries[-1].epoch
        measurements.add(
            "leader_epoch_regressions", 1, after, f"begins {back} epochs below leader epoch {epoch} of segment {other}"
        )


_INDEX_BYTES_PER_INTERVAL: Final = 20
_INTERVAL_BYTES: Final = 4096
"""Default of Kafka's `index.interval.bytes`: per interval an offset index grows by 8 bytes, a time index up to 12."""

_ABOUT_BYTES: Final = {Depth.SHALLOW: 17 * 1024, Depth.DEEP: 1024}
"""Estimated bytes of manifest, producer snapshot and leader epochs; for a shallow measure also of the part of the log
that it reads, which is larger if the last batch is large."""


RANGES_OF_LOG: Final = {Depth.SHALLOW: 3, Depth.DEEP: 1}
"""Reads of the log: the header of the first batch, the first batch, and the last batches; or all of it."""


def bytes_to_read(segment: RemoteLogSegmentMetadata, depth: Depth, *, log_chunk_bytes: int = 1) -> int:
    """Return about how many bytes a measure of this segment reads, without those that `bytes_to_read_back` returns.

    Args:
        segment: the segment.
        depth: how deep it is measured.
        log_chunk_bytes: see `ReadingCosts`. Chunks count as if compression saved nothing.
    """
    log_bytes = segment.segment_size_bytes
    of_log = log_bytes
    if depth is Depth.SHALLOW:
        of_log = RANGES_OF_LOG[depth] * min(log_chunk_bytes, log_bytes) if log_chunk_bytes > 1 else 0
    return of_log + _index_bytes(segment) + _ABOUT_BYTES[depth]


def bytes_to_read_back(segment: RemoteLogSegmentMetadata) -> int:
    """Return about how many bytes a shallow measure reads to compute the checksums of a store that keeps none."""
    return segment.segment_size_bytes + _index_bytes(segment) + _ABOUT_BYTES[Depth.DEEP]


def _index_bytes(segment: RemoteLogSegmentMetadata) -> int:
    return segment.segment_size_bytes // _INTERVAL_BYTES * _INDEX_BYTES_PER_INTERVAL
