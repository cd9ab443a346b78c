"""Partitions, segments, replicas, fences and plans for tests of metadata and work."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Engine

from include.tiering.database.transactions import NowMs, database_now_ms
from include.tiering.expiration.store import SqlDeletionStore
from include.tiering.kafka.log_dirs.contract import BoundsQuality, IneligibleReason, LogSegment, Replica, ReplicaId
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, PartitionLease, TopicOwner
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from include.tiering.runs.contract import Lease, PlannedPartition, PlannedSegment
from include.tiering.runs.deletion_run import PlannedDeletion, PlannedExpiration
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry

# Partitions, segments and fences for tests of metadata and work.

CLUSTER_ID: Final = "Yl6WqUHwTuy6EGbNGUOwhg"
STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def uuid(number: int) -> Uuid:
    """Different numbers, different ids; none is Kafka's zero id."""
    return Uuid((number + 1_000).to_bytes(16, "big"))


def partition_of(topic: str = "orders", partition: int = 0, *, topic_number: int | None = None) -> TopicIdPartition:
    """By default the topic's id follows from its name."""
    number = sum(topic.encode()) if topic_number is None else topic_number
    return TopicIdPartition(uuid(number), partition, topic)


def segment_of(
    partition: TopicIdPartition,
    number: int,
    start_offset: int,
    end_offset: int,
    leader_epochs: Mapping[int, int] | None = None,
    *,
    size_bytes: int = 1_000,
    state: RemoteLogSegmentState = STARTED,
) -> RemoteLogSegmentMetadata:
    """Attempt `number`; by default all of it under epoch 0. Offsets are inclusive."""
    epochs = leader_epochs if leader_epochs is not None else {0: start_offset}
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, uuid(1_000_000 + number)),
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=1_600_000_000_000 + end_offset,
        broker_id=1,
        event_timestamp_ms=1_600_000_100_000,
        segment_size_bytes=size_bytes,
        segment_leader_epochs=LeaderEpochs.of(epochs.items()),
        state=state,
    )


def update_of(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, *, custom_metadata: bytes | None = None
) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment.remote_log_segment_id,
        state,
        event_timestamp_ms=1_600_000_200_000,
        broker_id=2,
        custom_metadata=custom_metadata,
    )


def planned(partition: TopicIdPartition, segments: int = 1, *, urgency: float = 1.0) -> PlannedPartition:
    """Segments of 100 offsets and 1,000 bytes each."""
    work = tuple(PlannedSegment(100 * number, 100 * number + 99, 1_000) for number in range(segments))
    return PlannedPartition(ReplicaId(partition, 1, "dir-1"), urgency, work)


def lease_of(engine: Engine, partition: TopicIdPartition, run_id: str = "run-1", *, lease_ms: int = 600_000) -> Lease:
    """A lease on a partition that nobody else holds, under a run that plans this partition alone."""
    work = SqlWorkStore(engine, CLUSTER_ID)
    work.save_plan(run_id, [planned(partition)])
    lease = work.claim(run_id, "batch-1", lease_ms=lease_ms)
    assert lease is not None
    return lease


def fence_of(engine: Engine, partition: TopicIdPartition) -> Fence:
    return lease_of(engine, partition, f"run-of-{partition}").fence


def finish(metadata: RemoteLogMetadata, segment: RemoteLogSegmentMetadata, fence: Fence) -> RemoteLogSegmentMetadata:
    """Copy: STARTED, then FINISHED."""
    metadata.add_segment(segment, fence=fence)
    return metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=fence)


def delete(metadata: RemoteLogMetadata, segment: RemoteLogSegmentMetadata, fence: Fence) -> None:
    """From FINISHED to a tombstone."""
    metadata.update_segment(update_of(segment, DELETE_STARTED), expected=FINISHED, fence=fence)
    metadata.update_segment(update_of(segment, DELETE_FINISHED), expected=DELETE_STARTED, fence=fence)


# Plans that delete, and leases of them, for tests of metadata and work.


def planned_deletion(
    segment: RemoteLogSegmentMetadata, reason: DeletionReason = DeletionReason.TIME, detail: str = "age_ms 5"
) -> PlannedDeletion:
    return PlannedDeletion(
        segment.remote_log_segment_id,
        segment.start_offset,
        segment.end_offset,
        segment.segment_size_bytes,
        segment.state,
        reason,
        detail,
    )


def planned_expiration(
    partition: TopicIdPartition, *segments: RemoteLogSegmentMetadata, log_start_before: int = 0
) -> PlannedExpiration:
    """All of `segments` by time, the log start behind the last of them."""
    log_start = max(segment.end_offset + 1 for segment in segments)
    return PlannedExpiration(partition, log_start_before, log_start, tuple(map(planned_deletion, segments)))


def expire_lease_of(
    engine: Engine,
    partition: TopicIdPartition,
    run_id: str = "expire-1",
    *,
    take_over: Fence | None = None,
    now_ms: NowMs = database_now_ms,
) -> PartitionLease:
    """A lease to expire, under a released run that plans this partition alone; with `take_over` the old one ends."""
    if take_over is not None:
        old = PartitionLease(run_id="", batch_id="", fence=take_over, expires_at_ms=0)
        SqlWorkStore(engine, CLUSTER_ID).release(old)
    runs = SqlDeletionStore(engine, CLUSTER_ID, now_ms=now_ms)
    runs.save_plan(run_id, [planned_expiration(partition, segment_of(partition, 77, 0, 9))])
    runs.record_limit_check(run_id, needs_approval=False, detail="", author="test")
    lease = runs.claim(run_id, "batch-1", lease_ms=600_000)
    assert lease is not None
    return lease


# Replicas as a scan reports them, for decisions that look at nothing else.

ORDERS = Uuid(b"orders-topic-id0")


def replica(
    sizes: list[int],
    *,
    partition: int = 0,
    topic_id: Uuid = ORDERS,
    epochs: tuple[tuple[int, int], ...] = ((0, 0),),
    reasons: dict[int, IneligibleReason] | None = None,
    chosen: bool = True,
) -> Replica:
    """Segments of ten offsets, these sizes and times a second apart; the last is the active one. `reasons` by index."""
    segments = tuple(
        LogSegment(
            base_offset=10 * index,
            end_offset=10 * index + 9,
            size_bytes=size,
            max_timestamp_ms=1_000 * index,
            leader_epochs=LeaderEpochs(),
            active=index == len(sizes) - 1,
            reason=(reasons or {}).get(index, IneligibleReason.ACTIVE if index == len(sizes) - 1 else None),
        )
        for index, size in enumerate(sizes)
    )
    end = 10 * len(sizes)
    return whole_replica(
        ReplicaId(TopicIdPartition(topic_id, partition, "orders"), 1, "directory"),
        segments,
        end,
        leader_epochs=LeaderEpochs.of(epochs),
        chosen=chosen,
    )


def own(
    engine: Engine,
    partition: TopicIdPartition,
    owner: TopicOwner = TopicOwner.PLATFORM,
    before: TopicOwner = TopicOwner.NONE,
) -> None:
    registry = SqlTopicRegistry(engine, CLUSTER_ID)
    registry.set_owner(partition.topic_id, partition.topic, owner, expected=before, author="test")


def whole_replica(
    replica_id: ReplicaId, segments: Sequence[LogSegment], end: int, *, leader_epochs: LeaderEpochs, **fields: Any
) -> Replica:
    """A chosen replica that begins at 0 and is replicated, stable and flushed up to `end`; `fields` says otherwise."""
    known: dict[str, Any] = {
        "log_start_offset": 0,
        "bounds": BoundsQuality.LOWER,
        "leader_epoch": None,
        "chosen": True,
        "owner_is_broker": False,
        **dict.fromkeys(("log_end_offset", "high_watermark", "last_stable_offset", "recovery_point"), end),
    }
    return Replica(replica_id=replica_id, leader_epochs=leader_epochs, segments=tuple(segments), **{**known, **fields})
