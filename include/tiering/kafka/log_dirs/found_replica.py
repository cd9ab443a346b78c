"""A replica as its files describe it, and the offsets that bound it. Pure.

**Names.** A directory is not read for a copy if the topic name in the directory's name is not that of the topic id in
its `partition.metadata`. A topic is never renamed, so with another name either the name or the id is wrong: a copy
would archive the records under the id of another topic, possibly after records of that topic. Brokers shorten long
names of directories that are not live. Directories that are not live are never read for a copy, and their wrong names
are not reported.

**Bounds** are offsets from the checkpoints of the log directory, or from the leader. Brokers write checkpoints by
partition name, every few seconds (high watermarks) to every minute, and read them only when they load a log. If a topic
was deleted and created again, its name denotes a new log, but until the next checkpoint the file may have the offset of
the old log. That offset may lie above everything that the new log has replicated, and above the end of the new log.

An offset of a checkpoint is not used, and the offset of this log is then unknown, in two cases:
- It lies above the end of the log. Then it belongs to another log, or the end of the log is missing.
- It was collected before the log was created. Then it belongs to another log. The checkpoint's file time shows this.
  The log was created when its `partition.metadata` was written: a broker writes that file once, before the first
  record, and both files are on one file system, with one clock.

Brokers collect the offsets some time before they write them. So a checkpoint that is older than the log is not used.
One that is less than a second newer may also have been collected before: it is not used if the log directory holds the
directory of an older log of this name. Brokers keep such directories for a while after they deleted the log.

File times are not used in two cases: a `.log` with records is older than `partition.metadata`, or there are `.log`
files with records and none of them is newer. In both cases the files probably have the times of a copy (a restored
backup, a checkout), or the log is older than topic ids.

With a connection to brokers, the leader's offsets are the exact bounds of the leader's replica, or the replica is
refused. These offsets are requested before the leader's directory is read. So that directory must hold the offsets up
to the high watermark that the leader returned, and no leader epoch above the one that it returned. Otherwise the
directory is old, a copy, or another broker's.

Without a connection, the bounds are those of the checkpoints, if they belong to the log. A follower's directory may
show that the leader's directory is old (`ahead_of_leader`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from include.tiering.errors import MetadataUnavailableError, printable
from include.tiering.kafka.cluster.contract import OffsetsAnswer, PartitionMetadata, PartitionOffsets, TopicMetadata
from include.tiering.kafka.log_dirs.contract import BoundsQuality, IneligibleReason, ReplicaId, ScanError
from include.tiering.kafka.log_dirs.dirs import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Checkpoint,
    Checkpoints,
    DirIdentity,
)
from include.tiering.kafka.log_dirs.files import PARTITION_METADATA, DirectoryState, PartitionDirectoryName
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """One `.log` with the offsets [base_offset, next_base_offset). `batch_count` is None unless every batch was read.

    `first_missing_offset` is the first offset of a rolled segment that no batch holds; None if no offset is known to be
    missing. Without a deep read it is known only for empty files. A log cleaner leaves files with missing offsets; in a
    log that was never cleaned, a missing offset is damage. `is_unreadable` says that the host refused to read
    one of the segment's files.
    """

    base_offset: int
    next_base_offset: int
    size_bytes: int
    max_timestamp_ms: int
    active: bool
    has_producer_snapshot: bool
    is_unreadable: bool = False
    is_corrupt: bool = False
    is_old_magic: bool = False
    first_missing_offset: int | None = None
    batch_count: int | None = None

    @property
    def what_is_missing(self) -> str:
        """Describe the missing offset of a log that was never compacted; empty if none is known."""
        if self.first_missing_offset is None:
            return ""
        if not self.size_bytes:
            return "a rolled segment without a batch"
        what = what_is_missing(self.first_missing_offset, self.base_offset, self.next_base_offset - 1)
        return f"{what}: a file is missing, or the segment was compacted"


def what_is_missing(first_missing_offset: int, base_offset: int, end_offset: int) -> str:
    """Describe a missing offset; `end_offset` is inclusive."""
    return f"offset {first_missing_offset} is in no batch, but the segment must hold {base_offset}..{end_offset}"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why the checkpoints do not provide all bounds of a replica.

    `what` is a sentence with the offset. It is empty if one of the replica's `errors` states the offset already.
    """

    reason: IneligibleReason
    what: str = ""


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A replica as it was read. Segments ascend.

    `log_start_offset` is inclusive. `log_end_offset`, `high_watermark`, `last_stable_offset` and `recovery_point` are
    exclusive. As read from files, all five may be lower than the broker's.

    `checkpointed_log_start` is the log start in the broker's checkpoint; None if there is no entry, the entry must not
    be used, or the directory is not live. Once the leader's offsets were applied, it is the higher one of this and the
    log start that the leader returned, never None. If the broker tiers the topic, this log start may lie below the
    first local segment. `cleaned`: the log cleaner has a checkpoint for the partition.

    `doubt` is set if an offset in a checkpoint must not be used; the bound is then the lowest possible.
    `errors` are those of single files.
    """

    identity: DirIdentity
    directory_name: str
    state: DirectoryState
    topic_id_partition: TopicIdPartition
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    recovery_point: int
    checkpointed_log_start: int | None
    cleaned: bool
    segments: tuple[FoundSegment, ...]
    doubt: Doubt | None = None
    errors: tuple[ScanError, ...] = ()

    @property
    def replica_id(self) -> ReplicaId:
        return ReplicaId(self.topic_id_partition, self.identity.broker_id, self.identity.directory_id)

    @property
    def last_epoch(self) -> int:
        """The last leader epoch; -1 without one."""
        return self.leader_epochs.entries[-1].epoch if self.leader_epochs.entries else -1


@dataclass(frozen=True, slots=True)
class UnreadReplica:
    """A partition directory that could not be read, and the error."""

    identity: DirIdentity
    name: PartitionDirectoryName
    error: ScanError


RecordedName = Callable[[Uuid], str | None]
"""Returns the topic name that is stored in the database for a topic id; None without one."""


def nothing_recorded(_topic_id: Uuid) -> None:
    """Return None: no stored name is used."""


def recorded_or_none(recorded: RecordedName) -> RecordedName:
    """Cache names for one scan, which does not need the database: while it is unavailable, return None."""

    @cache
    def name(topic_id: Uuid) -> str | None:
        try:
            return recorded(topic_id)
        except MetadataUnavailableError:
            return None

    return name


def cache_names(recorded: RecordedName) -> RecordedName:
    """Cache stored names for a process that opens many segments, because a topic is never renamed.

    An id without a name is read again, because its name may be stored later.
    """
    names: dict[Uuid, str] = {}

    def name(topic_id: Uuid) -> str | None:
        known = names.get(topic_id)
        if known is None and (known := recorded(topic_id)) is not None:
            names[topic_id] = known
        return known

    return name


@dataclass(frozen=True, slots=True)
class KnownName:
    """The name of a topic id, and in `by` the source of the name, for messages."""

    name: str
    by: str


def known_name(topic_id: Uuid, topic: TopicMetadata | None, recorded: RecordedName) -> KnownName | None:
    """Return the name in the topic's metadata; if there is no metadata of it (`topic` is None), the stored name."""
    if topic is not None:
        return KnownName(topic.topic, "the cluster calls")
    name = recorded(topic_id)
    return None if name is None else KnownName(name, "was archived as")


def find_misnamed(replicas: Sequence[FoundReplica], known: KnownName | None) -> list[FoundReplica]:
    """Return the replicas of one topic id whose directory has another name than the known one.

    Without a known name, all replicas are returned if the names of live directories differ, because any name may be
    wrong.
    """
    names = {replica.topic_id_partition.topic for replica in replicas if replica.state is DirectoryState.LIVE}
    if known is not None:
        return [replica for replica in replicas if replica.topic_id_partition.topic != known.name]
    return list(replicas) if len(names) > 1 else []


def misnamed_error(replica: FoundReplica, known: KnownName | None) -> ScanError:
    """Return the error for a misnamed replica, with the path of the file that holds the topic id."""
    topic_id = replica.topic_id_partition.topic_id
    holder = "directories of two names have" if known is None else f"{known.by} {known.name}"
    message = f"{IneligibleReason.TOPIC_CONTRADICTED}: its topic id is {topic_id}, which {holder}"
    path = f"{replica.identity.path}/{replica.directory_name}/{PARTITION_METADATA}"
    return ScanError(printable(path), None, "CorruptFileError", printable(message), str(replica.topic_id_partition))


_NS_PER_MS: Final = 1_000_000
_SURELY_AFTER_NS: Final = 1_000_000_000
"""If a checkpoint is newer than the log by this time or more, its offsets were collected after the log was created."""


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """When a log was created, according to its files.

    `created_ns` is the modification time of `partition.metadata`. `times_are_kept`: the files probably have the times
    that the broker gave them. `has_predecessor` returns whether the log directory holds the directory of an older log
    of this name.
    """

    created_ns: int
    times_are_kept: bool
    has_predecessor: Callable[[], bool]

    def is_newer_than(self, checkpoint: Checkpoint) -> bool:
        """Return whether the checkpoint may have been collected before this log began; False if times are not kept."""
        if not self.times_are_kept:
            return False
        if checkpoint.written_ns < self.created_ns:
            return True
        return checkpoint.written_ns < self.created_ns + _SURELY_AFTER_NS and self.has_predecessor()


def times_are_kept(created_ns: int, written_ms: Iterable[int]) -> bool:
    """Return whether the files probably have the times that the broker gave them.

    They do if no `.log` with records is older than `partition.metadata` and at least one is newer, or if no `.log`
    has records. Brokers write `partition.metadata` before the records; programs that copy files often write it last.

    Args:
        created_ns: the modification time of `partition.metadata`, in nanoseconds.
        written_ms: the modification times of all `.log` files with records, in milliseconds.
    """
    times, begun_ms = list(written_ms), created_ns // _NS_PER_MS
    return not times or (min(times) >= begun_ms and max(times) > begun_ms)


@dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """The checkpointed offsets of this log; None without an entry, or if the entry must not be used (see `doubt`)."""

    high_watermark: int | None
    log_start: int | None
    recovery_point: int | None
    doubt: Doubt | None
    above_log_end: int | None
    """The highest checkpointed offset that lies above the end of the log; None without one."""


_CHECKPOINTS: Final = (
    ("high watermark", HIGH_WATERMARKS, IneligibleReason.HIGH_WATERMARK_ABOVE_LOG_END),
    ("recovery point", RECOVERY_POINTS, IneligibleReason.RECOVERY_POINT_ABOVE_LOG_END),
    ("log start offset", LOG_STARTS, IneligibleReason.LOG_START_ABOVE_LOG_END),
)


def checkpointed_offsets(
    checkpoints: Checkpoints, partition: tuple[str, int], origin: LogOrigin, log_end: int | None
) -> CheckpointedOffsets:
    """Select the checkpointed offsets that belong to the log.

    Args:
        checkpoints: the checkpoints of the log directory.
        partition: topic and number.
        origin: when the log was created.
        log_end: the log end offset (exclusive); None if it is not known.
    """
    known: list[int | None] = []
    doubts: list[Doubt] = []
    above: list[int] = []
    by_name = (checkpoints.high_watermarks, checkpoints.recovery_points, checkpoints.log_starts)
    for (what, file, reason), checkpoint in zip(_CHECKPOINTS, by_name, strict=True):
        offset = checkpoint.offsets.get(partition)
        if offset is not None and log_end is not None and offset > log_end:
            above.append(offset)
            doubts.append(Doubt(reason))
            offset = None
        elif offset is not None and origin.is_newer_than(checkpoint):
            doubts.append(Doubt(IneligibleReason.CHECKPOINT_OLDER_THAN_LOG, _older(what, file, offset)))
            offset = None
        known.append(offset)
    high_watermark, recovery_point, log_start = known
    return CheckpointedOffsets(
        high_watermark=high_watermark,
        log_start=log_start,
        recovery_point=recovery_point,
        doubt=next(iter(doubts), None),
        above_log_end=max(above, default=None),
    )


def _older(what: str, file: str, offset: int) -> str:
    return (
        f"{file} has {what} {offset} for this name, but may have been collected before the log was created: the offset"
        " may belong to another log of this name; the next checkpoint will have the offset of this log"
    )


@dataclass(frozen=True, slots=True)
class BoundedReplica:
    """A replica with its final bounds.

    If the bounds are not reliable, `refusal` has the reason. `finding` has the details, or is empty if `found.errors`
    has them.
    """

    found: FoundReplica
    bounds: BoundsQuality = BoundsQuality.LOWER
    refusal: IneligibleReason | None = None
    finding: str = ""


def bounded(
    found: FoundReplica,
    partition_metadata: PartitionMetadata | None,
    answer: OffsetsAnswer | None,
    replicas: Sequence[FoundReplica] = (),
) -> BoundedReplica:
    """Give the leader's replica the offsets that the leader returned; refuse the replica if they do not fit its files.

    Other replicas, and without a connection all replicas, keep the bounds of their files. Without a connection, a
    replica is refused if its checkpoints are in doubt, or a follower is ahead of it. With a connection, all replicas of
    a partition without metadata or a leader are refused.

    Args:
        found: the replica.
        partition_metadata: the metadata of its partition; None if unknown.
        answer: the leaders' offsets, requested before the replica was read; None without a connection or metadata.
        replicas: the partition's replicas, without misnamed ones.
    """
    if answer is None:
        return _by_directories(found, partition_metadata, replicas)
    partition = found.topic_id_partition
    if partition_metadata is None or partition_metadata.leader < 0:
        finding = (
            "the brokers' metadata has no such partition of its topic id"
            if partition_metadata is None
            else "it has no leader just now"
        )
        return BoundedReplica(found, refusal=IneligibleReason.OFFSETS_UNKNOWN, finding=finding)
    if partition_metadata.leader != found.identity.broker_id:
        return BoundedReplica(found)
    offsets = answer.offsets.get(partition)
    if offsets is None:
        refusal = answer.refused.get(partition, "it appeared after the leaders' offsets were requested")
        return BoundedReplica(found, refusal=IneligibleReason.OFFSETS_UNKNOWN, finding=str(refusal))
    if (offsets.leader, offsets.leader_epoch) != (partition_metadata.leader, partition_metadata.leader_epoch):
        return BoundedReplica(
            found,
            refusal=IneligibleReason.OFFSETS_UNKNOWN,
            finding=f"its leader was broker {partition_metadata.leader} in epoch {partition_metadata.leader_epoch}, "
            f"then broker {offsets.leader} in epoch {offsets.leader_epoch}",
        )
    disagreement = _disagreement(found, offsets)
    if disagreement:
        return BoundedReplica(found, refusal=IneligibleReason.STALE_LOG_DIR, finding=disagreement)
    return BoundedReplica(_exact(found, offsets), BoundsQuality.EXACT)


def ahead_of_leader(
    found: FoundReplica, partition_metadata: PartitionMetadata | None, replicas: Iterable[FoundReplica]
) -> FoundReplica | None:
    """Return the follower with the highest high watermark, if that lies above the end of the leader's log `found`.

    Return None if there is no such follower, or if `found` is not on the leader's broker. Followers whose last leader
    epoch is older than that of `found` are ignored: after an unclean election, the leader may lack their last records.
    So are followers whose directory is not live or whose checkpoints are in doubt.
    """
    if partition_metadata is None or partition_metadata.leader != found.identity.broker_id:
        return None
    followers = [
        replica
        for replica in replicas
        if replica.state is DirectoryState.LIVE
        and replica.identity.broker_id != partition_metadata.leader
        and replica.doubt is None
        and replica.last_epoch >= found.last_epoch
        and replica.high_watermark > found.log_end_offset
    ]
    return max(followers, key=lambda follower: follower.high_watermark, default=None)


def scan_errors(replicas: Iterable[BoundedReplica]) -> list[ScanError]:
    """Return one error for each refused replica that has a `finding`."""
    return [
        ScanError(
            printable(f"{replica.found.identity.path}/{replica.found.directory_name}"),
            None,
            "BrokersError" if replica.refusal is IneligibleReason.OFFSETS_UNKNOWN else "SourceChangedError",
            printable(replica.finding),
            str(replica.found.topic_id_partition),
        )
        for replica in replicas
        if replica.refusal is not None and replica.finding
    ]


def _by_directories(
    found: FoundReplica, partition_metadata: PartitionMetadata | None, replicas: Sequence[FoundReplica]
) -> BoundedReplica:
    if found.doubt is not None:
        return BoundedReplica(found, refusal=found.doubt.reason, finding=found.doubt.what)
    ahead = ahead_of_leader(found, partition_metadata, replicas)
    if ahead is None:
        return BoundedReplica(found)
    finding = (
        f"its log ends at {found.log_end_offset}, but broker {ahead.identity.broker_id}, a follower in epoch"
        f" {ahead.last_epoch}, has the high watermark {ahead.high_watermark}: an old copy of the leader's directory,"
        " or the end of its log is missing"
    )
    return BoundedReplica(found, refusal=IneligibleReason.STALE_LOG_DIR, finding=finding)


def _exact(found: FoundReplica, offsets: PartitionOffsets) -> FoundReplica:
    """Use the leader's offsets.

    The higher log start is used, because it may have risen since the leader returned it, and never falls.
    """
    return replace(
        found,
        log_start_offset=max(offsets.earliest, found.log_start_offset),
        checkpointed_log_start=max(offsets.earliest, found.checkpointed_log_start or 0),
        high_watermark=offsets.high_watermark,
        last_stable_offset=offsets.last_stable_offset,
    )


def _disagreement(found: FoundReplica, offsets: PartitionOffsets) -> str:
    leader = f"broker {offsets.leader}, which leads it in epoch {offsets.leader_epoch},"
    if found.log_end_offset < offsets.high_watermark:
        return (
            f"its log ends at {found.log_end_offset}, but {leader} has replicated up to {offsets.high_watermark}: "
            "an old copy of the directory, or not the directory that the broker uses"
        )
    if found.last_epoch > offsets.leader_epoch:
        return f"it has leader epoch {found.last_epoch}, but {leader} does not: its log diverges from the cluster's"
    return ""
