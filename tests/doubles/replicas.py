"""Replicas as a scan reports them, for decisions that look at nothing else."""

from include.tiering.kafka.log_dirs.contract import BoundsQuality, IneligibleReason, LogSegment, Replica, ReplicaId
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid

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
    return Replica(
        replica_id=ReplicaId(TopicIdPartition(topic_id, partition, "orders"), 1, "directory"),
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        recovery_point=end,
        bounds=BoundsQuality.LOWER,
        leader_epochs=LeaderEpochs.of(epochs),
        leader_epoch=None,
        segments=segments,
        chosen=chosen,
        owner_is_broker=False,
    )
