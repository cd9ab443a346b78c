"""Which segments of a replica are copied next: what compaction, retention and a topic's copy lag leave out or delay.

**Compacted segments.** A topic's cleanup.policy may have been `compact` for a while. Records that the log cleaner
removed cannot be copied any more, and the records that it left in a segment are not all that were written. A compacted
segment is never copied. The partition waits before it until a person decides to skip it. One decision covers all
compacted segments that follow each other without a gap.

**The first copy** of a partition begins after the segments that the next run of expiration would delete immediately. (A
broker would copy them and delete them minutes later.) Segments past the platform's retention are left out only at the
beginning of a log, and only while nothing of the partition was ever copied: then the archive begins later, and no later
change of the retention leaves a gap in its middle. After the first copied segment every eligible segment is copied,
past the platform's retention or not, because a gap is allowed only by a recorded decision. An abandoned copy counts as
copied here, because the next copy batch may finish it.

`decide_deletions` decides which segments would be deleted; its input is the segments as they would be once copied.
Bytes after the last segment that can be copied now do not count: the end of a log may be truncated, and without these
bytes more segments are kept.

**Copy lag** (KIP-1241, Kafka 4.4). `remote.copy.lag.ms` and `remote.copy.lag.bytes` of a topic delay the copy of a
rolled segment until its largest timestamp is old enough, or enough newer bytes of the log follow it; one of the two
suffices, and a value of 0 delays nothing. A value of -1 follows the retention that the brokers have for the topic. The
first segment that must wait makes all later segments wait. This is the rule of `RLMCopyTask.candidateLogSegments` in
Kafka 4.4.0. A broker deletes a segment of its own tiered topics only after it has copied the segment, but it does not
wait for copies of this platform. So no copy is delayed by more than half of the brokers' retention, in time and in
bytes, and nothing is delayed while that retention is not known.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from types import MappingProxyType
from typing import Final

from include.tiering.configs.config_store import FOR_EVER, RETENTION_BYTES, RETENTION_MS, CopyLag, TopicRetention
from include.tiering.copying.finish_abandoned import abandoned_copies_of, is_started
from include.tiering.copying.plan import HeldBack, HeldBackPartition
from include.tiering.errors import SourceError
from include.tiering.expiration.rules import decide_deletions
from include.tiering.kafka.cluster.contract import ClusterMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ReplicaId, ScanReport
from include.tiering.kafka.log_dirs.rules import counted_bytes
from include.tiering.model.histories import OffsetRange, SkippedOffsets, not_skipped
from include.tiering.model.leader_epochs import merged
from include.tiering.model.retention import DeletionDecision, RetentionInput
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.failed_copies import FailedCopy

LeadingCompacted = Callable[[ReplicaId, Sequence[LogSegment]], Sequence[LogSegment]]
"""See `LogSource.leading_compacted`."""
NOTHING_FAILED: Final[Mapping[TopicIdPartition, Sequence[FailedCopy]]] = MappingProxyType({})
_MAY_BE_COMPACTED: Final = (None, IneligibleReason.COMPACTED_SEGMENT)


def uncopied(segments: Sequence[LogSegment], highest_copied: int | None, log_start_offset: int) -> list[LogSegment]:
    """Return the rolled segments that end at or after the next offset, in offset order (Kafka's floor rule).

    The next offset is `highest_copied` + 1, or the log start if nothing was copied.
    """
    next_offset = log_start_offset if highest_copied is None else highest_copied + 1
    return [segment for segment in segments if not segment.active and segment.end_offset >= next_offset]


def with_compacted(
    report: ScanReport,
    metadata: RemoteLogMetadata,
    find_compacted: LeadingCompacted,
    failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] = NOTHING_FAILED,
) -> ScanReport:
    """Return the report with leading compacted segments marked as ineligible.

    A scan that is not deep marks only empty files. This function reads the batch headers, and only of segments that
    would be copied next or could replace `failed` copies, in topics that are or were compacted.
    """
    marked = (
        _with_compacted_segments(replica, metadata, find_compacted, failed.get(replica.topic_id_partition, ()))
        for replica in report.replicas
    )
    return replace(report, replicas=tuple(marked))


def next_segments(replica: Replica, highest_copied: int | None, metadata: RemoteLogMetadata) -> list[LogSegment]:
    """Return the uncopied segments of the replica, without leading compacted segments that a decision skips.

    A segment that is not compacted in this replica is copied, even if a decision skips its offsets.
    """
    pending = uncopied(replica.segments, highest_copied, replica.log_start_offset)
    if not pending or not _is_compacted(pending[0]):
        return pending
    decisions = metadata.skipped_offsets(replica.topic_id_partition)
    while pending and _is_compacted(pending[0]) and not _undecided(replica, pending[0], highest_copied, decisions):
        pending.pop(0)
    return pending


def compacted_away(
    replica: Replica,
    pending: Sequence[LogSegment],
    highest_copied: int | None,
    metadata: RemoteLogMetadata,
    *,
    is_next: bool,
) -> HeldBackPartition | None:
    """Return how the partition waits before the first of the `pending` segments; None if that segment is not compacted.

    A person can decide only if the segment `is_next`: no segment before it is still to be copied. The first offsets are
    left out if an earlier decision skips them, made when a replica led that rolled its segments at other offsets.
    """
    if not pending or not _is_compacted(pending[0]):
        return None
    last = pending[0]
    for segment in pending[1:]:
        if not _is_compacted(segment) or segment.base_offset != last.end_offset + 1:
            break
        last = segment
    partition: TopicIdPartition = replica.topic_id_partition
    offsets = OffsetRange(_first_wanted(replica, pending[0], highest_copied), last.end_offset)
    for undecided in not_skipped(*offsets, metadata.skipped_offsets(partition))[:1]:
        offsets = OffsetRange(undecided.first, last.end_offset)
    detail = f"offsets {offsets}" + ("; see ./tiering skip" if is_next else "")
    return HeldBackPartition(partition, offsets.first, HeldBack.COMPACTED, detail, offsets if is_next else None)


def _with_compacted_segments(
    replica: Replica, metadata: RemoteLogMetadata, find_compacted: LeadingCompacted, failed: Sequence[FailedCopy]
) -> Replica:
    if not replica.was_compacted:
        return replica
    runs = [[segment] for segment in _copied_of(replica, failed)]
    if replica.chosen:
        runs.append(_next_of(replica, metadata))
    try:
        found = {segment.base_offset for run in runs if run for segment in find_compacted(replica.replica_id, run)}
    except SourceError:
        return replica  # A segment vanished or cannot be read: nothing is marked, and the copy reports the error.
    return replace(
        replica,
        segments=tuple(
            replace(segment, reason=IneligibleReason.COMPACTED_SEGMENT) if segment.base_offset in found else segment
            for segment in replica.segments
        ),
    )


def _next_of(replica: Replica, metadata: RemoteLogMetadata) -> list[LogSegment]:
    highest = metadata.highest_copied_offset(replica.topic_id_partition)
    pending = uncopied(replica.segments, highest, replica.log_start_offset)
    return list(takewhile(lambda segment: segment.reason in _MAY_BE_COMPACTED, pending))


def _copied_of(replica: Replica, failed: Sequence[FailedCopy]) -> list[LogSegment]:
    """Return the replica's segments that have exactly the offsets of failed copies.

    Segments of followers are returned, too, because a report names the followers that still have them.
    """
    found = [(copy, replica.segment_at(copy.offsets.first)) for copy in failed]
    as_copied = [segment for copy, segment in found if segment is not None and segment.end_offset == copy.offsets.last]
    return [segment for segment in as_copied if segment.reason in (None, IneligibleReason.NOT_LEADER)]


def _undecided(
    replica: Replica, segment: LogSegment, highest_copied: int | None, decisions: Sequence[SkippedOffsets]
) -> bool:
    return bool(not_skipped(_first_wanted(replica, segment, highest_copied), segment.end_offset, decisions))


def _first_wanted(replica: Replica, segment: LogSegment, highest_copied: int | None) -> int:
    next_offset = replica.log_start_offset if highest_copied is None else highest_copied + 1
    return max(segment.base_offset, next_offset)


def _is_compacted(segment: LogSegment) -> bool:
    return segment.reason is IneligibleReason.COMPACTED_SEGMENT


_UUID_BYTES: Final = 16


def past_retention_segments(
    replica: Replica,
    eligible: Sequence[LogSegment],
    highest_copied_offset: int | None,
    metadata: RemoteLogMetadata,
    retentions: Mapping[str, TopicRetention],
    now_ms: int,
) -> list[DeletionDecision]:
    """Return, in order, why the first segments of `eligible` would be deleted immediately if all were copied now.

    Args:
        replica: the replica that is copied.
        eligible: in offset order, without a gap, from the first segment that is not remote on.
        highest_copied_offset: None if nothing of the partition was ever copied; if it is set, the result is empty.
        metadata: holds the log start offset, the leader epochs and the abandoned copies of the archive.
        retentions: the retention that is set on topics, by topic name; other topics keep everything.
        now_ms: the database's clock.
    """
    retention = retentions.get(replica.topic_id_partition.topic, FOR_EVER)
    if highest_copied_offset is not None or retention == FOR_EVER:
        return []
    retained = metadata.retention_state(replica.topic_id_partition)
    possible = takewhile(lambda segment: segment.size_bytes <= counted_bytes(segment, replica), eligible)
    committed = replica.leader_epochs.range(-1, replica.high_watermark)
    given = RetentionInput(
        topic_id_partition=replica.topic_id_partition,
        segments=tuple(_as_copied(replica.topic_id_partition, segment, now_ms) for segment in possible),
        lineage=merged(retained.leader_epochs, committed, replica.log_start_offset).history,
        log_start_offset=retained.log_start_offset,
        now_ms=now_ms,
        retention_ms=retention.retention_ms,
        retention_bytes=retention.retention_bytes,
    )
    past_retention = {decision.segment.start_offset: decision for decision in decide_deletions(given).decisions}
    leading = list(takewhile(lambda segment: segment.base_offset in past_retention, eligible))
    if not leading:
        return []
    abandoned = filter(is_started, abandoned_copies_of(metadata, replica.topic_id_partition))
    if (first := next(abandoned, None)) is not None:
        leading = [segment for segment in leading if segment.end_offset < first.metadata.start_offset]
    return [past_retention[segment.base_offset] for segment in leading]


def _as_copied(partition: TopicIdPartition, segment: LogSegment, now_ms: int) -> RemoteLogSegmentMetadata:
    """Return metadata as of a copy FINISHED now; the id only distinguishes segments within this decision."""
    segment_id = RemoteLogSegmentId(partition, Uuid(segment.base_offset.to_bytes(_UUID_BYTES, "big")))
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=segment_id,
        start_offset=segment.base_offset,
        end_offset=segment.end_offset,
        max_timestamp_ms=segment.max_timestamp_ms,
        broker_id=0,
        event_timestamp_ms=now_ms,
        segment_size_bytes=segment.size_bytes,
        segment_leader_epochs=segment.leader_epochs,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )


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
