"""One partition directory: what lies in it by names and sizes alone, and its small files as values.

`replica_directory` finds the one of a replica again, by its ids.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from include.tiering.errors import (
    CorruptFileError,
    HostileNameError,
    SourceError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.formats import checkpoints, producer_state
from include.tiering.formats.checkpoints import MAX_CHECKPOINT_BYTES, MAX_PARTITION_METADATA_BYTES
from include.tiering.formats.producer_state import ProducerEntry
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.kafka.log_dirs.dirs import DirIdentity, in_file, open_root
from include.tiering.kafka.log_dirs.files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    BrokerDirectory,
    FileKind,
    is_harmless,
    is_passing,
    offset_file,
    parse_offset_file,
)
from include.tiering.model.ids import Uuid
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.units import MIB


@dataclass(frozen=True, slots=True)
class LogFile:
    """One `.log`. `next_base_offset` is its successor's base offset, None for the active segment."""

    base_offset: int
    next_base_offset: int | None
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """`logs` ascend by base offset, there is at least one; `offsets` has the offsets in the names of each kind.

    `refused` are names that should be files and are something else, `lost` the base offsets of segments whose `.log` is
    missing beside its indexes; each was reported.
    """

    logs: tuple[LogFile, ...]
    offsets: Mapping[FileKind, frozenset[int]]
    refused: frozenset[str]
    lost: frozenset[int]

    @property
    def active(self) -> LogFile:
        return self.logs[-1]

    def has(self, kind: FileKind, offset: int) -> bool:
        return offset in self.offsets[kind]


def list_partition(directory: BrokerDirectory, on_error: Callable[[SourceError], None]) -> Listing:
    """Names on their way in or out are left out; hostile ones are reported and left out.

    Raises:
        SourceVanishedError: a `.log` or the directory went away meanwhile: list again.
        CorruptFileError: there is no `.log`.
    """
    offsets: dict[FileKind, set[int]] = {kind: set() for kind in FileKind}
    sizes: dict[int, tuple[int, int]] = {}
    refused = set()
    for entry in directory.entries():
        if is_passing(entry.name):
            continue
        parsed = parse_offset_file(entry.name)
        if parsed is None:
            if not is_harmless(entry.name):
                on_error(HostileNameError(directory.path_of(entry.name), "no broker writes a file of this name"))
            continue
        offset, kind = parsed
        if not entry.is_file(follow_symlinks=False):
            refused.add(entry.name)
            on_error(_not_a_file(directory, entry))
        if kind is FileKind.LOG:
            status = directory.stat(entry.name)
            sizes[offset] = (status.st_size, status.st_mtime_ns // 1_000_000)
        offsets[kind].add(offset)
    if not sizes:
        raise CorruptFileError(directory.path, "a partition directory without a .log file")
    orphans = _orphans(directory, offsets, sizes)
    for error in orphans.values():
        on_error(error)
    bases = sorted(sizes)
    logs = tuple(
        LogFile(base, successor, *sizes[base]) for base, successor in pairwise([*bases, None]) if base is not None
    )
    return Listing(
        logs, {kind: frozenset(found) for kind, found in offsets.items()}, frozenset(refused), frozenset(orphans)
    )


def _orphans(
    directory: BrokerDirectory, offsets: Mapping[FileKind, set[int]], sizes: Mapping[int, object]
) -> dict[int, SourceError]:
    """Indexes without a `.log`. While a segment is made or deleted it looks like this too: each is looked at again."""
    lost: dict[int, SourceError] = {}
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        for offset in sorted(offsets[kind] - sizes.keys()):
            log = offset_file(offset, FileKind.LOG)
            if directory.has(offset_file(offset, kind)) and not directory.has(log):
                lost[offset] = CorruptFileError(directory.path_of(log), f"missing beside its .{kind}")
    return lost


def _not_a_file(directory: BrokerDirectory, entry: os.DirEntry[str]) -> SourceError:
    path = directory.path_of(entry.name)
    if entry.is_symlink():
        return HostileNameError(path, "a symbolic link, which is not followed")
    return SourceUnreadableError(path, "not a regular file")


MAX_SNAPSHOT_BYTES: Final = 64 * MIB
"""More than a million producers."""


def read_topic_id(directory: BrokerDirectory) -> Uuid:
    """Raises SourceError: no readable `partition.metadata`."""
    data = directory.read(PARTITION_METADATA, MAX_PARTITION_METADATA_BYTES)
    with in_file(directory.path_of(PARTITION_METADATA)):
        return checkpoints.parse_partition_metadata(data)


def begun_ns(directory: BrokerDirectory) -> int:
    """When the broker wrote `partition.metadata`, which it does once, as it makes the log.

    Raises:
        SourceVanishedError: it is gone.
    """
    return directory.stat(PARTITION_METADATA).st_mtime_ns


def read_leader_epochs(directory: BrokerDirectory) -> LeaderEpochs:
    """Raises SourceError: no readable `leader-epoch-checkpoint`."""
    data = directory.read(LEADER_EPOCH_CHECKPOINT, MAX_CHECKPOINT_BYTES)
    with in_file(directory.path_of(LEADER_EPOCH_CHECKPOINT)):
        return checkpoints.parse_leader_epochs(data)


def read_snapshot(directory: BrokerDirectory, offset: int) -> tuple[ProducerEntry, ...]:
    """Raises SourceError: no readable producer snapshot of this offset."""
    name = offset_file(offset, FileKind.PRODUCER_SNAPSHOT)
    data = directory.read(name, MAX_SNAPSHOT_BYTES)
    with in_file(directory.path_of(name)):
        return producer_state.parse_producer_snapshot(data)


@contextmanager
def replica_directory(identities: Iterable[DirIdentity], replica_id: ReplicaId) -> Iterator[BrokerDirectory]:
    """`identities` are those of all log directories that may be read.

    Raises:
        SourceVanishedError: it is gone, or the directory belongs to another topic id.
        SourceError: it cannot be read.
    """
    partition, where = replica_id.topic_id_partition, (replica_id.broker_id, replica_id.directory_id)
    found = next((one for one in identities if (one.broker_id, one.directory_id) == where), None)
    if found is None:
        raise SourceVanishedError(str(replica_id), f"no readable log directory is {replica_id.directory_id}")
    with open_root(found.path) as root, root.directory(str(partition)) as directory:
        topic_id = read_topic_id(directory)
        if topic_id != partition.topic_id:
            raise SourceVanishedError(directory.path, f"topic id was {partition.topic_id}, now {topic_id}")
        yield directory
