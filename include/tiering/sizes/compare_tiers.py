"""What the log dirs hold beside what is remote: work that waits for a copy, and bytes that are in both.

Both follow from a scan and from the rows alone, not from what copies report: they are as true while every copy fails,
and while none runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from include.tiering.configs.config_store import TopicRetention
from include.tiering.copying.next_segments import left_out, next_segments
from include.tiering.copying.plan_copy import KEPT, leading_eligible
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanError, ScanReport
from include.tiering.model.histories import not_skipped
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.sizes import PartitionLag
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.topics import owner_seen

_NEVER_COPIED: Final = frozenset(
    {
        IneligibleReason.INTERNAL_TOPIC,
        IneligibleReason.COMPACTED,
        IneligibleReason.BROKER_TIERED,
        IneligibleReason.TOPIC_REMOVED,
        IneligibleReason.BEING_DELETED,
        IneligibleReason.BELOW_LOG_START,
        IneligibleReason.PAST_RETENTION,
    }
)
"""Segments that wait for nothing: they will be deleted, or stay, without a copy."""

NOTHING_OUT_OF_SIGHT: Final[Mapping[TopicIdPartition, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DuplicateBytes:
    """Bytes of rolled segments that the replica which copies read still has, and that are remote as well."""

    topic_id_partition: TopicIdPartition
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TierComparison:
    """Every partition that this platform copies, waiting or not. What is named in `errors` is in neither list.

    `out_of_sight`: partitions of which no copy can read a replica, with where it may be; how much waits is not known.
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
    """As Kafka's RemoteCopyLagBytes and -Segments, all rolled segments that are not remote yet count as lag, whether a
    copy may take them now or must wait (for the last stable offset, say). Not what a first copy leaves out by what
    `retentions` sets on topics, by name."""
    lags, duplicates = [], []
    for replica in report.replicas:
        owner = owner_seen(replica, registry.owner(replica.topic_id_partition.topic_id))
        if not replica.chosen or owner is not TopicOwner.PLATFORM:
            continue
        highest = metadata.highest_copied_offset(replica.topic_id_partition)
        rolled = next_segments(replica, highest, metadata)
        doomed = left_out(replica, leading_eligible(rolled), highest, metadata, retentions, now_ms)
        lags.append(_lag(replica.topic_id_partition, rolled[len(doomed) :], now_ms))
        duplicates.append(DuplicateBytes(replica.topic_id_partition, _duplicate_bytes(replica, highest, metadata)))
    return TierComparison(tuple(lags), tuple(duplicates), report.errors, out_of_sight)


def _lag(partition: TopicIdPartition, rolled: Sequence[LogSegment], now_ms: int) -> PartitionLag:
    waiting = [segment for segment in rolled if segment.reason not in _NEVER_COPIED]
    size_bytes = sum(segment.size_bytes for segment in waiting)
    return PartitionLag(partition, size_bytes, len(waiting), _seconds(waiting, now_ms))


def _seconds(waiting: Sequence[LogSegment], now_ms: int) -> float:
    """Age of the segment that has waited longest; 0 if it has no timestamp, or one in the future."""
    if not waiting or waiting[0].max_timestamp_ms < 0:
        return 0.0
    return max(0, now_ms - waiting[0].max_timestamp_ms) / 1000


def _duplicate_bytes(replica: Replica, highest_copied: int | None, metadata: RemoteLogMetadata) -> int:
    """Copies begin at the log start and leave no gap, so all between our log start and the highest copied offset is
    remote, but for what somebody decided to go on without."""
    if highest_copied is None:
        return 0
    log_start = metadata.partition_truth(replica.topic_id_partition).log_start_offset
    both = [s for s in replica.segments if not s.active and log_start <= s.end_offset <= highest_copied]
    decisions = metadata.skipped_offsets(replica.topic_id_partition) if both else ()
    return sum(one.size_bytes for one in both if not_skipped(one.base_offset, one.end_offset, decisions))
