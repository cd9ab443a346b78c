"""Do the indexes of a rolled segment belong to its `.log`? Spot checks: some dozen entries, spread evenly.

An offset index entry is right if a batch begins at its position and not above its offset: then a scan from there meets
every record from that offset on. (Brokers before 4.x index whole appends, so the offset may lie in a later batch.)
The last time index entry is right if the batch that holds its offset has its timestamp as the largest.
The transaction index must know every aborted transaction whose begin and ABORT marker are known: without it, readers
that ask for committed records would get aborted ones.
"""

from collections.abc import Iterable
from typing import Final

from include.tiering.errors import CorruptFileError, FormatError
from include.tiering.formats import offset_index, time_index
from include.tiering.formats.log_end import iter_headers
from include.tiering.formats.offset_index import OffsetIndex
from include.tiering.formats.producer_snapshot import ProducerEntry
from include.tiering.formats.record_batch import HEADER_SIZE, parse_header
from include.tiering.formats.time_index import TimeIndex
from include.tiering.formats.transaction_index import AbortedTxn
from include.tiering.formats.transactions import open_transactions
from include.tiering.kafka.log_dirs.files import BrokerFile

_SPOT_CHECKS: Final = 32


def check_offset_index(log: BrokerFile, index: OffsetIndex, index_path: str) -> None:
    """Raises CorruptFileError at the first checked entry that leads a reader astray."""
    for number in _spread(len(index)):
        offset, position = int(index.offsets[number]), int(index.positions[number])
        try:
            base_offset = parse_header(log.read_at(position, HEADER_SIZE)).base_offset
        except FormatError:
            base_offset = None
        if base_offset is None or not index.base_offset <= base_offset <= offset:
            what = "no batch" if base_offset is None else f"the batch of offset {base_offset}"
            message = f"entry {number} says that offset {offset} is at byte {position}, where {what} begins"
            raise CorruptFileError(index_path, message, number * offset_index.ENTRY_BYTES)


def check_time_index(log: BrokerFile, index: TimeIndex, offsets: OffsetIndex, index_path: str) -> None:
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
    raise CorruptFileError(index_path, message, (len(index) - 1) * time_index.ENTRY_BYTES)


def check_transaction_index(
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
