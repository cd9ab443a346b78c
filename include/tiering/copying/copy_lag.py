"""Which segments are not copied yet because their topic delays copies (KIP-1241, Kafka 4.4).

`remote.copy.lag.ms` and `remote.copy.lag.bytes` of a topic delay the copy of a rolled segment until its largest
timestamp is old enough, or enough newer bytes of the log follow it; one of the two suffices, and a value of 0 delays
nothing. A value of -1 follows the retention that the brokers have for the topic. The first segment that must wait makes
all later segments wait. This is the rule of `RLMCopyTask.candidateLogSegments` in Kafka 4.4.0.

A broker deletes no segment of its tiered topics before it has copied it. It does delete segments of topics that this
platform copies. So no copy is delayed by more than half of the brokers' retention, in time and in bytes, and nothing is
delayed while that retention is not known.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from include.tiering.configs.config_store import RETENTION_BYTES, RETENTION_MS, CopyLag
from include.tiering.copying.next_segments import uncopied
from include.tiering.kafka.cluster.contract import ClusterMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanReport
from include.tiering.model.segments import TopicIdPartition


def is_due(lag: CopyLag, age_ms: int, newer_bytes: int) -> bool:
    """Return whether a segment is copied now; a negative limit is not applied.

    Args:
        lag: the copy lag in force; -1 must have been replaced, see `following`.
        age_ms: the age of the segment's largest timestamp, negative if that is in the future.
        newer_bytes: the bytes of the log after the segment, those of the active segment included.
    """
    if 0 in (lag.lag_ms, lag.lag_bytes):
        return True
    by_time = lag.lag_ms > 0 and not 0 <= age_ms < lag.lag_ms
    return by_time or 0 < lag.lag_bytes <= newer_bytes


def following(lag: CopyLag, retention_ms: int, retention_bytes: int) -> CopyLag:
    """Replace -1 by the brokers' retention of the topic, which is -1 if it is unlimited."""
    return CopyLag(
        retention_ms if lag.lag_ms == -1 else lag.lag_ms, retention_bytes if lag.lag_bytes == -1 else lag.lag_bytes
    )


def lag_in_force(lag: CopyLag, topic: TopicMetadata | None) -> CopyLag:
    """Return the copy lag that applies to a topic: at most half of the brokers' retention; 0 if that is not known."""
    retention_ms = None if topic is None else topic.retention(RETENTION_MS)
    retention_bytes = None if topic is None else topic.retention(RETENTION_BYTES)
    if retention_ms is None or retention_bytes is None:
        return CopyLag()
    wanted = following(lag, retention_ms, retention_bytes)
    return CopyLag(_at_most_half(wanted.lag_ms, retention_ms), _at_most_half(wanted.lag_bytes, retention_bytes))


def with_delayed(
    report: ScanReport,
    lag_of: Callable[[str], CopyLag],
    cluster_metadata: ClusterMetadata,
    highest_copied: Callable[[TopicIdPartition], int | None],
    now_ms: Callable[[], int],
) -> ScanReport:
    """Return the report with the segments marked as ineligible whose copy their topic still delays.

    `lag_of` returns the configured copy lag of a topic by its name. Segments up to `highest_copied` are not marked. The
    callables that read the database are not called if no topic delays its copies.
    """
    replicas = []
    for replica in report.replicas:
        configured = lag_of(replica.topic_id_partition.topic)
        if replica.chosen and 0 not in (configured.lag_ms, configured.lag_bytes):
            lag = lag_in_force(configured, cluster_metadata.topic(replica.topic_id_partition.topic_id))
            highest = highest_copied(replica.topic_id_partition)
            replica = _marked(replica, lag, uncopied(replica.segments, highest, replica.log_start_offset), now_ms())
        replicas.append(replica)
    return replace(report, replicas=tuple(replicas))


def _marked(replica: Replica, lag: CopyLag, pending: Sequence[LogSegment], now_ms: int) -> Replica:
    active_bytes = sum(segment.size_bytes for segment in replica.segments if segment.active)
    waiting = set(_waiting(pending, active_bytes, lag, now_ms))
    if not waiting:
        return replica
    segments = (
        replace(segment, reason=IneligibleReason.COPY_DELAYED)
        if segment.base_offset in waiting and segment.eligible
        else segment
        for segment in replica.segments
    )
    return replace(replica, segments=tuple(segments))


def _waiting(pending: Sequence[LogSegment], active_bytes: int, lag: CopyLag, now_ms: int) -> Iterable[int]:
    """Yield the base offsets of the first pending segment that is not due and of all after it."""
    newer_bytes = active_bytes + sum(segment.size_bytes for segment in pending)
    is_waiting = False
    for segment in pending:
        newer_bytes -= segment.size_bytes
        is_waiting = is_waiting or not is_due(lag, now_ms - segment.max_timestamp_ms, newer_bytes)
        if is_waiting:
            yield segment.base_offset


def _at_most_half(lag: int, retention: int) -> int:
    return lag if retention < 0 else min(lag, retention // 2) if lag >= 0 else retention // 2
