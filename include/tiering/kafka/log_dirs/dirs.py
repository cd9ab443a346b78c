"""The directories of one or several brokers: log directories, and the partition directories in them.

**Log directories**: whose they are, and what their checkpoints say. One is believed only after its `meta.properties`:
it must name the broker that the user named, the cluster that all the others name, and a directory id that no other has.
Checkpoints lag behind the broker (seconds to a minute), so what they say is a lower bound. They are read by the names
of partitions: whether an offset is of the log that has the name now is asked in `bounds`.

**Partition directories**: what lies in one by names and sizes alone, and its small files as values.
`replica_directory` finds the one of a replica again, by its ids.

Broken bytes become an error that names their file (`in_file`).
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
    parse_offset_checkpoint,
)
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.kafka.log_dirs.files import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    BrokerDirectory,
    BrokerFile,
    FileKind,
    is_harmless,
    is_passing,
    offset_file,
    parse_offset_file,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Uuid
from include.tiering.units import MIB

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
MAX_SNAPSHOT_BYTES: Final = 64 * MIB
"""More than a million producers."""

OffsetsByPartition = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class LogDirLocation:
    """A log directory as the user names it; `broker_id` None = whatever its meta.properties says."""

    broker_id: int | None
    path: Path


@dataclass(frozen=True, slots=True)
class DirIdentity:
    """Whose directory it is. `directory_id` is the path where meta.properties has none (brokers before 3.7)."""

    path: str
    cluster_id: str
    broker_id: int
    directory_id: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets by (topic, partition), and when the broker wrote them: the time of the file, ns; 0 without a file."""

    offsets: OffsetsByPartition = field(default_factory=dict)
    written_ns: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """High watermarks, log starts, recovery points, and first uncleaned offsets."""

    high_watermarks: Checkpoint
    log_starts: Checkpoint
    recovery_points: Checkpoint
    cleaned: Checkpoint


def identify(log_dir: LogDirLocation) -> DirIdentity:
    """Whose directory this is.

    Raises:
        SourceError: it or its meta.properties cannot be read here; the message names the host.
        ClusterMetadataError: it is another broker's than the user said.
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
    """Raises SourceError with the host in its message: it may be there elsewhere."""
    try:
        return BrokerDirectory.open(path)
    except SourceError as error:
        raise type(error)(path, f"{error.message} on host {socket.gethostname()}", error.position) from error


def require_agreement(identity: DirIdentity, others: Iterable[DirIdentity], cluster_id: str | None) -> None:
    """Whether this directory may be read beside the others, which were accepted before it.

    Args:
        cluster_id: of the cluster metadata; None = unknown, then the others' cluster counts.

    Raises:
        ClusterMetadataError: another cluster, or another directory has its id.
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
    """Each directory in the order given: whose it is, or why it may not be read."""
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
    """A damaged checkpoint is reported, and says nothing about any partition."""

    def read(name: str) -> Checkpoint:
        try:
            return read_checkpoint(root, name)
        except SourceError as error:
            on_error(error)
            return Checkpoint()

    return Checkpoints(read(HIGH_WATERMARKS), read(LOG_STARTS), read(RECOVERY_POINTS), read(CLEANED))


def read_checkpoint(root: BrokerDirectory, name: str) -> Checkpoint:
    """Empty if there is none. Raises SourceError: unreadable or broken."""
    try:
        with root.file(name) as file, in_file(file.path):
            return Checkpoint(parse_offset_checkpoint(file.read_all(MAX_CHECKPOINT_BYTES)), file.status.st_mtime_ns)
    except SourceVanishedError:
        return Checkpoint()


@contextmanager
def in_file(path: str, offset_bytes: int = 0) -> Iterator[None]:
    """Turn a FormatError into a CorruptFileError of `path`; positions count from `offset_bytes` of the
    file.

    An OldMagicError passes: such bytes are not damaged.
    """
    try:
        yield
    except OldMagicError:
        raise
    except FormatError as error:
        raise CorruptFileError(path, error.message, offset_bytes + error.position) from error


def read_meta_properties(root: BrokerDirectory) -> MetaProperties:
    """Whose log directory this is.

    Raises:
        SourceError: the file is missing, unreadable or broken.
    """
    data = root.read(META_PROPERTIES, MAX_META_PROPERTIES_BYTES)
    with in_file(root.path_of(META_PROPERTIES)):
        return checkpoints.parse_meta_properties(data)


def last_index_entry(file: BrokerFile, entry_bytes: int) -> bytes | None:
    """The last entry of an index that is not all zero; None if there is none.

    An active segment's index is preallocated: ten megabytes, nearly all zero. Entries never fall and zeros come only at
    the end, so the last entry is found by halving. What a damaged file answers is for the caller to verify.
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
    """A `ByteSource` that begins at `start` of another."""

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
        return indexes.parse_producer_snapshot(data)


@contextmanager
def replica_directory(identities: Iterable[DirIdentity], replica_id: ReplicaId) -> Iterator[BrokerDirectory]:
    """`identities` are those of all log directories that may be read.

    Raises:
        SourceVanishedError: it is gone, or the directory belongs to another topic id.
        SourceError: it cannot be read.
    """
    partition, where = replica_id.topic_id_partition, (replica_id.broker_id, replica_id.directory_id)
    found = next((identity for identity in identities if (identity.broker_id, identity.directory_id) == where), None)
    if found is None:
        raise SourceVanishedError(str(replica_id), f"no readable log directory is {replica_id.directory_id}")
    with open_root(found.path) as root, root.directory(str(partition)) as directory:
        topic_id = read_topic_id(directory)
        if topic_id != partition.topic_id:
            raise SourceVanishedError(directory.path, f"topic id was {partition.topic_id}, now {topic_id}")
        yield directory
