"""A replica as its files tell it: no topic facts yet, and no choice between replicas."""

from dataclasses import dataclass

from include.tiering.kafka.log_dirs.contract import IneligibleReason, ReplicaId, ScanError
from include.tiering.kafka.log_dirs.dirs import DirIdentity
from include.tiering.kafka.log_dirs.names import DirectoryState, PartitionDirectoryName
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs


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
    an error of the replica has them."""

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
