"""The last stable offset of a replica: how far no transaction is open, as seen below a high watermark.

The newest sound producer snapshot at or below the high watermark says which transactions are open there; the headers of
the batches behind it say what became of them. A snapshot above the high watermark would hide transactions whose marker
is not replicated yet.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from include.tiering.errors import SourceError
from include.tiering.formats.log_end import iter_headers
from include.tiering.formats.producer_snapshot import ProducerEntry
from include.tiering.formats.record_batch import LogBatch
from include.tiering.formats.transactions import Transactions, open_transactions
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.listing import Listing, LogFile
from include.tiering.kafka.log_dirs.names import FileKind, offset_file
from include.tiering.kafka.log_dirs.partition_files import read_snapshot
from include.tiering.units import MIB

_CHEAP_REPLAY_BYTES: Final = 8 * MIB
"""So much log is followed in a cheap look where the snapshot holds no open transaction."""
_OPEN_REPLAY_BYTES: Final = 256 * MIB
"""So much where it does: the markers that end them decide about rolled segments."""


def find_last_stable_offset(
    directory: BrokerDirectory,
    listing: Listing,
    *,
    high_watermark: int,
    deep: bool,
    on_error: Callable[[SourceError], None],
) -> int:
    """At most `high_watermark` (exclusive); a lower bound if the log behind the snapshot is too long for a cheap look.

    Raises:
        SourceError: a `.log` cannot be read. A broken snapshot is reported and the next older one taken, as brokers do.
    """
    end_offset, transactions = _follow(directory, listing, high_watermark, deep, on_error)
    return min(end_offset, transactions.last_stable_offset(end_offset))


def transactions_below(
    directory: BrokerDirectory, listing: Listing, *, high_watermark: int, on_error: Callable[[SourceError], None]
) -> Transactions:
    """What a cheap look tells of the transactions below `high_watermark` (exclusive).

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
    """How far the log was followed (exclusive, at most `high_watermark`), and the transactions up to there."""
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
    """Offset and entries; without a snapshot, no producer is known at the log's start."""
    offsets = listing.offsets[FileKind.PRODUCER_SNAPSHOT]
    for offset in sorted((offset for offset in offsets if offset <= high_watermark), reverse=True):
        try:
            return offset, read_snapshot(directory, offset)
        except SourceError as error:
            on_error(error)
    return listing.logs[0].base_offset, ()


class _Replay:
    """The batches in [start_offset, high_watermark), header by header. `end_offset`: how far that was possible."""

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
