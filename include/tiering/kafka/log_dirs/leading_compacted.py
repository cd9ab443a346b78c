"""Which of the next segments of a replica lack offsets, by their headers: what a log cleaner has left of them.

A copy reads every byte before it sends one and refuses such a segment. This says the same before a copy begins, and of
as many segments as lie behind each other, at the price of one more.
"""

from collections.abc import Iterable, Sequence

from include.tiering.formats.log_end import iter_headers
from include.tiering.kafka.log_dirs.contract import LogSegment, ReplicaId
from include.tiering.kafka.log_dirs.dirs import DirIdentity
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.names import FileKind, offset_file
from include.tiering.kafka.log_dirs.replica_directory import replica_directory


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
    names."""
    next_offset, end, is_whole = segment.base_offset, 0, True
    with directory.file(offset_file(segment.base_offset, FileKind.LOG)) as log:
        for batch in iter_headers(log):
            is_whole = is_whole and batch.header.base_offset == next_offset
            next_offset, end = batch.header.last_offset + 1, batch.position + batch.header.size_bytes
        if end != log.size_bytes or next_offset > segment.end_offset + 1:
            return False
    return not is_whole or next_offset <= segment.end_offset
