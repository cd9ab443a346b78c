"""A replica as its files tell it, and which offsets bound it. Pure.

**Names.** There is no cluster metadata yet, and no choice between replicas. Nothing is read of a directory whose name
is not the one that its topic id has. A topic is never renamed, so the id in `partition.metadata` and the directory's
name say the same. Where they do not, one of them is wrong: the records would be archived under another topic's id, or
behind what is archived of it. Of a directory that is being deleted or moved the broker cuts a long name off, and it is
never read: its name proves nothing.

**Bounds** are the offsets of the checkpoints that are the replica's own, and what its leader says. Brokers write
offsets down under the names of partitions, every few seconds (high watermarks) to every minute, and read nothing back
while they run. Where a topic was deleted and created again, the name has another log, and until the next checkpoint the
offset of the older one: it may lie above all that the new log has replicated, and above its end.

An offset is not this log's, and so unknown, where
- it lies above the end of the log: then it is of another log, or the log lost its end;
- its checkpoint was written before the log was begun, which is when `partition.metadata` was written. A broker makes
  that file once, before the first record, and both files are on one file system, with one clock.

Brokers collect the offsets some time before they write them. So a checkpoint that is hardly newer than the log is
believed only where no directory of an older log of the name lies beside it; brokers keep those for a while.

Where a `.log` is older than `partition.metadata`, the files have the times of a copy (a restored backup, a checkout),
or the log is older than topic ids: times say nothing.

Beside that stand the leader's own offsets: exact bounds, or why nothing may be read. The brokers are asked before the
directory is read. So a directory of the leader holds at least what the leader said was replicated, and knows no leader
epoch that began after it spoke; one that does not is old, a copy, or another broker's.

Where nobody is asked, the bounds are what checkpoints show, if those are the log's own. The directories of followers
beside the leader's say whether that one is old: no follower has a high watermark above the end of its leader's log.
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
    """One `.log`, [base_offset, next_base_offset). `batch_count` is None unless every batch was read.

    `first_missing_offset`: rolled, and no batch of it holds this offset; known of a file without a batch, and where
    every batch was read. A log cleaner leaves such files; of a log that was never cleaned it is damage.
    """

    base_offset: int
    next_base_offset: int
    size_bytes: int
    max_timestamp_ms: int
    active: bool
    has_producer_snapshot: bool
    is_corrupt: bool = False
    is_old_magic: bool = False
    first_missing_offset: int | None = None
    batch_count: int | None = None

    @property
    def what_is_missing(self) -> str:
        """In words, where nothing was compacted; empty if nothing is."""
        if self.first_missing_offset is None:
            return ""
        if not self.size_bytes:
            return "a rolled segment without a batch"
        what = what_is_missing(self.first_missing_offset, self.base_offset, self.next_base_offset - 1)
        return f"{what}: a file is gone, or it was compacted"


def what_is_missing(first_missing_offset: int, base_offset: int, end_offset: int) -> str:
    """`end_offset` is inclusive."""
    return f"offset {first_missing_offset} is in no batch, though the segment is to hold {base_offset}..{end_offset}"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why the bounds of a replica are not known from its checkpoints. `what` has the numbers, for a person; empty where
    an error of the replica has them.
    """

    reason: IneligibleReason
    what: str = ""


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """Segments ascend. Bounds are exclusive ends and lower bounds; `log_start_offset` is inclusive.

    `checkpointed_log_start` is what the broker's checkpoint says, None = nothing: of a topic that the broker tiers this
    lies below the first local segment. `cleaned`: the broker's log cleaner has worked on it.

    `doubt`: an offset that a checkpoint has is not this log's, so the bounds are the least possible. `errors`: what is
    wrong with single files of it.
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
        """-1 if there is no leader epoch."""
        return self.leader_epochs.entries[-1].epoch if self.leader_epochs.entries else -1


@dataclass(frozen=True, slots=True)
class UnreadReplica:
    """A directory whose name is a partition's, and why nothing is known of it."""

    identity: DirIdentity
    name: PartitionDirectoryName
    error: ScanError


RecordedName = Callable[[Uuid], str | None]
"""The name with which a topic id was recorded when something of it was archived; None of one that never was."""


def nothing_recorded(_topic_id: Uuid) -> None:
    """Where nothing was ever archived."""


def recorded_if_there(recorded: RecordedName) -> RecordedName:
    """For one scan, which needs no database: each topic is asked for once, nothing is compared where nobody answers.
    Whoever opens a segment asks again, and needs one.
    """

    @cache
    def name(topic_id: Uuid) -> str | None:
        try:
            return recorded(topic_id)
        except MetadataUnavailableError:
            return None

    return name


def kept(recorded: RecordedName) -> RecordedName:
    """For a process that opens many segments: a topic is never renamed, so the name that was recorded is asked for
    once. What has none is asked for again: it may be recorded meanwhile.
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
    """The name that a topic id has, and `by` whose word."""

    name: str
    by: str


def known_name(topic_id: Uuid, topic: TopicMetadata | None, recorded: RecordedName) -> KnownName | None:
    """As the cluster says, or if it does not know the id (`topic` None), as it was recorded."""
    if topic is not None:
        return KnownName(topic.topic, "the cluster calls")
    name = recorded(topic_id)
    return None if name is None else KnownName(name, "was archived as")


def find_misnamed(replicas: Sequence[FoundReplica], known: KnownName | None) -> list[FoundReplica]:
    """Those of one topic id that have another name than is known of it. If none is known, all of them where they
    differ: one is wrong, and nothing says which.
    """
    names = {one.topic_id_partition.topic for one in replicas if one.state is DirectoryState.LIVE}
    if known is not None:
        return [replica for replica in replicas if replica.topic_id_partition.topic != known.name]
    return list(replicas) if len(names) > 1 else []


def misnamed_error(replica: FoundReplica, known: KnownName | None) -> ScanError:
    """Names the file that holds the id."""
    topic_id = replica.topic_id_partition.topic_id
    who = "directories of two names have" if known is None else f"{known.by} {known.name}"
    message = f"{IneligibleReason.TOPIC_CONTRADICTED}: its topic id is {topic_id}, which {who}"
    path = f"{replica.identity.path}/{replica.directory_name}/{PARTITION_METADATA}"
    return ScanError(printable(path), None, "CorruptFileError", printable(message), str(replica.topic_id_partition))


_NS_PER_MS: Final = 1_000_000
_SURELY_AFTER_NS: Final = 1_000_000_000
"""A checkpoint that is newer than the log by more than this was collected after the log was begun."""


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """When a log was begun, as its files say.

    `begun_ns` is the time of `partition.metadata`. `times_are_kept`: the files have the times that the broker gave
    them, as far as can be seen. `has_predecessor`: whether the directory of an older log of this name lies beside it;
    asked only where times do not decide.
    """

    begun_ns: int
    times_are_kept: bool
    has_predecessor: Callable[[], bool]

    def is_newer_than(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint speaks of what had this name before."""
        if not self.times_are_kept:
            return False
        if checkpoint.written_ns < self.begun_ns:
            return True
        return checkpoint.written_ns < self.begun_ns + _SURELY_AFTER_NS and self.has_predecessor()


def times_are_kept(begun_ns: int, written_ms: Iterable[int]) -> bool:
    """Whether `partition.metadata` is older than the records: brokers write it first, copies often last.

    Args:
        begun_ns: the time of `partition.metadata`.
        written_ms: the times of all `.log` files that are not empty.
    """
    times, begun_ms = list(written_ms), begun_ns // _NS_PER_MS
    return not times or (min(times) >= begun_ms and max(times) > begun_ms)


@dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """What the checkpoints say of this log: None = nothing, or nothing that is to be believed, as `doubt` says."""

    high_watermark: int | None
    log_start: int | None
    recovery_point: int | None
    doubt: Doubt | None
    above_log_end: int | None
    """The highest of those that lie above the end of the log."""


_CHECKPOINTS: Final = (
    ("high watermark", HIGH_WATERMARKS, IneligibleReason.HIGH_WATERMARK_ABOVE_LOG_END),
    ("recovery point", RECOVERY_POINTS, IneligibleReason.RECOVERY_POINT_ABOVE_LOG_END),
    ("log start offset", LOG_STARTS, IneligibleReason.LOG_START_ABOVE_LOG_END),
)


def checkpointed_offsets(
    checkpoints: Checkpoints, partition: tuple[str, int], origin: LogOrigin, log_end: int | None
) -> CheckpointedOffsets:
    """What is believed of the checkpoints.

    Args:
        partition: topic and number.
        log_end: the log end offset (exclusive); None = not known, as the active segment is damaged.
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
        f"{file} has {what} {offset} under this name, but was written before the log was begun: it is of another log"
        " of this name; the next checkpoint says"
    )


@dataclass(frozen=True, slots=True)
class BoundedReplica:
    """A replica with the bounds that count; `refusal` and `finding` say why they cannot be had, if so."""

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
    """The leader's replica with exact bounds; another's, and every one if nobody is asked, as it was found. Without a
    leader there is nothing to bound it by.

    Args:
        partition_metadata: of its partition; None = unknown.
        answer: of the brokers, asked before the replica was read; None = nobody is asked.
        replicas: all that were found of the partition.
    """
    if answer is None:
        return _by_directories(found, partition_metadata, replicas)
    partition = found.topic_id_partition
    if partition_metadata is None or partition_metadata.leader < 0:
        finding = (
            "brokers do not know this partition of its topic id"
            if partition_metadata is None
            else "it has no leader just now"
        )
        return BoundedReplica(found, refusal=IneligibleReason.OFFSETS_UNKNOWN, finding=finding)
    if partition_metadata.leader != found.identity.broker_id:
        return BoundedReplica(found)
    said = answer.offsets.get(partition)
    if said is None:
        refusal = answer.refused.get(partition, "it was not asked: it appeared meanwhile")
        return BoundedReplica(found, refusal=IneligibleReason.OFFSETS_UNKNOWN, finding=str(refusal))
    if (said.leader, said.leader_epoch) != (partition_metadata.leader, partition_metadata.leader_epoch):
        return BoundedReplica(
            found,
            refusal=IneligibleReason.OFFSETS_UNKNOWN,
            finding=f"its leader was broker {partition_metadata.leader} in epoch {partition_metadata.leader_epoch}, "
            f"then broker {said.leader} in epoch {said.leader_epoch}",
        )
    disagreement = _disagreement(found, said)
    if disagreement:
        return BoundedReplica(found, refusal=IneligibleReason.STALE_LOG_DIR, finding=disagreement)
    return BoundedReplica(_exact(found, said), BoundsQuality.EXACT)


def ahead_of_leader(
    found: FoundReplica, partition_metadata: PartitionMetadata | None, replicas: Iterable[FoundReplica]
) -> FoundReplica | None:
    """The follower that knows a high watermark above the end of this log, which is the leader's; None if none does.

    A follower of an earlier leader epoch than the log's last one says nothing: an unclean election may have cut it.
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
    """One for each replica that cannot be bounded, unless its own errors say why."""
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
        f" {ahead.last_epoch}, knows that {ahead.high_watermark} is replicated: an old copy of the leader's directory,"
        " or its log lost its end"
    )
    return BoundedReplica(found, refusal=IneligibleReason.STALE_LOG_DIR, finding=finding)


def _exact(found: FoundReplica, said: PartitionOffsets) -> FoundReplica:
    """The log start may have risen since the leader spoke; it never falls."""
    return replace(
        found,
        log_start_offset=max(said.earliest, found.log_start_offset),
        checkpointed_log_start=max(said.earliest, found.checkpointed_log_start or 0),
        high_watermark=said.high_watermark,
        last_stable_offset=said.last_stable_offset,
    )


def _disagreement(found: FoundReplica, said: PartitionOffsets) -> str:
    who = f"broker {said.leader}, which leads it in epoch {said.leader_epoch},"
    if found.log_end_offset < said.high_watermark:
        return (
            f"its log ends at {found.log_end_offset}, but {who} has replicated up to {said.high_watermark}: "
            "an old copy of the directory, or another one than the broker uses"
        )
    if found.last_epoch > said.leader_epoch:
        return f"it knows leader epoch {found.last_epoch}, but {who} does not: another history than the cluster's"
    return ""
