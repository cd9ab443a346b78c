"""Why a run left planned segments uncopied: each partition with one reason, or none that anything shows. Pure.

That another batch holds a partition is normal where two runs work at once. Work that is left though nothing holds it,
pauses it, throttles it or stopped it is a finding: it would be left by the next run as well, and nothing would say so.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from include.tiering.errors import QuotaExceededError
from include.tiering.model.ids import TopicIdPartition
from include.tiering.runs.contract import ALL_TOPICS, LeaseHolder, SegmentOutcome, WorkItem
from include.tiering.units import format_utc


class LeftBecause(StrEnum):
    """Why planned segments of a partition were left."""

    FAILED = "behind a segment that failed"
    THROTTLED = "throttled by topic quota"
    COPIED = "another run has copied them meanwhile"
    HELD = "another batch holds the partition"
    PAUSED = "paused"
    ENDED = "the run ended before them"
    UNKNOWN = "nothing says why: no batch holds the partition, and it is neither paused nor throttled"


@dataclass(frozen=True, slots=True)
class LeftPartition:
    """Planned segments of one partition that have no outcome. `detail` is for a person."""

    topic_id_partition: TopicIdPartition
    segments: int
    size_bytes: int
    reason: LeftBecause
    detail: str = ""

    @property
    def is_explained(self) -> bool:
        return self.reason is not LeftBecause.UNKNOWN

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


def left_work(
    items: Iterable[WorkItem],
    *,
    holder: Callable[[TopicIdPartition], LeaseHolder | None],
    highest_copied: Callable[[TopicIdPartition], int | None],
    paused: Collection[str],
    ended_early: bool,
) -> tuple[LeftPartition, ...]:
    """Of every planned segment of a run with its outcome, those that have none, by partition.

    Args:
        holder: who has a live lease to copy a partition now.
        highest_copied: `RemoteLogMetadata.highest_copied_offset`.
        paused: names of paused topics, or `ALL_TOPICS`.
        ended_early: its batches ended for another reason than that no work was left.
    """
    by_partition: dict[TopicIdPartition, list[WorkItem]] = {}
    for item in items:
        by_partition.setdefault(item.topic_id_partition, []).append(item)
    left = []
    for partition, planned in by_partition.items():
        waiting = [item for item in planned if item.outcome is SegmentOutcome.PLANNED]
        if not waiting:
            continue
        reason, detail = _reason(partition, planned, waiting, holder, highest_copied, paused, ended_early)
        size_bytes = sum(item.segment.size_bytes for item in waiting)
        left.append(LeftPartition(partition, len(waiting), size_bytes, reason, detail))
    return tuple(left)


def _reason(
    partition: TopicIdPartition,
    planned: Sequence[WorkItem],
    waiting: Sequence[WorkItem],
    holder: Callable[[TopicIdPartition], LeaseHolder | None],
    highest_copied: Callable[[TopicIdPartition], int | None],
    paused: Collection[str],
    ended_early: bool,
) -> tuple[LeftBecause, str]:
    if any(item.outcome is SegmentOutcome.FAILED for item in planned):
        return LeftBecause.FAILED, ""
    noted = next((item for item in waiting if item.error is not None), None)
    if noted is not None:
        is_throttled = noted.error == QuotaExceededError.__name__
        return LeftBecause.THROTTLED if is_throttled else LeftBecause.FAILED, noted.message or ""
    highest = highest_copied(partition)
    if highest is not None and all(_is_copied(item, highest) for item in waiting):
        return LeftBecause.COPIED, ""
    held_by = holder(partition)
    if held_by is not None:
        until = format_utc(held_by.expires_at_ms)
        return LeftBecause.HELD, f"{held_by.batch_id} of run {held_by.run_id}, until {until} unless it renews"
    if ALL_TOPICS in paused or partition.topic in paused:
        return LeftBecause.PAUSED, "./tiering resume"
    return (LeftBecause.ENDED, "the next run takes them") if ended_early else (LeftBecause.UNKNOWN, "")


def _is_copied(item: WorkItem, highest_copied: int) -> bool:
    return item.segment.supersedes is None and item.segment.end_offset <= highest_copied
