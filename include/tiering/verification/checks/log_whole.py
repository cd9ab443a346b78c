"""A deep look at the log: every batch, and whether indexes, transactions and producers are those of the batches."""

from collections.abc import Callable, Mapping
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.formats import indexes, producer_state
from include.tiering.formats.record_batch import NO_TIMESTAMP
from include.tiering.model.segment_data import IndexType
from include.tiering.verification.checks.contents import SegmentContents
from include.tiering.verification.checks.faults import Faults
from include.tiering.verification.checks.index_faults import offset_entries, time_entries, transaction_entries
from include.tiering.verification.checks.log_indexes import OffsetIndexEntries, TimeIndexEntries
from include.tiering.verification.checks.log_judges import BatchJudges, fill_time_index_end
from include.tiering.verification.checks.log_producers import SnapshotProducers
from include.tiering.verification.checks.log_transactions import SegmentTransactions
from include.tiering.verification.checks.log_walk import LogJudge, LogWalk
from include.tiering.verification.checks.sheet import Sheet

_CHECKSUM: Final = "read_log_crc32c"
_LARGEST: Final = "log_max_timestamp_ms"
_OFFSETS: Final = "offset_index_strays"
_TIMES: Final = "time_index_strays"
_ABORTED: Final = "transaction_index_strays"
_NOT_ABORTED: Final = "transaction_index_missing"
_PRODUCERS: Final = "producer_snapshot_strays"
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


def fill_whole(sheet: Sheet, contents: SegmentContents) -> None:
    """Fills every column that speaks about all batches. Reads the log once, front to back."""
    judges, followers = BatchJudges(contents.metadata), _Followers(sheet, contents)
    walk = LogWalk((*judges.all, *followers.all))
    crc32c = sheet.attempt((_CHECKSUM, _LARGEST, *_OF_BATCHES), lambda: _read(walk, contents))
    if crc32c is None:
        followers.leave_out("the log could not be read")
        fill_time_index_end(sheet, contents, NO_TIMESTAMP)
        return
    sheet.values[_CHECKSUM] = crc32c
    sheet.count("batches_not_opened", walk.not_opened)
    judges.order.end()
    columns = zip(_OF_BATCHES, _faults_of_batches(walk, judges), strict=True)
    if walk.unreadable.count:
        reason = f"the batches end early: {walk.unreadable.first}"
        for column, faults in columns:
            if faults.count:
                sheet.count(column, faults)
            else:
                sheet.leave_out((column,), reason)
        sheet.leave_out((_LARGEST,), reason)
        followers.leave_out(reason)
    else:
        for column, faults in columns:
            sheet.count(column, faults)
        largest_ms = judges.times.largest_ms
        sheet.values[_LARGEST] = contents.metadata.max_timestamp_ms if largest_ms == NO_TIMESTAMP else largest_ms
        followers.fill()
    fill_time_index_end(sheet, contents, judges.times.largest_ms)


def _read(walk: LogWalk, contents: SegmentContents) -> int:
    """The CRC-32C of what was read."""
    size_bytes = contents.log_bytes()
    if not size_bytes:
        raise FormatError("a log of 0 bytes holds no batch")
    part = contents.log_part(0, size_bytes - 1)
    walk.read(part)
    part.skip_rest()
    return part.crc32c


def _faults_of_batches(walk: LogWalk, judges: BatchJudges) -> tuple[Faults, ...]:
    """In the order of `_OF_BATCHES`."""
    return (
        walk.unreadable,
        walk.wrong_crcs,
        judges.order.missing,
        judges.order.misplaced,
        judges.epochs.wrong,
        judges.headers.impossible,
        judges.headers.thinned,
        walk.unopened,
    )


class _Followers:
    """What the segment's other objects say, followed through the batches: as many of them as can be read."""

    def __init__(self, sheet: Sheet, contents: SegmentContents) -> None:
        metadata, start_offset = contents.metadata, contents.metadata.start_offset
        self.all: list[LogJudge] = []
        self._sheet = sheet
        self._strays: dict[str, Callable[[], Faults]] = {}
        offsets = sheet.attempt(
            (_OFFSETS,), lambda: OffsetIndexEntries(offset_entries(contents.index(IndexType.OFFSET), metadata))
        )
        if offsets is not None:
            self._add(offsets, {_OFFSETS: offsets.strays})
        times = sheet.attempt(
            (_TIMES,), lambda: TimeIndexEntries(time_entries(contents.index(IndexType.TIMESTAMP), metadata))
        )
        if times is not None:
            self._add(times, {_TIMES: times.strays})
        aborted = sheet.attempt(
            (_ABORTED, _NOT_ABORTED),
            lambda: SegmentTransactions(transaction_entries(contents.transaction_index(), metadata), start_offset),
        )
        transactions = aborted or SegmentTransactions(indexes.parse_transaction_index(b""), start_offset)
        self._add(transactions, {} if aborted is None else {_ABORTED: aborted.strays, _NOT_ABORTED: aborted.missing})
        producers = sheet.attempt(
            (_PRODUCERS,),
            lambda: SnapshotProducers(
                producer_state.entries_of(contents.index(IndexType.PRODUCER_SNAPSHOT)), transactions, start_offset
            ),
        )
        if producers is not None:
            self._add(producers, {_PRODUCERS: producers.strays})

    def _add(self, judge: LogJudge, strays: Mapping[str, Callable[[], Faults]]) -> None:
        self.all.append(judge)
        self._strays.update(strays)

    def fill(self) -> None:
        """After the last batch."""
        for column, probe in self._strays.items():
            faults = self._sheet.attempt((column,), probe)
            if faults is not None:
                self._sheet.count(column, faults)

    def leave_out(self, reason: str) -> None:
        """Not all batches could be followed."""
        self._sheet.leave_out(tuple(self._strays), reason)
