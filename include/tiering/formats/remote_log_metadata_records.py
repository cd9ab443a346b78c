"""The values of the four records of `__remote_log_metadata`, as they are on the wire.

They hold what Kafka's decoder takes, which is more than the model takes: a name that no topic may have, a partition
below 0, epochs in any order and more than once. Tagged fields that nobody knows are kept, in their order.
"""

from dataclasses import dataclass

from include.tiering.formats.flexible import Tags
from include.tiering.model.ids import Uuid
from include.tiering.model.segment_metadata import RemoteLogSegmentState, RemotePartitionDeleteState


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """A partition. Bytes of `topic` that are not UTF-8 are kept as lone surrogates (`surrogateescape`)."""

    topic: str
    topic_id: Uuid
    partition: int
    tags: Tags = ()


@dataclass(frozen=True, slots=True)
class SegmentIdEntry:
    """One copy attempt."""

    partition: PartitionEntry
    id: Uuid
    tags: Tags = ()


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """From `offset` (inclusive) on, the segment's records are of this leader epoch."""

    leader_epoch: int
    offset: int
    tags: Tags = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescription:
    """What is said of a segment as a whole. Offsets are inclusive.

    Raises:
        ValueError: no epoch.
    """

    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]
    size_bytes: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    txn_index_empty: bool = False
    tags: Tags = ()

    def __post_init__(self) -> None:
        if not self.epochs:
            raise ValueError("a segment without leader epochs")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord(SegmentDescription):
    """Api key 0: a segment.

    Raises:
        ValueError: offsets that are no range, or no epoch.
    """

    segment_id: SegmentIdEntry

    def __post_init__(self) -> None:
        SegmentDescription.__post_init__(self)
        if self.start_offset < 0:
            raise ValueError(f"start offset {self.start_offset} is negative")
        if self.end_offset < self.start_offset:
            raise ValueError(f"end offset {self.end_offset} is below start offset {self.start_offset}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSnapshotRecord(SegmentDescription):
    """Api key 3: a segment inside a snapshot of one partition, which is why it names none. Brokers take any offsets."""

    id: Uuid


@dataclass(frozen=True, slots=True)
class SegmentUpdateRecord:
    """Api key 1: the next state of a segment. `custom_metadata` replaces the former, None too."""

    segment_id: SegmentIdEntry
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    tags: Tags = ()


@dataclass(frozen=True, slots=True)
class PartitionDeleteRecord:
    """Api key 2: a whole partition is being deleted."""

    partition: PartitionEntry
    broker_id: int
    event_timestamp_ms: int
    state: RemotePartitionDeleteState
    tags: Tags = ()


RemoteLogRecord = SegmentRecord | SegmentUpdateRecord | PartitionDeleteRecord | SegmentSnapshotRecord
