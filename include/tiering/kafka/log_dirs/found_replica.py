"""A replica as its files tell it: no cluster metadata yet, and no choice between replicas. Pure.

Nothing is read of a directory whose name is not the one that its topic id has. A topic is never renamed, so the id in
`partition.metadata` and the directory's name say the same. Where they do not, one of them is wrong: the records would
be archived under another topic's id, or behind what is archived of it. Of a directory that is being deleted or moved
the broker cuts a long name off, and it is never read: its name proves nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from include.tiering.errors import MetadataUnavailableError, printable
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ReplicaId, ScanError
from include.tiering.kafka.log_dirs.dirs import DirIdentity
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


RecordedName = Callable[[Uuid], str | None]
"""The name with which a topic id was recorded when something of it was archived; None of one that never was."""


def nothing_recorded(_topic_id: Uuid) -> None:
    """Where nothing was ever archived."""


def recorded_if_there(recorded: RecordedName) -> RecordedName:
    """For one scan, which needs no database: each topic is asked for once, nothing is compared where nobody answers.
    Whoever opens a segment asks again, and needs one."""

    @cache
    def name(topic_id: Uuid) -> str | None:
        try:
            return recorded(topic_id)
        except MetadataUnavailableError:
            return None

    return name


def kept(recorded: RecordedName) -> RecordedName:
    """For a process that opens many segments: a topic is never renamed, so the name that was recorded is asked for
    once. What has none is asked for again: it may be recorded meanwhile."""
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
    differ: one is wrong, and nothing says which."""
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
