"""Plan a copy: eligible segments that are not remote yet, per partition, in order.

Every command plans with this module. Planning only reads; the caller stores the plan. A stale plan costs time, never
data, because every batch reads the source again before it copies a segment.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Final

from include.tiering.configs.config_store import RETENTION_MS, EffectiveConfigs, TopicRetention
from include.tiering.copying.copy_checks import next_action, undecided_offsets
from include.tiering.copying.finish_abandoned import IsWhole, continuing_copies, replacement_copies, unread_copy
from include.tiering.copying.next_segments import (
    NOTHING_FAILED,
    compacted_away,
    next_segments,
    past_retention_segments,
    with_compacted,
    with_delayed,
)
from include.tiering.copying.plan import (
    WAITING_CANNOT_HELP,
    CopyPlan,
    HeldBack,
    HeldBackPartition,
    held_by_divergence,
    partitions_out_of_sight,
)
from include.tiering.copying.plan_replacements import (
    MOST_NEW_COPIES,
    Replacements,
    before_divergence,
    replacements_of,
    without_doubtful,
)
from include.tiering.copying.run_scope import RunScope
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, LogSource, Replica, ScanReport
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.retention import DeletionDecision
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.runs.contract import ANYWHERE, Placement, PlannedPartition, PlannedSegment
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.failed_copies import FailedCopies, FailedCopy, by_partition
from include.tiering.segments.stored_copies import StoreWitness, WholeCopy, whole_or_unknown
from include.tiering.segments.topics import TopicLifecycle, owner_seen
from include.tiering.units import format_bytes

KAFKA_DEFAULT_RETENTION_MS: Final = 7 * 24 * 60 * 60 * 1000
NOT_PLACED: Final[Mapping[tuple[int, str], Placement]] = MappingProxyType({})
KEPT: Final[Mapping[str, TopicRetention]] = MappingProxyType({})


def plan_copy(
    run_id: str,
    report: ScanReport,
    *,
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
    cluster_metadata: ClusterMetadata,
    scope: RunScope,
    now_ms: int,
    limit_bytes: int | None = None,
    placements: Mapping[tuple[int, str], Placement] = NOT_PLACED,
    retentions: Mapping[str, TopicRetention] = KEPT,
    failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] = NOTHING_FAILED,
    max_new_copies: int = MOST_NEW_COPIES,
    doubt: Callable[[RemoteLogSegmentMetadata], str | None] = lambda _: None,
    is_whole: IsWhole = lambda _: False,
) -> CopyPlan:
    """Decide from one scan what a run may copy.

    `report` is the scan of `scope`. Partitions of the scope that would be copied wait if the cluster has them and the
    scan does not show their leader's replica; if the scope has no topics, only the scan counts.

    In each partition the `failed` segments come first; each is copied again at most `max_new_copies` times: see
    `plan_replacements`. If a failed segment that was not given up cannot be replaced, only new copies of other failed
    segments of the partition are planned. If a failed segment that would be copied again lacks objects in the store,
    and there is `doubt` whether that is the right store, nothing of the partition is planned.

    If the source no longer has all records of the next offsets, or those of a failed segment, abandoned copies of them
    that are whole (`is_whole`) are planned, to be finished. If one may be whole and cannot be read, the partition
    waits.

    `now_ms` is the database's clock; `retentions` holds the retention that is set on topics, by topic name. If nothing
    of a partition was ever copied, the copy begins after the segments that expiration would delete immediately; see
    `next_segments`.

    With `limit_bytes` (inclusive) partitions are taken in order of urgency, of each the first whole segments that still
    fit. The first segment of a run is always taken, so that a limit below one segment still makes progress.

    `placements` gives, by broker id and directory id, where a log directory can be read; other directories can be read
    anywhere.
    """
    wanted: list[PlannedPartition] = []
    held_back = _out_of_sight(report, scope, cluster_metadata, metadata, registry)
    for replica in report.replicas:
        if not replica.chosen:
            continue
        partition = replica.topic_id_partition
        highest = metadata.highest_copied_offset(partition)
        pending = next_segments(replica, highest, metadata)
        following = _following(replica, pending, highest)
        continuing = partial(
            continuing_copies, metadata, partition, source_epochs=replica.leader_epochs, is_whole=is_whole
        )
        divergence = held_by_divergence(replica, highest, metadata)
        divergence = divergence if divergence is not None and _may_copy(replica, metadata, registry) else None
        copies = before_divergence(failed.get(partition, ()), divergence)
        again = Replacements()
        if copies and _may_copy(replica, metadata, registry):
            again = without_doubtful(replacements_of(replica, report, copies, metadata, max_new_copies), copies, doubt)
            again = _with_whole_abandoned_copies(
                again, replica, report, copies, metadata, max_new_copies=max_new_copies, is_whole=is_whole
            )
        to_copy = list(again.segments)
        waits_first = [held for held in (again.held_back, divergence) if held is not None]
        held_back += waits_first
        if following is not None and not waits_first:
            refusal = _refusal(replica, following, pending, highest, metadata, registry, copies)
            if refusal is None:
                new, waits = _new(replica, pending, highest, metadata, retentions, now_ms)
                if highest is None:
                    to_copy += continuing(None, following.base_offset)
                to_copy += new
                held_back += waits
            elif refusal.hole is not None and (
                # Compacted segments are still there, without all of their records.
                left := continuing(highest, max(following.base_offset, refusal.hole.last + 1))
            ):
                to_copy += left
            else:
                in_doubt = _in_doubt(partition, refusal.hole, metadata, is_whole)
                held_back.append(in_doubt or refusal)
        if to_copy:
            where = placements.get((replica.replica_id.broker_id, replica.replica_id.directory_id), ANYWHERE)
            oldest = replica.segment_at(to_copy[0].base_offset)
            how_urgent = 0.0 if oldest is None else urgency(replica, oldest, cluster_metadata, now_ms)
            wanted.append(PlannedPartition(replica.replica_id, how_urgent, tuple(to_copy), where))
    wanted.sort(key=lambda partition: -partition.urgency)
    within, beyond = _within_limit(wanted, limit_bytes)
    return CopyPlan(run_id, within, (*held_back, *beyond), report.errors, report.notes)


def placed_batches(partitions: Iterable[PlannedPartition], max_batches: int) -> list[Placement]:
    """Return one placement per batch to start: no more batches of a placement than it has partitions.

    Batches are distributed over the placements in rotation, beginning with that of the most urgent partition, until
    there are `max_batches`. Each placement gets at least one batch even if there are more placements than that;
    otherwise its partitions would not be copied.
    """
    left = Counter(partition.placement for partition in partitions)
    batches = list(left)
    while len(batches) < max_batches and (left := Counter({p: n - 1 for p, n in left.items() if n > 1})):
        batches += list(left)[: max_batches - len(batches)]
    return batches


def leading_eligible(segments: Iterable[LogSegment]) -> list[LogSegment]:
    """Return the segments before the first ineligible one: a partition is copied without a gap."""
    leading = []
    for segment in segments:
        if not segment.eligible:
            break
        leading.append(segment)
    return leading


def urgency(replica: Replica, oldest: LogSegment, cluster_metadata: ClusterMetadata, now_ms: int) -> float:
    """Return the age of the first segment to copy, divided by its topic's retention.ms: at 1.0 a broker may delete it.

    An unlimited or unknown retention counts as Kafka's default of seven days, a future timestamp as age 0.
    """
    topic = cluster_metadata.topic(replica.topic_id_partition.topic_id)
    configured = None if topic is None else topic.retention(RETENTION_MS)
    retention_ms = KAFKA_DEFAULT_RETENTION_MS if configured is None or configured < 0 else configured
    age_ms = max(0, now_ms - oldest.max_timestamp_ms)
    return age_ms / max(1, retention_ms)


def _out_of_sight(
    report: ScanReport,
    scope: RunScope,
    cluster_metadata: ClusterMetadata,
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
) -> list[HeldBackPartition]:
    waits = []
    for partition, where in partitions_out_of_sight(report, scope, cluster_metadata, registry).items():
        highest = metadata.highest_copied_offset(partition)
        next_offset = 0 if highest is None else highest + 1
        waits.append(HeldBackPartition(partition, next_offset, HeldBack.OUT_OF_SIGHT, where))
    return waits


def _following(replica: Replica, pending: Sequence[LogSegment], highest: int | None) -> LogSegment | None:
    """Return the first segment that is not copied; the active segment only if offsets before it are gone."""
    if pending:
        return pending[0]
    latest = next(reversed(replica.segments), None)
    if latest is None or highest is None or latest.reason is not IneligibleReason.ACTIVE:
        return None
    return latest if latest.base_offset > highest + 1 else None


def _with_whole_abandoned_copies(
    again: Replacements,
    replica: Replica,
    report: ScanReport,
    copies: Sequence[FailedCopy],
    metadata: RemoteLogMetadata,
    *,
    max_new_copies: int,
    is_whole: IsWhole,
) -> Replacements:
    """Plan whole abandoned copies in the place of failed segments that no source can replace any more.

    The partition stays held back by the failed segments that no copy covers.
    """
    if again.held_back is None or again.held_back.reason is not HeldBack.LOST:
        return again
    losses = [loss for loss in again.held_back.lost if not loss.in_source]
    in_doubt = (_in_doubt(replica.topic_id_partition, loss.offsets, metadata, is_whole) for loss in losses)
    if (first_in_doubt := next((held for held in in_doubt if held is not None), None)) is not None:
        return Replacements(again.segments, first_in_doubt)
    lost = {loss.segment_id for loss in losses}
    no_source = [copy.metadata for copy in copies if copy.segment_id in lost]
    left = replacement_copies(metadata, replica.topic_id_partition, no_source, is_whole)
    covered = {planned.supersedes for planned in left}
    rest = [copy for copy in copies if copy.segment_id.id not in covered]
    held_back = replacements_of(replica, report, rest, metadata, max_new_copies).held_back
    return Replacements(tuple(sorted((*again.segments, *left), key=lambda planned: planned.base_offset)), held_back)


def _in_doubt(
    partition: TopicIdPartition, lost: OffsetRange | None, metadata: RemoteLogMetadata, is_whole: IsWhole
) -> HeldBackPartition | None:
    """Return how the partition waits if a copy of offsets that the source lost may be whole and cannot be read."""
    row = None if lost is None else unread_copy(metadata, partition, lost, is_whole)
    if row is None:
        return None
    segment = row.metadata
    detail = (
        f"offsets {segment.start_offset}..{segment.end_offset}, copy {segment.remote_log_segment_id.id}: make its"
        " objects readable, or correct the store; if they are lost for good, move what is left of them out of it"
    )
    return HeldBackPartition(partition, segment.start_offset, HeldBack.COPY_IN_DOUBT, detail)


def _may_copy(replica: Replica, metadata: RemoteLogMetadata, registry: TopicRegistry) -> bool:
    partition = replica.topic_id_partition
    owner = owner_seen(replica, registry.owner(partition.topic_id))
    return owner is TopicOwner.PLATFORM and metadata.is_ready(partition)


def _new(
    replica: Replica,
    pending: Sequence[LogSegment],
    highest: int | None,
    metadata: RemoteLogMetadata,
    retentions: Mapping[str, TopicRetention],
    now_ms: int,
) -> tuple[list[PlannedSegment], list[HeldBackPartition]]:
    """Return the segments that are copied for the first time, and why other segments of the partition wait."""
    partition, leading = replica.topic_id_partition, leading_eligible(pending)
    past_retention = past_retention_segments(replica, leading, highest, metadata, retentions, now_ms)
    waits = [_past_retention(partition, past_retention)] if past_retention else []
    if len(leading) < len(pending):
        rest = pending[len(leading) :]
        compacted = compacted_away(replica, rest, highest, metadata, is_next=False)
        waits.append(compacted or _not_eligible(partition, rest[0]))
    return [_planned(segment) for segment in leading[len(past_retention) :]], waits


def _refusal(
    replica: Replica,
    first: LogSegment,
    pending: Sequence[LogSegment],
    highest: int | None,
    metadata: RemoteLogMetadata,
    registry: TopicRegistry,
    replaced: Sequence[FailedCopy],
) -> HeldBackPartition | None:
    partition = replica.topic_id_partition
    next_offset = first.base_offset if highest is None else highest + 1
    if not metadata.is_ready(partition):
        return HeldBackPartition(partition, next_offset, HeldBack.NOT_READY, "./tiering ready")
    compacted = compacted_away(replica, pending, highest, metadata, is_next=True)
    is_delayed = first.reason is IneligibleReason.COPY_DELAYED
    if not first.eligible and not first.active and compacted is None and not is_delayed:
        return _not_eligible(partition, first)
    owner = owner_seen(replica, registry.owner(partition.topic_id))
    if owner is not TopicOwner.PLATFORM and not (compacted is not None and owner is TopicOwner.NONE):
        return HeldBackPartition(partition, next_offset, HeldBack.NOT_OURS, f"owner: {owner}")
    stopped = None if replaced else metadata.stopped_reason(partition)
    if stopped is not None:
        return HeldBackPartition(partition, next_offset, HeldBack.STOPPED, stopped)
    gone = undecided_offsets(partition, next_offset, first.base_offset, metadata)
    if gone is not None:
        detail = f"offsets {gone} are no longer in the source; {next_action(partition, gone.first, metadata)}"
        return HeldBackPartition(partition, gone.first, HeldBack.HOLE, detail, gone)
    return compacted


def _not_eligible(partition: TopicIdPartition, segment: LogSegment) -> HeldBackPartition:
    reason = HeldBack.DAMAGED if segment.reason in WAITING_CANNOT_HELP else HeldBack.NOT_ELIGIBLE
    return HeldBackPartition(partition, segment.base_offset, reason, str(segment.reason), ineligible=segment.reason)


def _past_retention(partition: TopicIdPartition, past_retention: Sequence[DeletionDecision]) -> HeldBackPartition:
    first, last = past_retention[0].segment, past_retention[-1]
    size = format_bytes(sum(planned_segment.segment.segment_size_bytes for planned_segment in past_retention))
    offsets = f"{first.start_offset}..{last.segment.end_offset}"
    detail = f"offsets {offsets}, {len(past_retention)} segments, {size}; the last one by {last.text}"
    return HeldBackPartition(partition, first.start_offset, HeldBack.PAST_RETENTION, detail)


def _within_limit(
    wanted: Sequence[PlannedPartition], limit_bytes: int | None
) -> tuple[tuple[PlannedPartition, ...], list[HeldBackPartition]]:
    if limit_bytes is None:
        return tuple(wanted), []
    within: list[PlannedPartition] = []
    beyond: list[HeldBackPartition] = []
    left_bytes = limit_bytes
    for partition in wanted:
        taken: list[PlannedSegment] = []
        for segment in partition.segments:
            if segment.size_bytes > left_bytes and (taken or within):
                break
            taken.append(segment)
            left_bytes -= segment.size_bytes
        if taken:
            within.append(replace(partition, segments=tuple(taken)))
        else:
            next_offset = partition.segments[0].base_offset
            tp = partition.replica_id.topic_id_partition
            beyond.append(HeldBackPartition(tp, next_offset, HeldBack.BYTE_LIMIT, f"limit {limit_bytes} bytes"))
    return tuple(within), beyond


def _planned(segment: LogSegment) -> PlannedSegment:
    return PlannedSegment(segment.base_offset, segment.end_offset, segment.size_bytes)


class CopyPlanner:
    """Plans copies from a scan of the log directories, or of the leaders. Nothing is stored.

    `now_ms` reads the database's clock.
    """

    def __init__(
        self,
        *,
        source: Callable[[], LogSource],
        storage: Callable[[], RemoteStorage],
        quotas: Callable[[], Quotas],
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        failed_copies: FailedCopies,
        cluster_metadata: Callable[[], ClusterMetadata],
        log_dirs: ClusterLogDirs,
        names: TopicLifecycle,
        configs: EffectiveConfigs,
        now_ms: Callable[[], int],
    ) -> None:
        self._source = source
        self._storage = storage
        self._quotas = quotas
        self._metadata = metadata
        self._registry = registry
        self._failed_copies = failed_copies
        self._cluster_metadata = cluster_metadata
        self._log_dirs = log_dirs
        self._names = names
        self._configs = configs
        self._now_ms = now_ms

    def plan(
        self,
        report: ScanReport,
        run_id: str,
        scope: RunScope,
        *,
        failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] | None = None,
        limit_bytes: int | None = None,
        at_once: bool = False,
    ) -> CopyPlan:
        """Return what a copy run would copy now, and what would wait.

        Args:
            report: the scan of `scope`.
            run_id: of the run that the plan belongs to.
            scope: which partitions the copy takes.
            failed: failed copies by partition; read from the database if None.
            limit_bytes: upper limit for the planned `.log` bytes (a larger first segment is planned alone); None for
                no limit.
            at_once: whether segments are planned, too, whose copy their topic delays.
        """
        if failed is None:
            failed = by_partition(self._failed_copies.all())
        witness = StoreWitness(self._metadata, self._storage)
        whole = cache(lambda: whole_or_unknown(WholeCopy(self._storage(), self._quotas()), witness))
        return plan_copy(
            run_id,
            self.marked(report, failed, at_once=at_once),
            metadata=self._metadata,
            registry=self._registry,
            cluster_metadata=self._cluster_metadata(),
            now_ms=self._now_ms(),
            scope=scope,
            limit_bytes=limit_bytes,
            placements=self._log_dirs.placements(),
            retentions=self._names.retentions_of_copies(report),
            failed=failed,
            max_new_copies=self._configs.settings().superseded.max_copies,
            doubt=witness.doubt_or_error,
            is_whole=lambda row: whole()(row),
        )

    def marked(
        self,
        report: ScanReport,
        failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] = NOTHING_FAILED,
        *,
        at_once: bool = False,
    ) -> ScanReport:
        """Return the report with more segments marked as ineligible: compacted ones, and those whose copy is delayed.

        See `with_compacted`, and `with_delayed`, which is left out if `at_once`.
        """
        found = with_compacted(report, self._metadata, self._source().leading_compacted, failed)
        if at_once:
            return found
        highest = self._metadata.highest_copied_offset
        return with_delayed(found, self._configs.copy_lags(), self._cluster_metadata(), highest, self._now_ms)
