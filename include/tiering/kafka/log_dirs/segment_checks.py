"""Checks of single segments by size and headers, before anything is decided by them.

Whether the size of a `.log` can be what its batches take, by a look at its end: a broker closes a segment behind its
last batch and gives each byte of it to the disk. A file that is mostly a hole, or in which something follows the last
batch, was damaged: its size says nothing about what there is. The last entry of the offset index leads near the end;
from there on the headers are walked. Batches before it are not looked at, no record is read, and the walk is bounded:
where it would take long the size is in doubt.

Which of the next segments of a replica lack offsets, by their headers: what a log cleaner has left of them. A copy
reads every byte before it sends one and refuses such a segment. This says the same before a copy begins, and of as many
segments as lie behind each other, at the price of one more.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from include.tiering.errors import SourceError
from include.tiering.formats.record_batch import iter_headers
from include.tiering.kafka.log_dirs.contract import LogSegment, ReplicaId
from include.tiering.kafka.log_dirs.dirs import DirIdentity, replica_directory
from include.tiering.kafka.log_dirs.files import BrokerDirectory, BrokerFile, FileKind, offset_file
from include.tiering.kafka.log_dirs.log_tail import last_indexed
from include.tiering.units import MIB

_MOST_BATCHES: Final = 20_000
_BLOCK_BYTES: Final = 512
"""Unit of `st_blocks`, whatever the file system's own is."""
_SPARSE_BYTES: Final = MIB
_SPARSE_SHARE: Final = 8
"""Sparse is what has more than the first, and less than this part of its size, on no disk; compression saves less."""


def find_size_doubts(
    identities: Iterable[DirIdentity], replica_id: ReplicaId, segments: Sequence[LogSegment]
) -> dict[int, str]:
    """See `LogSource.size_doubts`; `identities` are those of all log directories that may be read."""
    with replica_directory(identities, replica_id) as directory:
        return _doubts(directory, segments)


def _doubts(directory: BrokerDirectory, segments: Sequence[LogSegment]) -> dict[int, str]:
    doubts = {}
    for segment in segments:
        try:
            why = _doubt(directory, segment)
        except SourceError as error:
            why = f"it cannot be read: {error}"
        if why is not None:
            doubts[segment.base_offset] = why
    return doubts


def _doubt(directory: BrokerDirectory, segment: LogSegment) -> str | None:
    with directory.file(offset_file(segment.base_offset, FileKind.LOG)) as log:
        on_disk = log.status.st_blocks * _BLOCK_BYTES
        missing = segment.size_bytes - on_disk
        if missing > _SPARSE_BYTES and on_disk * _SPARSE_SHARE < segment.size_bytes:
            return f"only {on_disk} bytes of it are on the disk"
        if segment.active:
            return None
        if log.size_bytes != segment.size_bytes:
            return f"it had {segment.size_bytes} bytes when it was listed, now {log.size_bytes}"
        return _doubt_of_end(directory, log, segment)


def _doubt_of_end(directory: BrokerDirectory, log: BrokerFile, segment: LogSegment) -> str | None:
    entry = last_indexed(directory, segment.base_offset)
    start = 0 if entry is None or not 0 <= entry.position < log.size_bytes else entry.position
    end, last_offset = start, segment.base_offset - 1
    for batch in islice(iter_headers(log, start), _MOST_BATCHES):
        end, last_offset = batch.position + batch.header.size_bytes, batch.header.last_offset
    if end == log.size_bytes and last_offset <= segment.end_offset:
        return None
    return f"its batches are seen to reach byte {end} and offset {last_offset}"


def find_leading_compacted(
    identities: Iterable[DirIdentity], replica_id: ReplicaId, segments: Sequence[LogSegment]
) -> list[LogSegment]:
    """See `LogSource.leading_compacted`; `identities` are those of all log directories that may be read."""
    found: list[LogSegment] = []
    with replica_directory(identities, replica_id) as directory:
        for segment in segments:
            if not _lacks_offsets(directory, segment):
                break
            found.append(segment)
    return found


def _lacks_offsets(directory: BrokerDirectory, segment: LogSegment) -> bool:
    """Not said of a file whose headers cannot be followed to its end, or lead beyond it: that is damage, which a copy
    names.
    """
    next_offset, end, is_whole = segment.base_offset, 0, True
    with directory.file(offset_file(segment.base_offset, FileKind.LOG)) as log:
        for batch in iter_headers(log):
            is_whole = is_whole and batch.header.base_offset == next_offset
            next_offset, end = batch.header.last_offset + 1, batch.position + batch.header.size_bytes
        if end != log.size_bytes or next_offset > segment.end_offset + 1:
            return False
    return not is_whole or next_offset <= segment.end_offset
