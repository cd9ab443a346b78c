"""Contract of the queries that read a few segments of a partition, however many it has.

A plan over a large archive usually finds little to do. These queries read what it may have to do something about;
`list_segments` reads everything and is for work that concerns every segment, such as a comparison of a whole partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from include.tiering.model.retention import RestOfLog
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Uuid, Verdict
from include.tiering.segments.values import SegmentRow


class EpochExtent(NamedTuple):
    """Where segments have records of a leader epoch, both offsets inclusive.

    `lowest` is no higher, and `highest` no lower, than those of the FINISHED segments.
    """

    epoch: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class OldestSegments:
    """The platform's segments that a decision about retention reads, and what is known of the others.

    Attributes:
        rows: all that are neither FINISHED nor tombstones, and all FINISHED ones that start at or below
            `rest.after_offset`. All segments if `rest` is None.
        rest: the other FINISHED segments. Its `size_bytes`, if it was asked for, is the size of all of them, whatever
            their leader epochs are.
        extents: ascending, where segments have records of each leader epoch; only with the size of the rest.
    """

    rows: tuple[SegmentRow, ...]
    rest: RestOfLog | None
    extents: tuple[EpochExtent, ...] = ()


class SelectedSegments(Protocol):
    """Queries about single segments: `RemoteLogMetadata.selected`. Only `newest` returns tombstones."""

    def newest(self, partition: TopicIdPartition, *, before: int, at_most: int) -> Sequence[SegmentRow]:
        """Return segments in any state that start below the offset `before`, by descending start offset."""
        ...

    def segments_under_way(self, partition: TopicIdPartition) -> Sequence[SegmentRow]:
        """Return segments in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED, in the order of `list_segments`."""
        ...

    def segments_with_ids(
        self, partition: TopicIdPartition, ids: Iterable[Uuid], *, finished_from: int | None = None
    ) -> Sequence[SegmentRow]:
        """Return the segments with these ids that exist, in the order of `list_segments`, in one consistent read.

        With `finished_from`, also those that `finished_from` returns for this offset; each segment once.
        """
        ...

    def finished_from(self, partition: TopicIdPartition, offset: int) -> Sequence[SegmentRow]:
        """Return FINISHED segments that end at or above `offset`, in the order of `list_segments`."""
        ...

    def finished_ids(self, partition: TopicIdPartition) -> Iterator[Uuid]:
        """Yield the ids of all FINISHED segments, in any order. Reads all of them, but nothing else of them."""
        ...

    def counters_agree(self, partition: TopicIdPartition) -> bool:
        """Return whether the counter is the size of all FINISHED segments.

        It is if the sum that triggers of the database keep is the same. If not, the database adds up all rows, and
        what it found is logged.
        """
        ...

    def finished_before(self, row: SegmentRow) -> RemoteLogSegmentMetadata | None:
        """Return the FINISHED segment before this one among those of its history, by end offset; None if it is first.

        Segments with the same end offset are in the order of `list_segments`.
        """
        ...

    def oldest_segments(
        self,
        partition: TopicIdPartition,
        finished: int | None,
        *,
        log_start_offset: int,
        with_size: bool = False,
        future_from_ms: int | None = None,
    ) -> OldestSegments:
        """Return the segments of the platform that retention may concern, in one consistent read.

        Args:
            partition: the partition.
            finished: about how many FINISHED segments from the log start on are read; None: all segments.
            log_start_offset: all FINISHED segments that start below it are read as well.
            with_size: whether to read the size of the rest and the extents of leader epochs; else they are 0 and empty.
            future_from_ms: the rest's timestamps are counted, and those above this time found; None: they are not.
        """
        ...

    def finished_with_verdicts(self, verdicts: Mapping[Verdict, int | None]) -> Sequence[SegmentRow]:
        """Return FINISHED segments of all partitions with these verdicts, by topic, partition and start offset.

        The value of a verdict is a time: only segments whose verdict was recorded then or earlier, or at no known time,
        are returned; None: all. One consistent read, so no segment is returned with two verdicts.
        """
        ...
