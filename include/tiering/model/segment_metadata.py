"""What Kafka's remote log metadata says of one remote log segment."""

from dataclasses import dataclass, replace
from itertools import pairwise

from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segment_state import RemoteLogSegmentState, is_legal_transition


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """One copy attempt of one rolled segment.

    Offsets are inclusive. `segment_leader_epochs` is the history clipped to [start_offset, end_offset]; its first
    entry is at `start_offset`, or at the log start that lay within the segment. `max_timestamp_ms` is the largest
    record timestamp, -1 if no record has one. `segment_size_bytes` counts the `.log` alone, as Kafka does.

    Raises:
        ValueError: a value that Kafka's own decoder would refuse (and stop over).
    """

    remote_log_segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    segment_leader_epochs: LeaderEpochs
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False

    def __post_init__(self) -> None:
        if self.start_offset < 0 or self.end_offset < self.start_offset:
            raise ValueError(f"offsets {self.start_offset}..{self.end_offset} are not a range")
        if not 0 <= self.segment_size_bytes < 2**31:
            raise ValueError(f"segment size {self.segment_size_bytes} is outside 0..2^31-1")
        if not self.segment_leader_epochs.entries:
            raise ValueError("a remote log segment has at least one leader epoch")
        if self.segment_leader_epochs.entries[-1].start_offset > self.end_offset:
            raise ValueError(f"leader epochs {list(self.segment_leader_epochs)} start after end {self.end_offset}")

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.remote_log_segment_id.topic_id_partition

    @property
    def is_finished(self) -> bool:
        return self.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED

    def end_offset_of_epoch(self, epoch: int) -> int | None:
        """Last offset (inclusive) of `epoch` inside this segment, or None if it has no such epoch."""
        for entry, after in pairwise(self.segment_leader_epochs):
            if entry.epoch == epoch:
                return after.start_offset - 1
        return self.end_offset if self.segment_leader_epochs.entries[-1].epoch == epoch else None

    def with_update(self, update: "RemoteLogSegmentMetadataUpdate") -> "RemoteLogSegmentMetadata":
        """Replaces broker id, event time, custom metadata (also to absent) and state; nothing else ever changes.

        Raises:
            ValueError: another id, or a transition that the state machine does not have.
        """
        if update.remote_log_segment_id != self.remote_log_segment_id:
            raise ValueError(f"update of {update.remote_log_segment_id} applied to {self.remote_log_segment_id}")
        if not is_legal_transition(self.state, update.state):
            raise ValueError(f"{self.remote_log_segment_id}: {self.state.name} may not become {update.state.name}")
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
            state=update.state,
        )


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """The next state of one segment."""

    remote_log_segment_id: RemoteLogSegmentId
    state: RemoteLogSegmentState
    event_timestamp_ms: int
    broker_id: int
    custom_metadata: bytes | None = None
