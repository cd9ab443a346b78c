"""Delete the beginning of a partition by decision.

`plan_truncation` shows the effect, `truncate` raises the archive's log start, and the next plan of expiration names the
segments below it.
"""

from dataclasses import dataclass, replace

from include.tiering.errors import SettingError
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry


@dataclass(frozen=True, slots=True)
class Truncation:
    """A raised log start. `segments` and `size_bytes` count FINISHED segments wholly below the new log start."""

    topic_id_partition: TopicIdPartition
    log_start_before: int
    log_start_offset: int
    segments: int
    size_bytes: int


def plan_truncation(
    partition: TopicIdPartition, before_offset: int, *, metadata: RemoteLogMetadata, registry: TopicRegistry
) -> Truncation:
    """Return the effect of raising the log start to `before_offset`, the first offset that stays. Changes nothing.

    An offset below the log start counts as the log start, which is never lowered.

    Raises:
        SettingError: the topic is not the platform's, or the offset is above the archive's end.
    """
    owner = registry.owner(partition.topic_id)
    if owner is not TopicOwner.PLATFORM:
        raise SettingError(
            f"{partition}: the topic's owner is {owner}, and only topics of the platform are truncated here: for a"
            " topic of brokers use kafka-delete-records"
        )
    highest = metadata.highest_copied_offset(partition)
    end_offset = 0 if highest is None else highest + 1
    if before_offset > end_offset:
        raise SettingError(f"{partition}: offset {before_offset} is beyond what is archived: at most {end_offset}")
    log_start = metadata.retention_state(partition).log_start_offset
    offset = max(log_start, before_offset)
    below = [
        row.metadata.segment_size_bytes
        for row in metadata.list_segments(partition)
        if row.metadata.is_finished and row.metadata.end_offset < offset
    ]
    return Truncation(partition, log_start, offset, len(below), sum(below))


def truncate(planned: Truncation, *, metadata: RemoteLogMetadata, author: str) -> Truncation:
    """Raise the log start, with an event if that changes it; nothing is deleted yet."""
    held = metadata.raise_log_start(
        planned.topic_id_partition, planned.log_start_offset, reason="delete-records", author=author
    )
    return replace(planned, log_start_offset=held)
