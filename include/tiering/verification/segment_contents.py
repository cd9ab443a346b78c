"""The objects of one segment in the store, and functions that count the faults of each object.

Objects are listed once. Each object except the log is read once, and every byte is charged; bytes that listing reads to
compute checksums (see `SegmentContents`) are read in addition and not charged. The functions that count faults are
pure. Those that parse bytes raise FormatError if the bytes are not of that kind of object, or if an index has more
entries than the log can need.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Final, NamedTuple, TypeVar

from include.tiering.errors import FormatError, RemoteChecksumError, RemoteResourceNotFoundError, RemoteStorageError
from include.tiering.formats import checkpoints, indexes
from include.tiering.formats.aiven_manifest import parse_manifest
from include.tiering.formats.indexes import OffsetIndex, TimeIndex, TransactionIndex
from include.tiering.formats.record_batch import HEADER_SIZE, extend_crc32c
from include.tiering.model.segments import Depth, IndexType, RemoteLogSegmentMetadata
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import (
    KeptObject,
    ObjectKind,
    RemoteStorage,
    StoredObject,
    TransformedSizes,
)
from include.tiering.segments.stored_copies import absent_kinds

_T = TypeVar("_T")


class SegmentContents:
    """The objects of a segment. If they could not be listed, every method that needs the list raises that error.

    For a shallow measure, listing reads the objects for which the store keeps no checksum (in a file system, all) to
    compute it. For a deep measure listing reads nothing; the measure reads the log once, later. Unless a method
    says otherwise, it raises what the store raises. If the store does not answer the listing, the constructor raises
    that error.
    """

    def __init__(
        self,
        metadata: RemoteLogSegmentMetadata,
        storage: RemoteStorage,
        limiter: ByteLimiter,
        depth: Depth,
        ranges: int = 1,
    ) -> None:
        self.metadata = metadata
        self._reader = storage.open_log_segment(metadata, limiter=limiter, ranges=ranges)
        self._required_kinds = storage.required_kinds
        is_deep = depth is Depth.DEEP
        self._stored = _attempt(lambda: self._reader.objects() if is_deep else storage.stat_log_segment(metadata))

    @property
    def bytes_read(self) -> int:
        return self._reader.bytes_read

    def absent_kinds(self) -> tuple[ObjectKind, ...]:
        """Return the kinds of object that every segment needs and that are missing here or wrongly have 0 bytes."""
        return absent_kinds(self.stored_objects(), self._required_kinds)

    @property
    def indexes_are_objects(self) -> bool:
        """Return whether each index is an object of its own."""
        return ObjectKind.OFFSET_INDEX in self._required_kinds

    def stored_objects(self) -> tuple[StoredObject | KeptObject, ...]:
        if isinstance(self._stored, RemoteStorageError):
            raise self._stored
        return self._stored

    def log_object(self) -> StoredObject | KeptObject:
        """Return the log's object. Raises RemoteResourceNotFoundError if there is none."""
        for stored_object in self.stored_objects():
            if stored_object.kind is ObjectKind.LOG:
                return stored_object
        raise RemoteResourceNotFoundError("the log is not in the store")

    def log_size_and_crc32c(self) -> tuple[int, int | None]:
        """Return the store's length and checksum of the log.

        The checksum is None for a deep measure if the store keeps none. For a compressed or encrypted log it is None,
        and the length is that of the broker's log.

        Raises:
            RemoteResourceNotFoundError: the log is missing.
            RemoteChecksumError: it is transformed and not as long as its manifest says.
        """
        stored = self.log_object()
        sizes = self._transformed_sizes()
        if sizes is None:
            return stored.size_bytes, stored.crc32c
        if stored.size_bytes != sizes.stored_bytes:
            raise RemoteChecksumError(
                f"the log object has {stored.size_bytes} bytes instead of {sizes.stored_bytes} as in its manifest"
            )
        return sizes.log_bytes, None

    def _transformed_sizes(self) -> TransformedSizes | None:
        """Return the sizes of a compressed or encrypted log; None for a plain log, or without a usable manifest."""
        try:
            return self._reader.transformed_sizes()
        except RemoteStorageError as error:
            if error.retriable:
                raise
            return None

    def log_bytes(self) -> int:
        """Return how many bytes of the log can be read: the metadata's number, or less if the store has less."""
        return min(self.metadata.segment_size_bytes, self.log_size_and_crc32c()[0])

    def index(self, index_type: IndexType) -> bytes:
        return self._reader.index(index_type)

    def transaction_index(self) -> bytes:
        """Return the transaction index; empty bytes if it is not found."""
        try:
            return self._reader.index(IndexType.TRANSACTION)
        except RemoteResourceNotFoundError:
            return b""

    def manifest(self) -> bytes | None:
        return self._reader.manifest()

    def holds_what_is_read(self, stored: StoredObject | KeptObject) -> bool:
        """Return whether length and checksum of an object other than the log are those of its contents."""
        content = self._reader.whole(stored.kind)
        crc32c = self._reader.read_crc32c(stored.key) if stored.crc32c is None else stored.crc32c
        return (stored.size_bytes, crc32c) == (len(content), extend_crc32c(0, content))

    def log_part(self, first_position: int, last_position: int) -> "LogPart":
        """Return a source that reads these bytes (both inclusive) of the log in order."""
        return LogPart(self._reader.log(first_position, last_position), first_position, last_position + 1)


class LogPart:
    """A `ByteSource` over consecutive blocks: a log's bytes from `first_position` to position `size_bytes` (exclusive).

    Reads must be in order. `crc32c` covers what was read.
    """

    def __init__(self, blocks: Iterator[bytes], first_position: int, size_bytes: int) -> None:
        self.crc32c = 0
        self._blocks = blocks
        self._position = first_position
        self._size_bytes = size_bytes
        self._block = memoryview(b"")

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` as far as bytes are left; return their number. Raises ValueError if a read is out of order."""
        if position != self._position:
            raise ValueError(f"read at {position}, expected {self._position}")
        filled = 0
        while filled < len(buffer) and self._fill_block():
            count = min(len(self._block), len(buffer) - filled)
            buffer[filled : filled + count] = self._block[:count]
            self._block = self._block[count:]
            filled += count
        self._position += filled
        return filled

    def skip_rest(self) -> None:
        """Read the rest and discard it: only the checksum needs it."""
        while self._fill_block():
            self._block = memoryview(b"")

    def _fill_block(self) -> bool:
        """Load the next block if the present one is used up; return False at the end."""
        while not self._block:
            block = next(self._blocks, None)
            if block is None:
                return False
            self.crc32c = extend_crc32c(self.crc32c, block)
            self._block = memoryview(block)
        return True


def _attempt(request: Callable[[], _T]) -> _T | RemoteStorageError:
    try:
        return request()
    except RemoteStorageError as error:
        if error.retriable:
            raise
        return error


# The manifest describes the start of the copy. These fields change later, are not in it, or are compared otherwise.
_NOT_IN_MANIFEST: Final = frozenset({"state", "custom_metadata", "txn_index_empty", "event_timestamp_ms"})


class IndexFaults(NamedTuple):
    """Numbers of bytes after the last entry, entries that do not ascend, entries that point outside of the segment."""

    untrimmed: int
    disorder: int
    outside: int


def offset_entries(data: bytes, metadata: RemoteLogSegmentMetadata) -> OffsetIndex:
    """Return all entries, without a tail of zeros."""
    _check_plausible(data, indexes.OFFSET_ENTRY_BYTES, _most_batches(metadata))
    return indexes.parse_offset_index(data, base_offset=metadata.start_offset)


def time_entries(data: bytes, metadata: RemoteLogSegmentMetadata) -> TimeIndex:
    """Return all entries, without a tail of zeros."""
    _check_plausible(data, indexes.TIME_ENTRY_BYTES, _most_batches(metadata) + 1)
    return indexes.parse_time_index(data, base_offset=metadata.start_offset)


def transaction_entries(data: bytes, metadata: RemoteLogSegmentMetadata) -> TransactionIndex:
    """Return all complete entries."""
    _check_plausible(data, indexes.TRANSACTION_ENTRY_BYTES, _most_batches(metadata) + 1)
    return indexes.parse_transaction_index(indexes.trim_transaction_index(data))


def _most_batches(metadata: RemoteLogSegmentMetadata) -> int:
    return metadata.segment_size_bytes // HEADER_SIZE


def _check_plausible(data: bytes, entry_bytes: int, most_entries: int) -> None:
    """Raise FormatError for too many entries. Zeros after the last entry, as in an untrimmed index, do not count."""
    used_bytes = len(data.rstrip(b"\0"))
    if used_bytes > most_entries * entry_bytes:
        raise FormatError(f"at least {used_bytes // entry_bytes} entries, but the log needs at most {most_entries}")


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
    """Count the faults of a time index; a timestamp that is negative or above the segment's largest is outside."""
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
    """Count the faults of a transaction index; transactions may begin before the segment, markers must lie in it."""
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
    """Count producers of the snapshot whose last offset is after the segment."""
    return int((indexes.producer_entries_of(data)["last_offset"] > metadata.end_offset).sum())


def leader_epoch_differences(data: bytes, metadata: RemoteLogSegmentMetadata) -> int:
    """Count differences between the stored leader epoch history and the metadata.

    Counted are entries that only one of the history, clipped to the segment, and the metadata has, and entries of the
    history that start after the segment, which a reader of this segment must not get.
    """
    history = checkpoints.parse_leader_epochs(data)
    clipped = set(history.range(metadata.start_offset, metadata.end_offset + 1))
    later = sum(entry.start_offset > metadata.end_offset for entry in history)
    return len(clipped ^ set(metadata.segment_leader_epochs)) + later


def epochs_unlike_previous(data: bytes, previous: RemoteLogSegmentMetadata | None, start_offset: int) -> int:
    """Count differences between the stored history, clipped to the previous segment, and that segment's metadata.

    Return 0 where the two may rightly differ: without a previous segment, if there is a gap or an overlap between the
    segments, or if the history is empty or begins after the previous segment's start, because the log start was raised.
    """
    history = checkpoints.parse_leader_epochs(data)
    is_cut = not history.entries or (previous is not None and history.entries[0].start_offset > previous.start_offset)
    if previous is None or previous.end_offset + 1 != start_offset or is_cut:
        return 0
    clipped = history.range(previous.start_offset, previous.end_offset + 1)
    return len(set(clipped) ^ set(previous.segment_leader_epochs))


def leader_epochs_outside(metadata: RemoteLogSegmentMetadata) -> int:
    """Count entries outside [start, end]. The first may be after the start, if a log start in the segment cut it."""
    inside = range(metadata.start_offset, metadata.end_offset + 1)
    return sum(entry.start_offset not in inside for entry in metadata.segment_leader_epochs)


def manifest_differences(content: bytes, metadata: RemoteLogSegmentMetadata) -> list[str]:
    """Return the fields that differ between manifest and metadata; only `metadata` if the manifest contains none."""
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
