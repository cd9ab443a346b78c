"""What a plan of expiration says: what goes, what waits and why, what is held, and what could not be known."""

from dataclasses import dataclass
from enum import StrEnum

from include.tiering.model.ids import TopicIdPartition
from include.tiering.runs.deletion_contract import PlannedExpiration, plan_hash


@dataclass(frozen=True, slots=True)
class Unknown:
    """What could not be known of a partition and made the plan delete less."""

    topic_id_partition: TopicIdPartition
    sentence: str


class Waits(StrEnum):
    """Why segments of a partition do not expire although they might."""

    NOT_READY = "its metadata is not complete"
    NOT_OURS = "another owner expires this topic"
    STOPPED = "stopped by a failed segment: time and size wait"
    NAME_TAKEN = "its name is another topic's, or may be: retention set on the name is not about it"
    TOPIC_DELETED = "its topic was deleted: what is archived stays for now"


@dataclass(frozen=True, slots=True)
class WaitingPartition:
    """A partition of which this plan expires nothing, or less than it might. `detail` is for a person."""

    topic_id_partition: TopicIdPartition
    reason: Waits
    detail: str


@dataclass(frozen=True, slots=True)
class HeldSegments:
    """Failed segments whose place new copies took, and whose objects are kept as evidence until the last of them goes,
    at `until_ms` by the database's clock."""

    topic_id_partition: TopicIdPartition
    segments: int
    size_bytes: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ExpirationPlan:
    """Partitions of which something goes, by topic and partition. `plan_hash` identifies what the plan does."""

    run_id: str
    expirations: tuple[PlannedExpiration, ...]
    unknowns: tuple[Unknown, ...]
    waiting: tuple[WaitingPartition, ...] = ()
    held: tuple[HeldSegments, ...] = ()

    @property
    def plan_hash(self) -> str:
        return plan_hash(self.expirations)

    @property
    def segments(self) -> int:
        return sum(len(planned.deletions) for planned in self.expirations)

    @property
    def size_bytes(self) -> int:
        return sum(deletion.size_bytes for planned in self.expirations for deletion in planned.deletions)
