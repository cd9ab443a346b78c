"""Input and outcome of a retention decision, which `expiration.rules` makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

ABANDONED_COPY_EXPIRY_MS: Final = 24 * 60 * 60 * 1000
SUPERSEDED_HOLD_MS: Final = 24 * 60 * 60 * 1000
NO_EPOCH: Final = -1
_NOT_NEGATIVE: Final = (
    "retention_ms",
    "retention_bytes",
    "local_only_bytes",
    "abandoned_copy_expiry_ms",
    "superseded_hold_ms",
)


class DeletionReason(StrEnum):
    """Why a segment expires."""

    TIME = "time"
    SIZE = "size"
    LOG_START = "log start"
    UNREFERENCED_LEADER_EPOCH = "unreferenced leader epoch"
    UNFINISHED_DELETE = "unfinished delete"
    ABANDONED_COPY = "abandoned copy"
    TOPIC_DELETED = "topic deleted"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class RestOfLog:
    """The FINISHED segments of a partition that were not read for a decision: all of them begin above an offset.

    Attributes:
        after_offset: the offset: each of them begins above it.
        lowest_epoch: the lowest leader epoch that any of them has; `NO_EPOCH`: not known.
        size_bytes: the sum of the sizes of those that are within the lineage; 0 if the size of the log cannot matter.
        undated: how many of them have no timestamp.
        latest_timestamp_ms: their largest record timestamp if it is in the future; -1: it is not, or is not needed.
    """

    after_offset: int
    lowest_epoch: int
    size_bytes: int
    undated: int = 0
    latest_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class RetentionInput:
    """All input of a decision about one partition.

    Attributes:
        topic_id_partition: the partition.
        segments: segments in any state; tombstones are ignored.
        lineage: the archive's leader epoch history from its beginning, merged over time; see `leader_epochs`.
        log_start_offset: the log start offset of the archive, inclusive.
        now_ms: the present time by the database's clock.
        log_end_offset: exclusive. None if it is unknown or if the broker may have lost its log: then no segment is
            outside the lineage because of the log end.
        local_only_bytes: bytes in a broker's log directory that are not remote, including the active segment; each byte
            counts once. None counts as 0, so that fewer segments are deleted; if `retention_bytes` is set, `unknowns`
            of the outcome says so.
        retention_ms, retention_bytes: 0 or above; None: no limit.
        abandoned_copy_expiry_ms: an unfinished copy without a live lease is abandoned once its last event is this old.
        under_live_work: unfinished copies of a partition on which a batch has a live lease to copy: they never expire.
            The scan (step 3 in `expiration.rules`) visits segments by leader epoch and offset. It ends at the first of
            these copies that has a leader epoch of the lineage, even if that copy is below the log start: log start,
            time and size delete no segment after it.
        topic_deletion_due: whether the remote data of this deleted topic is due for deletion.
        superseded_at_ms: for each failed segment that a new copy replaced and that still has objects: when it was
            replaced.
        superseded_hold_ms: how long from then on these objects are kept, even if another rule would delete them.
        published: segments of which the brokers' metadata topic has records. They never expire, and the scan ends at
            the first of them, as it does at a segment under live work. Their bytes count in the total that is compared
            with `retention_bytes`.
        left: segments of a replaced history: a person decided to follow another history from an offset at or below
            their last offset. They count as outside the lineage, even if their leader epochs are in it again: neither
            time nor size deletes them, but the log start does.
        rest: what is known of the partition's other FINISHED segments; None: there are no others, `segments` has all.

    Raises:
        ValueError: a limit, an expiry, a hold or `local_only_bytes` is negative, or a segment is of another partition.
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
    topic_deletion_due: bool = False
    superseded_at_ms: Mapping[RemoteLogSegmentId, int] = field(default_factory=dict)
    superseded_hold_ms: int = SUPERSEDED_HOLD_MS
    left: frozenset[RemoteLogSegmentId] = frozenset()
    published: frozenset[RemoteLogSegmentId] = frozenset()
    rest: RestOfLog | None = None

    def __post_init__(self) -> None:
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{self.topic_id_partition}: {name} is {value}: 0 or above, or None")
        for segment in self.segments:
            if segment.topic_id_partition != self.topic_id_partition:
                raise ValueError(f"{segment.remote_log_segment_id} is not a segment of {self.topic_id_partition}")


class Measured(NamedTuple):
    """One number that explains a decision; its name includes the unit."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class DeletionDecision:
    """One segment that expires. `numbers` explain the decision to a person; they are no part of a plan's identity."""

    segment: RemoteLogSegmentMetadata
    reason: DeletionReason
    numbers: tuple[Measured, ...]

    @property
    def text(self) -> str:
        """A text such as `size: excess_bytes 5000, size_bytes 1000`."""
        return f"{self.reason}: {', '.join(f'{name} {value}' for name, value in self.numbers)}"


@dataclass(frozen=True, slots=True)
class RetentionOutcome:
    """Result of a decision, in order: the log start is raised first, then the segments are deleted.

    `log_start_offset` (inclusive) is never below that of the input. `unknowns` are sentences about unknown values and
    timestamps in the future, which may have made the decision delete less. `held` are superseded segments whose objects
    are kept for now. `is_conclusive` is False if the segments of `RetentionInput.rest` may change the result: then all
    other values of the outcome mean nothing, and more segments have to be read.
    """

    decisions: tuple[DeletionDecision, ...]
    log_start_offset: int
    unknowns: tuple[str, ...] = ()
    held: tuple[RemoteLogSegmentMetadata, ...] = ()
    is_conclusive: bool = True

    @property
    def by_size(self) -> bool:
        """Whether a segment expires because of the size of the log."""
        return any(decision.reason is DeletionReason.SIZE for decision in self.decisions)
