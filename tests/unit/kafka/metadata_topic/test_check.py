"""What may be sent: exactly what is meant, in the partition where brokers look for it."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.errors import PublicationRefusedError
from include.tiering.formats.primitive_types import TaggedField
from include.tiering.formats.remote_log_metadata import decode, encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionDeleteRecord,
    RemoteLogRecord,
    SegmentRecord,
    SegmentUpdateRecord,
    metadata_of,
    segment_record,
    update_record,
)
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.kafka.metadata_topic.record_check import Meant, require_sound
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tests.doubles.broker_data import expected
from tests.doubles.mutated_records import mutated_values
from tests.doubles.sample_values import segment_row

_STATES = tuple(RemoteLogSegmentState)
_STARTED, _FINISHED = _STATES[:2]


def _segment(**fields: Any) -> RemoteLogSegmentMetadata:
    return replace(segment_row().metadata, state=_STARTED, broker_id=424_242, **fields)


def _meant(segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState = _STARTED) -> Meant:
    return Meant(segment, state, metadata_partition_of(segment.topic_id_partition, 50), 50)


def _record(segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> RemoteLogRecord:
    if state is _STARTED:
        return segment_record(segment)
    return update_record(
        RemoteLogSegmentMetadataUpdate(
            segment.remote_log_segment_id,
            state,
            segment.event_timestamp_ms,
            segment.broker_id,
            segment.custom_metadata,
        )
    )


@pytest.mark.parametrize("state", _STATES)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"txn_index_empty": True},
        {"custom_metadata": b""},
        {"custom_metadata": b"\x00" * 20_000},
        {"segment_leader_epochs": LeaderEpochs.of((epoch, 100 + epoch // 20) for epoch in range(1_000))},
    ],
)
def test_what_the_codec_writes_is_sound(state: RemoteLogSegmentState, fields: dict[str, Any]) -> None:
    segment = _segment(**fields)
    require_sound(encode(_record(segment, state)), _meant(segment, state))


def test_a_topic_name_may_be_long() -> None:
    partition = TopicIdPartition(Uuid(bytes(range(16))), 3, "x" * 249)
    segment = _segment(remote_log_segment_id=RemoteLogSegmentId(partition, Uuid(bytes(range(16, 32)))))
    require_sound(encode(segment_record(segment)), _meant(segment))


def test_what_a_real_broker_wrote_is_sound_in_the_partition_where_it_was() -> None:
    begun: dict[str, RemoteLogSegmentMetadata] = {}
    for one in expected("tiered")["remote_log_metadata"]:
        value = bytes.fromhex(one["value_hex"])
        record = decode(value)
        if isinstance(record, SegmentRecord):
            begun[one["segment_id"]] = metadata_of(record)
        segment = replace(begun[one["segment_id"]], event_timestamp_ms=one["event_timestamp_ms"])
        require_sound(value, Meant(segment, RemoteLogSegmentState[one["state"]], one["metadata_partition"], 3))
    assert len(begun) > 20


def test_epochs_that_begin_within_a_segment_are_those_above_a_log_start() -> None:
    """Brokers write them so: records below were deleted, with their epochs, and the segment is copied whole."""
    segment = replace(_segment(), segment_leader_epochs=LeaderEpochs.of([(0, 101), (3, 120)]))
    require_sound(encode(segment_record(segment)), _meant(segment))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": _FINISHED}, "begins in state 0, not 1: every broker would stop"),
        (
            {"epochs": (EpochEntry(0, 99), EpochEntry(3, 120))},
            "first leader epoch is from 99, before its start 100",
        ),
        ({"epochs": (EpochEntry(0, 100), EpochEntry(3, 200))}, "lead outside 100..199"),
        ({"epochs": (EpochEntry(-1, 100), EpochEntry(3, 120))}, "lead outside 100..199"),
        ({"epochs": (EpochEntry(3, 100), EpochEntry(0, 120))}, "do not ascend"),
        ({"epochs": (EpochEntry(0, 100), EpochEntry(2, 120))}, "epochs is not what is meant"),
        ({"size_bytes": 0}, "a size of 0 bytes"),
        ({"size_bytes": -1}, "a size of -1 bytes"),
        ({"size_bytes": 4097}, "size_bytes is not what is meant"),
        ({"end_offset": 200}, "end_offset is not what is meant"),
        ({"start_offset": 99}, "start_offset is not what is meant"),
        ({"broker_id": 1}, "broker_id is not what is meant"),
        ({"max_timestamp_ms": 0}, "max_timestamp_ms is not what is meant"),
        ({"event_timestamp_ms": 0}, "event_timestamp_ms is not what is meant"),
        ({"txn_index_empty": True}, "txn_index_empty is not what is meant"),
        ({"custom_metadata": b""}, "custom_metadata is not what is meant"),
        ({"tags": (TaggedField(1, b"\x00\x00\x00\x07"),)}, "it ends in 01010400000007"),
        ({"epochs": (EpochEntry(0, 100, (TaggedField(1, b""),)),)}, r"a tagged field before byte"),
    ],
)
def test_a_segment_that_says_anything_else_is_refused(fields: dict[str, Any], says: str) -> None:
    segment = _segment()
    with pytest.raises(PublicationRefusedError, match=says):
        require_sound(encode(replace(segment_record(segment), **fields)), _meant(segment))


def test_offsets_and_epochs_that_no_codec_of_ours_writes_are_refused() -> None:
    segment = _segment()
    value = encode(segment_record(segment))
    backwards = value.replace((100).to_bytes(8, "big"), (300).to_bytes(8, "big"), 1)
    with pytest.raises(PublicationRefusedError, match=r"offsets 300\.\.199 are no range"):
        require_sound(backwards, _meant(segment))
    entries = b"\x03" + b"".join(
        epoch.to_bytes(4, "big") + start.to_bytes(8, "big") + b"\x00" for epoch, start in segment.segment_leader_epochs
    )
    assert entries in value
    with pytest.raises(PublicationRefusedError, match="it has no leader epoch"):
        require_sound(value.replace(entries, b"\x01"), _meant(segment))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": _STARTED}, "an update cannot begin a segment"),
        ({"state": RemoteLogSegmentState.DELETE_SEGMENT_STARTED}, "state is not what is meant"),
        ({"broker_id": 7}, "broker_id is not what is meant"),
        ({"custom_metadata": b"x"}, "custom_metadata is not what is meant"),
        ({"tags": (TaggedField(0, b"\x01"),)}, "it ends in 01000101"),
    ],
)
def test_an_update_that_says_anything_else_is_refused(fields: dict[str, Any], says: str) -> None:
    segment = _segment()
    record = _record(segment, _FINISHED)
    assert isinstance(record, SegmentUpdateRecord)
    with pytest.raises(PublicationRefusedError, match=says):
        require_sound(encode(replace(record, **fields)), _meant(segment, _FINISHED))


def test_another_partition_attempt_or_kind_of_record_is_refused() -> None:
    segment = _segment()
    partition = segment.topic_id_partition
    neighbour = replace(
        segment, remote_log_segment_id=RemoteLogSegmentId(replace(partition, partition=1), Uuid(b"0" * 16))
    )
    with pytest.raises(PublicationRefusedError, match="partition is not what is meant"):
        require_sound(encode(segment_record(neighbour)), _meant(segment))
    with pytest.raises(PublicationRefusedError, match="key is not what is meant"):
        require_sound(encode(_record(segment, _FINISHED)), _meant(segment))
    deletion = PartitionDeleteRecord(
        segment_record(segment).segment_id.partition, 1, 1, RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    )
    with pytest.raises(PublicationRefusedError, match="is no record of a segment"):
        require_sound(encode(deletion), _meant(segment))


def test_the_partition_where_no_broker_looks_is_refused() -> None:
    segment = _segment()
    meant = _meant(segment)
    elsewhere = replace(meant, metadata_partition=(meant.metadata_partition + 1) % 50)
    with pytest.raises(PublicationRefusedError, match=f"in partition {meant.metadata_partition}, not"):
        require_sound(encode(segment_record(segment)), elsewhere)


def test_no_damaged_value_passes_unless_it_says_the_same() -> None:
    segment = _segment(txn_index_empty=True, custom_metadata=b"abc")
    for state in (_STARTED, _FINISHED):
        value = encode(_record(segment, state))
        for damaged in mutated_values([value], 2_000, seed=7):
            try:
                require_sound(damaged, _meant(segment, state))
            except PublicationRefusedError:
                continue
            assert decode(damaged) == decode(value)


def test_what_ends_too_early_is_refused() -> None:
    segment = _segment()
    value = encode(segment_record(segment))
    for cut in range(len(value)):
        with pytest.raises(PublicationRefusedError, match=r"too early|ends in nothing"):
            require_sound(value[:cut], _meant(segment))
