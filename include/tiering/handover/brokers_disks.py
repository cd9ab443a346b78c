"""What is on the disks of a topic's brokers: local segments, bytes of followers, free space, and how fast logs grow.

It is read from log directories where the settings name those of the broker, and otherwise told by the brokers.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from include.tiering.errors import BrokersError, BrokersForbiddenError
from include.tiering.handover.checks import BrokerDiskSpace
from include.tiering.handover.ports import PlatformActions
from include.tiering.handover.rules import local_bytes
from include.tiering.kafka.cluster.contract import Brokers, PartitionMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica
from include.tiering.model.segments import TopicIdPartition

_RATE_SEGMENTS: Final = 10


def disk_space(actions: PlatformActions, broker_id: int) -> BrokerDiskSpace:
    """Return the free space of a broker, or why it is not known."""
    try:
        return BrokerDiskSpace(broker_id, actions.free_bytes(broker_id))
    except BrokersError as error:
        return BrokerDiskSpace(broker_id, None, str(error), isinstance(error, BrokersForbiddenError))


def follower_bytes(
    brokers: Brokers, partitions: Sequence[TopicIdPartition], known: Sequence[PartitionMetadata]
) -> dict[int, dict[int, int | None]]:
    """Return the bytes of the replicas that do not lead, by partition and broker; None if a broker does not tell.

    Args:
        brokers: of the cluster.
        partitions: of one topic.
        known: the metadata of each of them, in the same order.
    """
    found: dict[int, dict[int, int | None]] = {}
    followed: dict[int, list[TopicIdPartition]] = {}
    for partition, metadata in zip(partitions, known, strict=True):
        for broker_id in set(metadata.replicas) - {metadata.leader}:
            followed.setdefault(broker_id, []).append(partition)
    for broker_id, of_broker in sorted(followed.items()):
        sizes: Mapping[TopicIdPartition, int] = {}
        with suppress(BrokersError):
            sizes = brokers.log_sizes(dict.fromkeys(of_broker, broker_id))
        for partition in of_broker:
            found.setdefault(partition.partition, {})[broker_id] = sizes.get(partition)
    return found


def rate_of_cuts(local: Sequence[LogSegment], now_ms: int) -> float | None:
    """Return the rate of a log that is read over the network; None if not even one segment of it is known."""
    return bytes_per_second(local, now_ms) if len(local) > 1 else None


def local_segments(replica: Replica, earliest_local: int) -> list[LogSegment]:
    """Return the segments on the leader's disk, in the order of offsets.

    A leader that is read over the network tells the size of its log, and not where its segments end. So what it has
    above the last cut counts as the active segment.

    Args:
        replica: the leader's.
        earliest_local: the first offset on its disk, inclusive.
    """
    local = [segment for segment in replica.segments if segment.active or segment.end_offset >= earliest_local]
    if replica.found_to is None or replica.log_bytes is None:
        return local
    more_bytes = max(0, replica.log_bytes - local_bytes(local))
    if local and local[-1].active:
        return [*local[:-1], replace(local[-1], size_bytes=local[-1].size_bytes + more_bytes)]
    is_one_segment = replica.segment_bytes is not None and replica.log_bytes < replica.segment_bytes
    base = earliest_local if is_one_segment or local else replica.high_watermark
    base = max([base, *(segment.end_offset + 1 for segment in local)])
    end = max(base, replica.high_watermark) - 1
    unread = LogSegment(base, end, more_bytes, -1, replica.leader_epochs, active=True, reason=IneligibleReason.ACTIVE)
    return [*local, unread]


def bytes_per_second(segments: Sequence[LogSegment], now_ms: int) -> float:
    """Return the rate at which producers append to a log.

    Of the last ten segments, the first one that has a timestamp is the reference. The rate is the bytes of the segments
    after it, divided by the time from its largest timestamp until now. So the longer nothing follows a burst, the less
    the burst counts.

    Args:
        segments: all segments in the order of offsets, the active one included.
        now_ms: the present time. If a producer's clock was ahead, the largest timestamp of the ten is used instead.

    Returns:
        Bytes per second; 0 without timestamps, if no segment follows the reference, or if that time is 0.
    """
    last = segments[-_RATE_SEGMENTS:]
    dated = [number for number, segment in enumerate(last) if segment.max_timestamp_ms >= 0]
    if not dated or dated[0] == len(last) - 1:
        return 0.0
    first = dated[0]
    end_ms = max(now_ms, *(last[number].max_timestamp_ms for number in dated))
    span_ms = end_ms - last[first].max_timestamp_ms
    return sum(segment.size_bytes for segment in last[first + 1 :]) * 1000 / span_ms if span_ms > 0 else 0.0
