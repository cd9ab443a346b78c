"""Check segments by file size and batch headers, before a decision uses them.

`find_size_doubts` checks whether the size of a `.log` can be the size of its batches. A broker ends a segment at its
last batch and writes every byte of it. A file that is mostly a hole, or that has bytes after the last batch, is
damaged, and its size says nothing about its records. The check starts at the last entry of the offset index (without a
usable one, at byte 0) and reads at most `_MAX_BATCHES` batch headers from there on. If these headers do not end at the
end of the file, or reach above the segment's end offset, the size is doubtful. So is the size of a file that cannot be
read, or has another size than listed. An active segment is only checked for holes.

`find_leading_compacted` finds leading segments that lack offsets, usually because a log cleaner removed them. It reads
the batch headers of these segments, and of the next one, if any.
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

_MAX_BATCHES: Final = 20_000
_BLOCK_BYTES: Final = 512
"""Unit of `st_blocks`, independent of the file system's block size."""
_SPARSE_BYTES: Final = MIB
_SPARSE_SHARE: Final = 8
"""A file counts as sparse if more than `_SPARSE_BYTES` of it are not on the disk, and less than 1 / `_SPARSE_SHARE` of
it is on the disk. Compression by a file system usually saves less than that."""


def find_size_doubts(
    identities: Iterable[DirIdentity], replica_id: ReplicaId, segments: Sequence[LogSegment]
) -> dict[int, str]:
    """Implement `LogSource.size_doubts`; `identities` are those of all log directories that may be read."""
    with replica_directory(identities, replica_id) as directory:
        return _size_doubts(directory, segments)


def _size_doubts(directory: BrokerDirectory, segments: Sequence[LogSegment]) -> dict[int, str]:
    doubts = {}
    for segment in segments:
        try:
            why = _size_doubt(directory, segment)
        except SourceError as error:
            why = f"it cannot be read: {error}"
        if why is not None:
            doubts[segment.base_offset] = why
    return doubts


def _size_doubt(directory: BrokerDirectory, segment: LogSegment) -> str | None:
    with directory.file(offset_file(segment.base_offset, FileKind.LOG)) as log:
        on_disk = log.status.st_blocks * _BLOCK_BYTES
        missing = segment.size_bytes - on_disk
        if missing > _SPARSE_BYTES and on_disk * _SPARSE_SHARE < segment.size_bytes:
            return f"only {on_disk} bytes of it are on the disk"
        if segment.active:
            return None
        if log.size_bytes != segment.size_bytes:
            return f"it had {segment.size_bytes} bytes when it was listed, now {log.size_bytes}"
        return _size_doubt_at_end(directory, log, segment)


def _size_doubt_at_end(directory: BrokerDirectory, log: BrokerFile, segment: LogSegment) -> str | None:
    entry = last_indexed(directory, segment.base_offset)
    start = 0 if entry is None or not 0 <= entry.position < log.size_bytes else entry.position
    end, last_offset = start, segment.base_offset - 1
    for batch in islice(iter_headers(log, start), _MAX_BATCHES):
        end, last_offset = batch.position + batch.header.size_bytes, batch.header.last_offset
    if end == log.size_bytes and last_offset <= segment.end_offset:
        return None
    return f"its batches end at byte {end} and offset {last_offset}"


def find_leading_compacted(
    identities: Iterable[DirIdentity], replica_id: ReplicaId, segments: Sequence[LogSegment]
) -> list[LogSegment]:
    """Implement `LogSource.leading_compacted`; `identities` are those of all log directories that may be read."""
    found: list[LogSegment] = []
    with replica_directory(identities, replica_id) as directory:
        for segment in segments:
            if not _lacks_offsets(directory, segment):
                break
            found.append(segment)
    return found


def _lacks_offsets(directory: BrokerDirectory, segment: LogSegment) -> bool:
    """Return whether offsets are missing in an undamaged segment.

    If the headers do not lead exactly to the end of the file, or lead beyond the segment's end offset, the result is
    False: the file is damaged.
    """
    next_offset, end, is_whole = segment.base_offset, 0, True
    with directory.file(offset_file(segment.base_offset, FileKind.LOG)) as log:
        for batch in iter_headers(log):
            is_whole = is_whole and batch.header.base_offset == next_offset
            next_offset, end = batch.header.last_offset + 1, batch.position + batch.header.size_bytes
        if end != log.size_bytes or next_offset > segment.end_offset + 1:
            return False
    return not is_whole or next_offset <= segment.end_offset
