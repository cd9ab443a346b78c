"""What one copied segment looks like in the remote store, as numbers. Nothing is judged here.

The objects are asked of the store and the indexes are read back from it, so a measure says what a reader will meet,
not what a sender meant. A shallow measure takes the store's word for the records: it computed their checksum when they
arrived. A deep one reads them.
"""

from dataclasses import dataclass

from include.tiering.model.segment_metadata import Depth


@dataclass(frozen=True, slots=True)
class SegmentMeasure:
    """One FINISHED segment. Offsets are inclusive. Every number may be None: it could not be measured, or was not asked
    for at this `depth` (the last two groups). Which, say the rules: one of another depth is not judged.

    Columns that are not sizes, checksums or timestamps count faults; 0 is right. `*_untrimmed` counts bytes behind the
    last entry, `*_disorder` entries that do not ascend, `*_outside` entries that point out of the segment, `*_strays`
    entries that say of the batches what is not so. What has no predecessor, no manifest or no transaction index by
    right has no fault there.

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
