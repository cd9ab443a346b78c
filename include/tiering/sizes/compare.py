"""Compare sizes: log dirs with the remote tier, a recount with the counters, and the store's listing with the rows.

- `compare_tiers` computes which segments wait for a copy, and how many bytes are in both tiers. It uses a scan and the
  rows instead of reports of copies, so the result is also right while copies fail or no copy runs.
- `describe_log_dirs` shows the log dirs as Kafka's DescribeLogDirs does, with the remote size of each partition.
- `compare_sizes` compares recounted sizes with the counters. Segments change state while they are counted, so a first
  difference is only a suspicion. The partition is then recounted between two readings of its counters, and this result
  counts if the counters did not change.
- `settle_stored` confirms differences between the store's listing and the rows, which a recount of the rows cannot
  show. The listing is taken before the rows are read, and a copy writes its row before its first object, so an
  object without a row is of no running copy. Each difference is a suspicion, because segments are copied and deleted
  meanwhile; it is confirmed by reading the row again and, if the row is FINISHED, the store.

A difference is a finding; nothing is corrected here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from include.tiering.configs.config_store import TopicRetention
from include.tiering.copying.next_segments import next_segments, past_retention_segments
from include.tiering.copying.plan_copy import KEPT, leading_eligible
from include.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanError, ScanReport
from include.tiering.model.histories import not_skipped
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import IndexType, RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition
from include.tiering.model.sizes import (
    EpochSize,
    PartitionLag,
    PartitionSize,
    PartitionStates,
    StateSize,
)
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.runs.cluster_log_dirs import KnownLogDir
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.sizes_contract import RemoteLogSizes
from include.tiering.segments.stored_copies import Suspicion, explains_length, manifest_suspicion
from include.tiering.segments.topics import owner_seen
from include.tiering.verification.rules import BrokenRule, RuleEvaluator
from include.tiering.verification.suites import SizeMeasure, StoredMeasure

_NEVER_COPIED: Final = frozenset(
    {
        IneligibleReason.INTERNAL_TOPIC,
        IneligibleReason.COMPACTED,
        IneligibleReason.BROKER_TIERED,
        IneligibleReason.TOPIC_REMOVED,
        IneligibleReason.BEING_DELETED,
        IneligibleReason.BELOW_LOG_START,
        IneligibleReason.PAST_RETENTION,
        IneligibleReason.COPY_DELAYED,
    }
)
"""Reasons for which a segment does not wait for a copy: it is deleted without a copy, stays local, or is delayed."""

NOTHING_OUT_OF_SIGHT: Final[Mapping[TopicIdPartition, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DuplicateBytes:
    """Bytes of rolled segments that are remote and still in the replica that copies read."""

    topic_id_partition: TopicIdPartition
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TierComparison:
    """Copy lag and duplicate bytes of every partition that this platform copies, except in `errors` and `out_of_sight`.

    `out_of_sight`: partitions whose leader's replica cannot be read, with the place where it may be; their lag is
    unknown.
    """

    copy_lags: tuple[PartitionLag, ...] = ()
    duplicates: tuple[DuplicateBytes, ...] = ()
    errors: tuple[ScanError, ...] = ()
    out_of_sight: Mapping[TopicIdPartition, str] = field(default_factory=dict)


def compare_tiers(
    report: ScanReport,
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
    now_ms: int,
    retentions: Mapping[str, TopicRetention] = KEPT,
    out_of_sight: Mapping[TopicIdPartition, str] = NOTHING_OUT_OF_SIGHT,
) -> TierComparison:
    """Compare the scanned log dirs with the remote tier.

    As in Kafka's RemoteCopyLagBytes and RemoteCopyLagSegments, rolled segments that are not remote yet count as lag,
    also those that cannot be copied yet (above the last stable offset, for example). Segments that are never copied do
    not count, nor do those that a first copy leaves out because of `retentions` (by topic name). What is not read yet
    of a leader's log counts by its size, without the last segment, which may be the active one.
    """
    lags, duplicates = [], []
    for replica in report.replicas:
        owner = owner_seen(replica, registry.owner(replica.topic_id_partition.topic_id))
        if not replica.chosen or owner is not TopicOwner.PLATFORM:
            continue
        highest = metadata.highest_copied_offset(replica.topic_id_partition)
        rolled = next_segments(replica, highest, metadata)
        past_retention = past_retention_segments(
            replica, leading_eligible(rolled), highest, metadata, retentions, now_ms
        )
        lag = _lag(replica.topic_id_partition, rolled[len(past_retention) :], now_ms)
        lags.append(_with_unread(lag, replica, highest))
        duplicates.append(DuplicateBytes(replica.topic_id_partition, _duplicate_bytes(replica, highest, metadata)))
    return TierComparison(tuple(lags), tuple(duplicates), report.errors, out_of_sight)


def _lag(partition: TopicIdPartition, rolled: Sequence[LogSegment], now_ms: int) -> PartitionLag:
    waiting = [segment for segment in rolled if segment.reason not in _NEVER_COPIED]
    size_bytes = sum(segment.size_bytes for segment in waiting)
    return PartitionLag(partition, size_bytes, len(waiting), _seconds(waiting, now_ms))


def _with_unread(lag: PartitionLag, replica: Replica, highest_copied: int | None) -> PartitionLag:
    """Add what no plan has read yet of a leader's log; nothing if the segments are files, or the size is not known.

    A leader may be new, and its log remote already, because it was copied from another one. Unread offsets up to the
    highest copied one are left out; each offset counts as many bytes.
    """
    log_bytes, segment_bytes = replica.log_bytes, replica.segment_bytes
    if not replica.unread_offsets or log_bytes is None or segment_bytes is None:
        return lag
    known = sum(segment.size_bytes for segment in replica.segments if segment.end_offset >= replica.log_start_offset)
    unread, copied_to = replica.unread_offsets, 0 if highest_copied is None else highest_copied + 1
    waiting = min(unread, max(0, replica.high_watermark - copied_to))
    rolled_bytes = max(0, (log_bytes - known) * waiting // unread - segment_bytes)
    segments = -(-rolled_bytes // segment_bytes)
    return replace(lag, size_bytes=lag.size_bytes + rolled_bytes, segments=lag.segments + segments)


def _seconds(waiting: Sequence[LogSegment], now_ms: int) -> float:
    """Return the age of the first waiting segment in seconds.

    It is 0 without a waiting segment, or if the segment has no timestamp or one in the future.
    """
    if not waiting or waiting[0].max_timestamp_ms < 0:
        return 0.0
    return max(0, now_ms - waiting[0].max_timestamp_ms) / 1000


def _duplicate_bytes(replica: Replica, highest_copied: int | None, metadata: RemoteLogMetadata) -> int:
    """Return the bytes of rolled segments that are also remote.

    Copies leave no gap, so all offsets from the remote log start to the highest copied offset count as remote, except
    those that a decision skips. The bytes of a segment count if any of its offsets is not skipped.
    """
    if highest_copied is None:
        return 0
    log_start = metadata.retention_state(replica.topic_id_partition).log_start_offset
    both = [s for s in replica.segments if not s.active and log_start <= s.end_offset <= highest_copied]
    decisions = metadata.skipped_offsets(replica.topic_id_partition) if both else ()
    return sum(
        segment.size_bytes for segment in both if not_skipped(segment.base_offset, segment.end_offset, decisions)
    )


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """The size of one replica.

    As in Kafka, `size_bytes` is that of the `.log` of every segment, and `offset_lag` the number of offsets below the
    high watermark that the replica lacks. `remote` is None if nothing of the partition is known to be
    remote.
    """

    topic_id_partition: TopicIdPartition
    size_bytes: int
    offset_lag: int
    is_future: bool
    remote: PartitionSize | None


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log dir of one broker, its replicas by topic and partition."""

    log_dir: KnownLogDir
    replicas: tuple[ReplicaSize, ...]


def describe_log_dirs(
    report: ScanReport, log_dirs: Sequence[KnownLogDir], sizes: Sequence[PartitionSize]
) -> tuple[LogDirDescription, ...]:
    """Describe the log dirs, in their order; a directory that cannot be read has no replicas."""
    remote = {size.topic_id_partition: size for size in sizes}
    described = []
    for log_dir in log_dirs:
        where = (log_dir.broker_id, log_dir.directory_id)
        here = (r for r in report.replicas if (r.replica_id.broker_id, r.replica_id.directory_id) == where)
        replicas = (_replica_size(replica, remote.get(replica.topic_id_partition)) for replica in here)
        described.append(LogDirDescription(log_dir, tuple(replicas)))
    return tuple(described)


def _replica_size(replica: Replica, remote: PartitionSize | None) -> ReplicaSize:
    return ReplicaSize(
        replica.topic_id_partition,
        sum(segment.size_bytes for segment in replica.segments),
        max(0, replica.high_watermark - replica.log_end_offset),
        any(segment.reason is IneligibleReason.BEING_MOVED for segment in replica.segments),
        remote,
    )


SETTLE_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class RecountedPartition:
    """The counters of a partition and the totals of its rows, at the same moment."""

    counters: PartitionStates
    recounted: PartitionStates


@dataclass(frozen=True, slots=True)
class SizeDifference:
    """A partition and state that breaks rules, with its counters and the totals of its rows."""

    topic_id_partition: TopicIdPartition
    counters: StateSize
    recounted: StateSize
    broken: tuple[BrokenRule[SizeMeasure], ...]


@dataclass(frozen=True, slots=True)
class SizeComparison:
    """`partitions` is the number of partitions with segments by the recount.

    The counters of the `unsettled` partitions changed at each reading; the next run compares them.
    """

    partitions: int
    differences: tuple[SizeDifference, ...]
    unsettled: tuple[TopicIdPartition, ...]


def compare_sizes(
    recounted: Iterable[PartitionStates],
    sizes: RemoteLogSizes,
    evaluator: RuleEvaluator[SizeMeasure],
) -> SizeComparison:
    """Compare `recounted`, which has each partition with segments once, in any order, with the counters.

    Raises:
        RuleEvaluationError: a rule could not be applied.
    """
    counters = {size.topic_id_partition: size for size in sizes.partition_states() if size.states}
    seen = 0
    settled: list[RecountedPartition] = []
    suspects: list[TopicIdPartition] = []
    for size in recounted:
        seen += 1
        counted = counters.pop(size.topic_id_partition, None)
        if counted == size:
            settled.append(RecountedPartition(counted, size))
        else:
            suspects.append(size.topic_id_partition)
    unsettled = []
    for partition in (*suspects, *counters):
        at_rest = _settle(partition, sizes)
        if at_rest is None:
            unsettled.append(partition)
        else:
            settled.append(at_rest)
    return SizeComparison(seen, _evaluated(settled, evaluator), tuple(unsettled))


def _settle(partition: TopicIdPartition, sizes: RemoteLogSizes) -> RecountedPartition | None:
    """Return counters and a recount of the same moment; None if the counters changed during each of 3 tries."""
    before = _counters_of(partition, sizes)
    for _ in range(SETTLE_ATTEMPTS):
        recounted = sizes.recount(partition)
        after = _counters_of(partition, sizes)
        if after == before:
            return RecountedPartition(after, recounted)
        before = after
    return None


def _counters_of(partition: TopicIdPartition, sizes: RemoteLogSizes) -> PartitionStates:
    return next(iter(sizes.partition_states(partition)), PartitionStates(partition, ()))


def _evaluated(
    settled: Sequence[RecountedPartition], evaluator: RuleEvaluator[SizeMeasure]
) -> tuple[SizeDifference, ...]:
    """Return a difference for each partition and state that breaks rules, in the order of the partitions."""
    subjects = {
        _size_measure(recounted, state): (recounted, state) for recounted in settled for state in _states(recounted)
    }
    broken: dict[SizeMeasure, list[BrokenRule[SizeMeasure]]] = {}
    for breach in evaluator.evaluate(list(subjects)):
        broken.setdefault(breach.measure, []).append(breach)
    differences = []
    for measure, breaches in broken.items():
        both, state = subjects[measure]
        differences.append(
            SizeDifference(
                both.counters.topic_id_partition, both.counters.of(state), both.recounted.of(state), tuple(breaches)
            )
        )
    return tuple(differences)


def _states(recounted_partition: RecountedPartition) -> Iterator[RemoteLogSegmentState]:
    for state in RemoteLogSegmentState:
        if any(
            size.state is state
            for size in (*recounted_partition.counters.states, *recounted_partition.recounted.states)
        ):
            yield state


def _size_measure(recounted_partition: RecountedPartition, state: RemoteLogSegmentState) -> SizeMeasure:
    partition = recounted_partition.counters.topic_id_partition
    counters, recounted = recounted_partition.counters.of(state), recounted_partition.recounted.of(state)
    return SizeMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        state=state.name,
        counted_bytes=counters.size_bytes,
        counted_segments=counters.segments,
        recounted_bytes=recounted.size_bytes,
        recounted_segments=recounted.segments,
        epoch_differences=len({e.leader_epoch for e in {*counters.leader_epochs} ^ {*recounted.leader_epochs}}),
        epochs_above_partition=sum(_is_above(epoch, recounted) for epoch in recounted.leader_epochs),
        segments_without_epoch=max(0, recounted.segments - sum(epoch.segments for epoch in recounted.leader_epochs)),
    )


def _is_above(epoch: EpochSize, size: StateSize) -> bool:
    return epoch.size_bytes > size.size_bytes or epoch.segments > size.segments


@dataclass(frozen=True, slots=True)
class StoredDifference:
    """A partition whose objects differ from its rows; `segments` are the confirmed suspects with their differences."""

    topic_id_partition: TopicIdPartition
    broken: tuple[BrokenRule[StoredMeasure], ...]
    segments: tuple[tuple[RemoteLogSegmentId, Suspicion], ...]


def settle_stored(
    suspects: Iterable[tuple[RemoteLogSegmentId, Suspicion]],
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
    evaluator: RuleEvaluator[StoredMeasure],
) -> tuple[StoredDifference, ...]:
    """Check the suspects again; return the partitions with confirmed suspicions that break rules.

    Raises:
        RemoteStorageUnavailableError: the store does not answer (retriable).
        RuleEvaluationError: a rule could not be applied.
    """
    confirmed: dict[TopicIdPartition, list[tuple[RemoteLogSegmentId, Suspicion]]] = defaultdict(list)
    for segment_id, suspicion in suspects:
        found = _check_again(segment_id, suspicion, metadata, storage)
        if found is not None:
            confirmed[segment_id.topic_id_partition].append((segment_id, found))
    measures = {_stored_measure(partition, found): partition for partition, found in confirmed.items()}
    broken: dict[StoredMeasure, list[BrokenRule[StoredMeasure]]] = defaultdict(list)
    for breach in evaluator.evaluate(list(measures)):
        broken[breach.measure].append(breach)
    return tuple(
        StoredDifference(measures[measure], tuple(breaches), tuple(confirmed[measures[measure]]))
        for measure, breaches in broken.items()
    )


def _check_again(
    segment_id: RemoteLogSegmentId, suspicion: Suspicion, metadata: RemoteLogMetadata, storage: RemoteStorage
) -> Suspicion | None:
    row = metadata.segment(segment_id)
    if row is None:
        return Suspicion.UNKNOWN
    if not row.metadata.is_finished:
        return None
    try:
        manifest = storage.fetch_manifest(row.metadata)
        storage.fetch_index(row.metadata, IndexType.OFFSET)
    except RemoteResourceNotFoundError:
        return Suspicion.MISSING
    except RemoteStorageError as error:
        if error.retriable:
            raise
        return Suspicion.UNREADABLE
    if suspicion is not Suspicion.UNREADABLE and suspicion is not Suspicion.OTHER_EPOCHS:
        sizes = {
            stored_object.kind: stored_object.size_bytes for stored_object in storage.stat_log_segment(row.metadata)
        }
        if not storage.required_kinds <= sizes.keys():
            return Suspicion.MISSING
        log_bytes, stored_bytes = row.metadata.segment_size_bytes, sizes[ObjectKind.LOG]
        if stored_bytes != log_bytes and not explains_length(manifest, log_bytes, stored_bytes):
            return Suspicion.OTHER_SIZE
    return None if manifest is None else manifest_suspicion(row.metadata, manifest)


def _stored_measure(
    partition: TopicIdPartition, found: Iterable[tuple[RemoteLogSegmentId, Suspicion]]
) -> StoredMeasure:
    segments = Counter(suspicion for _, suspicion in found)
    return StoredMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        **{suspicion.value: segments[suspicion] for suspicion in Suspicion},
    )
