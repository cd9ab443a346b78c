"""A remote log segment (KIP-405): its state, the verdict on it, and what Kafka's remote log metadata says of it.

    (none) --> COPY_SEGMENT_STARTED --> COPY_SEGMENT_FINISHED
                        |                        |
                        +----------+-------------+
                                   v
                        DELETE_SEGMENT_STARTED --> DELETE_SEGMENT_FINISHED

The end of a whole partition, which no broker writes and every broker reads:

    (none) --> DELETE_PARTITION_MARKED --> DELETE_PARTITION_STARTED --> DELETE_PARTITION_FINISHED

Staying in a state is legal, so a repeated request is harmless. A verdict is separate from the state.
"""

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from itertools import pairwise

from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.leader_epochs import LeaderEpochs


class RemoteLogSegmentState(IntEnum):
    """The value is the id on Kafka's wire."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    def may_become(self, target: "RemoteLogSegmentState") -> bool:
        return target is self or target in _EDGES[self]


_EDGES = {
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: {
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
    },
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED: {RemoteLogSegmentState.DELETE_SEGMENT_STARTED},
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: {RemoteLogSegmentState.DELETE_SEGMENT_FINISHED},
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: set(),
}


def is_legal_transition(source: RemoteLogSegmentState | None, target: RemoteLogSegmentState) -> bool:
    """`source` None means an id that was never seen: only COPY_SEGMENT_STARTED may follow."""
    if source is None:
        return target is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    return source.may_become(target)


class RemotePartitionDeleteState(IntEnum):
    """The value is the id on Kafka's wire."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


class Verdict(StrEnum):
    """Served: FINISHED and (passed or expired). Counted as safe and published: FINISHED and passed only."""

    NONE = "none"
    PASSED = "passed"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def is_served(self) -> bool:
        return self in (Verdict.PASSED, Verdict.EXPIRED)

    @property
    def is_safe(self) -> bool:
        return self is Verdict.PASSED


@dataclass(frozen=True, slots=True)
class VerdictTotal:
    """FINISHED segments with one verdict. `oldest_age_ms` is the time since the oldest of them was given.

    None: there is no segment, or the verdict is NONE, which nobody gave.
    """

    verdict: Verdict
    segments: int
    size_bytes: int
    oldest_age_ms: int | None


class Depth(StrEnum):
    """Both ask the store for every object's length and checksum, and read manifest and indexes back whole.

    SHALLOW reads a range at the start and one at the end of the log besides, a few KiB: it finds what is missing, cut
    off, exchanged or misdescribed. DEEP reads every byte of the log once, paced by the fetch quota: it finds each batch
    that is damaged or out of its place, and each index entry that does not point where it says.
    """

    SHALLOW = "shallow"
    DEEP = "deep"


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
