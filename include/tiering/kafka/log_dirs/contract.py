"""Where rolled segments come from.

A source lists replicas with their segments (`scan`), reads one replica again (`replica`) and opens one segment for a
copy (`open_segment`). Nothing outside the adapter assumes files. A source is read only: never lock, write, rename or
delete. What vanishes or changes while it is read is an outcome (a `SourceError`), not a crash.
"""

import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Protocol

from include.tiering.errors import ClusterMetadataError, SourceError, SourceUnreadableError, printable
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.reasons import Reason
from include.tiering.model.segments import LogSegmentData, TopicIdPartition, Uuid
from include.tiering.presentation import Document, Table


class BoundsQuality(StrEnum):
    """EXACT: the broker said so. LOWER: a safe lower bound (checkpoints lag)."""

    EXACT = "exact"
    LOWER = "lower"


class IneligibleReason(Reason):
    """Why a segment may not be copied (design rule: one reason each, the first that applies).

    COMPACTED is about a topic. COMPACTED_SEGMENT is about one segment of a topic whose cleanup.policy is `delete` now:
    the broker's log cleaner took offsets, or all, out of it while the policy was another. It is as the broker wants it,
    and no corruption; what it held cannot be copied any more. Segments behind it are evaluated by themselves.
    Where waiting cannot help, the segment will not become eligible as it is.
    """

    INTERNAL_TOPIC = "internal-topic", "internal topic", True
    COMPACTED = "compacted", "compacted topic", True
    BROKER_TIERED = "broker-tiered", "remote.storage.enable is true: the broker copies this topic", True
    TOPIC_UNKNOWN = "topic-unknown", "topic not in the cluster metadata: name the topic to copy it", True
    TOPIC_REMOVED = "topic-removed", "topic was deleted or re-created", True
    TOPIC_CONTRADICTED = "topic-contradicted", "cluster metadata contradicts what is on disk", True
    NOT_LEADER = "not-leader", "not the leader's replica", True
    AMBIGUOUS_REPLICA = "ambiguous-replica", "two directories hold this partition"
    BEING_DELETED = "being-deleted", "replica is being deleted or is stray", True
    BEING_MOVED = "being-moved", "replica is being moved to another directory", True
    OFFSETS_UNKNOWN = "offsets-unknown", "its leader does not say how far it is replicated", True
    STALE_LOG_DIR = "stale-log-dir", "log directory does not agree with the leader", True
    HIGH_WATERMARK_ABOVE_LOG_END = (
        "high-watermark-above-log-end",
        "high watermark above the log's end: the checkpoint is of another log of this name, or the log lost its end",
        True,
    )
    RECOVERY_POINT_ABOVE_LOG_END = (
        "recovery-point-above-log-end",
        "recovery point above the log's end: the checkpoint is of another log of this name, or the log lost its end",
        True,
    )
    LOG_START_ABOVE_LOG_END = (
        "log-start-above-log-end",
        "log start offset above the log's end: the checkpoint is of another log of this name, or the log lost its end",
        True,
    )
    CHECKPOINT_OLDER_THAN_LOG = (
        "checkpoint-older-than-log",
        "checkpoint older than the log: it is of another log of this name",
        True,
    )
    ACTIVE = "active", "active segment", True
    BELOW_LOG_START = "below-log-start", "wholly below the log start offset", True
    ABOVE_HIGH_WATERMARK = "above-high-watermark", "above the high watermark", True
    ABOVE_LAST_STABLE_OFFSET = "above-last-stable-offset", "above the last stable offset", True
    NOT_FLUSHED = "not-flushed", "above the recovery point and not replicated", True
    PAST_RETENTION = "past-retention", "past the broker's retention", True
    OLD_MAGIC = "old-magic", "record format older than magic 2"
    NO_LEADER_EPOCH = "no-leader-epoch", "no leader epoch covers it"
    NO_PRODUCER_SNAPSHOT = "no-producer-snapshot", "no producer snapshot at its end"
    CORRUPT = "corrupt", "corrupt"
    AFTER_CORRUPT = "after-corrupt", "behind a corrupt segment"
    COMPACTED_SEGMENT = "compacted-segment", "compacted"


@dataclass(frozen=True, slots=True)
class ReplicaId:
    """One replica of one partition: which broker, which of its log directories."""

    topic_id_partition: TopicIdPartition
    broker_id: int
    directory_id: str

    def __str__(self) -> str:
        return f"{self.topic_id_partition}@{self.broker_id}"

    @property
    def order(self) -> tuple[str, int, int, str, bytes]:
        """By topic, partition, broker, directory."""
        partition = self.topic_id_partition
        return (partition.topic, partition.partition, self.broker_id, self.directory_id, partition.topic_id.value)


@dataclass(frozen=True, slots=True)
class LogSegment:
    """One `.log` of a replica.

    Offsets are inclusive. `end_offset` is the successor's base - 1, or for the active segment the last offset in it
    (base - 1 if it is empty). `size_bytes` is the valid length of the `.log` (an active segment may be preallocated).
    `max_timestamp_ms` is -1 if unknown. `batch_count` is None unless the segment was checked deeply.
    `reason` is None exactly if the segment is eligible. `is_corrupt`: it is damaged, whatever `reason` says.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    leader_epochs: LeaderEpochs
    active: bool
    reason: IneligibleReason | None
    batch_count: int | None = None
    is_corrupt: bool = False

    @property
    def eligible(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica as seen now. All bounds are exclusive ends: the first offset NOT covered.

    `chosen` marks the one replica that a copy may read (the leader's); only its segments can be eligible.
    `segment_bytes` is what a segment of the topic may have, None if that is not known. `was_compacted`: the topic is or
    was compacted, so segments may lack offsets without being damaged.
    """

    replica_id: ReplicaId
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    recovery_point: int
    bounds: BoundsQuality
    leader_epochs: LeaderEpochs
    leader_epoch: int | None
    segments: tuple[LogSegment, ...]
    chosen: bool
    owner_is_broker: bool
    segment_bytes: int | None = None
    was_compacted: bool = False

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.replica_id.topic_id_partition

    def segment_at(self, base_offset: int) -> LogSegment | None:
        return next((s for s in self.segments if s.base_offset == base_offset), None)


@dataclass(frozen=True, slots=True)
class ScanError:
    """One item that could not be read: `error` is the class name of a TieringError. `partition` is the one whose
    directory it lies in, as `topic-number`; empty for any other thing in a log directory, None for all of one.
    """

    path: str
    position: int | None
    error: str
    message: str
    partition: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ScanReport:
    """Replicas ordered by topic, partition, broker.

    `errors` are what may keep something from being copied: of directories, then of replicas. `notes` have the same form
    and keep nothing: damage of replicas that no copy reads, since another one leads, and of topics that are never
    copied.
    """

    cluster_id: str | None
    replicas: tuple[Replica, ...]
    errors: tuple[ScanError, ...]
    notes: tuple[ScanError, ...] = ()


@dataclass(frozen=True, slots=True)
class UnfinishedTransaction:
    """One that is open below a replica's high watermark: nothing at or above `first_offset` is stable.

    `since_ms` is when it began: by its coordinator's clock where that was asked, else the timestamp of a batch as its
    producer set it; -1 if that is not found any more. `transactional_id` is None where nobody could be asked.
    """

    producer_id: int
    first_offset: int
    since_ms: int
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class SourceFingerprint:
    """What must be equal for two reads to mean the same bytes. `files` holds (name, device, inode, size, mtime ns)."""

    broker_id: int
    directory_id: str
    topic_id: Uuid
    leader_epoch: int | None
    leader_epochs: LeaderEpochs
    files: tuple[tuple[str, int, int, int, int], ...]

    def as_text(self) -> str:
        """Equal texts mean equal fingerprints."""
        epochs = [tuple(entry) for entry in self.leader_epochs]
        return repr((self.broker_id, self.directory_id, str(self.topic_id), self.leader_epoch, epochs, self.files))


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """The result of the check pass: every batch was read and its CRC-32C holds.

    `first_offset` and `last_offset` (inclusive) are those of the batches, which cover the whole segment.
    """

    data: LogSegmentData
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    batch_count: int
    aborted_transactions: int


class OpenSegment(Protocol):
    """All files of one rolled segment, opened together and kept open, so that a delete cannot take them away."""

    @property
    def segment(self) -> LogSegment: ...

    @property
    def fingerprint(self) -> SourceFingerprint: ...

    def check(self) -> CheckedSegment:
        """Read every batch once: lengths, magic, CRC-32C, offsets without a hole, epochs, no byte left over.

        Raises:
            CorruptFileError: with file and position of the first rule that broke.
            CompactedSegmentError: it is sound, but offsets of it were compacted away.
            SourceChangedError: a file shrank meanwhile.
        """
        ...

    def recheck(self) -> None:
        """Prove that the replica is still the one that was opened: same files (inode, size), successor exists, same
        topic id, leader, leader epoch and epoch entries up to the end, log start not above the segment, topic still
        ours, no corruption found meanwhile.

        Raises:
            SourceChangedError: naming what changed, old and new.
            SourceVanishedError: the segment or its directory is gone.
        """
        ...


class LogSource(Protocol):
    """A set of replicas of one cluster."""

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        """All replicas, or those of topics that match one of the `topics` patterns (shell style, `*`).

        Cheap: names, sizes, indexes, checkpoints, open tails. `deep` also reads every batch. A damaged item becomes
        a `ScanError` and the scan goes on.
        """
        ...

    def replica(self, replica_id: ReplicaId) -> Replica:
        """This replica as it is now.

        Raises:
            SourceVanishedError: it is gone, or the partition directory belongs to another topic id.
            SourceError: it cannot be read.
        """
        ...

    def size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        """Why sizes of these segments of a replica cannot be what their batches take, in words, by base offset: the
        file is sparse, or goes on behind its last batch. Looks at the end of each; those that are right are left out.

        Raises:
            SourceVanishedError: as for `replica`.
            SourceError: it cannot be read.
        """
        ...

    def leading_compacted(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
        """The first of these rolled segments, up to one that holds all its offsets or is damaged, by their headers.
        Raises as `size_doubts`.
        """
        ...

    def unfinished_transactions(self, replica_id: ReplicaId) -> Sequence[UnfinishedTransaction]:
        """What keeps the last stable offset of this replica down, lowest first offset first.

        Raises:
            SourceVanishedError: as for `replica`.
            SourceError: it cannot be read.
        """
        ...

    def open_segment(self, replica_id: ReplicaId, base_offset: int) -> AbstractContextManager[OpenSegment]:
        """Open all files of the rolled segment that starts at `base_offset`.

        Raises:
            SourceVanishedError: no such segment.
            SourceUnreadableError: with the host and the path, if it cannot be opened here.
        """
        ...


def matches(topic: str, patterns: Collection[str] | None) -> bool:
    """True if one of the patterns matches; None means all topics, an empty collection none."""
    return patterns is None or any(fnmatchcase(topic, pattern) for pattern in patterns)


def scan_error(error: SourceError | ClusterMetadataError, default_path: str, partition: str | None = None) -> ScanError:
    """Cluster metadata has no path of its own, but the file that broke it has. `partition`: see `ScanError`."""
    source = error if isinstance(error, SourceError) else error.__cause__
    if isinstance(source, SourceError):
        path, message = printable(source.path), printable(source.message)
        return ScanError(path, source.position, type(error).__name__, message, partition)
    return ScanError(printable(default_path), None, type(error).__name__, printable(str(error)), partition)


def with_host(error: SourceUnreadableError) -> SourceUnreadableError:
    host = f"on host {socket.gethostname()}"
    if error.message.endswith(host):
        return error
    return SourceUnreadableError(error.path, f"{error.message} {host}", error.position)


def error_document(error: ScanError) -> Document:
    return {"path": error.path, "position": error.position, "error": error.error, "message": error.message}


def error_table(errors: tuple[ScanError, ...]) -> tuple[Table, ...]:
    """No table if there is no error."""
    if not errors:
        return ()
    rows = tuple((error.path, "" if error.position is None else str(error.position), error.message) for error in errors)
    return (Table("could not be read", ("path", "byte>", "message"), rows),)


def notes_member(notes: tuple[ScanError, ...]) -> Document:
    """What is wrong where nothing will be read; no member if there is nothing."""
    return {"notes": [error_document(note) for note in notes]} if notes else {}


def note_table(notes: tuple[ScanError, ...]) -> tuple[Table, ...]:
    """What is wrong where nothing will be read; no table if there is nothing."""
    if not notes:
        return ()
    rows = tuple((note.path, "" if note.position is None else str(note.position), note.message) for note in notes)
    return (Table("not needed by any copy, and damaged", ("path", "byte>", "message"), rows),)
