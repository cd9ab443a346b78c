"""The contract of a segment source: where rolled segments are read from.

A source lists replicas with their segments (`scan`), reads one replica again (`replica`) and opens one segment for a
copy (`open_segment`). A source is read-only: it never locks, writes, renames or deletes a file. Files may vanish or
change at any time, even while they are read. `source.LogDirSource` reads brokers' log directories. `FetchSource` in
`kafka/fetch_api` reads the leaders over the network; before it can list segments, it has to find them in the logs
(`find_segments`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NotRequired, Protocol, TypedDict

from include.tiering.errors import ClusterMetadataError, SourceError, printable
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.reasons import Reason
from include.tiering.model.segments import LogSegmentData, TopicIdPartition, Uuid
from include.tiering.presentation import Table


class BoundsQuality(StrEnum):
    """How precise the offsets of a replica are.

    EXACT: the leader returned the high watermark and the last stable offset. LOWER: all offsets are from files, and may
    be lower than the broker's.
    """

    EXACT = "exact"
    LOWER = "lower"


class IneligibleReason(Reason):
    """Why a segment may not be copied. An ineligible segment has one reason: the first that the evaluation finds.

    COMPACTED concerns a topic. COMPACTED_SEGMENT concerns one segment of a topic whose cleanup.policy is without
    `compact` now: earlier, the broker's log cleaner removed some or all of the segment's offsets. This is not
    corruption, but the removed records can no longer be copied. A COMPACTED_SEGMENT does not affect later segments.
    UNREADABLE (no rights, an I/O error) says nothing about the records. Waiting may remove a retriable reason.
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
    OFFSETS_UNKNOWN = "offsets-unknown", "the leader's offsets are not known", True
    STALE_LOG_DIR = "stale-log-dir", "log directory does not agree with the leader", True
    HIGH_WATERMARK_ABOVE_LOG_END = (
        "high-watermark-above-log-end",
        "high watermark above the log's end: the checkpoint belongs to another log, or the log's end is missing",
        True,
    )
    RECOVERY_POINT_ABOVE_LOG_END = (
        "recovery-point-above-log-end",
        "recovery point above the log's end: the checkpoint belongs to another log, or the log's end is missing",
        True,
    )
    LOG_START_ABOVE_LOG_END = (
        "log-start-above-log-end",
        "log start offset above the log's end: the checkpoint belongs to another log, or the log's end is missing",
        True,
    )
    CHECKPOINT_OLDER_THAN_LOG = (
        "checkpoint-older-than-log",
        "checkpoint older than the log: it belongs to another log of this name",
        True,
    )
    ACTIVE = "active", "active segment", True
    BELOW_LOG_START = "below-log-start", "wholly below the log start offset", True
    ABOVE_HIGH_WATERMARK = "above-high-watermark", "above the high watermark", True
    ABOVE_LAST_STABLE_OFFSET = "above-last-stable-offset", "above the last stable offset: a transaction is open", True
    NOT_FLUSHED = "not-flushed", "above the recovery point and not replicated", True
    PAST_RETENTION = "past-retention", "past the broker's retention", True
    COPY_DELAYED = "copy-delayed", "its copy is delayed by remote.copy.lag of the topic", True
    OLD_MAGIC = "old-magic", "record format older than magic 2"
    NO_LEADER_EPOCH = "no-leader-epoch", "no leader epoch covers it"
    NO_PRODUCER_SNAPSHOT = "no-producer-snapshot", "no producer snapshot at its end"
    UNREADABLE = "unreadable", "a file of it cannot be read on this host", True
    CORRUPT = "corrupt", "corrupt"
    AFTER_CORRUPT = "after-corrupt", "after a corrupt or unreadable segment"
    COMPACTED_SEGMENT = "compacted-segment", "compacted"


@dataclass(frozen=True, slots=True)
class ReplicaId:
    """Identify one replica of one partition by its broker and the log directory on that broker."""

    topic_id_partition: TopicIdPartition
    broker_id: int
    directory_id: str

    def __str__(self) -> str:
        return f"{self.topic_id_partition}@{self.broker_id}"

    @property
    def order(self) -> tuple[str, int, int, str, bytes]:
        """Return the sort key: topic, partition, broker, directory, topic id."""
        partition = self.topic_id_partition
        return (partition.topic, partition.partition, self.broker_id, self.directory_id, partition.topic_id.value)


@dataclass(frozen=True, slots=True)
class LogSegment:
    """One `.log` of a replica.

    Offsets are inclusive. `end_offset` is the successor's base - 1, or for the active segment the last offset in it
    (base - 1 if no valid batch was found, or the directory is not live). `size_bytes` is the size of the `.log`. For an
    active segment, which may be preallocated, it is only the size of the valid batches, if they were read.
    `max_timestamp_ms` is -1 if unknown. `batch_count` is None without a successful deep read. `reason` is None exactly
    if the segment is eligible. `is_corrupt` says that it is damaged or unreadable, even if another reason comes first.
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
        """Whether the segment may be copied."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Replica:
    """The current state of one replica.

    `log_end_offset`, `high_watermark`, `last_stable_offset` and `recovery_point` are exclusive ends;
    `log_start_offset` is inclusive. `chosen` marks the replica that a copy would read (the leader's); only its segments
    can be eligible. `segment_bytes` is the topic's segment.bytes, None if unknown. `was_compacted`: the topic is
    or was compacted, so its segments may lack offsets without being damaged. `found_to` is the offset (exclusive) up to
    which `LogSource.find_segments` has read the leader's log; `log_bytes` is the size of that log, if the leader told
    it to a scan. Both are None if the segments are files, which are all listed.
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
    found_to: int | None = None
    log_bytes: int | None = field(default=None, compare=False)

    @property
    def unread_offsets(self) -> int:
        """How many offsets below the high watermark have no segment yet, because they were not read so far."""
        return 0 if self.found_to is None else max(0, self.high_watermark - self.found_to)

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The partition of the replica."""
        return self.replica_id.topic_id_partition

    def segment_at(self, base_offset: int) -> LogSegment | None:
        """Return the segment with this base offset; None if there is none."""
        return next((s for s in self.segments if s.base_offset == base_offset), None)


@dataclass(frozen=True, slots=True)
class ScanError:
    """One item that could not be read, is damaged, or contradicts other files or the brokers.

    `error` is the class name of a TieringError. `partition` is `topic-number` of the item's partition directory. It is
    empty for any other item of a log directory, and None if the error concerns the whole log directory or all cluster
    metadata. If the metadata of one topic cannot be read, `partition` is one of the topic's partitions.
    """

    path: str
    position: int | None
    error: str
    message: str
    partition: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ScanReport:
    """Replicas ordered by topic, partition, broker, directory.

    `errors` may prevent copies: first those of the cluster metadata and of log directories, then those of replicas.
    `notes` have the same form and prevent no copy. They report damage in directories that no copy reads: another
    replica is read, the directory is stray or being deleted or moved, or the topic is not copied.
    """

    cluster_id: str | None
    replicas: tuple[Replica, ...]
    errors: tuple[ScanError, ...]
    notes: tuple[ScanError, ...] = ()


@dataclass(frozen=True, slots=True)
class UnfinishedTransaction:
    """A transaction that is open below a replica's high watermark: no offset from `first_offset` on is stable.

    As the brokers return it, `since_ms` is the start of the transaction by its coordinator's clock. If no coordinator
    returned the start, it is the timestamp of the producer's newest batch in the partition. As read from the log
    directory, `since_ms` is the timestamp of the transaction's first batch, or -1 if that batch is not found, and
    `transactional_id` is None. `transactional_id` is also None if no coordinator returned it.
    """

    producer_id: int
    first_offset: int
    since_ms: int
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class SourceFingerprint:
    """Identify the bytes of one read: two reads with equal fingerprints count as reads of the same bytes.

    `files` holds (name, device, inode, size in bytes, mtime in ns).
    """

    broker_id: int
    directory_id: str
    topic_id: Uuid
    leader_epoch: int | None
    leader_epochs: LeaderEpochs
    files: tuple[tuple[str, int, int, int, int], ...]

    def as_text(self) -> str:
        """Return a text that is equal exactly for equal fingerprints."""
        epochs = [tuple(entry) for entry in self.leader_epochs]
        return repr((self.broker_id, self.directory_id, str(self.topic_id), self.leader_epoch, epochs, self.files))


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """The result of a check that read every batch and found each CRC-32C correct.

    `first_offset` and `last_offset` (both inclusive) are those of the batches, which cover the whole segment.
    """

    data: LogSegmentData
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    batch_count: int
    aborted_transactions: int


class OpenSegment(Protocol):
    """The files of one rolled segment, kept open: on a local file system they stay readable if deleted."""

    @property
    def segment(self) -> LogSegment:
        """Return the segment as it was listed before it was opened."""
        ...

    @property
    def fingerprint(self) -> SourceFingerprint:
        """Return the fingerprint of the files to copy, as they were opened."""
        ...

    def check(self) -> CheckedSegment:
        """Read and check every batch, the indexes and the producer snapshot.

        Checked are lengths, magic, CRC-32C, offsets without gaps, leader epochs, trailing bytes, and whether the
        indexes belong to the `.log`.

        Raises:
            CorruptFileError: a check failed; the error has the file of the first failure and, if known, its position.
            CompactedSegmentError: the segment is undamaged, but the log cleaner removed offsets from it.
            SourceChangedError: a file became shorter while it was read.
            SourceVanishedError: a file was removed on a network file system (ESTALE).
            SourceUnreadableError: an I/O error occurred.
        """
        ...

    def recheck(self) -> None:
        """Check that the replica has not changed since it was opened.

        Compared are the owner of the log directory, the partition directory's inode, the files (inode and size, for the
        `.log` also the modification time), the successor, the topic id, the leader, the leader epoch, the epoch entries
        up to the segment's end, and the reason not to copy the topic. The log start offset must not be above the
        segment's last offset, and an earlier `check` must not have found damage or missing offsets.

        Raises:
            SourceChangedError: something changed, cannot be read now, or `check` found damage or missing offsets.
            SourceVanishedError: the `.log`, one of its directories, or a metadata file there no longer exists.
        """
        ...


def go_on_always() -> None:
    """Return at once: nothing ends the call."""


class LogSource(Protocol):
    """Replicas of one cluster. No method changes a log, so each of them may be repeated."""

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        """List replicas with their segments.

        A damaged item becomes a `ScanError`, and the scan continues.

        Args:
            topics: shell-style patterns (`*`) of topic names; None means all topics.
            deep: read and check every batch of live directories; otherwise only the batches on which offsets or
                timestamps depend.

        Raises:
            BrokersError: the source uses brokers, and they cannot be reached; most other failures are in the report's
                `errors`.
        """
        ...

    def find_segments(
        self,
        *,
        topics: Collection[str] | None,
        copied_to: Callable[[TopicIdPartition], int | None],
        go_on: Callable[[str], None],
    ) -> Sequence[ScanError]:
        """Find segments that the next scan lists. Does nothing if the segments are files, which every scan lists.

        How much is read is bounded; the next call reads on. What was found is kept if the call ends early.

        Args:
            topics: shell-style patterns of topic names; None means all topics.
            copied_to: returns the highest offset (inclusive) of a partition that is remote, None if nothing is.
            go_on: called with the topic before each read; raises SendingStoppedError to end the reads of that topic.

        Returns:
            What could not be read, as in the report of a scan.

        Raises:
            BrokersError: the brokers cannot be asked for topics and offsets.
        """
        ...

    def replica(self, replica_id: ReplicaId) -> Replica:
        """Return the current state of one replica.

        Raises:
            SourceVanishedError: no log directory that may be read holds it, or its partition directory belongs to
                another topic id.
            SourceError: it cannot be read.
            ClusterMetadataError: the cluster metadata cannot be read.
        """
        ...

    def leader_epochs(self, replica: Replica) -> LeaderEpochs:
        """Return the leader epochs of a chosen replica's log as its leader keeps them, from the log start on.

        Raises:
            SourceChangedError: another broker leads now, or the leader contradicts itself. Others as for `replica`.
        """
        ...

    def size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        """Find segments whose file size is not, or may not be, the size of their batches; see `segment_checks`.

        Returns:
            An explanation by base offset; segments with a plausible size are absent.

        Raises:
            SourceVanishedError: as for `replica`.
            SourceError: the replica cannot be read.
        """
        ...

    def leading_compacted(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
        """Return the leading segments that lack offsets according to their batch headers.

        Args:
            replica_id: the replica.
            segments: rolled segments in offset order.

        Returns:
            The segments before the first one that holds all of its offsets, or whose headers show damage.

        Raises:
            SourceVanishedError: as for `replica`, or a `.log` no longer exists.
            SourceError: the replica cannot be read.
        """
        ...

    def unfinished_transactions(self, replica_id: ReplicaId) -> Sequence[UnfinishedTransaction]:
        """Return the open transactions that limit the last stable offset of a replica, ordered by first offset.

        Raises:
            SourceError, ClusterMetadataError: as for `replica`.
        """
        ...

    def open_segment(
        self, replica_id: ReplicaId, base_offset: int, *, go_on: Callable[[], object] = go_on_always
    ) -> AbstractContextManager[OpenSegment]:
        """Open all files of the rolled segment that starts at `base_offset`.

        Args:
            replica_id: the replica.
            base_offset: the segment's base offset.
            go_on: called while a source waits or reads for long; raises to end the call. What it raises is raised.

        Raises:
            SourceVanishedError: there is no such segment or replica.
            SourceChangedError: the segment is the active one, or its size is not the listed size.
            SourceUnreadableError: the replica or a file of the segment cannot be read; the message has the path, and
                for the replica also the host.
            CorruptFileError: an index of the segment is missing.
            SourceError, ClusterMetadataError: as for `replica`.
        """
        ...


def matches(topic: str, patterns: Collection[str] | None) -> bool:
    """Return whether a shell-style pattern matches the topic. None matches all topics, an empty collection no topic."""
    return patterns is None or any(fnmatchcase(topic, pattern) for pattern in patterns)


def scan_error(error: SourceError | ClusterMetadataError, default_path: str, partition: str | None = None) -> ScanError:
    """Convert an error into a `ScanError`.

    Args:
        error: the error. A ClusterMetadataError has no path; if a SourceError caused it, the path, position and message
            of that SourceError are used.
        default_path: the path to report for a ClusterMetadataError that no SourceError caused.
        partition: see `ScanError`.
    """
    source = error if isinstance(error, SourceError) else error.__cause__
    if isinstance(source, SourceError):
        path, message = printable(source.path), printable(source.message)
        return ScanError(path, source.position, type(error).__name__, message, partition)
    return ScanError(printable(default_path), None, type(error).__name__, printable(str(error)), partition)


class ScanErrorDocument(TypedDict):
    """An item that could not be read. `position` is in bytes."""

    path: str
    position: int | None
    error: str
    message: str


class NotesMember(TypedDict):
    """`notes` is damage that prevents no copy; without such damage the member is left out."""

    notes: NotRequired[list[ScanErrorDocument]]


def error_document(error: ScanError) -> ScanErrorDocument:
    """Return the JSON document of an error."""
    return {"path": error.path, "position": error.position, "error": error.error, "message": error.message}


def error_tables(errors: tuple[ScanError, ...], notes: tuple[ScanError, ...] = ()) -> tuple[Table, ...]:
    """Return a table of the errors, and one of the notes, which prevent no copy; a table without rows is left out."""
    rows = [[(e.path, "" if e.position is None else str(e.position), e.message) for e in of] for of in (errors, notes)]
    titles = ("could not be read", "not needed by any copy, and damaged")
    columns = ("path", "byte>", "message")
    return tuple(Table(title, columns, tuple(of)) for title, of in zip(titles, rows, strict=True) if of)


def notes_member(notes: tuple[ScanError, ...]) -> NotesMember:
    """Return the JSON member for damage that prevents no copy; empty if there is none."""
    return {"notes": [error_document(note) for note in notes]} if notes else {}
