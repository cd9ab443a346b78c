"""Segments that failed the quality gate: kept, not served, until a new copy takes their place.

A new copy needs the source to have exactly these offsets still. Where it has not, the records are lost to the archive,
and the partition goes on by decision alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.skipped_offsets import OffsetRange

MEMORY_MS: Final = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class FailedCopy:
    """A FINISHED segment whose verdict is FAILED.

    Attributes:
        verdict_detail: the rules that it breaks, for a person.
        broken_rules: ids of the critical rules that it broke when they were last applied, ascending.
        superseded: copies of exactly its offsets that failed and were superseded within `MEMORY_MS`, by the database's
            clock, tombstones included. What was sound for longer, and then failed, begins anew.
        given_up: somebody decided that the archive goes on without it. It stops nothing.
        was_left: another history is followed from an offset at or below its end (`model.divergence`), so no source has
            it as it was. It stops nothing, and nothing is decided about it: the offsets from there on are those of the
            other history.
        lost_because: why no source can replace it, as the last plan found; None if it found none, or never looked.
    """

    metadata: RemoteLogSegmentMetadata
    verdict_detail: str
    broken_rules: tuple[str, ...] = ()
    superseded: int = 0
    given_up: bool = False
    was_left: bool = False
    lost_because: str | None = None

    @property
    def segment_id(self) -> RemoteLogSegmentId:
        return self.metadata.remote_log_segment_id

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.metadata.start_offset, self.metadata.end_offset)


@dataclass(frozen=True, slots=True)
class Loss:
    """A failed segment that no new copy replaces: its offsets (inclusive), and why, for a person.

    `in_source`: the source has it as it was, but what was copied anew failed again.
    """

    segment_id: RemoteLogSegmentId
    offsets: OffsetRange
    why: str
    in_source: bool = False

    def __str__(self) -> str:
        return f"offsets {self.offsets} (segment {self.segment_id.id}): {self.why}"


def by_partition(copies: Iterable[FailedCopy]) -> Mapping[TopicIdPartition, Sequence[FailedCopy]]:
    """In the order in which they come."""
    found: dict[TopicIdPartition, list[FailedCopy]] = {}
    for copy in copies:
        found.setdefault(copy.metadata.topic_id_partition, []).append(copy)
    return found
