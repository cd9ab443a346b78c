"""Which transactions keep the last stable offset of a replica down, and since when."""

from collections.abc import Sequence
from typing import Final

from include.tiering.errors import SourceError
from include.tiering.formats import offset_index
from include.tiering.formats.log_end import iter_headers
from include.tiering.kafka.log_dirs.contract import UnfinishedTransaction
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.listing import Listing
from include.tiering.kafka.log_dirs.names import FileKind, offset_file
from include.tiering.kafka.log_dirs.parsing import in_file
from include.tiering.kafka.log_dirs.stable_offset import transactions_below
from include.tiering.units import MIB

_UNKNOWN: Final = -1
_MAX_INDEX_BYTES: Final = 64 * MIB


def find_unfinished_transactions(
    directory: BrokerDirectory, listing: Listing, *, high_watermark: int
) -> Sequence[UnfinishedTransaction]:
    """Those without a marker below `high_watermark` (exclusive), by first offset.

    Raises:
        SourceError: a `.log` cannot be read.
    """
    found = transactions_below(directory, listing, high_watermark=high_watermark, on_error=_ignore)
    return [
        UnfinishedTransaction(one.producer_id, one.first_offset, _timestamp_at(directory, listing, one.first_offset))
        for one in found.open
    ]


def _timestamp_at(directory: BrokerDirectory, listing: Listing, offset: int) -> int:
    """Of the first record in the batch that holds `offset`; -1 if no `.log` holds it any more."""
    log = max((one for one in listing.logs if one.base_offset <= offset), key=lambda one: one.base_offset, default=None)
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
    """Where to begin looking: a missing or broken index only costs time."""
    try:
        data = directory.read(offset_file(base_offset, FileKind.OFFSET_INDEX), _MAX_INDEX_BYTES)
        with in_file("offset index"):
            entry = offset_index.parse(data, base_offset=base_offset).lookup(offset)
    except SourceError:
        return 0
    return entry.position if 0 <= entry.position < size_bytes else 0


def _ignore(_error: SourceError) -> None:
    """A broken snapshot: the next older one is taken."""
