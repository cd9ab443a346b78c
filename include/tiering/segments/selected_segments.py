"""Contract of the queries that read a few segments of a partition, however many it has.

A plan over a large archive usually finds little to do. These queries read only the segments on which a plan may have to
act. `list_segments` reads everything, for work that concerns every segment, such as a comparison of a whole partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from include.tiering.model.retention import RestOfLog
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Uuid, Verdict
from include.tiering.segments.values import SegmentRow


class EpochExtent(NamedTuple):
    """Where segments have records of a leader epoch, both offsets inclusive.

    All offsets of the epoch in FINISHED segments are in this range. It may be wider, because segments that are not
    FINISHED, or not any more, may count as well.
    """

    epoch: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class OldestSegments:
    """The platform's segments that a decision about retention reads, and what is known of the others.

    Attributes:
        rows: all segments in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED, and all FINISHED ones that start at or
            below `rest.after_offset`. If `rest` is None, all FINISHED ones. Tombstones are never among them.
        rest: the other FINISHED segments; None if there are none. If its `size_bytes` was asked for, that is the size
            of all of them, whatever their leader epochs are.
        extents: where segments have records of each leader epoch, by ascending epoch; empty if the size of the rest was
            not asked for.
    """

    rows: tuple[SegmentRow, ...]
    rest: RestOfLog | None
    extents: tuple[EpochExtent, ...] = ()


class SelectedSegments(Protocol):
    """Queries about single segments: `RemoteLogMetadata.selected`. Only `newest` returns tombstones."""

    def newest(self, partition: TopicIdPartition, *, before: int, at_most: int) -> Sequence[SegmentRow]:
        """Return at most `at_most` segments in any state that start below `before`, the highest start offset first."""
        ...

    def segments_under_way(self, partition: TopicIdPartition) -> Sequence[SegmentRow]:
        """Return segments in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED, in the order of `list_segments`."""
        ...

    def segments_with_ids(
        self, partition: TopicIdPartition, ids: Iterable[Uuid], *, finished_from: int | None = None
    ) -> Sequence[SegmentRow]:
        """Return the segments with these ids that exist, in the order of `list_segments`, in one consistent read.

        If the argument `finished_from` is an offset, the result has in addition what the method `finished_from` returns
        for this offset; each segment once.
        """
        ...

    def finished_from(self, partition: TopicIdPartition, offset: int) -> Sequence[SegmentRow]:
        """Return FINISHED segments that end at or above `offset`, in the order of `list_segments`."""
        ...

    def finished_ids(self, partition: TopicIdPartition) -> Iterator[Uuid]:
        """Yield the ids of all FINISHED segments, in any order. Reads all of them, but nothing else of them."""
        ...

    def counters_agree(self, partition: TopicIdPartition) -> bool:
        """Return whether the platform's counter is the size of all FINISHED segments, in bytes.

        Triggers of the database keep a sum of their own. If the counter is equal to that sum, the answer is True, and
        no row is read. Otherwise the database adds up the rows of all FINISHED segments, all three numbers are logged,
        and the answer is whether the counter is equal to the total of the rows.
        """
        ...

    def finished_before(self, row: SegmentRow) -> RemoteLogSegmentMetadata | None:
        """Return the FINISHED segment right before this one in the history `row.history`; None if there is none.

        Segments are in the order of their end offsets, those with the same one in the order of `list_segments`.
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
            finished: about how many FINISHED segments that start at or above `log_start_offset` are returned as rows;
                None: all of them.
            log_start_offset: all FINISHED segments that start below it are returned as rows, too.
            with_size: whether to read the size of the rest and the extents of leader epochs; else they are 0 and empty.
            future_from_ms: a UTC time in ms. The rest then says how many of its segments have no timestamp
                (`undated`), and which is its largest timestamp, if that is above this time (`latest_timestamp_ms`).
                None: neither is read, and they are 0 and -1.
        """
        ...

    def finished_with_verdicts(self, verdicts: Mapping[Verdict, int | None]) -> Sequence[SegmentRow]:
        """Return all FINISHED segments with these verdicts, ordered by topic, partition and start offset.

        The value of a verdict is a UTC time in ms: only segments are returned whose verdict was recorded at this time,
        earlier, or at an unknown time; None: all. One consistent read, so no segment is returned with two verdicts.
        """
        ...
