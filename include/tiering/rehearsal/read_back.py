"""What consumers get of a sample before and after the hand-over, segment by segment. Pure."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from include.tiering.model.record_digest import RangeDigest, RecordDigest, SeenRecord
from include.tiering.rehearsal.sample import PartitionSample

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


def compared(sample: PartitionSample, before: SegmentDigests, after: SegmentDigests, log_start: int) -> Comparison:
    """Of all segments at and above `log_start`; what lies below is `lost_between`'s."""
    nothing = RecordDigest().result()
    differences = []
    for segment in sample.segments:
        was, is_now = before.get(segment.base_offset, nothing), after.get(segment.base_offset, nothing)
        if segment.base_offset >= log_start and was != is_now:
            differences.append(
                f"offsets {segment.base_offset}..{segment.end_offset}: {was.records} records before, {is_now.records}"
                " afterwards, not equal"
            )
    return Comparison(sum(one.records for one in after.values()), tuple(differences))


def lost_between(
    sample: PartitionSample, log_start: int, log_start_now: int, *, retention_ms: int, now_ms: int
) -> tuple[str, ...]:
    """Segments between the two log starts that were not past `retention_ms` (-1: none is): they should be there."""
    return tuple(
        f"offsets {segment.base_offset}..{segment.end_offset}: gone, the log start is {log_start_now}"
        for segment in sample.segments
        if log_start <= segment.base_offset < log_start_now
        and (retention_ms < 0 or segment.active or segment.max_timestamp_ms > now_ms - retention_ms)
    )
