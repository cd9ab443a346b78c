"""Found replicas and topic facts together: which segments are eligible, and the reason where not. Pure."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from include.tiering.cluster.brokers_contract import OffsetsAnswer
from include.tiering.cluster.contract import ClusterFacts, PartitionFacts, TopicFacts
from include.tiering.log_source.contract import IneligibleReason, LogSegment, Replica, ScanError
from include.tiering.log_source.eligibility import (
    Candidate,
    ReplicaBounds,
    is_replicated,
    segment_reasons,
    topic_refusal,
)
from include.tiering.log_source.log_dir.choose import refusals
from include.tiering.log_source.log_dir.found_replica import FoundReplica, FoundSegment
from include.tiering.log_source.log_dir.leader_offsets import BoundedReplica, bounded, scan_errors
from include.tiering.model.ids import TopicIdPartition

Retention = Callable[[TopicFacts | None], int | None]
"""The timestamp (ms, exclusive) below which a topic's segments are past retention; None = keep for ever."""


def no_retention(_topic: TopicFacts | None) -> None:
    """For topics whose retention is not the broker's."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the topic facts say of a partition: its leader (None = unknown), and why nobody may copy it, if so."""

    leader: int | None
    leader_epoch: int | None
    refusal: IneligibleReason | None


def ownership(partition: TopicIdPartition, facts: ClusterFacts | None, *, named: bool, cleaned: bool) -> Ownership:
    """`facts` None: they could not be read, and nobody's word stands in for them.

    A removal must be seen; absence alone says nothing.
    """
    topic = facts.topic(partition.topic_id) if facts else None
    partition_facts = topic.partitions.get(partition.partition) if topic else None
    removed = (
        facts is not None
        and topic is None
        and (facts.is_removed(partition.topic_id) or facts.topic_named(partition.topic) is not None)
    )
    return Ownership(
        leader=partition_facts.leader if partition_facts else None,
        leader_epoch=partition_facts.leader_epoch if partition_facts else None,
        refusal=topic_refusal(
            partition.topic, topic, removed=removed, named=named and facts is not None, cleaned=cleaned
        ),
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """All replicas of one partition; `errors` say why the bounds of one cannot be had."""

    replicas: list[Replica]
    errors: list[ScanError]


def judge(
    replicas: Sequence[FoundReplica],
    facts: ClusterFacts | None,
    offsets: OffsetsAnswer | None,
    *,
    named_topics: Collection[str],
    retention: Retention,
) -> Judged:
    """`replicas` are all that were found of one partition of one topic id; `facts` None: they could not be read.

    `offsets`: what leaders said before the replicas were read; None: nobody is asked, and bounds are lower ones.
    """
    partition = replicas[0].topic_id_partition
    topic = facts.topic(partition.topic_id) if facts else None
    partition_facts = topic.partitions.get(partition.partition) if topic else None
    cleaned = any(replica.cleaned for replica in replicas)
    owned = ownership(partition, facts, named=partition.topic in named_topics, cleaned=cleaned)
    standing = [
        (bounded(replica, partition_facts, offsets), reason)
        for replica, reason in zip(replicas, refusals(replicas, partition_facts), strict=True)
    ]
    return Judged(
        [
            _judged(one, topic, partition_facts, owned.refusal or reason or one.refusal, reason is None, retention)
            for one, reason in standing
        ],
        scan_errors(one for one, reason in standing if (owned.refusal or reason) is None),
    )


def _judged(
    bounded_replica: BoundedReplica,
    topic: TopicFacts | None,
    partition_facts: PartitionFacts | None,
    refusal: IneligibleReason | None,
    chosen: bool,
    retention: Retention,
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
        is_replicated=is_replicated(topic, partition_facts),
        retention_cut_off_ms=retention(topic),
    )
    candidates = [
        _candidate(found, bool(in_segment.entries))
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
        leader_epoch=partition_facts.leader_epoch if partition_facts else None,
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
            )
            for found, in_segment, reason in zip(replica.segments, segment_epochs, reasons, strict=True)
        ),
        chosen=chosen,
        owner_is_broker=owner_is_broker,
    )


def _candidate(found: FoundSegment, has_leader_epoch: bool) -> Candidate:
    return Candidate(
        base_offset=found.base_offset,
        next_base_offset=found.next_base_offset,
        max_timestamp_ms=found.max_timestamp_ms,
        active=found.active,
        has_leader_epoch=has_leader_epoch,
        has_producer_snapshot=found.has_producer_snapshot,
        is_corrupt=found.is_corrupt,
        is_old_magic=found.is_old_magic,
    )
