"""Measure one segment through the storage contract.

If an object is missing, cannot be parsed or cannot be read, the columns that need it are None, with the reason as a
remark; but a missing transaction index is measured as an empty one. If the store does not answer, or the private key of
an encrypted segment is missing, there is no measure: the caller gets the error.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from include.tiering.model import histories
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segments import Depth, IndexType, RemoteLogSegmentMetadata
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification import segment_contents
from include.tiering.verification.measure_log import Measurements, fill_ends, fill_whole
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.segment_contents import SegmentContents

_SHOULD_HAVE_ENTRIES: Final = {
    ObjectKind.TIME_INDEX: "time_index_unlike_maximum",
    ObjectKind.TRANSACTION_INDEX: "transaction_index_contradictions",
}
"""For these kinds of index, the name of a column: its value 1 for an empty index means that entries are missing."""


def measure_segment(
    row: SegmentRow,
    *,
    previous: RemoteLogSegmentMetadata | None,
    storage: RemoteStorage,
    limiter: ByteLimiter,
    decisions: Sequence[SkippedOffsets] = (),
    depth: Depth = Depth.SHALLOW,
    ranges: int = 1,
) -> SegmentMeasure:
    """Measure a FINISHED segment; bytes are charged to `limiter` before they are read.

    With one exception: if the store keeps no checksums, a shallow measure reads bytes to compute them, without charge.

    `previous` is the segment's FINISHED predecessor in the partition, None if it has none. `decisions` are decisions to
    skip offsets of the partition. Up to `ranges` ranges of the log are read at the same time.

    If no checksum of the source was recorded, a deep measure uses the checksum of the bytes that it read instead. That
    is enough, because each batch has a CRC-32C of its own, and offsets and epochs are compared with the metadata. For a
    broker's segment no checksum is ever recorded: a shallow measure has nothing to compare the store's checksum with,
    and uses the store's as that of the source.

    Raises:
        RemoteStorageUnavailableError: the store does not answer (retriable).
        SegmentKeyError: the private key of an encrypted segment is not available.
        SendingStoppedError, LeaseLostError: from the limiter.
    """
    metadata = row.metadata
    contents = SegmentContents(metadata, storage, limiter, depth, ranges)
    measurements = Measurements()
    measurements.fill(("stored_log_size_bytes", "stored_log_crc32c"), contents.log_size_and_crc32c)
    _fill_indexes(measurements, contents, row)
    measurements.fill(("manifest_differences",), lambda: _manifest_differences(measurements, contents, metadata))
    measurements.fill(("objects_unlike_contents",), lambda: [_objects_unlike_contents(measurements, contents)])
    measurements.fill(("leader_epochs_outside",), lambda: [segment_contents.leader_epochs_outside(metadata)])
    measurements.fill(
        ("missing_offsets", "unexplained_overlap", "leader_epochs_back"),
        lambda: [
            _missing_offsets(measurements, previous, metadata, decisions),
            histories.unexplained_overlap(previous, metadata),
            histories.leader_epochs_back(previous, metadata),
        ],
    )
    measurements.fill(
        ("leader_epochs_unlike_previous",),
        lambda: [
            segment_contents.epochs_unlike_previous(
                contents.index(IndexType.LEADER_EPOCH), previous, metadata.start_offset
            )
        ],
    )
    if depth is Depth.DEEP:
        fill_whole(measurements, contents)
        _take_read_checksum_where_none_is_kept(measurements)
    else:
        fill_ends(measurements, contents)
        _take_source_checksum_of_a_transformed_log(measurements, contents, row)
    measurements.fill(("objects_missing",), lambda: [_objects_missing(measurements, contents)])
    source_crc32c = _source_crc32c(measurements, row, depth)
    partition = metadata.topic_id_partition
    return SegmentMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        segment_id=str(metadata.remote_log_segment_id.id),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        segment_size_bytes=metadata.segment_size_bytes,
        log_crc32c=source_crc32c,
        max_timestamp_ms=metadata.max_timestamp_ms,
        depth=depth,
        bytes_read=contents.bytes_read,
        remarks=tuple(measurements.remarks),
        **measurements.values,
    )


def _take_read_checksum_where_none_is_kept(measurements: Measurements) -> None:
    """Use the checksum of the log as it was read and decoded, if the store keeps none of the log in this form."""
    if measurements.values["stored_log_size_bytes"] is not None and measurements.values["stored_log_crc32c"] is None:
        measurements.values["stored_log_crc32c"] = measurements.values["read_log_crc32c"]


def _take_source_checksum_of_a_transformed_log(
    measurements: Measurements, contents: SegmentContents, row: SegmentRow
) -> None:
    """Use the source's checksum for a transformed log, because the store's checksum is of the transformed bytes.

    The store's checksum was compared when the bytes were sent. A deep measure compares the decoded bytes. A broker's
    segment has no recorded checksum of the source, so for it the store's checksum is used.
    """
    if measurements.values["stored_log_size_bytes"] is not None and measurements.values["stored_log_crc32c"] is None:
        is_unknown = row.log_crc32c is None and row.origin is SegmentOrigin.BROKER
        measurements.values["stored_log_crc32c"] = contents.log_object().crc32c if is_unknown else row.log_crc32c


def _source_crc32c(measurements: Measurements, row: SegmentRow, depth: Depth) -> int | None:
    """Return the recorded checksum of the source's log; if there is none, the one that is used in its place."""
    if row.log_crc32c is not None:
        return row.log_crc32c
    is_of_broker = depth is not Depth.DEEP and row.origin is SegmentOrigin.BROKER
    found: int | None = measurements.values.get("stored_log_crc32c" if is_of_broker else "read_log_crc32c")
    return found


def _fill_indexes(measurements: Measurements, contents: SegmentContents, row: SegmentRow) -> None:
    metadata = row.metadata
    for prefix, read, faults in (
        ("offset_index", partial(contents.index, IndexType.OFFSET), segment_contents.offset_index_faults),
        ("time_index", partial(contents.index, IndexType.TIMESTAMP), segment_contents.time_index_faults),
        ("transaction_index", contents.transaction_index, segment_contents.transaction_index_faults),
    ):
        columns = [f"{prefix}_{kind}" for kind in segment_contents.IndexFaults._fields]
        measurements.fill(columns, partial(_faults_of, read, faults, metadata))
    measurements.fill(
        ("transaction_index_contradictions",),
        lambda: [_transaction_index_contradictions(contents.transaction_index(), row)],
    )
    measurements.fill(
        ("producer_snapshot_beyond_end",),
        lambda: [segment_contents.producers_beyond_end(contents.index(IndexType.PRODUCER_SNAPSHOT), metadata)],
    )
    measurements.fill(
        ("leader_epoch_differences",),
        lambda: [segment_contents.leader_epoch_differences(contents.index(IndexType.LEADER_EPOCH), metadata)],
    )


def _transaction_index_contradictions(index: bytes, row: SegmentRow) -> int:
    """Return 1 if only one of index and metadata says that the transaction index is empty.

    Brokers before 4.0 write metadata without the field `txn_index_empty`, so it is False here even if the index is
    empty. A segment that a broker copied never has a recorded checksum. So if `txn_index_empty` is False and the
    segment has no recorded checksum, the result is 0, and only a deep measure compares index and batches. A
    compressed or encrypted copy that was adopted has no recorded checksum either.
    """
    is_unknown = row.log_crc32c is None and not row.metadata.txn_index_empty
    return 0 if is_unknown else int(bool(index) == row.metadata.txn_index_empty)


def _faults_of(
    read: Callable[[], bytes],
    faults: Callable[[bytes, RemoteLogSegmentMetadata], segment_contents.IndexFaults],
    metadata: RemoteLogSegmentMetadata,
) -> segment_contents.IndexFaults:
    return faults(read(), metadata)


def _missing_offsets(
    measurements: Measurements,
    previous: RemoteLogSegmentMetadata | None,
    metadata: RemoteLogSegmentMetadata,
    decisions: Sequence[SkippedOffsets],
) -> int:
    missing = histories.missing_offsets(previous, metadata, decisions)
    total = sum(part.size for part in missing)
    if missing:
        skipped = f"; decisions skip {_named(decision.offsets for decision in decisions)}" if decisions else ""
        measurements.remark("missing_offsets", f"missing_offsets = {total}: {_named(missing)}{skipped}")
    return total


def _named(ranges: Iterable[OffsetRange]) -> str:
    return ", ".join(map(str, ranges))


def _manifest_differences(
    measurements: Measurements, contents: SegmentContents, metadata: RemoteLogSegmentMetadata
) -> list[int]:
    manifest = contents.manifest()
    differing = [] if manifest is None else segment_contents.manifest_differences(manifest, metadata)
    if differing:
        measurements.remark("manifest_differences", f"manifest and metadata differ in {', '.join(differing)}")
    return [len(differing)]


def _objects_missing(measurements: Measurements, contents: SegmentContents) -> int | None:
    """Count missing objects; None if one could not be read, for a reason that says nothing about its bytes.

    For example, an archive tier shows length and checksum of an object, but refuses to return it. Where each index is
    an object of its own, a time index may be empty, and a transaction index empty or absent. Such an index
    counts as missing if the value of its column (`_SHOULD_HAVE_ENTRIES`) is 1.
    """
    absent = list(contents.absent_kinds())
    if measurements.is_refused:
        measurements.remark("objects_missing", "at least one object could not be read")
        return None
    if contents.indexes_are_objects:
        sizes = {stored_object.kind: stored_object.size_bytes for stored_object in contents.stored_objects()}
        absent += [
            kind
            for kind, column in _SHOULD_HAVE_ENTRIES.items()
            if not sizes.get(kind) and kind not in absent and measurements.values.get(column) == 1
        ]
    if absent:
        measurements.remark("objects_missing", f"not in the store, or wrongly empty: {', '.join(absent)}")
    return len(absent)


def _objects_unlike_contents(measurements: Measurements, contents: SegmentContents) -> int:
    unlike = [
        stored.key
        for stored in contents.stored_objects()
        if stored.kind is not ObjectKind.LOG and not contents.holds_what_is_read(stored)
    ]
    if unlike:
        measurements.remark(
            "objects_unlike_contents", f"stored length or checksum differs from what was read: {', '.join(unlike)}"
        )
    return len(unlike)
