"""A sample copied into the log directory of another broker: bytes, never links, and what the broker needs to adopt it.

    source                          copy
    rolled .log .index .timeindex   whole, with their modification times (a broker may expire by them)
    .txnindex, .snapshot            where they are; a snapshot is what the broker knows of producers at a segment's base
    active .log                     up to the end that the scan found; its indexes are rebuilt by the broker's recovery
    leader-epoch-checkpoint         written anew: the epochs of the copied records alone
    partition.metadata              written anew, with the same topic id

The source is opened as every broker's file is: read only, no link followed, past the page cache.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from include.tiering.broker_process.sample import PartitionSample
from include.tiering.errors import RehearsalRoomError, SourceChangedError
from include.tiering.formats import checkpoints
from include.tiering.formats.checkpoints import MAX_PARTITION_METADATA_BYTES
from include.tiering.kafka.log_dirs.dirs import in_file
from include.tiering.kafka.log_dirs.files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    BrokerDirectory,
    BrokerFile,
    FileKind,
    offset_file,
)
from include.tiering.units import MIB, format_bytes

COPIES: Final = 3
"""The sample itself, its copy in the throw-away store, and as much again for indexes and a broker's own files."""
_BASE_BYTES: Final = 64 * MIB
_BLOCK_BYTES: Final = 4 * MIB


def require_room(sample_bytes: int, free_bytes: int, directory: Path) -> None:
    """Raises RehearsalRoomError with what is needed and how to need less."""
    needed = COPIES * sample_bytes + _BASE_BYTES
    if needed > free_bytes:
        raise RehearsalRoomError(
            f"{directory} has {format_bytes(free_bytes)} free, a rehearsal of {format_bytes(sample_bytes)} needs"
            f" {format_bytes(needed)}: set TMPDIR to a directory with more room, or take less with --rehearse-bytes"
        )


def copy_sample(sample: PartitionSample, source: Path, target: Path, on_bytes: Callable[[int], None]) -> None:
    """From the log directory `source` into the log directory `target`, where the partition must not be yet.

    Raises:
        SourceError: a file is gone, changed, hostile or unreadable; or the directory is another topic's by now.
    """
    partition = sample.replica_id.topic_id_partition
    directory = target / str(partition)
    directory.mkdir()
    with BrokerDirectory.open(str(source)) as root, root.directory(str(partition)) as opened:
        _require_topic(opened, sample)
        for name, size_bytes, is_needed in _files(sample):
            if is_needed or opened.has(name):
                with opened.file(name, bulk=True) as file:
                    _copy_file(file, directory / name, file.size_bytes if size_bytes is None else size_bytes, on_bytes)
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(checkpoints.serialize_leader_epochs(sample.leader_epochs))
    (directory / PARTITION_METADATA).write_bytes(checkpoints.serialize_partition_metadata(partition.topic_id))


def _files(sample: PartitionSample) -> Iterator[tuple[str, int | None, bool]]:
    """(name, how many bytes of it or None for all, whether it must be there)."""
    for segment in sample.segments:
        yield offset_file(segment.base_offset, FileKind.LOG), segment.size_bytes, True
        yield offset_file(segment.base_offset, FileKind.PRODUCER_SNAPSHOT), None, False
    for segment in sample.rolled:
        yield offset_file(segment.base_offset, FileKind.OFFSET_INDEX), None, True
        yield offset_file(segment.base_offset, FileKind.TIME_INDEX), None, True
        yield offset_file(segment.base_offset, FileKind.TRANSACTION_INDEX), None, False


def _require_topic(directory: BrokerDirectory, sample: PartitionSample) -> None:
    expected = sample.replica_id.topic_id_partition.topic_id
    data = directory.read(PARTITION_METADATA, MAX_PARTITION_METADATA_BYTES)
    with in_file(directory.path_of(PARTITION_METADATA)):
        found = checkpoints.parse_partition_metadata(data)
    if found != expected:
        raise SourceChangedError(directory.path, f"topic id was {expected}, now {found}")


def _copy_file(file: BrokerFile, target: Path, size_bytes: int, on_bytes: Callable[[int], None]) -> None:
    """The first `size_bytes`, on the disk when it returns: what is below a recovery point must be."""
    if file.size_bytes < size_bytes:
        raise SourceChangedError(file.path, f"had {size_bytes} bytes when it was listed, now {file.size_bytes}")
    buffer = memoryview(bytearray(min(_BLOCK_BYTES, max(1, size_bytes))))
    with target.open("xb") as copy:
        position = 0
        while position < size_bytes:
            block = buffer[: min(len(buffer), size_bytes - position)]
            position += file.read_into(position, block)
            copy.write(block)
            on_bytes(len(block))
        copy.flush()
        os.fsync(copy.fileno())
    os.utime(target, ns=(file.status.st_atime_ns, file.status.st_mtime_ns))
