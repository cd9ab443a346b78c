"""Plans that delete, and leases of them, for tests of metadata and work."""

from sqlalchemy import Engine

from include.tiering.database.transactions import NowMs, database_now_ms
from include.tiering.expiration.store import SqlDeletionStore
from include.tiering.model.ownership import Fence, PartitionLease
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.runs.deletion_run import PlannedDeletion, PlannedExpiration
from include.tiering.runs.store import SqlWorkStore
from tests.doubles.segments import CLUSTER_ID, segment_of


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
