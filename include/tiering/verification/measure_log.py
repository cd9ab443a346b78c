"""Measure the log of one segment at either depth, and fill the columns of its measure.

A shallow measure reads the header of the first batch, the whole first batch, and the batches from the last entry of the
offset index to the end of the log. These are three ranges of a few KiB if the offset index reaches to the end, as a
broker's does, and both end batches are small; of a compressed or encrypted log, whole chunks are read.

A deep measure reads every batch, and compares indexes, transactions and producers with all batches.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from include.tiering.errors import FormatError, RemoteStorageError
from include.tiering.formats import indexes
from include.tiering.formats.record_batch import HEADER_SIZE, NO_TIMESTAMP, parse_header
from include.tiering.model.segments import IndexType, RemoteLogSegmentMetadata
from include.tiering.remote_storage.contract import is_unread
from include.tiering.units import KIB
from include.tiering.verification.log_batches import (
    EpochOrder,
    Faults,
    HeaderRules,
    LogCheck,
    LogWalk,
    OffsetOrder,
    Timestamps,
)
from include.tiering.verification.log_consistency import (
    OffsetIndexEntries,
    SegmentTransactions,
    SnapshotProducers,
    TimeIndexEntries,
)
from include.tiering.verification.segment_contents import (
    SegmentContents,
    offset_entries,
    time_entries,
    transaction_entries,
)

_T = TypeVar("_T")


class Measurements:
    """Collects the columns of a measure.

    `values` has the number of each column, None if it could not be measured. `remarks` are pairs (column, sentence)
    that explain numbers. `is_refused` is True if an object could not be read (`is_unread`).
    """

    def __init__(self) -> None:
        self.values: dict[str, int | None] = {}
        self.remarks: list[tuple[str, str]] = []
        self.is_refused = False

    def fill(self, columns: Sequence[str], probe: Callable[[], Sequence[int | None]]) -> None:
        """Fill `columns` from `probe`, or with None if bytes or objects that `probe` reads are missing or unusable.

        Raises:
            RemoteStorageUnavailableError: the store does not answer (retriable).
        """
        found = self.attempt(columns, probe)
        if found is not None:
            self.values.update(zip(columns, found, strict=True))

    def attempt(self, columns: Sequence[str], build: Callable[[], _T]) -> _T | None:
        """Return the result of `build`; if it fails, set `columns` to None as `fill` does, and return None."""
        try:
            return build()
        except (FormatError, RemoteStorageError) as error:
            if error.retriable:
                raise
            self.is_refused |= is_unread(error)
            self.leave_out(columns, str(error))
            return None

    def leave_out(self, columns: Sequence[str], reason: str) -> None:
        """Set columns that could not be measured to None, with the reason."""
        for column in columns:
            self.values[column] = None
            self.remark(column, f"{column} could not be measured: {reason}")

    def count(self, column: str, *faults: Faults) -> None:
        """Set `column` to the total number of these faults, with the first fault of each kind as a remark."""
        found = [each for each in faults if each.count]
        self.values[column] = sum(each.count for each in found)
        if found:
            self.remark(column, f"{column} = {self.values[column]}: {'; '.join(each.first for each in found)}")

    def remark(self, column: str, text: str) -> None:
        self.remarks.append((column, text))


_TIME_INDEX_END: Final = "time_index_unlike_maximum"


class BatchChecks:
    """Checks order, epochs, headers and timestamps of batches against the metadata."""

    def __init__(self, metadata: RemoteLogSegmentMetadata, *, begins_anywhere: bool = False) -> None:
        self.order = OffsetOrder(metadata.start_offset, metadata.end_offset, begins_anywhere=begins_anywhere)
        self.epochs = EpochOrder(metadata.segment_leader_epochs)
        self.headers = HeaderRules()
        self.times = Timestamps(metadata.max_timestamp_ms)

    @property
    def all(self) -> tuple[LogCheck, ...]:
        return self.order, self.epochs, self.headers, self.times


def fill_time_index_end(measurements: Measurements, contents: SegmentContents, largest_ms: int) -> None:
    """Compare the last entry of the time index with the segment's largest timestamp.

    The time index of a rolled segment has no entry only if no batch has a timestamp. `largest_ms` is the largest
    timestamp of the batches that were read; -1 if none of them has a timestamp.
    """

    def unlike_maximum() -> list[int]:
        index = time_entries(contents.index(IndexType.TIMESTAMP), contents.metadata)
        wanted_ms = contents.metadata.max_timestamp_ms if len(index) or largest_ms != NO_TIMESTAMP else NO_TIMESTAMP
        if index.largest_timestamp_ms == wanted_ms:
            return [0]
        measurements.remark(_TIME_INDEX_END, f"the time index ends at {index.largest_timestamp_ms}, not {wanted_ms}")
        return [1]

    measurements.fill((_TIME_INDEX_END,), unlike_maximum)


_BLOCK_BYTES: Final = 64 * KIB


class _Part(NamedTuple):
    """The results for the bytes from position `first`, where a batch must begin."""

    first: int
    walk: LogWalk
    checks: BatchChecks

    @property
    def faults(self) -> list[Faults]:
        walk, checks = self.walk, self.checks
        return [
            walk.unreadable,
            walk.wrong_crcs,
            walk.unopened,
            checks.order.misplaced,
            checks.order.missing,
            checks.epochs.wrong,
            checks.headers.impossible,
            checks.times.above,
        ]


def fill_ends(measurements: Measurements, contents: SegmentContents) -> None:
    """Fill the columns about both ends of the log, and the column about the end of the time index."""
    largest_ms = NO_TIMESTAMP
    not_opened: dict[int, Faults] = {}
    for column, probe in (("first_batch_faults", _first_batch), ("last_batch_faults", _last_batches)):
        part = measurements.attempt((column,), partial(probe, contents))
        if part is not None:
            measurements.count(column, *part.faults)
            largest_ms = max(largest_ms, part.checks.times.largest_ms)
            # With an empty offset index both parts begin at byte 0: the first batch is in both, and counts once.
            not_opened[part.first] = part.walk.not_opened
    measurements.count("batches_not_opened", *not_opened.values())
    fill_time_index_end(measurements, contents, largest_ms)


def _first_batch(contents: SegmentContents) -> _Part:
    size_bytes = contents.log_bytes()
    if size_bytes < HEADER_SIZE:
        raise FormatError(f"a log of {size_bytes} bytes holds no batch")
    head = bytearray(HEADER_SIZE)
    contents.log_part(0, HEADER_SIZE - 1).read_into(0, memoryview(head))
    header = parse_header(head)
    if header.size_bytes > size_bytes:
        raise FormatError(f"the first batch has {header.size_bytes} bytes in a log of {size_bytes}")
    checks = BatchChecks(contents.metadata)
    return _read_part(contents, checks, 0, header.size_bytes)


def _last_batches(contents: SegmentContents) -> _Part:
    metadata, size_bytes = contents.metadata, contents.log_bytes()
    index = offset_entries(contents.index(IndexType.OFFSET), metadata)
    position = int(index.positions[-1]) if len(index) else 0
    if not 0 <= position < size_bytes:
        raise FormatError(f"the offset index ends at byte {position} of {size_bytes}")
    checks = BatchChecks(metadata, begins_anywhere=position > 0)
    part = _read_part(contents, checks, position, size_bytes)
    checks.order.end()
    return part


def _read_part(contents: SegmentContents, checks: BatchChecks, first: int, end: int) -> _Part:
    """Check the bytes from `first` to `end` (exclusive), where batches must begin and end."""
    walk = LogWalk(checks.all)
    walk.read(contents.log_part(first, end - 1), first, _BLOCK_BYTES)
    return _Part(first, walk, checks)


_CHECKSUM: Final = "read_log_crc32c"
_LARGEST: Final = "log_max_timestamp_ms"
_OFFSETS: Final = "offset_index_wrong_entries"
_TIMES: Final = "time_index_wrong_entries"
_ABORTED: Final = "transaction_index_wrong_entries"
_NOT_ABORTED: Final = "transaction_index_missing"
_PRODUCERS: Final = "producer_snapshot_wrong_entries"
_OF_BATCHES: Final = (
    "log_unreadable_bytes",
    "log_wrong_crcs",
    "log_missing_offsets",
    "log_misplaced_batches",
    "log_wrong_epochs",
    "log_impossible_headers",
    "log_thinned_batches",
    "log_unopened_batches",
)


def fill_whole(measurements: Measurements, contents: SegmentContents) -> None:
    """Fill every column about all batches, and read the log for it once, front to back."""
    checks, objects = BatchChecks(contents.metadata), _ObjectChecks(measurements, contents)
    walk = LogWalk((*checks.all, *objects.all))
    crc32c = measurements.attempt((_CHECKSUM, _LARGEST, *_OF_BATCHES), lambda: _read(walk, contents))
    if crc32c is None:
        objects.leave_out("the log could not be read")
        fill_time_index_end(measurements, contents, NO_TIMESTAMP)
        return
    measurements.values[_CHECKSUM] = crc32c
    measurements.count("batches_not_opened", walk.not_opened)
    checks.order.end()
    columns = zip(_OF_BATCHES, _faults_of_batches(walk, checks), strict=True)
    if walk.unreadable.count:
        reason = f"the batches end early: {walk.unreadable.first}"
        for column, faults in columns:
            if faults.count:
                measurements.count(column, faults)
            else:
                measurements.leave_out((column,), reason)
        measurements.leave_out((_LARGEST,), reason)
        objects.leave_out(reason)
    else:
        for column, faults in columns:
            measurements.count(column, faults)
        largest_ms = checks.times.largest_ms
        measurements.values[_LARGEST] = contents.metadata.max_timestamp_ms if largest_ms == NO_TIMESTAMP else largest_ms
        objects.fill()
    fill_time_index_end(measurements, contents, checks.times.largest_ms)


def _read(walk: LogWalk, contents: SegmentContents) -> int:
    """Read the whole log and return its CRC-32C."""
    size_bytes = contents.log_bytes()
    if not size_bytes:
        raise FormatError("a log of 0 bytes holds no batch")
    part = contents.log_part(0, size_bytes - 1)
    walk.read(part)
    part.skip_rest()
    return part.crc32c


def _faults_of_batches(walk: LogWalk, checks: BatchChecks) -> tuple[Faults, ...]:
    """Return the faults in the order of `_OF_BATCHES`."""
    return (
        walk.unreadable,
        walk.wrong_crcs,
        checks.order.missing,
        checks.order.misplaced,
        checks.epochs.wrong,
        checks.headers.impossible,
        checks.headers.thinned,
        walk.unopened,
    )


class _ObjectChecks:
    """Checks the segment's indexes and producer snapshot, as far as they can be read, against all batches."""

    def __init__(self, measurements: Measurements, contents: SegmentContents) -> None:
        metadata, start_offset = contents.metadata, contents.metadata.start_offset
        self.all: list[LogCheck] = []
        self._measurements = measurements
        self._wrong_entries: dict[str, Callable[[], Faults]] = {}
        offsets = measurements.attempt(
            (_OFFSETS,), lambda: OffsetIndexEntries(offset_entries(contents.index(IndexType.OFFSET), metadata))
        )
        if offsets is not None:
            self._add(offsets, {_OFFSETS: offsets.wrong_entries})
        times = measurements.attempt(
            (_TIMES,), lambda: TimeIndexEntries(time_entries(contents.index(IndexType.TIMESTAMP), metadata))
        )
        if times is not None:
            self._add(times, {_TIMES: times.wrong_entries})
        aborted = measurements.attempt(
            (_ABORTED, _NOT_ABORTED),
            lambda: SegmentTransactions(transaction_entries(contents.transaction_index(), metadata), start_offset),
        )
        transactions = aborted or SegmentTransactions(indexes.parse_transaction_index(b""), start_offset)
        self._add(
            transactions, {} if aborted is None else {_ABORTED: aborted.wrong_entries, _NOT_ABORTED: aborted.missing}
        )
        producers = measurements.attempt(
            (_PRODUCERS,),
            lambda: SnapshotProducers(
                indexes.producer_entries_of(contents.index(IndexType.PRODUCER_SNAPSHOT)), transactions, start_offset
            ),
        )
        if producers is not None:
            self._add(producers, {_PRODUCERS: producers.wrong_entries})

    def _add(self, check: LogCheck, wrong_entries: Mapping[str, Callable[[], Faults]]) -> None:
        self.all.append(check)
        self._wrong_entries.update(wrong_entries)

    def fill(self) -> None:
        """Fill the columns; call it after the last batch."""
        for column, probe in self._wrong_entries.items():
            faults = self._measurements.attempt((column,), probe)
            if faults is not None:
                self._measurements.count(column, faults)

    def leave_out(self, reason: str) -> None:
        """Set the columns to None, because not all batches could be read."""
        self._measurements.leave_out(tuple(self._wrong_entries), reason)
