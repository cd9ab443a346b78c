"""The directories of one or several brokers: log directories, and the partition directories in them.

**Log directories**: their owner and their checkpoints. A log directory is used only after its `meta.properties` was
checked: it must name the broker of the setting (if the setting has one), the same cluster as the other directories, and
a directory id that no other directory of the broker has. Checkpoints are seconds to a minute older than the offsets
that the broker has in memory, so their offsets are lower bounds. A checkpoint stores offsets by partition name;
`found_replica` decides whether such an offset belongs to the log that has the name now.

**Partition directories**: names and sizes of the files in them, and the contents of some.
`replica_directory` opens the directory of a replica by its ids.

Bytes that cannot be parsed become an error with the path of their file (`in_file`); only batches of magic 0 or 1 raise
an OldMagicError without a path.
"""

import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from include.tiering.errors import (
    ClusterMetadataError,
    CorruptFileError,
    FormatError,
    HostileNameError,
    OldMagicError,
    SourceError,
    SourceUnreadableError,
    SourceVanishedError,
    printable,
)
from include.tiering.formats import checkpoints, indexes
from include.tiering.formats.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    MAX_META_PROPERTIES_BYTES,
    MAX_PARTITION_METADATA_BYTES,
    MetaProperties,
)
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.kafka.log_dirs.contract import ReplicaId, matches
from include.tiering.kafka.log_dirs.files import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    NOT_PARTITIONS,
    PARTITION_METADATA,
    BrokerDirectory,
    BrokerFile,
    DirectoryState,
    FileKind,
    is_harmless,
    is_passing,
    offset_file,
    parse_offset_file,
    parse_partition_directory,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Uuid
from include.tiering.units import MIB

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
MAX_SNAPSHOT_BYTES: Final = 64 * MIB
"""Limit of a producer snapshot that is read: enough for more than a million producers."""

OffsetsByPartition = Mapping[tuple[str, int], int]

# Each segment that is opened, and each that is compared again, reads these files, and mostly finds the same bytes.
_parse_offsets: Final = lru_cache(maxsize=8)(checkpoints.parse_offset_checkpoint)
_parse_meta_properties: Final = lru_cache(maxsize=64)(checkpoints.parse_meta_properties)
_parse_topic_id: Final = lru_cache(maxsize=64)(checkpoints.parse_partition_metadata)
_parse_leader_epochs: Final = lru_cache(maxsize=64)(checkpoints.parse_leader_epochs)


@dataclass(frozen=True, slots=True)
class LogDirLocation:
    """A log directory as configured; if `broker_id` is None, the broker in its meta.properties is used."""

    broker_id: int | None
    path: Path


@dataclass(frozen=True, slots=True)
class DirIdentity:
    """The owner of a log directory. `directory_id` is the path if meta.properties has none (brokers before 3.7)."""

    path: str
    cluster_id: str
    broker_id: int
    directory_id: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets by (topic, partition), and the file's modification time in ns; 0 without a readable file."""

    offsets: OffsetsByPartition = field(default_factory=dict)
    written_ns: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoint files of a log directory.

    `cleaned` is that of the log cleaner: for each partition the first offset that is not cleaned.
    """

    high_watermarks: Checkpoint
    log_starts: Checkpoint
    recovery_points: Checkpoint
    cleaned: Checkpoint


def identify(log_dir: LogDirLocation) -> DirIdentity:
    """Return the owner of a log directory.

    Raises:
        SourceError: it cannot be opened on this host (the message names the host), or its meta.properties cannot be
            read or lacks the cluster id or the node id.
        ClusterMetadataError: it belongs to another broker than the configured one.
    """
    path = str(log_dir.path)
    with open_root(path) as root:
        meta = read_meta_properties(root)
    if meta.cluster_id is None or meta.node_id is None:
        raise CorruptFileError(f"{path}/{META_PROPERTIES}", "lacks the cluster id or the node id")
    if log_dir.broker_id is not None and meta.node_id != log_dir.broker_id:
        raise ClusterMetadataError(
            f"{printable(path)} belongs to broker {meta.node_id}, the settings say broker {log_dir.broker_id}"
        )
    return DirIdentity(path, meta.cluster_id, meta.node_id, str(meta.directory_id or path))


def open_root(path: str) -> BrokerDirectory:
    """Open a log directory.

    Raises:
        SourceError: it cannot be opened. The message names this host, because the directory may be on another host.
    """
    try:
        return BrokerDirectory.open(path)
    except SourceError as error:
        raise type(error)(path, f"{error.message} on host {socket.gethostname()}", error.position) from error


def live_partitions(root: BrokerDirectory, topics: Collection[str] | None) -> set[tuple[str, int]]:
    """Return (topic, number) of each partition with a live directory in `root` whose topic matches `topics`.

    A directory is live if its name has no suffix for a deleted, future or stray replica. `topics` are shell-style
    patterns; None matches all topics.

    Raises:
        SourceError: the directory cannot be listed.
    """
    parsed = (parse_partition_directory(entry.name) for entry in root.entries() if entry.name not in NOT_PARTITIONS)
    return {
        (name.topic, name.partition)
        for name in parsed
        if name is not None and name.state is DirectoryState.LIVE and matches(name.topic, topics)
    }


def require_agreement(identity: DirIdentity, others: Iterable[DirIdentity], cluster_id: str | None) -> None:
    """Require that a directory belongs to the cluster, and that no other directory has its broker id and directory id.

    Args:
        identity: the directory.
        others: the directories accepted before.
        cluster_id: the required cluster id, from the cluster metadata. If None, the cluster id of `others` is required;
            without others any cluster id is accepted.

    Raises:
        ClusterMetadataError: it belongs to another cluster, or another directory has its ids.
    """
    where = printable(identity.path)
    for other in others:
        cluster_id = cluster_id or other.cluster_id
        if (identity.broker_id, identity.directory_id) == (other.broker_id, other.directory_id):
            raise ClusterMetadataError(
                f"{where} and {printable(other.path)} both are directory {identity.directory_id}"
                f" of broker {identity.broker_id}"
            )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise ClusterMetadataError(f"{where} belongs to cluster {printable(identity.cluster_id)}, not {cluster_id}")


def identified_dirs(
    log_dirs: Iterable[LogDirLocation], cluster_id: str | None
) -> list[tuple[LogDirLocation, DirIdentity | SourceError | ClusterMetadataError]]:
    """Return each directory in the given order, with its owner or the error because of which it must not be read."""
    found: list[tuple[LogDirLocation, DirIdentity | SourceError | ClusterMetadataError]] = []
    seen: list[DirIdentity] = []
    for log_dir in log_dirs:
        try:
            identity = identify(log_dir)
            require_agreement(identity, seen, cluster_id)
            seen.append(identity)
            found.append((log_dir, identity))
        except (SourceError, ClusterMetadataError) as error:
            found.append((log_dir, error))
    return found


def read_checkpoints(root: BrokerDirectory, on_error: Callable[[SourceError], None]) -> Checkpoints:
    """Read all checkpoints. A damaged or unreadable checkpoint is reported to `on_error` and counts as empty."""

    def read(name: str) -> Checkpoint:
        try:
            return read_checkpoint(root, name)
        except SourceError as error:
            on_error(error)
            return Checkpoint()

    return Checkpoints(read(HIGH_WATERMARKS), read(LOG_STARTS), read(RECOVERY_POINTS), read(CLEANED))


def read_checkpoint(root: BrokerDirectory, name: str) -> Checkpoint:
    """Return a checkpoint, empty if the file is missing. Raises SourceError if it is unreadable or damaged."""
    try:
        with root.file(name) as file, in_file(file.path):
            return Checkpoint(_parse_offsets(file.read_all(MAX_CHECKPOINT_BYTES)), file.status.st_mtime_ns)
    except SourceVanishedError:
        return Checkpoint()


@contextmanager
def in_file(path: str, offset_bytes: int = 0) -> Iterator[None]:
    """Turn a FormatError into a CorruptFileError of `path`; `offset_bytes` is added to its position.

    An OldMagicError is not changed: batches of magic 0 and 1 are an old format, and usually no damage.
    """
    try:
        yield
    except OldMagicError:
        raise
    except FormatError as error:
        raise CorruptFileError(path, error.message, offset_bytes + error.position) from error


def read_meta_properties(root: BrokerDirectory) -> MetaProperties:
    """Return the contents of meta.properties. Raises SourceError if the file is missing, unreadable or damaged."""
    data = root.read(META_PROPERTIES, MAX_META_PROPERTIES_BYTES)
    with in_file(root.path_of(META_PROPERTIES)):
        return _parse_meta_properties(data)


def last_index_entry(file: BrokerFile, entry_bytes: int) -> bytes | None:
    """Return the last of the index entries that are not all zero; None if there is no such entry.

    The index of an active segment is preallocated: ten megabytes by default, mostly zero. Zeros come only after the
    entries, so a binary search finds the last entry. In a damaged file the entry may be wrong: the caller must compare
    it with the log.
    """
    zeros = bytes(entry_bytes)
    low, high = 0, file.size_bytes // entry_bytes
    newest = file.read_at((high - 1) * entry_bytes, entry_bytes) if high else zeros
    if newest != zeros:
        return newest
    found = None
    while low < high:
        middle = (low + high) // 2
        entry = file.read_at(middle * entry_bytes, entry_bytes)
        if entry == zeros:
            high = middle
        else:
            low, found = middle + 1, entry
    return found


class Tail:
    """A `ByteSource` over the bytes of a file from `start` on."""

    def __init__(self, file: BrokerFile, start: int) -> None:
        self._file = file
        self._start = start

    @property
    def size_bytes(self) -> int:
        return max(0, self._file.size_bytes - self._start)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file.read_into(self._start + position, buffer)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One `.log`. `next_base_offset` is its successor's base offset, None for the active segment."""

    base_offset: int
    next_base_offset: int | None
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a partition directory.

    `logs` has at least one entry and ascends by base offset. `offsets` has, for each kind of file, the offsets in the
    file names. `refused` has the names of segment files and snapshots that are not regular files. `lost` has the base
    offsets of segments of which an offset or time index exists, but not the `.log`. `list_partition` has reported
    `refused` and `lost`.
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
    """List the files of a partition.

    Files that are being written, swapped in or deleted, and files without an offset in their names, are left out. Names
    that no broker writes are reported and left out. Segment files that are not regular files are reported; they are
    listed like regular files, and also in `refused`.

    Raises:
        SourceVanishedError: a `.log` or the directory was removed during the call; the caller may list again.
        CorruptFileError: there is no `.log`.
        SourceUnreadableError: the directory, or the status of a file, cannot be read.
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
    """Return an error by base offset for each segment that has an offset or time index, but no `.log`.

    The names of the index and of the `.log` are looked up again, because a segment that is being created or deleted
    looks the same for a moment.
    """
    lost: dict[int, SourceError] = {}
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        for offset in sorted(offsets[kind] - sizes.keys()):
            log = offset_file(offset, FileKind.LOG)
            if directory.has(offset_file(offset, kind)) and not directory.has(log):
                lost[offset] = CorruptFileError(directory.path_of(log), f"missing, although its .{kind} exists")
    return lost


def _not_a_file(directory: BrokerDirectory, entry: os.DirEntry[str]) -> SourceError:
    path = directory.path_of(entry.name)
    if entry.is_symlink():
        return HostileNameError(path, "a symbolic link, which is not followed")
    return SourceUnreadableError(path, "not a regular file")


def read_topic_id(directory: BrokerDirectory) -> Uuid:
    """Return the topic id. Raises SourceError without a readable `partition.metadata`."""
    data = directory.read(PARTITION_METADATA, MAX_PARTITION_METADATA_BYTES)
    with in_file(directory.path_of(PARTITION_METADATA)):
        return _parse_topic_id(data)


def created_ns(directory: BrokerDirectory) -> int:
    """Return the modification time of `partition.metadata` in ns. A broker writes it once, when it creates the log.

    Raises:
        SourceError: the file does not exist, or its status cannot be read.
    """
    return directory.stat(PARTITION_METADATA).st_mtime_ns


def read_leader_epochs(directory: BrokerDirectory) -> LeaderEpochs:
    """Return the leader epochs. Raises SourceError without a readable `leader-epoch-checkpoint`."""
    data = directory.read(LEADER_EPOCH_CHECKPOINT, MAX_CHECKPOINT_BYTES)
    with in_file(directory.path_of(LEADER_EPOCH_CHECKPOINT)):
        return _parse_leader_epochs(data)


def read_snapshot(directory: BrokerDirectory, offset: int) -> tuple[ProducerEntry, ...]:
    """Return the producer entries. Raises SourceError without a readable producer snapshot of this offset."""
    name = offset_file(offset, FileKind.PRODUCER_SNAPSHOT)
    data = directory.read(name, MAX_SNAPSHOT_BYTES)
    with in_file(directory.path_of(name)):
        return indexes.parse_producer_snapshot(data)


@contextmanager
def replica_directory(identities: Iterable[DirIdentity], replica_id: ReplicaId) -> Iterator[BrokerDirectory]:
    """Open the partition directory of a replica.

    Args:
        identities: all log directories that may be read.
        replica_id: the replica.

    Raises:
        SourceVanishedError: no log directory has the replica's broker id and directory id, the partition directory does
            not exist, or it belongs to another topic id.
        SourceError: it cannot be read.
    """
    partition, where = replica_id.topic_id_partition, (replica_id.broker_id, replica_id.directory_id)
    found = next((identity for identity in identities if (identity.broker_id, identity.directory_id) == where), None)
    if found is None:
        raise SourceVanishedError(str(replica_id), f"no readable log directory has id {replica_id.directory_id}")
    with open_root(found.path) as root, root.directory(str(partition)) as directory:
        topic_id = read_topic_id(directory)
        if topic_id != partition.topic_id:
            raise SourceVanishedError(directory.path, f"topic id was {partition.topic_id}, now {topic_id}")
        yield directory
