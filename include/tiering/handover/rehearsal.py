"""The result of a handover rehearsed on a throw-away broker, and its report, without I/O.

The records that consumers get of a sample before the copy and after the handover are compared segment by segment.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from include.tiering.broker_process.sample import PartitionSample, size_of
from include.tiering.handover.checks import CheckResult
from include.tiering.handover.contract import Handover, RetentionOverride, SeededPartition
from include.tiering.handover.report import HandoverDocument, HandoverView, handover_document, present_handover
from include.tiering.handover.rules import HandoverState, next_local_start
from include.tiering.model.segments import RecordDigest, SeenRecord, SegmentDigests
from include.tiering.presentation import Presentation, Table, count, epoch_pairs
from include.tiering.units import format_bytes


class SampleDocument(TypedDict):
    """What was taken of one partition; each leader epoch is a pair of epoch and start offset."""

    partition: int
    log_start_offset: int
    log_end_offset: int
    segments: int
    bytes: int
    leader_epochs: list[list[int]]


class ComparisonDocument(TypedDict):
    """Records that were compared, and the differences that were found."""

    records: int
    differences: list[str]


class RehearsedPartitionDocument(TypedDict):
    """One partition, as the throw-away broker served it to a plain and to a read_committed consumer.

    Offsets below `remote_only_below` are not on the broker's disk any more. `copied_twice` has the base offsets of
    segments with more than one copy in the store.
    """

    partition: int
    log_start_offset: int | None
    remote_only_below: int | None
    plain: ComparisonDocument
    read_committed: ComparisonDocument
    lost: list[str]
    copied_twice: list[int]
    equal: bool


class RehearsalDocument(TypedDict):
    """A rehearsal on a throw-away broker; `kept` is the directory of its files, if they were kept."""

    topic: str
    kafka_version: str
    bytes: int
    equal: bool
    handover: HandoverDocument
    partitions: list[RehearsedPartitionDocument]
    samples: list[SampleDocument]
    broker_errors: list[str]
    kept: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a partition's records before and after the handover.

    `records`: number of records read after the handover. `differences`: sentences with offsets (inclusive).
    """

    records: int
    differences: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.differences


def counted(
    records: Iterable[SeenRecord], sample: PartitionSample, on_bytes: Callable[[int], None]
) -> Iterator[SeenRecord]:
    """Yield `records`; call `on_bytes` with the size of each segment of the sample once its records have been read."""
    left = deque(sample.segments)
    for record in records:
        while len(left) > 1 and left[0].end_offset < record.offset:
            on_bytes(left.popleft().size_bytes)
        yield record
    on_bytes(sum(segment.size_bytes for segment in left))


def compared(sample: PartitionSample, before: SegmentDigests, after: SegmentDigests, log_start: int) -> Comparison:
    """Compare all segments that end at or above `log_start`; `lost_between` checks the segments that end below it."""
    nothing = RecordDigest().result()
    differences = []
    for segment in sample.segments:
        was, is_now = before.get(segment.base_offset, nothing), after.get(segment.base_offset, nothing)
        if segment.end_offset >= log_start and was != is_now:
            differences.append(
                f"offsets {segment.base_offset}..{segment.end_offset}: {was.records} records before, {is_now.records}"
                " afterwards, not equal"
            )
    return Comparison(sum(digest.records for digest in after.values()), tuple(differences))


def first_kept(sample: PartitionSample, log_start: int, *, retention_ms: int, retention_bytes: int, now_ms: int) -> int:
    """Return the first offset from `log_start` on that retention keeps. A limit of -1 means unlimited.

    The oldest segments go first, by time and then by size; the active one counts as kept.
    """
    there = [segment for segment in sample.segments if segment.active or segment.end_offset >= log_start]
    young = (
        segment
        for segment in there
        if segment.active or retention_ms < 0 or segment.max_timestamp_ms >= now_ms - retention_ms
    )
    by_time = next(young).base_offset
    by_size = next_local_start(there, retention_bytes, sample.log_end_offset) if retention_bytes >= 0 else None
    return max(log_start, by_time, by_size or 0)


def lost_between(sample: PartitionSample, log_start: int, log_start_now: int, kept_from: int) -> tuple[str, ...]:
    """Return sentences about segments below the present log start that retention should have kept."""
    return tuple(
        f"offsets {segment.base_offset}..{segment.end_offset}: gone, the log start is {log_start_now}"
        for segment in sample.segments
        if segment.end_offset >= max(log_start, kept_from) and segment.end_offset < log_start_now
    )


@dataclass(frozen=True, slots=True)
class RehearsedPartition:
    """The result of one partition.

    `log_start_offset` is the log start after the handover. Offsets below `remote_only_below` (exclusive) are not on the
    broker's disk any more. `plain` and `committed` compare the records that a plain and a read_committed consumer got.
    `lost`: sentences about offsets that are gone although retention should have kept them. `copied_twice`: base offsets
    of segments with more than one copy in the store.
    """

    sample: PartitionSample
    log_start_offset: int
    remote_only_below: int
    plain: Comparison
    committed: Comparison
    lost: tuple[str, ...] = ()
    copied_twice: tuple[int, ...] = ()

    @property
    def has_equal_records(self) -> bool:
        return self.plain.is_equal and self.committed.is_equal and not self.lost

    @property
    def is_whole(self) -> bool:
        return self.has_equal_records and not self.copied_twice


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The result of a rehearsal.

    `partitions` is empty unless the handover is DONE. `broker_errors` are lines of the throw-away broker's log. `kept`
    is the directory of the rehearsal; None if it was deleted.
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
        """Whether the handover is done, all records are equal, none is lost, and no segment was copied twice."""
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
    """Present a rehearsal. It is `ok` only if `Rehearsal.is_whole`."""
    return Presentation(
        lambda: _document(rehearsal), lambda: _tables(rehearsal), _summary(rehearsal), ok=rehearsal.is_whole
    )


def _summary(rehearsal: Rehearsal) -> str:
    topic, handover = rehearsal.topic, rehearsal.handover
    where = f" on a throw-away broker of Kafka {rehearsal.kafka_version}"
    kept = "" if rehearsal.kept is None else f"; its files are in {rehearsal.kept}"
    if not rehearsal.is_done:
        return f"{topic}: the rehearsal{where} is {handover.state} at {handover.step}: {handover.detail}{kept}"
    partitions, size = count(len(rehearsal.samples), "partition"), format_bytes(size_of(rehearsal.samples))
    what = f"{partitions} with {size} rehearsed{where}"
    if rehearsal.is_whole:
        records = sum(partition.plain.records for partition in rehearsal.partitions)
        end = f"{count(records, 'record')} equal before and after; nothing of {topic} itself was changed"
    else:
        wrong = sum(not partition.has_equal_records for partition in rehearsal.partitions)
        twice = sum(bool(partition.copied_twice) for partition in rehearsal.partitions)
        found = [f"the records of {count(wrong, 'partition')} are NOT EQUAL before and after"] if wrong else []
        found += [f"segments of {count(twice, 'partition')} were copied twice"] if twice else []
        end = f"{' and '.join(found)}: do not hand it over"
    return f"{topic}: {what}: {end}{kept}"


def _tables(rehearsal: Rehearsal) -> tuple[Table, ...]:
    view = HandoverView(rehearsal.handover, rehearsal.checks, rehearsal.overrides, rehearsal.seed)
    differences = tuple(
        (str(partition.sample.partition), text)
        for partition in rehearsal.partitions
        for text in _differences(partition)
    )
    errors = tuple((line,) for line in rehearsal.broker_errors[:_MOST_ERRORS])
    more = f" (the first {_MOST_ERRORS} of {len(rehearsal.broker_errors)})" if len(errors) == _MOST_ERRORS else ""
    own = (
        Table("read back", _COLUMNS, tuple(map(_row, rehearsal.partitions))),
        Table("differences", ("partition>", "what"), differences),
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
        _verdict(rehearsed_partition),
    )


def _verdict(rehearsed_partition: RehearsedPartition) -> str:
    if not rehearsed_partition.has_equal_records:
        return "NOT EQUAL"
    return "equal, but copied twice" if rehearsed_partition.copied_twice else "equal"


def _offsets(start: int, end: int) -> str:
    """Return the range as text with both ends inclusive. `end` is exclusive."""
    return f"{start}..{end - 1}" if end > start else "nothing"


def _differences(rehearsed_partition: RehearsedPartition) -> Sequence[str]:
    return (
        *(f"plain consumer, {text}" for text in rehearsed_partition.plain.differences),
        *(f"read_committed consumer, {text}" for text in rehearsed_partition.committed.differences),
        *rehearsed_partition.lost,
        *(f"the segment at offset {base} is in the store more than once" for base in rehearsed_partition.copied_twice),
    )


def _document(rehearsal: Rehearsal) -> RehearsalDocument:
    view = HandoverView(rehearsal.handover, rehearsal.checks, rehearsal.overrides, rehearsal.seed)
    return {
        "topic": rehearsal.topic,
        "kafka_version": rehearsal.kafka_version,
        "bytes": size_of(rehearsal.samples),
        "equal": rehearsal.is_whole,
        "handover": handover_document(view),
        "partitions": [_partition(partition) for partition in rehearsal.partitions],
        "samples": [_sample(sample) for sample in rehearsal.samples],
        "broker_errors": list(rehearsal.broker_errors),
        "kept": None if rehearsal.kept is None else str(rehearsal.kept),
    }


def _sample(sample: PartitionSample) -> SampleDocument:
    return {
        "partition": sample.partition,
        "log_start_offset": sample.log_start_offset,
        "log_end_offset": sample.log_end_offset,
        "segments": len(sample.segments),
        "bytes": sample.size_bytes,
        "leader_epochs": epoch_pairs(sample.leader_epochs),
    }


def _partition(rehearsed_partition: RehearsedPartition) -> RehearsedPartitionDocument:
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


def _comparison(comparison: Comparison) -> ComparisonDocument:
    return {"records": comparison.records, "differences": list(comparison.differences)}
