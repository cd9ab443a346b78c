"""What one copied segment looks like in the remote store, as numbers. Nothing is judged here.

The objects are asked of the store and the indexes are read back from it, so a measure says what a reader will meet,
not what a sender meant. The records themselves are not read: the store computed their checksum when they arrived.
"""

from dataclasses import dataclass

from include.tiering.model.depth import Depth


@dataclass(frozen=True, slots=True)
class SegmentMeasure:
    """One FINISHED segment. Offsets are inclusive. Every number may be None: it could not be measured.

    Columns that are not sizes or checksums count faults; 0 is right. `*_untrimmed` counts bytes behind the last entry,
    `*_disorder` entries that do not ascend, `*_outside` entries that point out of the segment. What has no
    predecessor, no manifest or no transaction index by right has no fault there.

    Attributes:
        segment_size_bytes, log_crc32c: the source's, as metadata and check pass recorded them.
        stored_log_size_bytes, stored_log_crc32c: the store's own.
        objects_unlike_contents: objects beside the log whose stored length or checksum is not that of what was read.
        manifest_differences: fields that differ between the manifest and the metadata.
        time_index_outside: also counts timestamps above the segment's maximum.
        transaction_index_contradictions: 1 if the index is empty and the metadata denies it, or the reverse.
        producer_snapshot_beyond_end: producers whose last offset is after the segment.
        leader_epoch_differences: entries of the stored history that contradict the metadata or start after the end.
        leader_epochs_outside: entries of the metadata that do not begin in [start, end].
        missing_offsets: offsets between the previous segment's end and this start, without a decision to skip them.
        unexplained_overlap: offsets held twice although broker and leader epoch stayed the same.
        leader_epochs_back: by how many epochs this segment falls behind the one before it, at its first new offset.
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
    depth: Depth = Depth.SHALLOW
    bytes_read: int = 0
    remarks: tuple[tuple[str, str], ...] = ()
