"""What a retention decision rests on, and what it says. How it is made: `expiration.rules`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

ABANDONED_COPY_EXPIRY_MS: Final = 24 * 60 * 60 * 1000
SUPERSEDED_HOLD_MS: Final = 24 * 60 * 60 * 1000
_NOT_NEGATIVE: Final = (
    "retention_ms",
    "retention_bytes",
    "local_only_bytes",
    "abandoned_copy_expiry_ms",
    "superseded_hold_ms",
)


class DeletionReason(StrEnum):
    """Why a segment goes."""

    TIME = "time"
    SIZE = "size"
    LOG_START = "log start"
    UNREFERENCED_LEADER_EPOCH = "unreferenced leader epoch"
    UNFINISHED_DELETE = "unfinished delete"
    ABANDONED_COPY = "abandoned copy"
    TOPIC_DELETED = "topic deleted"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class RetentionInput:
    """All that a decision about one partition rests on.

    Attributes:
        segments: in any state; tombstones are passed over.
        lineage: the merged leader epoch history, from the beginning; see `leader_epochs`.
        log_start_offset: inclusive, ours.
        now_ms: the database's clock.
        log_end_offset: exclusive. None, if it is not known or if the broker's log may be gone: then nothing is foreign
            because of it.
        local_only_bytes: bytes in a broker's log dir that are not remote, the active segment included, each once.
            None counts as 0, which deletes less, and is named.
        retention_ms, retention_bytes: 0 and above; None keeps for ever.
        abandoned_copy_expiry_ms: since the last event of a copy that nobody works on.
        under_live_work: attempts that a live lease works on: never named; a copy among them stops the scan, until the
            log start has passed it.
        topic_deleted: it was decided that the remote data of this deleted topic goes.
        superseded_at_ms: when a new copy took the place of a failed segment, of those whose deletion waits for that.
        superseded_hold_ms: so long their objects are kept, whatever else would let them go.
        left: segments of a history that a decision left: outside the lineage, though their leader epochs may be in it
            again.

    Raises:
        ValueError: a negative limit, or a segment of another partition.
    """

    topic_id_partition: TopicIdPartition
    segments: tuple[RemoteLogSegmentMetadata, ...]
    lineage: LeaderEpochs
    log_start_offset: int
    now_ms: int
    log_end_offset: int | None = None
    local_only_bytes: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    abandoned_copy_expiry_ms: int = ABANDONED_COPY_EXPIRY_MS
    under_live_work: frozenset[RemoteLogSegmentId] = frozenset()
    topic_deleted: bool = False
    superseded_at_ms: Mapping[RemoteLogSegmentId, int] = field(default_factory=dict)
    superseded_hold_ms: int = SUPERSEDED_HOLD_MS
    left: frozenset[RemoteLogSegmentId] = frozenset()

    def __post_init__(self) -> None:
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{self.topic_id_partition}: {name} is {value}: 0 or above, or None")
        for segment in self.segments:
            if segment.topic_id_partition != self.topic_id_partition:
                raise ValueError(f"{segment.remote_log_segment_id} is not a segment of {self.topic_id_partition}")


class Measured(NamedTuple):
    """One number behind a decision; the name carries the unit."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class DeletionDecision:
    """One segment that goes. `numbers` explain it to a person; they change with the clock and identify no plan."""

    segment: RemoteLogSegmentMetadata
    reason: DeletionReason
    numbers: tuple[Measured, ...]

    @property
    def text(self) -> str:
        """`size: excess_bytes 5000, size_bytes 1000`"""
        return f"{self.reason}: {', '.join(f'{name} {value}' for name, value in self.numbers)}"


@dataclass(frozen=True, slots=True)
class RetentionOutcome:
    """What is to be done, in order: the log start is recorded first, then the segments go one by one.

    `log_start_offset` (inclusive) is never below the given one. `unknowns` are sentences about what could not be known
    and made the decision delete less. `held` are superseded segments whose objects are kept for now.
    """

    decisions: tuple[DeletionDecision, ...]
    log_start_offset: int
    unknowns: tuple[str, ...] = ()
    held: tuple[RemoteLogSegmentMetadata, ...] = ()
