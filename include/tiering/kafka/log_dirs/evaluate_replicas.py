"""Combine found replicas with cluster metadata: which segments are eligible, and why the others are not. Pure.

Of the replicas of a partition, a copy may read only the leader's, in the directory that is assigned, if one is.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import ClusterMetadataError, CorruptFileError, printable
from include.tiering.kafka.cluster.contract import ClusterMetadata, OffsetsAnswer, PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanError
from include.tiering.kafka.log_dirs.files import DirectoryState, FileKind, offset_file
from include.tiering.kafka.log_dirs.found_replica import (
    BoundedReplica,
    FoundReplica,
    FoundSegment,
    RecordedName,
    UnreadReplica,
    bounded,
    find_misnamed,
    known_name,
    misnamed_error,
    nothing_recorded,
    scan_errors,
)
from include.tiering.kafka.log_dirs.rules import Candidate, ReplicaBounds, is_replicated, segment_reasons, topic_refusal
from include.tiering.model.segments import TopicIdPartition, Uuid

Retention = Callable[[TopicMetadata | None], int | None]
"""Returns the timestamp (ms, exclusive) below which a topic's segments are past retention; None if none are."""


def no_retention(_topic: TopicMetadata | None) -> None:
    """Return None: the brokers' retention does not apply."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The leader and leader epoch of a partition in the cluster metadata, and why its topic may not be copied.

    Leader and epoch are None if unknown; `refusal` is None if the topic itself prevents no copy.
    """

    leader: int | None
    leader_epoch: int | None
    refusal: IneligibleReason | None

    def first_change(self, now: "Ownership") -> tuple[str, object, object] | None:
        """Return the name of the first value that differs, the value here, and that in `now`; None if none differs."""
        pairs = (
            ("leader", self.leader, now.leader),
            ("leader epoch", self.leader_epoch, now.leader_epoch),
            ("reason not to copy the topic", self.refusal, now.refusal),
        )
        return next((pair for pair in pairs if pair[1] != pair[2]), None)


def ownership(
    partition: TopicIdPartition, cluster_metadata: ClusterMetadata | None, *, named: bool, cleaned: bool
) -> Ownership:
    """Return leader, leader epoch and refusal of a partition from the cluster metadata.

    If the metadata could not be read (None), naming a topic does not allow its copy. A topic counts as removed only if
    a record of the removal was read, or another topic has its name.
    """
    topic = cluster_metadata.topic(partition.topic_id) if cluster_metadata else None
    partition_metadata = topic.partitions.get(partition.partition) if topic else None
    removed = (
        cluster_metadata is not None
        and topic is None
        and (
            cluster_metadata.is_removed(partition.topic_id) or cluster_metadata.topic_named(partition.topic) is not None
        )
    )
    return Ownership(
        leader=partition_metadata.leader if partition_metadata else None,
        leader_epoch=partition_metadata.leader_epoch if partition_metadata else None,
        refusal=topic_refusal(
            partition.topic, topic, removed=removed, named=named and cluster_metadata is not None, cleaned=cleaned
        ),
    )


NEVER_COPIED: Final = frozenset(
    {IneligibleReason.INTERNAL_TOPIC, IneligibleReason.COMPACTED, IneligibleReason.TOPIC_REMOVED}
)
"""A topic is not copied while one of these reasons applies to it, so damage of its files prevents no copy."""


@dataclass(frozen=True, slots=True)
class EvaluatedReplicas:
    """All replicas of one partition.

    `errors` are misnamed directories, bounds that are unknown or contradictory, and damage of files. `notes` are damage
    of files that no copy reads.
    """

    replicas: list[Replica]
    errors: list[ScanError]
    notes: list[ScanError]


def evaluate(
    replicas: Sequence[FoundReplica],
    cluster_metadata: ClusterMetadata | None,
    offsets: OffsetsAnswer | None,
    *,
    named_topics: Collection[str],
    retention: Retention,
    recorded: RecordedName = nothing_recorded,
) -> EvaluatedReplicas:
    """Evaluate the replicas of one partition.

    Args:
        replicas: all replicas that were found of one partition of one topic id.
        cluster_metadata: None if it could not be read.
        offsets: the leaders' offsets, requested before the replicas were read; None without a connection to brokers or
            without metadata, then bounds are lower bounds.
        named_topics: topics that may be copied without metadata.
        retention: see `Retention`.
        recorded: see `RecordedName`.
    """
    topic_id = replicas[0].topic_id_partition.topic_id
    topic = cluster_metadata.topic(topic_id) if cluster_metadata else None
    known = known_name(topic_id, topic, recorded)
    misnamed = find_misnamed(replicas, known)
    rest = [replica for replica in replicas if replica not in misnamed]
    partition = min(rest or replicas, key=lambda replica: replica.state is not DirectoryState.LIVE).topic_id_partition
    partition_metadata = topic.partitions.get(partition.partition) if topic else None
    cleaned = any(replica.cleaned for replica in rest)
    was_compacted = cleaned or (topic is not None and topic.is_compacted)
    owned = ownership(partition, cluster_metadata, named=partition.topic in named_topics, cleaned=cleaned)
    reasons = iter(refusals(rest, partition_metadata))
    accepted = [
        (BoundedReplica(replica), IneligibleReason.TOPIC_CONTRADICTED)
        if replica in misnamed
        else (bounded(replica, partition_metadata, offsets, rest), next(reasons))
        for replica in replicas
    ]
    leader_is_read = owned.leader is not None and owned.leader >= 0 and any(reason is None for _, reason in accepted)
    errors: list[ScanError] = [
        misnamed_error(replica, known) for replica in misnamed if replica.state is DirectoryState.LIVE
    ]
    notes: list[ScanError] = []
    for replica, reason in zip(replicas, (reason for _, reason in accepted), strict=True):
        is_not_read = reason is not None and (leader_is_read or replica.state is not DirectoryState.LIVE)
        into = notes if is_not_read or owned.refusal in NEVER_COPIED else errors
        into += [*replica.errors, *([] if was_compacted else _lacking_offsets(replica))]
    errors += scan_errors(with_bounds for with_bounds, reason in accepted if (owned.refusal or reason) is None)
    return EvaluatedReplicas(
        [
            _evaluated(
                with_bounds,
                topic,
                partition_metadata,
                reason if with_bounds.found in misnamed else owned.refusal or reason or with_bounds.refusal,
                reason is None,
                retention,
                was_compacted=was_compacted,
            )
            for with_bounds, reason in accepted
        ],
        errors,
        notes,
    )


def is_note(unread: UnreadReplica, evaluated: Iterable[Replica], cluster_metadata: ClusterMetadata | None) -> bool:
    """Return whether the error of an unreadable replica belongs to the notes, because no copy would read the replica.

    It belongs there if the directory is stray or being deleted or moved, if its topic is internal or compacted, or if
    another broker leads its partition and the leader's replica is among the `evaluated` ones.

    Raises:
        ClusterMetadataError: the metadata cannot be read at present.
    """
    name = unread.name
    if name.state is not DirectoryState.LIVE:
        return True
    topic = _named(cluster_metadata, name.topic)
    if topic_refusal(name.topic, topic, removed=False, named=True, cleaned=False) in NEVER_COPIED:
        return True
    partition = None if topic is None else topic.partitions.get(name.partition)
    if topic is None or partition is None or partition.leader in (-1, unread.identity.broker_id):
        return False
    read = TopicIdPartition(topic.topic_id, name.partition, name.topic)
    return any(replica.chosen and replica.topic_id_partition == read for replica in evaluated)


def _named(cluster_metadata: ClusterMetadata | None, name: str) -> TopicMetadata | None:
    """Return the topic of this name; None if there is none, or if its metadata is refused."""
    try:
        return None if cluster_metadata is None else cluster_metadata.topic_named(name)
    except ClusterMetadataError as error:
        if error.retriable:
            raise
        return None


def _lacking_offsets(replica: FoundReplica) -> list[ScanError]:
    directory = f"{replica.identity.path}/{replica.directory_name}"
    return [
        ScanError(
            printable(f"{directory}/{offset_file(found.base_offset, FileKind.LOG)}"),
            0,
            CorruptFileError.__name__,
            found.what_is_missing,
            str(replica.topic_id_partition),
        )
        for found in replica.segments
        if found.what_is_missing
    ]


def _evaluated(
    bounded_replica: BoundedReplica,
    topic: TopicMetadata | None,
    partition_metadata: PartitionMetadata | None,
    refusal: IneligibleReason | None,
    chosen: bool,
    retention: Retention,
    *,
    was_compacted: bool,
) -> Replica:
    replica = bounded_replica.found
    epochs = replica.leader_epochs
    owner_is_broker = topic is not None and topic.is_remote_storage_enabled
    log_start_offset = replica.log_start_offset
    if owner_is_broker and replica.checkpointed_log_start is not None:
        log_start_offset = replica.checkpointed_log_start
    segment_epochs = [epochs.range(found.base_offset, found.next_base_offset) for found in replica.segments]
    bounds = ReplicaBounds(
        log_start_offset=log_start_offset,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        recovery_point=replica.recovery_point,
        is_replicated=is_replicated(topic, partition_metadata),
        retention_cut_off_ms=retention(topic),
    )
    candidates = [
        _candidate(found, bool(in_segment.entries), was_compacted=was_compacted)
        for found, in_segment in zip(replica.segments, segment_epochs, strict=True)
    ]
    reasons = segment_reasons(candidates, bounds, refusal)
    return Replica(
        replica_id=replica.replica_id,
        log_start_offset=log_start_offset,
        log_end_offset=replica.log_end_offset,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        recovery_point=replica.recovery_point,
        bounds=bounded_replica.bounds,
        leader_epochs=epochs,
        leader_epoch=partition_metadata.leader_epoch if partition_metadata else None,
        segments=tuple(
            LogSegment(
                base_offset=found.base_offset,
                end_offset=found.next_base_offset - 1,
                size_bytes=found.size_bytes,
                max_timestamp_ms=found.max_timestamp_ms,
                leader_epochs=in_segment,
                active=found.active,
                reason=reason,
                batch_count=found.batch_count,
                is_corrupt=found.is_unreadable or _is_corrupt(found, was_compacted=was_compacted),
            )
            for found, in_segment, reason in zip(replica.segments, segment_epochs, reasons, strict=True)
        ),
        chosen=chosen,
        owner_is_broker=owner_is_broker,
        segment_bytes=topic.segment_bytes if topic is not None else None,
        was_compacted=was_compacted,
    )


def _is_corrupt(found: FoundSegment, *, was_compacted: bool) -> bool:
    return found.is_corrupt or (found.first_missing_offset is not None and not was_compacted)


def _candidate(found: FoundSegment, has_leader_epoch: bool, *, was_compacted: bool) -> Candidate:
    return Candidate(
        base_offset=found.base_offset,
        next_base_offset=found.next_base_offset,
        max_timestamp_ms=found.max_timestamp_ms,
        active=found.active,
        has_leader_epoch=has_leader_epoch,
        has_producer_snapshot=found.has_producer_snapshot,
        is_unreadable=found.is_unreadable,
        is_corrupt=_is_corrupt(found, was_compacted=was_compacted),
        is_old_magic=found.is_old_magic,
        is_compacted=found.first_missing_offset is not None and was_compacted,
    )


_RESERVED_DIRECTORY_IDS: Final = 100
"""Ids below this number are reserved, e.g. for an unassigned or lost directory (Kafka's DirectoryId)."""


def refusals(
    replicas: Sequence[FoundReplica], partition_metadata: PartitionMetadata | None
) -> list[IneligibleReason | None]:
    """Return for each replica of a partition why it may not be read; None for at most one of them.

    If a directory id is assigned on a broker, only that directory may be read; without an assigned id, two live
    directories of the broker are both refused. The leader is that of the metadata. If the metadata has no leader (a
    stopped cluster), it is the in-sync replica (any assigned replica, if there is no ISR) with the highest (last leader
    epoch, log end offset); of equal replicas, the first in the order of assignment. Without metadata all replicas are
    compared; of equal replicas, that of the lowest broker id leads.
    """
    reasons = [_own_reason(replica, replicas, partition_metadata) for replica in replicas]
    accepted = [replica for replica, reason in zip(replicas, reasons, strict=True) if reason is None]
    leader = _leader(accepted, partition_metadata)
    return [
        reason or (None if replica is leader else IneligibleReason.NOT_LEADER)
        for replica, reason in zip(replicas, reasons, strict=True)
    ]


def _own_reason(
    replica: FoundReplica, replicas: Sequence[FoundReplica], partition_metadata: PartitionMetadata | None
) -> IneligibleReason | None:
    if replica.state is DirectoryState.FUTURE:
        return IneligibleReason.BEING_MOVED
    if replica.state is not DirectoryState.LIVE:
        return IneligibleReason.BEING_DELETED
    broker_id = replica.identity.broker_id
    assigned = _assigned_directory(partition_metadata, broker_id)
    twins = [
        other
        for other in replicas
        if other.identity.broker_id == broker_id and other.state is DirectoryState.LIVE and other is not replica
    ]
    if assigned is not None:
        if str(assigned) == replica.identity.directory_id:
            return None
        return IneligibleReason.AMBIGUOUS_REPLICA if twins else IneligibleReason.NOT_LEADER
    return IneligibleReason.AMBIGUOUS_REPLICA if twins else None


def _assigned_directory(partition_metadata: PartitionMetadata | None, broker_id: int) -> Uuid | None:
    """Return the id of the directory that is assigned on a broker; None if there is none, or a reserved id."""
    if (
        partition_metadata is None
        or len(partition_metadata.directories) != len(partition_metadata.replicas)
        or broker_id not in partition_metadata.replicas
    ):
        return None
    directory = partition_metadata.directories[partition_metadata.replicas.index(broker_id)]
    return None if int.from_bytes(directory.value) < _RESERVED_DIRECTORY_IDS else directory


def _leader(accepted: Sequence[FoundReplica], partition_metadata: PartitionMetadata | None) -> FoundReplica | None:
    if partition_metadata is None:
        order = sorted(replica.identity.broker_id for replica in accepted)
    elif partition_metadata.leader >= 0:
        order = [partition_metadata.leader]
    else:
        order = [
            broker
            for broker in partition_metadata.replicas
            if not partition_metadata.isr or broker in partition_metadata.isr
        ]
    candidates = [replica for replica in accepted if replica.identity.broker_id in order]
    return max(
        candidates,
        key=lambda r: (r.last_epoch, r.log_end_offset, -order.index(r.identity.broker_id)),
        default=None,
    )
