"""The plan of a copy run: what is to be copied, and what waits and why."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from include.tiering.copying.copy_fork import Fork
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ScanError
from include.tiering.model.histories import Divergence, OffsetRange
from include.tiering.model.ids import TopicIdPartition
from include.tiering.runs.contract import PlannedPartition
from include.tiering.segments.failed_copies import Loss

WAITING_CANNOT_HELP: Final = frozenset(
    {
        IneligibleReason.AMBIGUOUS_REPLICA,
        IneligibleReason.OLD_MAGIC,
        IneligibleReason.NO_LEADER_EPOCH,
        IneligibleReason.NO_PRODUCER_SNAPSHOT,
        IneligibleReason.CORRUPT,
        IneligibleReason.AFTER_CORRUPT,
        IneligibleReason.COMPACTED_SEGMENT,
    }
)


class HeldBack(StrEnum):
    """Why something of a partition is not in this plan."""

    NOT_READY = "its metadata is not complete"
    OUT_OF_SIGHT = "its leader's replica is not found in a readable log directory"
    STOPPED = "stopped by a failed segment"
    LOST = "a failed segment cannot be copied anew: its offsets are lost until somebody decides"
    FAILED_AGAIN = "the new copy of a failed segment failed as well"
    STORE_IN_DOUBT = "a failed segment is missing, and so is one that passed: the store is not what it seems to be"
    HOLE = "offsets are gone from the source: a hole must be recorded by decision first"
    FORK = "the source's history is another one than that of what was copied"
    BYTE_LIMIT = "beyond the byte limit of this run"
    NOT_ELIGIBLE = "next segment is not eligible"
    DAMAGED = "next segment cannot be copied as it is"
    COMPACTED = "compacted away before it was copied: to go on behind it is a decision"
    NOT_OURS = "another owner copies this topic"
    PAST_RETENTION = "past our retention: the copy begins behind it"


NEEDS_A_PERSON: Final = frozenset(
    {
        HeldBack.OUT_OF_SIGHT,
        HeldBack.STOPPED,
        HeldBack.LOST,
        HeldBack.FAILED_AGAIN,
        HeldBack.STORE_IN_DOUBT,
        HeldBack.HOLE,
        HeldBack.FORK,
        HeldBack.DAMAGED,
        HeldBack.COMPACTED,
    }
)
"""Reasons for waiting that do not go away by themselves."""


@dataclass(frozen=True, slots=True)
class HeldBackPartition:
    """A partition that waits, at once or behind what is planned of it.

    `next_offset` is the first offset (inclusive) that this plan does not copy; `detail` says why, in words. `hole` is
    what the source has no longer, or not as it was, and nobody has decided about, `lost` are failed segments that no
    new copy replaces.
    `fork` is a divergence as this plan sees it, `undecided` the one that is recorded; `follow_from` is from where on
    the source can be followed, None while it is behind.
    """

    topic_id_partition: TopicIdPartition
    next_offset: int
    reason: HeldBack
    detail: str
    hole: OffsetRange | None = None
    lost: tuple[Loss, ...] = ()
    fork: Fork | None = None
    undecided: Divergence | None = None
    follow_from: int | None = None

    @property
    def needs_a_person(self) -> bool:
        return self.reason in NEEDS_A_PERSON


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Most urgent partition first. `errors` are the items of the source that could not be read, `notes` those of them
    that no copy needs."""

    run_id: str
    partitions: tuple[PlannedPartition, ...]
    held_back: tuple[HeldBackPartition, ...]
    errors: tuple[ScanError, ...]
    notes: tuple[ScanError, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)

    @property
    def segments(self) -> int:
        return sum(len(partition.segments) for partition in self.partitions)
