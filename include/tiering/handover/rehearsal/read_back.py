"""What consumers get of a sample before and after the hand-over, segment by segment. Pure."""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from include.tiering.broker_process.sample import PartitionSample
from include.tiering.handover.local_retention import next_local_start
from include.tiering.model.segment_data import RangeDigest, RecordDigest, SeenRecord

SegmentDigests = Mapping[int, RangeDigest]
"""By base offset; a segment of which a consumer gets no record is absent."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`records` were read afterwards. `differences` name offsets, inclusive, and both numbers of records."""

    records: int
    differences: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.differences


def segment_digests(records: Iterable[SeenRecord], bases: Sequence[int]) -> dict[int, RangeDigest]:
    """One digest for each of the segments that begin at `bases` (ascending), of records in the order of offsets."""
    digests: dict[int, RecordDigest] = defaultdict(RecordDigest)
    for record in records:
        digests[bases[max(0, bisect_right(bases, record.offset) - 1)]].add(record)
    return {base: digest.result() for base, digest in digests.items()}


def counted(
    records: Iterable[SeenRecord], sample: PartitionSample, on_bytes: Callable[[int], None]
) -> Iterator[SeenRecord]:
    """The same records; `on_bytes` gets the size of a segment once they are behind it, or there are no more."""
    left = deque(sample.segments)
    for record in records:
        while len(left) > 1 and left[0].end_offset < record.offset:
            on_bytes(left.popleft().size_bytes)
        yield record
    on_bytes(sum(segment.size_bytes for segment in left))


def compared(sample: PartitionSample, before: SegmentDigests, after: SegmentDigests, log_start: int) -> Comparison:
    """Of all segments that reach above `log_start`; what lies below is `lost_between`'s."""
    nothing = RecordDigest().result()
    differences = []
    for segment in sample.segments:
        was, is_now = before.get(segment.base_offset, nothing), after.get(segment.base_offset, nothing)
        if segment.end_offset >= log_start and was != is_now:
            differences.append(
                f"offsets {segment.base_offset}..{segment.end_offset}: {was.records} records before, {is_now.records}"
                " afterwards, not equal"
            )
    return Comparison(sum(one.records for one in after.values()), tuple(differences))


def first_kept(sample: PartitionSample, log_start: int, *, retention_ms: int, retention_bytes: int, now_ms: int) -> int:
    """The first offset that retention keeps of what is there from `log_start` on; -1 as a limit: none.

    Brokers delete from the oldest segment on, by time and then by size, and never the active one.
    """
    there = [segment for segment in sample.segments if segment.active or segment.end_offset >= log_start]
    young = (one for one in there if one.active or retention_ms < 0 or one.max_timestamp_ms >= now_ms - retention_ms)
    by_time = next(young).base_offset
    by_size = next_local_start(there, retention_bytes, sample.log_end_offset) if retention_bytes >= 0 else None
    return max(log_start, by_time, by_size or 0)


def lost_between(sample: PartitionSample, log_start: int, log_start_now: int, kept_from: int) -> tuple[str, ...]:
    """Segments that are gone with the log start though retention keeps them."""
    return tuple(
        f"offsets {segment.base_offset}..{segment.end_offset}: gone, the log start is {log_start_now}"
        for segment in sample.segments
        if segment.end_offset >= max(log_start, kept_from) and segment.end_offset < log_start_now
    )
