"""The records in a restored directory, as consumers of the broker that loads it get them. No store is read."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from include.tiering.formats.indexes import parse_producer_snapshot, parse_transaction_index
from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.model.segments import SeenRecord
from include.tiering.reading.scan import AbortedBatches, batches_of
from include.tiering.units import MIB

_BLOCK_BYTES: Final = 4 * MIB


def last_stable_offset(directory: Path, end: int) -> int:
    """Return the first offset of a transaction that is open at the log's end, by the snapshot there; else `end`."""
    producers = parse_producer_snapshot((directory / f"{end:020d}.snapshot").read_bytes())
    return min((each.current_txn_first_offset for each in producers if each.has_open_transaction), default=end)


def records_of_directory(directory: Path, start: int, end: int, *, committed: bool) -> Iterator[SeenRecord]:
    """Yield the records from offset `start` up to `end` (exclusive), in order; control records are left out.

    Args:
        directory: of one partition.
        start: the first offset.
        end: behind the last offset; with `committed`, at most the last stable offset.
        committed: leave out records of aborted transactions.

    Raises:
        FormatError: a file is damaged.
    """
    indexes = (parse_transaction_index(path.read_bytes()) for path in sorted(directory.glob("*.txnindex")))
    aborted = AbortedBatches(chain.from_iterable(indexes) if committed else ())
    decompressor = Decompressor()
    for path in sorted(directory.glob("*.log")):
        for _, header, batch in batches_of(_blocks(path), 0):
            if header.base_offset >= end:
                return
            if header.is_control or header.last_offset < start or aborted.has(header):
                continue
            for record in records_of(header, batch[HEADER_SIZE:], decompressor):
                if start <= record.offset < end:
                    yield record


def _blocks(path: Path) -> Iterable[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block
