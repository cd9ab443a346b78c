"""The files of one restored segment, from the stored log: checked, cut if need be, and with its indexes. One pass.

    .log                 the batches that are wanted, byte for byte
    .index, .timeindex   rebuilt from the batches, as a broker that appends them one by one writes them
    .txnindex            from remote storage: an aborted transaction may have begun before the segment. Each entry must
                         name an ABORT marker of the log, and each transaction that begins in the log and is aborted in
                         it must be named
    .snapshot            the producers at the end. From remote storage, if the segment is restored to its end; no
                         producer may have a later batch in the log. Of a part that ends before: the producers before
                         the segment, and the batches
    <base>.snapshot      of the first part only: the producers before it, if remote storage has them; otherwise those
                         whose transactions began before it

Every batch is checked by its CRC-32C and its order, and the whole log by the CRC-32C and the length that its source had
when it was copied. Nothing but one block and one batch of the log is in memory.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from include.tiering.errors import FormatError, NoSuchIndexError, RemoteStorageError, SegmentKeyError
from include.tiering.formats.indexes import (
    AbortedTxn,
    ProducerEntry,
    check_transaction_index,
    parse_producer_snapshot,
    serialize_producer_snapshot,
    serialize_transaction_index,
)
from include.tiering.formats.log_batches import EpochGuard
from include.tiering.formats.rebuilt_files import ProducerStates, SegmentFilesBuilder
from include.tiering.formats.record_batch import (
    HEADER_SIZE,
    NO_PRODUCER,
    BatchHeader,
    ControlType,
    TransactionMarker,
    check_codec,
    check_crc,
    check_follows,
    extend_crc32c,
    transaction_marker,
)
from include.tiering.model.segments import IndexType, RemoteLogSegmentMetadata
from include.tiering.reading.scan import batches_of
from include.tiering.remote_storage.contract import SegmentReader
from include.tiering.restoring.plan import RestorePart

INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default of index.interval.bytes: the topic's own is not in remote storage. Lookups do not depend on it."""


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """What is stored beside the log of a segment: the aborted transactions, and the producers at both ends."""

    aborted: tuple[AbortedTxn, ...]
    producers_at_end: bytes
    producers_before: bytes | None


def stored_files(
    part: RestorePart, reader: SegmentReader, before: Callable[[RemoteLogSegmentMetadata], SegmentReader]
) -> StoredFiles:
    """Read what is stored beside the log of a part.

    Raises:
        FormatError: an index breaks its format.
        RemoteStorageError: the store refused or failed, or an index that must be there is absent.
    """
    segment = part.segment
    aborted: tuple[AbortedTxn, ...] = ()
    if not segment.txn_index_empty:
        try:
            data = reader.index(IndexType.TRANSACTION)
        except NoSuchIndexError:
            data = b""
        found = check_transaction_index(data, base_offset=segment.start_offset, end_offset=segment.end_offset)
        aborted = tuple(found)
    earlier = None if part.before is None else _snapshot_of(part.before, before)
    return StoredFiles(aborted, reader.index(IndexType.PRODUCER_SNAPSHOT), earlier)


def _snapshot_of(
    before: RemoteLogSegmentMetadata, opened: Callable[[RemoteLogSegmentMetadata], SegmentReader]
) -> bytes | None:
    """Return the producers at the end of a segment that is not restored; None if it is damaged, or expires now.

    The part behind it is restored in any case, as one before which remote storage has nothing.
    """
    try:
        snapshot = opened(before).index(IndexType.PRODUCER_SNAPSHOT)
        parse_producer_snapshot(snapshot)
    except (FormatError, RemoteStorageError, SegmentKeyError) as error:
        if error.retriable:
            raise
        return None
    return snapshot


@dataclass(slots=True)
class WrittenLog:
    """What was found while the `.log` of a part was written.

    `crc32c` and `size_bytes` are those of the restored log, `source_crc32c` and `source_bytes` those of the stored one.
    """

    crc32c: int = 0
    size_bytes: int = 0
    batches: int = 0
    records: int = 0
    next_offset: int = 0
    source_crc32c: int = 0
    source_bytes: int = 0


@dataclass(slots=True)
class RestoredFiles:
    """The files beside the restored `.log`, by suffix; `before` is the snapshot at its base offset."""

    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    producer_snapshot: bytes
    snapshot_before: bytes | None


@dataclass(slots=True)
class _Seen:
    """What the batches of the whole stored log say of transactions and producers.

    Attributes:
        abort_markers: the producer epoch of each, by producer id and offset.
        aborted: transactions that begin and are aborted in this log.
        last_offsets: of the last batch of each producer, by its id.
    """

    abort_markers: dict[tuple[int, int], int] = field(default_factory=dict)
    aborted: list[AbortedTxn] = field(default_factory=list)
    last_offsets: dict[int, int] = field(default_factory=dict)
    states: ProducerStates = field(default_factory=ProducerStates)

    def add(self, header: BatchHeader, marker: TransactionMarker | None) -> None:
        if header.producer_id == NO_PRODUCER:
            return
        if marker is None:
            self.last_offsets[header.producer_id] = header.last_offset
        elif marker.control is ControlType.ABORT:
            self.abort_markers[header.producer_id, header.last_offset] = header.producer_epoch
        if header.is_transactional and (ended := self.states.append(header, marker)) is not None:
            self.aborted.append(ended)


def write_log(
    part: RestorePart, blocks: Iterable[bytes], stored: StoredFiles, write: Callable[[memoryview], object]
) -> tuple[WrittenLog, RestoredFiles]:
    """Write the batches of a part; return what was found in them, and the files that belong beside them.

    Args:
        part: what is wanted.
        blocks: all bytes of the stored log, in order.
        stored: what is stored beside it.
        write: called with the bytes of each restored batch.

    Raises:
        FormatError: the log, or what is stored beside it, is damaged; the position is that in the stored log.
    """
    written = WrittenLog(next_offset=part.base_offset)
    seen = _Seen()
    before = () if stored.producers_before is None else parse_producer_snapshot(stored.producers_before)
    restored = SegmentFilesBuilder(part.base_offset, INDEX_INTERVAL_BYTES, ProducerStates(before))
    for position, header, batch, marker in checked_batches(part, blocks, written):
        seen.add(header, marker)
        if not _is_wanted(part, header, position):
            continue
        restored.append(written.size_bytes, header, marker)
        write(batch)
        written.crc32c = extend_crc32c(written.crc32c, batch)
        written.size_bytes += len(batch)
        written.batches += 1
        written.records += 0 if header.is_control else header.record_count
        written.next_offset = header.last_offset + 1
    require_source(part, written)
    if not part.is_cut:
        written.next_offset = part.segment.end_offset + 1
    _check_aborted(stored.aborted, seen)
    files = restored.files()
    kept = [each for each in stored.aborted if part.base_offset <= each.last_offset < written.next_offset]
    at_end = files.producer_snapshot
    if not part.is_cut:
        _check_producers(parse_producer_snapshot(stored.producers_at_end), part.segment, seen)
        at_end = stored.producers_at_end
    return written, RestoredFiles(
        files.offset_index,
        files.time_index,
        serialize_transaction_index(kept) if kept else None,
        at_end,
        _snapshot_before(part, stored, seen) if part.is_first else None,
    )


def _snapshot_before(part: RestorePart, stored: StoredFiles, seen: _Seen) -> bytes | None:
    """Return the producers before the first part; None if nothing is known of them.

    A broker that recovers the part without them would forget transactions that began before it. Without a snapshot
    there are those that the part's own files know of: aborted in its segment, or still open at the segment's end.
    """
    if stored.producers_before is not None:
        return stored.producers_before
    entries = {
        each.producer_id: ProducerEntry(
            each.producer_id,
            seen.abort_markers[each.producer_id, each.last_offset],
            last_sequence=-1,
            last_offset=-1,
            offset_delta=0,
            timestamp_ms=part.segment.max_timestamp_ms,
            coordinator_epoch=-1,
            current_txn_first_offset=each.first_offset,
        )
        for each in stored.aborted
        if each.first_offset < part.base_offset
    }
    for entry in parse_producer_snapshot(stored.producers_at_end):
        if entry.has_open_transaction and entry.current_txn_first_offset < part.base_offset:
            entries[entry.producer_id] = replace(entry, last_sequence=-1, last_offset=-1, offset_delta=0)
    return serialize_producer_snapshot(entries.values()) if entries else None


def checked_batches(
    part: RestorePart, blocks: Iterable[bytes], written: WrittenLog
) -> Iterator[tuple[int, BatchHeader, memoryview, TransactionMarker | None]]:
    """Yield all batches of a stored log, each checked, with its position in the log, and the marker of a control batch.

    The bytes of a batch are valid until the next one. `written` gets what `require_source` needs.

    Raises:
        FormatError: a batch is damaged, or does not belong to this segment.
    """
    segment = part.segment
    epochs = EpochGuard(segment.segment_leader_epochs)
    next_offset = segment.start_offset
    for position, header, batch in batches_of(_summed(blocks, written), 0):
        check_follows(header, next_offset, position)
        if header.last_offset > segment.end_offset:
            offsets = f"{header.base_offset}..{header.last_offset}"
            raise FormatError(f"batch {offsets} reaches beyond the segment's end {segment.end_offset}", position)
        check_crc(header, batch, position)
        check_codec(header, position)
        if header.partition_leader_epoch != epochs.epoch or header.last_offset >= epochs.end_offset:
            epochs.enter(header.partition_leader_epoch, header.base_offset, header.last_offset, position)
        marker = transaction_marker(batch, HEADER_SIZE) if header.is_control else None
        yield position, header, batch, marker
        next_offset = header.last_offset + 1


def _summed(blocks: Iterable[bytes], written: WrittenLog) -> Iterator[bytes]:
    for block in blocks:
        written.source_crc32c = extend_crc32c(written.source_crc32c, block)
        written.source_bytes += len(block)
        yield block


def _is_wanted(part: RestorePart, header: BatchHeader, position: int) -> bool:
    """Return whether a batch is restored.

    Raises:
        FormatError: it has offsets of this part and of a neighbour.
    """
    if header.last_offset < part.base_offset or header.base_offset > part.last_offset:
        return False
    if header.base_offset < part.base_offset or (header.last_offset > part.last_offset and not part.is_last):
        batch, wanted = f"{header.base_offset}..{header.last_offset}", f"{part.base_offset}..{part.last_offset}"
        raise FormatError(
            f"batch {batch} cannot be divided, and only offsets {wanted} belong to this segment", position
        )
    return True


def require_source(part: RestorePart, written: WrittenLog) -> None:
    """Raise FormatError unless the log, which was read to its end, has the length and CRC-32C of its source."""
    wanted_bytes, wanted_crc32c = part.segment.segment_size_bytes, part.row.log_crc32c
    if written.source_bytes != wanted_bytes or wanted_crc32c not in (None, written.source_crc32c):
        wanted = "unknown" if wanted_crc32c is None else f"{wanted_crc32c:08x}"
        raise FormatError(
            f"read {written.source_bytes} bytes with CRC-32C {written.source_crc32c:08x}, the source had {wanted_bytes}"
            f" bytes with CRC-32C {wanted}"
        )


def _check_aborted(stored: Iterable[AbortedTxn], seen: _Seen) -> None:
    named = set()
    for each in stored:
        if (each.producer_id, each.last_offset) not in seen.abort_markers:
            raise FormatError(f"its transaction index names an ABORT marker at offset {each.last_offset}, and has none")
        named.add(each[:3])
    for each in seen.aborted:
        if each[:3] not in named:
            offsets = f"{each.first_offset}..{each.last_offset}"
            raise FormatError(f"its transaction index lacks the aborted transaction of offsets {offsets}")


def _check_producers(stored: Iterable[ProducerEntry], segment: RemoteLogSegmentMetadata, seen: _Seen) -> None:
    """Require that the snapshot is not of another log.

    It may lack producers that have expired, and compaction may have removed a producer's last batch from the log.
    """
    for entry in stored:
        in_log = seen.last_offsets.get(entry.producer_id, entry.last_offset)
        if entry.last_offset > segment.end_offset or -1 < entry.last_offset < in_log:
            raise FormatError(
                f"its producer snapshot has offset {entry.last_offset} as the last one of producer {entry.producer_id},"
                f" the log has {in_log}, and ends at {segment.end_offset}"
            )
