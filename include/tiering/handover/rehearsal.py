"""A handover rehearsed on a throw-away broker: what consumers get of a sample before and afterwards, segment by
segment; how the rehearsal ended; and its report. Pure.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.broker_process.sample import PartitionSample, size_of
from include.tiering.handover.checks import CheckResult
from include.tiering.handover.contract import Handover, RetentionOverride, SeededPartition
from include.tiering.handover.report import HandoverView, present_handover
from include.tiering.handover.rules import HandoverState, next_local_start
from include.tiering.model.segments import RangeDigest, RecordDigest, SeenRecord
from include.tiering.presentation import Document, Presentation, Table, count, epoch_pairs
from include.tiering.units import format_bytes

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


@dataclass(frozen=True, slots=True)
class RehearsedPartition:
    """`remote_only_below` (exclusive): what lies below it is on the broker's disk no more. `lost` are offsets that went
    though nothing lets them; `copied_twice` base offsets of which the store has more than one copy.
    """

    sample: PartitionSample
    log_start_offset: int
    remote_only_below: int
    plain: Comparison
    committed: Comparison
    lost: tuple[str, ...] = ()
    copied_twice: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.plain.is_equal and self.committed.is_equal and not self.lost and not self.copied_twice


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`partitions` is empty unless the handover came to its end. `broker_errors` are lines of the throw-away broker's
    log. `kept` is where everything still lies, if somebody asked for it.
    """

    topic: str
    kafka_version: str
    samples: tuple[PartitionSample, ...]
    handover: Handover
    checks: Sequence[CheckResult]
    overrides: Sequence[RetentionOverride]
    seed: Sequence[SeededPartition]
    partitions: tuple[RehearsedPartition, ...]
    broker_errors: tuple[str, ...]
    kept: Path | None = None

    @property
    def is_done(self) -> bool:
        return self.handover.state is HandoverState.DONE

    @property
    def is_whole(self) -> bool:
        """Handed over, and every record read back as it was."""
        return self.is_done and all(partition.is_whole for partition in self.partitions)


_COLUMNS: Final = (
    "partition",
    "offsets",
    "bytes>",
    "leader epochs>",
    "remote only",
    "records>",
    "read_committed>",
    "before and after",
)
_MOST_ERRORS: Final = 5


def present_rehearsal(rehearsal: Rehearsal) -> Presentation:
    """Not `ok`: it was refused, did not come to its end, or what was read back is not what was there."""
    return Presentation(
        lambda: _document(rehearsal), lambda: _tables(rehearsal), _summary(rehearsal), ok=rehearsal.is_whole
    )


def _summary(rehearsal: Rehearsal) -> str:
    topic, handover = rehearsal.topic, rehearsal.handover
    where = f" on a throw-away broker of Kafka {rehearsal.kafka_version}"
    kept = "" if rehearsal.kept is None else f"; everything lies in {rehearsal.kept}"
    if not rehearsal.is_done:
        return f"{topic}: the rehearsal{where} is {handover.state} at {handover.step}: {handover.detail}{kept}"
    partitions, size = count(len(rehearsal.samples), "partition"), format_bytes(size_of(rehearsal.samples))
    what = f"{partitions} with {size} rehearsed{where}"
    if rehearsal.is_whole:
        records = sum(partition.plain.records for partition in rehearsal.partitions)
        end = f"{count(records, 'record')} equal before and after; nothing of {topic} itself was changed"
    else:
        wrong = sum(not partition.is_whole for partition in rehearsal.partitions)
        end = f"the records of {count(wrong, 'partition')} are NOT EQUAL before and after: do not hand it over"
    return f"{topic}: {what}: {end}{kept}"


def _tables(rehearsal: Rehearsal) -> tuple[Table, ...]:
    view = HandoverView(rehearsal.handover, rehearsal.checks, rehearsal.overrides, rehearsal.seed)
    differences = tuple(
        (str(partition.sample.partition), text) for partition in rehearsal.partitions for text in _complaints(partition)
    )
    errors = tuple((line,) for line in rehearsal.broker_errors[:_MOST_ERRORS])
    more = f" (the first {_MOST_ERRORS} of {len(rehearsal.broker_errors)})" if len(errors) == _MOST_ERRORS else ""
    own = (
        Table("read back", _COLUMNS, tuple(map(_row, rehearsal.partitions))),
        Table("not equal", ("partition>", "what"), differences),
        Table(f"errors in the throw-away broker's log{more}", ("line",), errors),
    )
    return (*present_handover(view).tables(), *(table for table in own if table.rows))


def _row(rehearsed_partition: RehearsedPartition) -> tuple[str, ...]:
    sample = rehearsed_partition.sample
    return (
        str(sample.replica_id.topic_id_partition),
        _offsets(sample.log_start_offset, sample.log_end_offset),
        f"{sample.size_bytes:,}",
        str(len(sample.leader_epochs)),
        _offsets(rehearsed_partition.log_start_offset, rehearsed_partition.remote_only_below),
        f"{rehearsed_partition.plain.records:,}",
        f"{rehearsed_partition.committed.records:,}",
        "equal" if rehearsed_partition.is_whole else "NOT EQUAL",
    )


def _offsets(start: int, end: int) -> str:
    """`end` is exclusive."""
    return f"{start}..{end - 1}" if end > start else "nothing"


def _complaints(rehearsed_partition: RehearsedPartition) -> Sequence[str]:
    return (
        *(f"plain consumer, {text}" for text in rehearsed_partition.plain.differences),
        *(f"read_committed consumer, {text}" for text in rehearsed_partition.committed.differences),
        *rehearsed_partition.lost,
        *(f"the segment at offset {base} is in the store more than once" for base in rehearsed_partition.copied_twice),
    )


def _document(rehearsal: Rehearsal) -> Document:
    view = HandoverView(rehearsal.handover, rehearsal.checks, rehearsal.overrides, rehearsal.seed)
    return {
        "topic": rehearsal.topic,
        "kafka_version": rehearsal.kafka_version,
        "bytes": size_of(rehearsal.samples),
        "equal": rehearsal.is_whole,
        "handover": present_handover(view).document(),
        "partitions": [_partition(partition) for partition in rehearsal.partitions],
        "samples": [_sample(sample) for sample in rehearsal.samples],
        "broker_errors": list(rehearsal.broker_errors),
        "kept": None if rehearsal.kept is None else str(rehearsal.kept),
    }


def _sample(sample: PartitionSample) -> Document:
    return {
        "partition": sample.partition,
        "log_start_offset": sample.log_start_offset,
        "log_end_offset": sample.log_end_offset,
        "segments": len(sample.segments),
        "bytes": sample.size_bytes,
        "leader_epochs": epoch_pairs(sample.leader_epochs),
    }


def _partition(rehearsed_partition: RehearsedPartition) -> Document:
    return {
        "partition": rehearsed_partition.sample.partition,
        "log_start_offset": rehearsed_partition.log_start_offset,
        "remote_only_below": rehearsed_partition.remote_only_below,
        "plain": _comparison(rehearsed_partition.plain),
        "read_committed": _comparison(rehearsed_partition.committed),
        "lost": list(rehearsed_partition.lost),
        "copied_twice": list(rehearsed_partition.copied_twice),
        "equal": rehearsed_partition.is_whole,
    }


def _comparison(comparison: Comparison) -> Document:
    return {"records": comparison.records, "differences": list(comparison.differences)}
