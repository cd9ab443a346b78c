"""Records of `__remote_log_metadata`: any record survives both ways, no damage is more than a FormatError."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.primitive_types import TaggedField
from include.tiering.formats.remote_log_metadata import decode, encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionDeleteRecord,
    PartitionEntry,
    RemoteLogRecord,
    SegmentIdEntry,
    SegmentRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
)
from include.tiering.model.segments import RemoteLogSegmentState, RemotePartitionDeleteState, Uuid
from tests.doubles.sample_values import mutated_values, seed_values

_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
_TAGS = st.lists(
    st.builds(TaggedField, st.integers(1, 2**32 - 1), st.binary(max_size=20)), max_size=3, unique_by=lambda tag: tag.tag
).map(tuple)
_PARTITIONS = st.builds(PartitionEntry, st.text(max_size=30), _UUIDS, _INT32, _TAGS)
_SEGMENT_IDS = st.builds(SegmentIdEntry, _PARTITIONS, _UUIDS, _TAGS)
_EPOCHS = st.lists(st.builds(EpochEntry, _INT32, _INT64, _TAGS), min_size=1, max_size=4).map(tuple)
_CUSTOM = st.none() | st.binary(max_size=200)
_STATES = st.sampled_from(RemoteLogSegmentState)
_RANGES = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)).map(sorted)


@st.composite
def _whole_segments(draw: st.DrawFn) -> RemoteLogRecord:
    described = {
        "broker_id": draw(_INT32),
        "max_timestamp_ms": draw(_INT64),
        "event_timestamp_ms": draw(_INT64),
        "epochs": draw(_EPOCHS),
        "size_bytes": draw(_INT32),
        "custom_metadata": draw(_CUSTOM),
        "state": draw(_STATES),
        "txn_index_empty": draw(st.booleans()),
        "tags": draw(_TAGS),
    }
    if draw(st.booleans()):
        start, end = draw(_RANGES)
        return SegmentRecord(segment_id=draw(_SEGMENT_IDS), start_offset=start, end_offset=end, **described)
    return SegmentSnapshotRecord(id=draw(_UUIDS), start_offset=draw(_INT64), end_offset=draw(_INT64), **described)


_RECORDS = st.one_of(
    _whole_segments(),
    st.builds(SegmentUpdateRecord, _SEGMENT_IDS, _INT32, _INT64, _CUSTOM, _STATES, _TAGS),
    st.builds(PartitionDeleteRecord, _PARTITIONS, _INT32, _INT64, st.sampled_from(RemotePartitionDeleteState), _TAGS),
)


@given(_RECORDS)
def test_any_record_survives_both_ways(record: RemoteLogRecord) -> None:
    assert decode(encode(record)) == record


@given(_RECORDS, st.data())
def test_no_beginning_of_a_record_is_a_record(record: RemoteLogRecord, data: st.DataObject) -> None:
    value = encode(record)
    cut = value[: data.draw(st.integers(0, len(value) - 1))]
    with pytest.raises(FormatError):
        decode(cut)


@given(_RECORDS, st.binary(min_size=1, max_size=4))
def test_nothing_may_stand_behind_a_record(record: RemoteLogRecord, behind: bytes) -> None:
    with pytest.raises(FormatError):
        decode(encode(record) + behind)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_a_format_error(value: bytes) -> None:
    with contextlib.suppress(FormatError):
        decode(value)


def test_damaged_records_are_refused_or_mean_the_same_when_written_again() -> None:
    """A hundred thousand of them are put before Kafka's own decoder where there is a Java: `make test-kafka`."""
    taken = 0
    for value in mutated_values(seed_values(), 10_000, seed=20_261_121):
        with contextlib.suppress(FormatError):
            record = decode(value)
            assert decode(encode(record)) == record
            taken += 1
    assert 1_000 < taken < 5_000
