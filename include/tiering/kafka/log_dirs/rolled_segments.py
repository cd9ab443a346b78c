"""Read the rolled segments of a partition.

Without `deep`, the names and sizes of the files are read, and of each segment the last time index entry (the headers of
all batches, if the time index is empty). With `deep`, every batch, every index and the producer snapshot are checked.

`SegmentFiles` holds the files of one segment open and checks all of them. Samples show whether an offset or time index
belongs to its `.log`: up to `_SPOT_CHECKS` entries of the offset index, spread evenly, and the last entry of the time
index. The transaction index is compared with all aborted transactions that the batches show.

- An offset index entry is correct if a batch begins at its position, and the base offset of this batch is neither above
  the entry's offset nor below the segment's base offset: then a scan from the position finds every record from the
  entry's offset on. (An entry of a broker before 4.x is about an append, which may have several batches: the position
  is that of the first batch, and the offset may be in a later batch.)
- The last time index entry is correct if the batch that holds its offset has the entry's timestamp as the largest.
- The transaction index must have every aborted transaction whose begin and ABORT marker are known. Otherwise consumers
  with read_committed would get aborted records.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self

from include.tiering.errors import (
    CorruptFileError,
    FormatError,
    OldMagicError,
    SourceError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.formats import indexes
from include.tiering.formats.indexes import (
    AbortedTxn,
    OffsetIndex,
    ProducerEntry,
    TimeIndex,
    check_length,
    open_transactions,
)
from include.tiering.formats.log_batches import CheckedBatches, check_segment
from include.tiering.formats.record_batch import HEADER_SIZE, NO_TIMESTAMP, iter_headers, parse_header
from include.tiering.kafka.log_dirs.dirs import MAX_SNAPSHOT_BYTES, Listing, LogFile, in_file
from include.tiering.kafka.log_dirs.files import BrokerDirectory, BrokerFile, FileKind, offset_file
from include.tiering.kafka.log_dirs.found_replica import FoundSegment
from include.tiering.model.leader_epochs import LeaderEpochs

_SEGMENT_KINDS: Final = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

_MAX_KNOWN: Final = 10_000


class KnownTimestamps:
    """Cache the largest timestamps of rolled segments, which do not change.

    The cache saves reads if a replica is read again. The key is the directory's device and inode, and the segment's
    base offset, next base offset, size and modification time.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, int], LogFile], int] = {}

    def largest(self, directory: BrokerDirectory, log: LogFile) -> int:
        key = directory.identity(), log
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = _largest_timestamp(directory, log)
        return known


def read_rolled_segments(
    directory: BrokerDirectory,
    listing: Listing,
    leader_epochs: LeaderEpochs,
    *,
    deep: bool,
    on_error: Callable[[SourceError], None],
    known: KnownTimestamps,
) -> list[FoundSegment]:
    """Read all rolled segments of a partition.

    An error of a segment is reported, and the segment is marked as corrupt, or as unreadable if the host refused to
    read one of its files; a segment in which a batch of magic 0 or 1 is found is only marked as such.
    `evaluate_replicas` decides whether a segment that lacks offsets is corrupt.

    Raises:
        SourceVanishedError: a file was removed after it was listed; the caller may list again.
    """
    rolled = []
    for log, successor in pairwise(listing.logs):
        found = FoundSegment(
            base_offset=log.base_offset,
            next_base_offset=successor.base_offset,
            size_bytes=log.size_bytes,
            max_timestamp_ms=NO_TIMESTAMP,
            active=False,
            has_producer_snapshot=listing.has(FileKind.PRODUCER_SNAPSHOT, successor.base_offset),
        )
        try:
            if _is_refused(listing, found) or _precedes_lost_segment(listing, found):
                found = replace(found, is_corrupt=True)
            elif log.size_bytes == 0:
                _check_names(directory, listing, log)
                found = replace(found, first_missing_offset=log.base_offset, batch_count=0 if deep else None)
            elif deep:
                found = _checked(directory, found, leader_epochs)
            else:
                _check_names(directory, listing, log)
                found = replace(found, max_timestamp_ms=known.largest(directory, log))
        except OldMagicError:
            found = replace(found, is_old_magic=True)
        except SourceVanishedError:
            raise
        except SourceUnreadableError as error:
            on_error(error)
            found = replace(found, is_unreadable=True)
        except SourceError as error:
            on_error(error)
            found = replace(found, is_corrupt=True)
        rolled.append(found)
    return rolled


def _is_refused(listing: Listing, found: FoundSegment) -> bool:
    """Return whether one of the segment's files is not a regular file; the listing has reported that."""
    if not listing.refused:
        return False
    names = [offset_file(found.base_offset, kind) for kind in _SEGMENT_KINDS]
    names.append(offset_file(found.next_base_offset, FileKind.PRODUCER_SNAPSHOT))
    return not listing.refused.isdisjoint(names)


def _precedes_lost_segment(listing: Listing, found: FoundSegment) -> bool:
    """Return whether the next segment lacks its `.log`, so that the end of this segment is unknown.

    The listing has reported the missing file.
    """
    return any(found.base_offset < lost < found.next_base_offset for lost in listing.lost)


def _checked(directory: BrokerDirectory, found: FoundSegment, leader_epochs: LeaderEpochs) -> FoundSegment:
    with SegmentFiles.open(directory, found.base_offset, found.next_base_offset) as files:
        checked = files.check(leader_epochs)
    return replace(
        found,
        max_timestamp_ms=checked.max_timestamp_ms,
        batch_count=checked.batches.batch_count,
        first_missing_offset=checked.batches.first_missing_offset,
    )


def _check_names(directory: BrokerDirectory, listing: Listing, log: LogFile) -> None:
    """Require both indexes.

    Raises:
        CorruptFileError: an index is missing, although the `.log` exists.
        SourceVanishedError: the `.log` is missing as well: the segment is being deleted and not damaged.
    """
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        if not listing.has(kind, log.base_offset):
            directory.stat(offset_file(log.base_offset, FileKind.LOG))
            raise CorruptFileError(
                directory.path_of(offset_file(log.base_offset, kind)), "missing, although its .log exists"
            )


def _largest_timestamp(directory: BrokerDirectory, log: LogFile) -> int:
    """Return the largest timestamp of a segment in ms, found as brokers do.

    It is that of the last time index entry. If the time index is empty, it is the largest of the batches; if no batch
    has one, it is the file's modification time.
    """
    with directory.file(offset_file(log.base_offset, FileKind.TIME_INDEX)) as index, in_file(index.path):
        check_length(index.size_bytes, indexes.TIME_ENTRY_BYTES)
        if index.size_bytes:
            start = index.size_bytes - indexes.TIME_ENTRY_BYTES
            timestamp_ms = indexes.timestamp_of(index.read_at(start, indexes.TIME_ENTRY_BYTES))
            if timestamp_ms is None and start:
                raise FormatError("the time index ends in zero entries", start)
            return timestamp_ms or 0
    with directory.file(offset_file(log.base_offset, FileKind.LOG)) as file:
        largest = max((batch.header.max_timestamp for batch in iter_headers(file)), default=NO_TIMESTAMP)
    return largest if largest != NO_TIMESTAMP else log.modified_ms


_MARKER_BYTES: Final = HEADER_SIZE + 10
"""An ABORT marker in the `.log` is not smaller."""


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """The contents of the checked files.

    Offset and time index are as on disk; the transaction index is without an incomplete last entry.

    `max_timestamp_ms` is the largest timestamp of the batches, or if no batch has one, the modification time of the
    `.log`. `transaction_index` and `producer_snapshot` are None if there is no such file.
    """

    batches: CheckedBatches
    max_timestamp_ms: int
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    aborted_transactions: int
    producer_snapshot: bytes | None


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of a segment, held open so that they stay readable when they are deleted.

    `next_base_offset` is the successor's base offset. `producer_snapshot` is the snapshot at the segment's end; this
    snapshot is copied with the segment. `base_snapshot` is the snapshot at the segment's start; it is only used for
    checks and is not copied.
    """

    base_offset: int
    next_base_offset: int
    log: BrokerFile
    offset_index: BrokerFile
    time_index: BrokerFile
    transaction_index: BrokerFile | None
    producer_snapshot: BrokerFile | None
    base_snapshot: BrokerFile | None

    @classmethod
    @contextmanager
    def open(cls, directory: BrokerDirectory, base_offset: int, next_base_offset: int) -> Iterator[Self]:
        """Open all files of a segment; transaction index and snapshots may be absent.

        Raises:
            SourceVanishedError: the segment does not exist.
            SourceError: an index is missing, or a file cannot be opened. Errors of `base_snapshot` are ignored: then it
                is None.
        """
        with ExitStack() as stack:

            def required(offset: int, kind: FileKind) -> BrokerFile:
                name = offset_file(offset, kind)
                return stack.enter_context(directory.file(name, bulk=kind is FileKind.LOG))

            def optional(offset: int, kind: FileKind, absence: type[SourceError]) -> BrokerFile | None:
                try:
                    return required(offset, kind)
                except absence:
                    return None

            log = required(base_offset, FileKind.LOG)
            try:
                index_files = required(base_offset, FileKind.OFFSET_INDEX), required(base_offset, FileKind.TIME_INDEX)
            except SourceVanishedError as error:
                directory.stat(log.name)
                raise CorruptFileError(error.path, "missing, although its .log exists") from error
            yield cls(
                base_offset,
                next_base_offset,
                log,
                *index_files,
                optional(base_offset, FileKind.TRANSACTION_INDEX, SourceVanishedError),
                optional(next_base_offset, FileKind.PRODUCER_SNAPSHOT, SourceVanishedError),
                optional(base_offset, FileKind.PRODUCER_SNAPSHOT, SourceError),
            )

    @property
    def all(self) -> tuple[BrokerFile, ...]:
        """The files that are copied."""
        every = (self.log, self.offset_index, self.time_index, self.transaction_index, self.producer_snapshot)
        return tuple(file for file in every if file is not None)

    def check(self, leader_epochs: LeaderEpochs) -> CheckedFiles:
        """Read and check every batch, every index and the producer snapshot.

        Raises:
            CorruptFileError: a check failed; the error has the file of the first failure and, if known, its position.
            OldMagicError: a batch has magic 0 or 1.
            SourceError: a file cannot be read.
        """
        base_offset, end_offset, log_bytes = self.base_offset, self.next_base_offset - 1, self.log.size_bytes
        max_batches = log_bytes // HEADER_SIZE + 1
        log = _SampledLog(self.log, self._sampled_positions(max_batches * indexes.OFFSET_ENTRY_BYTES))
        batches = self._check_log(log, leader_epochs)
        offsets = self.offset_index.read_all(max_batches * indexes.OFFSET_ENTRY_BYTES)
        with in_file(self.offset_index.path):
            by_offset = indexes.check_offset_index(
                offsets, base_offset=base_offset, end_offset=end_offset, size_bytes=log_bytes
            )
        timestamps = self.time_index.read_all((max_batches + 1) * indexes.TIME_ENTRY_BYTES)
        with in_file(self.time_index.path):
            by_time = indexes.check_time_index(timestamps, base_offset=base_offset, end_offset=end_offset)
        spot_check_offset_index(log, by_offset, self.offset_index.path)
        spot_check_time_index(self.log, by_time, by_offset, self.time_index.path)
        transactions, aborted = self._check_transactions(batches)
        largest = batches.max_timestamp_ms
        return CheckedFiles(
            batches=batches,
            max_timestamp_ms=largest if largest != NO_TIMESTAMP else self.log.status.st_mtime_ns // 1_000_000,
            offset_index=offsets,
            time_index=timestamps,
            transaction_index=transactions,
            aborted_transactions=aborted,
            producer_snapshot=self._check_snapshot(),
        )

    def _sampled_positions(self, max_index_bytes: int) -> frozenset[int]:
        """Return the positions of the entries that are samples; none if the index cannot be read, which shows later."""
        with suppress(SourceError):
            entries = self.offset_index.read_all(max_index_bytes)
            ends = [
                (number + 1) * indexes.OFFSET_ENTRY_BYTES
                for number in _spread(len(entries) // indexes.OFFSET_ENTRY_BYTES)
            ]
            return frozenset(int.from_bytes(entries[end - _POSITION_BYTES : end]) for end in ends)
        return frozenset()

    def _check_log(self, log: "_SampledLog", leader_epochs: LeaderEpochs) -> CheckedBatches:
        with in_file(self.log.path):
            batches = check_segment(
                log,
                base_offset=self.base_offset,
                end_offset=self.next_base_offset - 1,
                leader_epochs=leader_epochs,
            )
        if not batches.batch_count:
            raise CorruptFileError(self.log.path, "a rolled segment without a batch", 0)
        return batches

    def _check_transactions(self, batches: CheckedBatches) -> tuple[bytes | None, int]:
        """Return the transaction index without an incomplete last entry, and the number of its entries.

        The index is None if there is no such file.
        """
        path = f"{self.log.path.removesuffix(FileKind.LOG)}{FileKind.TRANSACTION_INDEX}"
        data, entries = None, indexes.parse_transaction_index(b"")
        if self.transaction_index is not None:
            limit = (self.log.size_bytes // _MARKER_BYTES + 1) * indexes.TRANSACTION_ENTRY_BYTES
            data = indexes.trim_transaction_index(self.transaction_index.read_all(limit))
            with in_file(path):
                entries = indexes.check_transaction_index(
                    data, base_offset=self.base_offset, end_offset=self.next_base_offset - 1
                )
        if len(entries) > batches.abort_marker_count:
            message = f"{len(entries)} aborted transactions, the .log has {batches.abort_marker_count} ABORT markers"
            raise CorruptFileError(path, message, batches.abort_marker_count * indexes.TRANSACTION_ENTRY_BYTES)
        if batches.abort_marker_count:
            spot_check_transaction_index(self.log, entries, self._producers_before(), path)
        return data, len(entries)

    def _producers_before(self) -> tuple[ProducerEntry, ...]:
        """Return the producers at the segment's start, if known, to check transactions that began before it."""
        if self.base_snapshot is None:
            return ()
        try:
            return indexes.parse_producer_snapshot(self.base_snapshot.read_all(MAX_SNAPSHOT_BYTES))
        except FormatError:
            return ()

    def _check_snapshot(self) -> bytes | None:
        if self.producer_snapshot is None:
            return None
        data = self.producer_snapshot.read_all(MAX_SNAPSHOT_BYTES)
        with in_file(self.producer_snapshot.path):
            indexes.parse_producer_snapshot(data)
        return data


_SPOT_CHECKS: Final = 32
_POSITION_BYTES: Final = 4
"""The last bytes of an entry of the offset index."""


class _SampledLog:
    """A `ByteSource` over a `.log` that keeps the headers at some positions as they pass by."""

    def __init__(self, log: BrokerFile, positions: frozenset[int]) -> None:
        self._log = log
        self._positions = positions
        self._headers: dict[int, bytes] = {}

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def read_into(self, position: int, buffer: memoryview) -> int:
        done = self._log.read_into(position, buffer)
        for wanted in self._positions:
            if position <= wanted <= position + done - HEADER_SIZE:
                self._headers[wanted] = bytes(buffer[wanted - position : wanted - position + HEADER_SIZE])
        return done

    def header_at(self, position: int) -> bytes:
        """Return the bytes of a header; read them if they did not pass by as a whole."""
        return self._headers.get(position) or self._log.read_at(position, HEADER_SIZE)


def spot_check_offset_index(log: _SampledLog, index: OffsetIndex, index_path: str) -> None:
    """Check samples of the entries. Raises CorruptFileError at the first sample with a wrong position."""
    for number in _spread(len(index)):
        offset, position = int(index.offsets[number]), int(index.positions[number])
        try:
            base_offset = parse_header(log.header_at(position)).base_offset
        except FormatError:
            base_offset = None
        if base_offset is None or not index.base_offset <= base_offset <= offset:
            what = "no batch" if base_offset is None else f"the batch of offset {base_offset}"
            message = f"entry {number} has offset {offset} at byte {position}, where {what} begins"
            raise CorruptFileError(index_path, message, number * indexes.OFFSET_ENTRY_BYTES)


def spot_check_time_index(log: BrokerFile, index: TimeIndex, offsets: OffsetIndex, index_path: str) -> None:
    """Check the last entry. Raises CorruptFileError if it does not match the log. `offsets` must have been checked."""
    if not len(index):
        return
    offset, timestamp_ms = int(index.offsets[-1]), index.largest_timestamp_ms
    for batch in iter_headers(log, offsets.lookup(offset).position):
        if batch.header.last_offset >= offset:
            if batch.header.max_timestamp == timestamp_ms:
                return
            break
    message = f"the last entry has timestamp {timestamp_ms} for offset {offset}, but the batch there does not have it"
    raise CorruptFileError(index_path, message, (len(index) - 1) * indexes.TIME_ENTRY_BYTES)


def spot_check_transaction_index(
    log: BrokerFile, entries: Iterable[AbortedTxn], before: Iterable[ProducerEntry], index_path: str
) -> None:
    """Check that no aborted transaction is missing in the index.

    Args:
        log: the `.log`.
        entries: the entries of the transaction index.
        before: the producers at the segment's start; empty if unknown.
        index_path: the path of the transaction index, for the error.

    Raises:
        CorruptFileError: the index lacks a transaction whose begin and ABORT marker are known.
    """
    known = {(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries}
    for producer_id, first_offset, last_offset, _ in open_transactions(before, iter_headers(log)).aborted:
        if (producer_id, first_offset, last_offset) not in known:
            message = f"lacks the aborted transaction {first_offset}..{last_offset} of producer {producer_id}"
            raise CorruptFileError(index_path, message)


def _spread(count: int) -> range | list[int]:
    """Return at most `_SPOT_CHECKS` evenly spread numbers from 0 to `count` - 1, including both ends."""
    if count <= _SPOT_CHECKS:
        return range(count)
    return [number * (count - 1) // (_SPOT_CHECKS - 1) for number in range(_SPOT_CHECKS)]
