"""The end of the active segment, found cheaply where its index can be believed.

The last entry of the offset index leads near the end. It is believed only if a batch begins where it points, not above
the offset that it says, and the log reaches that offset; from there on every batch is checked as recovery does. Else,
and for a deep look, all batches are checked from the first on.
"""

from dataclasses import dataclass, replace
from typing import Final

from include.tiering.errors import FormatError, SourceUnreadableError, SourceVanishedError
from include.tiering.formats import offset_index, time_index
from include.tiering.formats.log_end import LogEnd, find_log_end
from include.tiering.formats.offset_index import OffsetPosition
from include.tiering.formats.record_batch import HEADER_SIZE, MAX_OFFSET, NO_TIMESTAMP, parse_header
from include.tiering.kafka.log_dirs.files import BrokerDirectory, BrokerFile
from include.tiering.kafka.log_dirs.names import FileKind, offset_file
from include.tiering.kafka.log_dirs.parsing import Tail, last_index_entry
from include.tiering.units import KIB

_TAIL_BLOCK_BYTES: Final = 32 * KIB


@dataclass(frozen=True, slots=True)
class ActiveEnd:
    """Where the active segment ends, and the last offset that its offset index knows (None: no entry).

    An index that knows more than the log has says that the log lost something: the index is read before the size of
    the log, and brokers write it after the log. `end.batch_count` counts all batches only after a deep look.
    """

    end: LogEnd
    indexed_offset: int | None


def find_active_end(directory: BrokerDirectory, base_offset: int, *, deep: bool) -> ActiveEnd:
    """The end of the active segment that starts at `base_offset`. A missing or broken index only costs time.

    Raises:
        OldMagicError: it begins with magic 0 or 1.
        SourceError: the `.log` cannot be read.
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
            entry = last_index_entry(index, time_index.ENTRY_BYTES)
    except (SourceVanishedError, SourceUnreadableError):
        return NO_TIMESTAMP
    return time_index.parse(entry, base_offset=base_offset).largest_timestamp_ms if entry else NO_TIMESTAMP


def last_indexed(directory: BrokerDirectory, base_offset: int) -> OffsetPosition | None:
    """The last entry of the offset index as it stands there; None without one."""
    try:
        with directory.file(offset_file(base_offset, FileKind.OFFSET_INDEX)) as index:
            entry = last_index_entry(index, offset_index.ENTRY_BYTES)
    except (SourceVanishedError, SourceUnreadableError):
        return None
    if entry is None:
        return None
    return offset_index.parse(entry, base_offset=base_offset).lookup(MAX_OFFSET)


def _end_from(log: BrokerFile, base_offset: int, entry: OffsetPosition) -> LogEnd | None:
    """None if the entry cannot be believed. Its offset may lie in a later batch: older brokers index whole appends."""
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
