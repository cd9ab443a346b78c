"""Faults of the indexes that were read back, counted. Pure: bytes and metadata in, numbers out.

Each function raises FormatError if the bytes cannot be read as that index at all, or are more than its log can need.
"""

from dataclasses import fields
from typing import Final, NamedTuple

from include.tiering.errors import FormatError
from include.tiering.formats import checkpoints, indexes, producer_state
from include.tiering.formats.aiven_manifest import parse_manifest
from include.tiering.formats.indexes import OffsetIndex, TimeIndex, TransactionIndex
from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.model.segment_data import IndexType
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata

# The manifest is written when the copy starts: these fields change later, or are not in it.
_NOT_IN_MANIFEST: Final = frozenset({"state", "custom_metadata", "txn_index_empty", "event_timestamp_ms"})


class IndexFaults(NamedTuple):
    """Bytes behind the last entry, entries that do not ascend, entries that point out of the segment."""

    untrimmed: int
    disorder: int
    outside: int


def offset_entries(data: bytes, metadata: RemoteLogSegmentMetadata) -> OffsetIndex:
    """All entries, a zero tail left out."""
    _check_plausible(data, indexes.OFFSET_ENTRY_BYTES, _most_batches(metadata))
    return indexes.parse_offset_index(data, base_offset=metadata.start_offset)


def time_entries(data: bytes, metadata: RemoteLogSegmentMetadata) -> TimeIndex:
    """All entries, a zero tail left out."""
    _check_plausible(data, indexes.TIME_ENTRY_BYTES, _most_batches(metadata) + 1)
    return indexes.parse_time_index(data, base_offset=metadata.start_offset)


def transaction_entries(data: bytes, metadata: RemoteLogSegmentMetadata) -> TransactionIndex:
    """All whole entries."""
    _check_plausible(data, indexes.TRANSACTION_ENTRY_BYTES, _most_batches(metadata) + 1)
    return indexes.parse_transaction_index(indexes.trim_transaction_index(data))


def _most_batches(metadata: RemoteLogSegmentMetadata) -> int:
    return metadata.segment_size_bytes // HEADER_SIZE


def _check_plausible(data: bytes, entry_bytes: int, most_entries: int) -> None:
    """An active segment's index, untrimmed, has zeros after the last entry: they do not count."""
    used_bytes = len(data.rstrip(b"\0"))
    if used_bytes > most_entries * entry_bytes:
        raise FormatError(f"{used_bytes // entry_bytes} entries or more, the log has room for {most_entries} batches")


def offset_index_faults(data: bytes, metadata: RemoteLogSegmentMetadata) -> IndexFaults:
    index = offset_entries(data, metadata)
    offsets, positions = index.offsets, index.positions
    return IndexFaults(
        untrimmed=len(data) - len(indexes.trim_offset_index(data)),
        disorder=int(((offsets[1:] <= offsets[:-1]) | (positions[1:] <= positions[:-1])).sum()),
        outside=int(
            (
                (offsets < metadata.start_offset)
                | (offsets > metadata.end_offset)
                | (positions <= 0)
                | (positions >= metadata.segment_size_bytes)
            ).sum()
        ),
    )


def time_index_faults(data: bytes, metadata: RemoteLogSegmentMetadata) -> IndexFaults:
    """A timestamp above the segment's largest counts as outside."""
    index = time_entries(data, metadata)
    offsets, timestamps = index.offsets, index.timestamps_ms
    return IndexFaults(
        untrimmed=len(data) - len(indexes.trim_time_index(data)),
        disorder=int(((offsets[1:] < offsets[:-1]) | (timestamps[1:] <= timestamps[:-1])).sum()),
        outside=int(
            (
                (offsets < metadata.start_offset)
                | (offsets > metadata.end_offset)
                | (timestamps < 0)
                | (timestamps > metadata.max_timestamp_ms)
            ).sum()
        ),
    )


def transaction_index_faults(data: bytes, metadata: RemoteLogSegmentMetadata) -> IndexFaults:
    """Markers lie in the segment; the transactions may have begun before it."""
    entries = transaction_entries(data, metadata).entries
    markers, firsts = entries["last_offset"], entries["first_offset"]
    return IndexFaults(
        untrimmed=len(data) % indexes.TRANSACTION_ENTRY_BYTES,
        disorder=int((markers[1:] <= markers[:-1]).sum()),
        outside=int(
            (
                (markers < metadata.start_offset) | (markers > metadata.end_offset) | (firsts < 0) | (firsts >= markers)
            ).sum()
        ),
    )


def producers_beyond_end(data: bytes, metadata: RemoteLogSegmentMetadata) -> int:
    """Producers of the snapshot whose last offset lies after the segment."""
    return int((producer_state.entries_of(data)["last_offset"] > metadata.end_offset).sum())


def leader_epoch_differences(data: bytes, metadata: RemoteLogSegmentMetadata) -> int:
    """Entries of the stored history, clipped to the segment, that the metadata lacks, and the reverse; and entries
    that start after the segment, which a reader of this segment must not see."""
    history = checkpoints.parse_leader_epochs(data)
    clipped = set(history.range(metadata.start_offset, metadata.end_offset + 1))
    later = sum(entry.start_offset > metadata.end_offset for entry in history)
    return len(clipped ^ set(metadata.segment_leader_epochs)) + later


def epochs_unlike_previous(data: bytes, previous: RemoteLogSegmentMetadata | None, start_offset: int) -> int:
    """Entries of the stored history, clipped to the segment that ends right before `start_offset`, that its metadata
    lacks, and the reverse. 0 where another history may be right: behind a gap, in an overlap, where the log start cut
    the history later."""
    history = checkpoints.parse_leader_epochs(data)
    is_cut = not history.entries or (previous is not None and history.entries[0].start_offset > previous.start_offset)
    if previous is None or previous.end_offset + 1 != start_offset or is_cut:
        return 0
    clipped = history.range(previous.start_offset, previous.end_offset + 1)
    return len(set(clipped) ^ set(previous.segment_leader_epochs))


def leader_epochs_outside(metadata: RemoteLogSegmentMetadata) -> int:
    """Entries outside [start, end]. The first one may lie behind the start: a log start inside the segment cut it."""
    inside = range(metadata.start_offset, metadata.end_offset + 1)
    return sum(entry.start_offset not in inside for entry in metadata.segment_leader_epochs)


def manifest_differences(content: bytes, metadata: RemoteLogSegmentMetadata) -> list[str]:
    """Names of the fields that differ between a manifest and the metadata; `metadata` alone if it has none."""
    manifest = parse_manifest(content)
    described = manifest.metadata
    if described is None:
        return ["metadata"]
    names = (field.name for field in fields(metadata) if field.name not in _NOT_IN_MANIFEST)
    differing = [name for name in names if getattr(described, name) != getattr(metadata, name)]
    if described.topic_id_partition.topic != metadata.topic_id_partition.topic:
        differing.append("topic")
    transactions = manifest.indexes[IndexType.TRANSACTION]
    if described.txn_index_empty and transactions is not None and transactions.size_bytes:
        differing.append("txn_index_empty")
    return differing
