"""A rehearsal as people read it: how far the hand-over came on the throw-away broker, and whether all was read back."""

from collections.abc import Sequence
from typing import Final

from include.tiering.broker_process.sample import PartitionSample
from include.tiering.handover.rehearsal.read_back import Comparison
from include.tiering.handover.rehearsal.result import Rehearsal, RehearsedPartition
from include.tiering.handover.report import HandoverView, present_handover
from include.tiering.presentation import Document, Presentation, Table, count, epoch_pairs
from include.tiering.units import format_bytes

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
    what = f"{count(len(rehearsal.samples), 'partition')} with {format_bytes(rehearsal.size_bytes)} rehearsed{where}"
    if rehearsal.is_whole:
        records = sum(one.plain.records for one in rehearsal.partitions)
        end = f"{count(records, 'record')} equal before and after; nothing of {topic} itself was changed"
    else:
        wrong = sum(not one.is_whole for one in rehearsal.partitions)
        end = f"the records of {count(wrong, 'partition')} are NOT EQUAL before and after: do not hand it over"
    return f"{topic}: {what}: {end}{kept}"


def _tables(rehearsal: Rehearsal) -> tuple[Table, ...]:
    view = HandoverView(rehearsal.handover, rehearsal.checks, rehearsal.guards, rehearsal.seed)
    differences = tuple((str(one.sample.partition), text) for one in rehearsal.partitions for text in _complaints(one))
    errors = tuple((line,) for line in rehearsal.broker_errors[:_MOST_ERRORS])
    more = f" (the first {_MOST_ERRORS} of {len(rehearsal.broker_errors)})" if len(errors) == _MOST_ERRORS else ""
    own = (
        Table("read back", _COLUMNS, tuple(map(_row, rehearsal.partitions))),
        Table("not equal", ("partition>", "what"), differences),
        Table(f"errors in the throw-away broker's log{more}", ("line",), errors),
    )
    return (*present_handover(view).tables(), *(table for table in own if table.rows))


def _row(one: RehearsedPartition) -> tuple[str, ...]:
    sample = one.sample
    return (
        str(sample.replica_id.topic_id_partition),
        _offsets(sample.log_start_offset, sample.log_end_offset),
        f"{sample.size_bytes:,}",
        str(len(sample.leader_epochs)),
        _offsets(one.log_start_offset, one.remote_only_below),
        f"{one.plain.records:,}",
        f"{one.committed.records:,}",
        "equal" if one.is_whole else "NOT EQUAL",
    )


def _offsets(start: int, end: int) -> str:
    """`end` is exclusive."""
    return f"{start}..{end - 1}" if end > start else "nothing"


def _complaints(one: RehearsedPartition) -> Sequence[str]:
    return (
        *(f"plain consumer, {text}" for text in one.plain.differences),
        *(f"read_committed consumer, {text}" for text in one.committed.differences),
        *one.lost,
        *(f"the segment at offset {base} is in the store more than once" for base in one.copied_twice),
    )


def _document(rehearsal: Rehearsal) -> Document:
    view = HandoverView(rehearsal.handover, rehearsal.checks, rehearsal.guards, rehearsal.seed)
    return {
        "topic": rehearsal.topic,
        "kafka_version": rehearsal.kafka_version,
        "bytes": rehearsal.size_bytes,
        "equal": rehearsal.is_whole,
        "handover": present_handover(view).document(),
        "partitions": [_partition(one) for one in rehearsal.partitions],
        "samples": [_sample(one) for one in rehearsal.samples],
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


def _partition(one: RehearsedPartition) -> Document:
    return {
        "partition": one.sample.partition,
        "log_start_offset": one.log_start_offset,
        "remote_only_below": one.remote_only_below,
        "plain": _comparison(one.plain),
        "read_committed": _comparison(one.committed),
        "lost": list(one.lost),
        "copied_twice": list(one.copied_twice),
        "equal": one.is_whole,
    }


def _comparison(one: Comparison) -> Document:
    return {"records": one.records, "differences": list(one.differences)}
