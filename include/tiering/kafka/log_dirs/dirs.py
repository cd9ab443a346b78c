"""The log directories of one or several brokers: whose they are, and what their checkpoints say.

A directory is believed only after its `meta.properties`: it must name the broker that the user named, the cluster that
all the others name, and a directory id that no other has. Checkpoints lag behind the broker (seconds to a minute), so
what they say is a lower bound. They are read by the names of partitions: whether an offset is of the log that has the
name now is asked in `bounds`.

Broken bytes become an error that names their file (`in_file`).
"""

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from include.tiering.errors import (
    ClusterFactsError,
    CorruptFileError,
    FormatError,
    OldMagicError,
    SourceError,
    SourceVanishedError,
    printable,
)
from include.tiering.formats import checkpoints
from include.tiering.formats.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    MAX_META_PROPERTIES_BYTES,
    MetaProperties,
    parse_offset_checkpoint,
)
from include.tiering.kafka.log_dirs.files import META_PROPERTIES, BrokerDirectory, BrokerFile

HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"

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
        ClusterFactsError: it is another broker's than the user said.
    """
    path = str(log_dir.path)
    with open_root(path) as root:
        meta = read_meta_properties(root)
    if meta.cluster_id is None or meta.node_id is None:
        raise CorruptFileError(f"{path}/{META_PROPERTIES}", "lacks the cluster id or the node id")
    if log_dir.broker_id is not None and meta.node_id != log_dir.broker_id:
        raise ClusterFactsError(
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
        cluster_id: of the topic facts; None = unknown, then the others' cluster counts.

    Raises:
        ClusterFactsError: another cluster, or another directory has its id.
    """
    where = printable(identity.path)
    for other in others:
        cluster_id = cluster_id or other.cluster_id
        if (identity.broker_id, identity.directory_id) == (other.broker_id, other.directory_id):
            raise ClusterFactsError(
                f"{where} and {printable(other.path)} both are directory {identity.directory_id}"
                f" of broker {identity.broker_id}"
            )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise ClusterFactsError(f"{where} belongs to cluster {printable(identity.cluster_id)}, not {cluster_id}")


def identified_dirs(
    log_dirs: Iterable[LogDirLocation], cluster_id: str | None
) -> list[tuple[LogDirLocation, DirIdentity | SourceError | ClusterFactsError]]:
    """Each directory in the order given: whose it is, or why it may not be read."""
    found: list[tuple[LogDirLocation, DirIdentity | SourceError | ClusterFactsError]] = []
    seen: list[DirIdentity] = []
    for log_dir in log_dirs:
        try:
            identity = identify(log_dir)
            require_agreement(identity, seen, cluster_id)
            seen.append(identity)
            found.append((log_dir, identity))
        except (SourceError, ClusterFactsError) as error:
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


@contextlib.contextmanager
def in_file(path: str, offset_bytes: int = 0) -> Iterator[None]:
    """Turns a FormatError into a CorruptFileError of `path`; positions count from `offset_bytes` of the file.

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
