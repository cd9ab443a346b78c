"""Where the first copy of a partition begins: behind what the next run of expiration would delete at once.

A broker copies it all the same and deletes it minutes later. Here the head of a log that is past our retention is left
out, but only while nothing of the partition was ever copied: then the archive begins later, and whatever becomes of the
retention, nothing is missing in its middle. Behind something that was copied every segment is copied, past retention or
not, because a gap is never silent.

What would be deleted is asked of the decision itself, about segments as they would be once copied. Bytes behind what
can be copied now do not count: the tail of a log may be cut off, and without them more is kept.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from include.tiering.configs.config_store import FOR_EVER, TopicRetention
from include.tiering.expiration.rules import decide_deletions
from include.tiering.kafka.log_dirs.contract import LogSegment, Replica
from include.tiering.kafka.log_dirs.rules import counted_bytes
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.model.leader_epochs import merged
from include.tiering.model.retention import DeletionDecision, RetentionInput
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from include.tiering.segments.contract import RemoteLogMetadata

_UUID_BYTES: Final = 16


def left_out(
    replica: Replica,
    eligible: Sequence[LogSegment],
    highest_copied_offset: int | None,
    metadata: RemoteLogMetadata,
    retentions: Mapping[str, TopicRetention],
    now_ms: int,
) -> list[DeletionDecision]:
    """Decisions about the first segments of `eligible`, in order: these would go if all were copied now.

    Args:
        eligible: in offset order, without a gap, from the first that is not remote on.
        highest_copied_offset: None if nothing of the partition was ever copied; else nothing is left out.
        retentions: what is set on topics, by name.
        now_ms: the database's clock.
    """
    retention = retentions.get(replica.topic_id_partition.topic, FOR_EVER)
    if highest_copied_offset is not None or retention == FOR_EVER:
        return []
    truth = metadata.partition_truth(replica.topic_id_partition)
    possible = takewhile(lambda one: one.size_bytes <= counted_bytes(one, replica), eligible)
    committed = replica.leader_epochs.range(-1, replica.high_watermark)
    given = RetentionInput(
        topic_id_partition=replica.topic_id_partition,
        segments=tuple(_as_copied(replica.topic_id_partition, segment, now_ms) for segment in possible),
        lineage=merged(truth.leader_epochs, committed, replica.log_start_offset).history,
        log_start_offset=truth.log_start_offset,
        now_ms=now_ms,
        retention_ms=retention.retention_ms,
        retention_bytes=retention.retention_bytes,
    )
    doomed = {decision.segment.start_offset: decision for decision in decide_deletions(given).decisions}
    return [doomed[one.base_offset] for one in takewhile(lambda one: one.base_offset in doomed, eligible)]


def _as_copied(partition: TopicIdPartition, segment: LogSegment, now_ms: int) -> RemoteLogSegmentMetadata:
    """FINISHED just now; the id only tells segments of this decision apart."""
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
