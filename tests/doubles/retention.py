"""Segments with the times and sizes that retention asks for, and what a decision leaves behind."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.retention import RetentionInput, RetentionOutcome
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tests.doubles.segments import FINISHED, partition_of, segment_of

PARTITION: Final = partition_of()
NOW_MS: Final = 1_700_000_000_000
ONE_EPOCH: Final = LeaderEpochs.of([(0, 0)])


def remote_segment(
    number: int,
    start_offset: int,
    end_offset: int,
    leader_epochs: Mapping[int, int] | None = None,
    *,
    size_bytes: int = 10,
    state: RemoteLogSegmentState = FINISHED,
    age_ms: int = 0,
    event_age_ms: int = 0,
) -> RemoteLogSegmentMetadata:
    """Ages are counted back from NOW_MS; a negative one lies in the future."""
    segment = segment_of(PARTITION, number, start_offset, end_offset, leader_epochs, size_bytes=size_bytes, state=state)
    return replace(segment, max_timestamp_ms=NOW_MS - age_ms, event_timestamp_ms=NOW_MS - event_age_ms)


def row_of_segments(count: int, **rest: Any) -> tuple[RemoteLogSegmentMetadata, ...]:
    """0-9, 10-19, ... of epoch 0; the first is the oldest, each next one a millisecond younger."""
    return tuple(
        remote_segment(number, 10 * number, 10 * number + 9, age_ms=count - number, **rest) for number in range(count)
    )


def retention_input(
    segments: tuple[RemoteLogSegmentMetadata, ...], lineage: LeaderEpochs = ONE_EPOCH, **rest: Any
) -> RetentionInput:
    """At NOW_MS, from log start 0, with no local bytes, unless said otherwise."""
    given: dict[str, Any] = {"log_start_offset": 0, "now_ms": NOW_MS, "local_only_bytes": 0} | rest
    return RetentionInput(PARTITION, segments, lineage, **given)


def named(outcome: RetentionOutcome) -> list[tuple[int, int, str]]:
    """Start offset, end offset and reason of each decision, in order."""
    return [(one.segment.start_offset, one.segment.end_offset, str(one.reason)) for one in outcome.decisions]


def after(given: RetentionInput, outcome: RetentionOutcome) -> RetentionInput:
    """What the next decision at the same time is about, once this one was carried out."""
    gone = {one.segment.remote_log_segment_id for one in outcome.decisions}
    left = tuple(one for one in given.segments if one.remote_log_segment_id not in gone)
    return replace(given, segments=left, log_start_offset=outcome.log_start_offset)
