"""The tail of a log: its end, its last stable offset, and the transactions that limit the last stable offset.

The end of the active segment is found from the last entry of its offset index, if that entry is plausible: a batch must
begin at the entry's position, with a base offset not above the entry's offset, and the log must reach that offset. From
there on batches are checked as in a broker's log recovery. If the entry is not plausible or missing, and for a deep
read, all batches of the segment are checked.

The last stable offset is computed below a high watermark. The newest readable producer snapshot at or below the high
watermark lists the transactions that are open there; the headers of the later batches show which transactions began and
ended after the snapshot. A snapshot above the high watermark would hide transactions whose markers are not replicated
yet.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.errors import FormatError, SourceError, SourceUnreadableError, SourceVanishedError
from include.tiering.formats import indexes
from include.tiering.formats.indexes import OffsetPosition, ProducerEntry, Transactions, open_transactions
from include.tiering.formats.log_batches import LogEnd, find_log_end
from include.tiering.formats.record_batch import (
    HEADER_SIZE,
    MAX_OFFSET,
    NO_TIMESTAMP,
    LogBatch,
    iter_headers,
    parse_header,
)
from include.tiering.kafka.log_dirs.contract import UnfinishedTransaction
from include.tiering.kafka.log_dirs.dirs import Listing, LogFile, Tail, in_file, last_index_entry, read_snapshot
from include.tiering.kafka.log_dirs.files import BrokerDirectory, BrokerFile, FileKind, offset_file
from include.tiering.units import KIB, MIB

_TAIL_BLOCK_BYTES: Final = 32 * KIB


@dataclass(frozen=True, slots=True)
class ActiveEnd:
    """The end of the active segment, and the offset of the last entry of its offset index (None without one).

    If the entry's offset is at or above the log's end, the log has lost records: a broker writes records first, then
    the entry, and the entry is read here before the log is, so the log should reach further than its entry.
    `end.batch_count` is the number of all batches of the segment if the read was deep; otherwise it may leave out those
    before the index entry.
    """

    end: LogEnd
    indexed_offset: int | None


def find_active_end(directory: BrokerDirectory, base_offset: int, *, deep: bool) -> ActiveEnd:
    """Find the end of the active segment that starts at `base_offset`.

    With a missing or wrong offset index, more of the `.log` is read; the log's end is found all the same.

    Raises:
        OldMagicError: the `.log` begins with magic 0 or 1.
        SourceError: the `.log` cannot be read, or an index is a symbolic link or becomes shorter.
    """
    entry = last_indexed(directory, base_offset)
    indexed_ms = _last_indexed_timestamp(directory, base_offset)
    indexed_offset = None if entry is None else entry.offset
    with directory.file(offset_file(base_offset, FileKind.LOG), bulk=deep) as log:
        if entry is not None and not deep:
            found = _end_from(log, base_offset, entry)
            if found is not None:
                found = replace(found, max_timestamp_ms=max(found.max_timestamp_ms, indexed_ms))
                return ActiveEnd(found, indexed_offset)
        return ActiveEnd(find_log_end(log, base_offset=base_offset), indexed_offset)


def _last_indexed_timestamp(directory: BrokerDirectory, base_offset: int) -> int:
    try:
        with directory.file(offset_file(base_offset, FileKind.TIME_INDEX)) as index:
            entry = last_index_entry(index, indexes.TIME_ENTRY_BYTES)
    except (SourceVanishedError, SourceUnreadableError):
        return NO_TIMESTAMP
    return indexes.parse_time_index(entry, base_offset=base_offset).largest_timestamp_ms if entry else NO_TIMESTAMP


def last_indexed(directory: BrokerDirectory, base_offset: int) -> OffsetPosition | None:
    """Return the last entry of the offset index without checking it against the log; None without a readable one."""
    try:
        with directory.file(offset_file(base_offset, FileKind.OFFSET_INDEX)) as index:
            entry = last_index_entry(index, indexes.OFFSET_ENTRY_BYTES)
    except (SourceVanishedError, SourceUnreadableError):
        return None
    if entry is None:
        return None
    return indexes.parse_offset_index(entry, base_offset=base_offset).lookup(MAX_OFFSET)


def _end_from(log: BrokerFile, base_offset: int, entry: OffsetPosition) -> LogEnd | None:
    """Return the log's end, found from the entry's position on; None if the entry is not plausible.

    The entry's offset may lie in a later batch than the one at its position, because older brokers write at most one
    entry for each append of several batches.
    """
    if not 0 <= entry.position <= log.size_bytes - HEADER_SIZE:
        return None
    try:
        header = parse_header(log.read_at(entry.position, HEADER_SIZE))
    except FormatError:
        return None
    if not base_offset <= header.base_offset <= entry.offset:
        return None
    tail = Tail(log, entry.position)
    found = find_log_end(tail, base_offset=header.base_offset, block_bytes=_TAIL_BLOCK_BYTES)
    if found.log_end_offset <= entry.offset:
        return None
    return replace(found, valid_bytes=entry.position + found.valid_bytes)


_CHEAP_REPLAY_BYTES: Final = 8 * MIB
"""Limit, without `deep`, for the sizes of the `.log` files with batches after the snapshot. Above it none is read."""
_OPEN_REPLAY_BYTES: Final = 256 * MIB
"""The limit if the snapshot has an open transaction: whether it has ended may decide which segments can be copied."""


def find_last_stable_offset(
    directory: BrokerDirectory,
    listing: Listing,
    *,
    high_watermark: int,
    deep: bool,
    on_error: Callable[[SourceError], None],
) -> int:
    """Return the last stable offset: the high watermark, or the first offset of an open transaction below it.

    The result is a lower bound if `deep` is false and the log after the snapshot is too long, or if a broken batch ends
    the read. A broken snapshot is reported to `on_error`, and the next older snapshot is used, as brokers do.

    Raises:
        SourceError: a `.log` cannot be read.
    """
    end_offset, transactions = _follow(directory, listing, high_watermark, deep, on_error)
    return min(end_offset, transactions.last_stable_offset(end_offset))


def transactions_below(
    directory: BrokerDirectory, listing: Listing, *, high_watermark: int, on_error: Callable[[SourceError], None]
) -> Transactions:
    """Return the open and the completed transactions below `high_watermark` (exclusive), without a deep read.

    If the log after the snapshot is too long to be read, those that were open at the snapshot are returned as open.

    Raises:
        SourceError: a `.log` cannot be read.
    """
    return _follow(directory, listing, high_watermark, False, on_error)[1]


def _follow(
    directory: BrokerDirectory,
    listing: Listing,
    high_watermark: int,
    deep: bool,
    on_error: Callable[[SourceError], None],
) -> tuple[int, Transactions]:
    """Return the end of the log that was read (exclusive, at most `high_watermark`), and the transactions below it."""
    taken_at, entries = _newest_snapshot(directory, listing, high_watermark, on_error)
    replayed = [
        log
        for log in listing.logs
        if log.base_offset < high_watermark and (log.next_base_offset is None or log.next_base_offset > taken_at)
    ]
    is_open = any(entry.has_open_transaction for entry in entries)
    budget_bytes = _OPEN_REPLAY_BYTES if is_open else _CHEAP_REPLAY_BYTES
    if taken_at >= high_watermark:
        replayed = []
    elif not deep and sum(log.size_bytes for log in replayed) > budget_bytes:
        return min(taken_at, high_watermark), open_transactions(entries, ())
    replay = _Replay(directory, replayed, taken_at, high_watermark)
    transactions = open_transactions(entries, replay)
    return replay.end_offset, transactions


def _newest_snapshot(
    directory: BrokerDirectory, listing: Listing, high_watermark: int, on_error: Callable[[SourceError], None]
) -> tuple[int, Sequence[ProducerEntry]]:
    """Return offset and entries of the newest usable snapshot; without one, the first base offset and no entries."""
    offsets = listing.offsets[FileKind.PRODUCER_SNAPSHOT]
    for offset in sorted((offset for offset in offsets if offset <= high_watermark), reverse=True):
        try:
            return offset, read_snapshot(directory, offset)
        except SourceError as error:
            on_error(error)
    return listing.logs[0].base_offset, ()


class _Replay:
    """Iterate over the batch headers in [start_offset, high_watermark).

    `end_offset` (exclusive) is the high watermark, or the lower offset at which a broken batch (one that is cut off, or
    whose header cannot be right) ended the iteration.
    """

    def __init__(
        self, directory: BrokerDirectory, logs: Sequence[LogFile], start_offset: int, high_watermark: int
    ) -> None:
        self._directory = directory
        self._logs = logs
        self._start_offset = start_offset
        self._high_watermark = high_watermark
        self.end_offset = high_watermark

    def __iter__(self) -> Iterator[LogBatch]:
        for log in self._logs:
            next_offset, position, size_bytes = log.base_offset, 0, 0
            with self._directory.file(offset_file(log.base_offset, FileKind.LOG)) as file:
                size_bytes = file.size_bytes
                for batch in iter_headers(file):
                    if batch.header.base_offset >= self._high_watermark:
                        return
                    next_offset, position = batch.header.last_offset + 1, batch.position + batch.header.size_bytes
                    if next_offset > self._start_offset:
                        yield batch
            if position < size_bytes and next_offset < self._high_watermark:
                self.end_offset = next_offset
                return


_UNKNOWN: Final = -1
_MAX_INDEX_BYTES: Final = 64 * MIB


def find_unfinished_transactions(
    directory: BrokerDirectory, listing: Listing, *, high_watermark: int
) -> Sequence[UnfinishedTransaction]:
    """Return the transactions without a marker below `high_watermark` (exclusive), ordered by first offset.

    Markers are only known from the batches that `transactions_below` reads. So a transaction may be among them although
    it has ended, if the log after the snapshot is too long to be read.

    Raises:
        SourceError: a `.log` cannot be read.
    """
    found = transactions_below(directory, listing, high_watermark=high_watermark, on_error=_ignore)
    return [
        UnfinishedTransaction(
            producer_id=transaction.producer_id,
            first_offset=transaction.first_offset,
            since_ms=_timestamp_at(directory, listing, transaction.first_offset),
        )
        for transaction in found.open
    ]


def _timestamp_at(directory: BrokerDirectory, listing: Listing, offset: int) -> int:
    """Return the base timestamp of the batch that holds `offset`; -1 if no batch with this offset is found."""
    log = max(
        (log for log in listing.logs if log.base_offset <= offset),
        key=lambda log: log.base_offset,
        default=None,
    )
    if log is None:
        return _UNKNOWN
    with directory.file(offset_file(log.base_offset, FileKind.LOG)) as file:
        for batch in iter_headers(file, _position_before(directory, log.base_offset, offset, file.size_bytes)):
            if batch.header.base_offset <= offset <= batch.header.last_offset:
                return batch.header.base_timestamp
            if batch.header.base_offset > offset:
                break
    return _UNKNOWN


def _position_before(directory: BrokerDirectory, base_offset: int, offset: int, size_bytes: int) -> int:
    """Return the position from which to look for `offset`; 0 without a usable index entry."""
    try:
        data = directory.read(offset_file(base_offset, FileKind.OFFSET_INDEX), _MAX_INDEX_BYTES)
        with in_file("offset index"):
            entry = indexes.parse_offset_index(data, base_offset=base_offset).lookup(offset)
    except SourceError:
        return 0
    return entry.position if 0 <= entry.position < size_bytes else 0


def _ignore(_error: SourceError) -> None:
    """Ignore a broken snapshot: the next older one is used."""
