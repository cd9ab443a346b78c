"""The rolled segments of a partition: by names, sizes and the last time index entry, or every batch of them.

`SegmentFiles` are the files of one segment, opened together, and the check of all of them. Whether the indexes belong
to their `.log` is checked on the spot: some dozen entries, spread evenly.

- An offset index entry is right if a batch begins at its position and not above its offset: then a scan from there
  meets every record from that offset on. (Brokers before 4.x index whole appends, so the offset may lie in a later
  batch.)
- The last time index entry is right if the batch that holds its offset has its timestamp as the largest.
- The transaction index must know every aborted transaction whose begin and ABORT marker are known: without it, readers
  that ask for committed records would get aborted ones.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self

from include.tiering.errors import CorruptFileError, FormatError, OldMagicError, SourceError, SourceVanishedError
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

_MOST_KNOWN: Final = 10_000


class KnownTimestamps:
    """Largest timestamps of rolled segments, which do not change: who copies one segment after another reads a replica
    again for each. A segment is known by its directory's inode, base offset, size and modification time.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, int], LogFile], int] = {}

    def largest(self, directory: BrokerDirectory, log: LogFile) -> int:
        key = directory.identity(), log
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
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
    """What is wrong with one segment is reported and marks it as corrupt; whether one that lacks offsets is, is not
    decided here.

    Raises:
        SourceVanishedError: a file went away since it was listed: list again.
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
            if _is_refused(listing, found) or _is_followed_by_a_lost_one(listing, found):
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
        except SourceError as error:
            on_error(error)
            found = replace(found, is_corrupt=True)
        rolled.append(found)
    return rolled


def _is_refused(listing: Listing, found: FoundSegment) -> bool:
    """One of its names is not a file; that was reported when the directory was listed."""
    if not listing.refused:
        return False
    names = [offset_file(found.base_offset, kind) for kind in _SEGMENT_KINDS]
    names.append(offset_file(found.next_base_offset, FileKind.PRODUCER_SNAPSHOT))
    return not listing.refused.isdisjoint(names)


def _is_followed_by_a_lost_one(listing: Listing, found: FoundSegment) -> bool:
    """Then its successor's base offset is not known, and so not its end; that was reported as well."""
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
    """An index that is missing beside a `.log` that is still there is damage; else the segment is being deleted."""
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        if not listing.has(kind, log.base_offset):
            directory.stat(offset_file(log.base_offset, FileKind.LOG))
            raise CorruptFileError(directory.path_of(offset_file(log.base_offset, kind)), "missing beside its .log")


def _largest_timestamp(directory: BrokerDirectory, log: LogFile) -> int:
    """The last time index entry; without entries that of the batches, else the file's own time, as brokers do."""
    with directory.file(offset_file(log.base_offset, FileKind.TIME_INDEX)) as index, in_file(index.path):
        check_length(index.size_bytes, indexes.TIME_ENTRY_BYTES)
        if index.size_bytes:
            start = index.size_bytes - indexes.TIME_ENTRY_BYTES
            timestamp_ms = indexes.timestamp_of(index.read_at(start, indexes.TIME_ENTRY_BYTES))
            if timestamp_ms is None:
                raise FormatError("the time index ends in zero entries", start)
            return timestamp_ms
    with directory.file(offset_file(log.base_offset, FileKind.LOG)) as file:
        largest = max((batch.header.max_timestamp for batch in iter_headers(file)), default=NO_TIMESTAMP)
    return largest if largest != NO_TIMESTAMP else log.modified_ms


_MARKER_BYTES: Final = HEADER_SIZE + 10
"""The least that an ABORT marker takes in the `.log`."""


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """What the files hold, indexes trimmed. `max_timestamp_ms` is that of the batches, else the `.log`'s own time."""

    batches: CheckedBatches
    max_timestamp_ms: int
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    aborted_transactions: int
    producer_snapshot: bytes | None


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Held open, so that a delete cannot take them away. `next_base_offset` is the successor's base offset.

    `producer_snapshot` is the one at the segment's end, which is copied; `base_snapshot`, at its start, only helps to
    check and is no part of the segment.
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
        """Transaction index and snapshots may be absent.

        Raises:
            SourceVanishedError: the segment is gone.
            SourceError: one of its files cannot be opened.
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
                raise CorruptFileError(error.path, "missing beside its .log") from error
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
        """Those that are copied."""
        every = (self.log, self.offset_index, self.time_index, self.transaction_index, self.producer_snapshot)
        return tuple(file for file in every if file is not None)

    def check(self, leader_epochs: LeaderEpochs) -> CheckedFiles:
        """Read every batch and every index.

        Raises:
            CorruptFileError: with file and position of the first rule that broke.
            OldMagicError: a batch of magic 0 or 1.
            SourceError: as the files raise.
        """
        base_offset, end_offset, log_bytes = self.base_offset, self.next_base_offset - 1, self.log.size_bytes
        batches = self._check_log(leader_epochs)
        max_batches = log_bytes // HEADER_SIZE + 1
        offsets = self.offset_index.read_all(max_batches * indexes.OFFSET_ENTRY_BYTES)
        with in_file(self.offset_index.path):
            by_offset = indexes.check_offset_index(
                offsets, base_offset=base_offset, end_offset=end_offset, size_bytes=log_bytes
            )
        timestamps = self.time_index.read_all((max_batches + 1) * indexes.TIME_ENTRY_BYTES)
        with in_file(self.time_index.path):
            by_time = indexes.check_time_index(timestamps, base_offset=base_offset, end_offset=end_offset)
        spot_check_offset_index(self.log, by_offset, self.offset_index.path)
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

    def _check_log(self, leader_epochs: LeaderEpochs) -> CheckedBatches:
        with in_file(self.log.path):
            batches = check_segment(
                self.log,
                base_offset=self.base_offset,
                end_offset=self.next_base_offset - 1,
                leader_epochs=leader_epochs,
            )
        if not batches.batch_count:
            raise CorruptFileError(self.log.path, "a rolled segment without a batch", 0)
        return batches

    def _check_transactions(self, batches: CheckedBatches) -> tuple[bytes | None, int]:
        """Trimmed bytes and number of the aborted transactions; None if the broker wrote no such index."""
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
        """At the segment's start, as far as that is known: transactions that began there are then checked too."""
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


def spot_check_offset_index(log: BrokerFile, index: OffsetIndex, index_path: str) -> None:
    """Raises CorruptFileError at the first checked entry that points to a wrong place."""
    for number in _spread(len(index)):
        offset, position = int(index.offsets[number]), int(index.positions[number])
        try:
            base_offset = parse_header(log.read_at(position, HEADER_SIZE)).base_offset
        except FormatError:
            base_offset = None
        if base_offset is None or not index.base_offset <= base_offset <= offset:
            what = "no batch" if base_offset is None else f"the batch of offset {base_offset}"
            message = f"entry {number} says that offset {offset} is at byte {position}, where {what} begins"
            raise CorruptFileError(index_path, message, number * indexes.OFFSET_ENTRY_BYTES)


def spot_check_time_index(log: BrokerFile, index: TimeIndex, offsets: OffsetIndex, index_path: str) -> None:
    """Raises CorruptFileError if the last entry does not speak of this log. `offsets` was checked before."""
    if not len(index):
        return
    offset, timestamp_ms = int(index.offsets[-1]), index.largest_timestamp_ms
    for batch in iter_headers(log, offsets.lookup(offset).position):
        if batch.header.last_offset >= offset:
            if batch.header.max_timestamp == timestamp_ms:
                return
            break
    message = f"last entry says that offset {offset} has timestamp {timestamp_ms}, its batch does not"
    raise CorruptFileError(index_path, message, (len(index) - 1) * indexes.TIME_ENTRY_BYTES)


def spot_check_transaction_index(
    log: BrokerFile, entries: Iterable[AbortedTxn], before: Iterable[ProducerEntry], index_path: str
) -> None:
    """Raises CorruptFileError if an aborted transaction is missing. `before`: the producers at the segment's start."""
    known = {(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries}
    for producer_id, first_offset, last_offset, _ in open_transactions(before, iter_headers(log)).aborted:
        if (producer_id, first_offset, last_offset) not in known:
            message = f"lacks the aborted transaction {first_offset}..{last_offset} of producer {producer_id}"
            raise CorruptFileError(index_path, message)


def _spread(count: int) -> range | list[int]:
    """Numbers of at most `_SPOT_CHECKS` entries out of `count`, first and last among them."""
    if count <= _SPOT_CHECKS:
        return range(count)
    return [number * (count - 1) // (_SPOT_CHECKS - 1) for number in range(_SPOT_CHECKS)]
