"""Records of `__remote_log_metadata`: worked bytes, a broker's own, what is refused and what is taken."""

from typing import Any

import pytest

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
    metadata_of,
    segment_record,
    update_of,
    update_record,
)
from include.tiering.model.segments import RemoteLogSegmentState, RemotePartitionDeleteState, Uuid
from tests.doubles.broker_data import expected

_PARTITION = "076f72646572730102030405060708090a0b0c0d0e0f100000000300"
_SEGMENT_ID = _PARTITION + "1112131415161718191a1b1c1d1e1f2000"
_OFFSETS = "0000000000000064" + "00000000000000c7"
_EPOCHS = "03" + "00000000" + "0000000000000064" + "00" + "00000002" + "0000000000000096" + "00"
_HEAD = _OFFSETS + "00000007" + "0000018bcfe56800" + "0000018bcfe57b88"
_DESCRIPTION = _HEAD + _EPOCHS + "00001000"
_STARTED = "000000"  # custom metadata, state, no tags
_SEGMENT = "010000" + _SEGMENT_ID + _DESCRIPTION + _STARTED
_UPDATE = "010100" + _SEGMENT_ID + "000000070000018bcfe57f7003cafe0100"
_DELETE = "010200" + _PARTITION + "000000070000018bcfe583580000"
_SNAPSHOT = "0103001112131415161718191a1b1c1d1e1f20" + _DESCRIPTION + "010101000101"

_ORDERS = PartitionEntry("orders", Uuid(bytes(range(1, 17))), 3)
_ATTEMPT = SegmentIdEntry(_ORDERS, Uuid(bytes(range(17, 33))))
_STARTED_RECORD = SegmentRecord(
    segment_id=_ATTEMPT,
    start_offset=100,
    end_offset=199,
    broker_id=7,
    max_timestamp_ms=1_700_000_000_000,
    event_timestamp_ms=1_700_000_005_000,
    epochs=(EpochEntry(0, 100), EpochEntry(2, 150)),
    size_bytes=4096,
    custom_metadata=None,
    state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
)
_GOLDEN: tuple[tuple[str, RemoteLogRecord], ...] = (
    (_SEGMENT, _STARTED_RECORD),
    (
        _UPDATE,
        SegmentUpdateRecord(_ATTEMPT, 7, 1_700_000_006_000, b"\xca\xfe", RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
    ),
    (
        _DELETE,
        PartitionDeleteRecord(_ORDERS, 7, 1_700_000_007_000, RemotePartitionDeleteState.DELETE_PARTITION_MARKED),
    ),
    (
        _SNAPSHOT,
        SegmentSnapshotRecord(
            id=_ATTEMPT.id,
            start_offset=100,
            end_offset=199,
            broker_id=7,
            max_timestamp_ms=1_700_000_000_000,
            event_timestamp_ms=1_700_000_005_000,
            epochs=(EpochEntry(0, 100), EpochEntry(2, 150)),
            size_bytes=4096,
            custom_metadata=b"",
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            txn_index_empty=True,
        ),
    ),
)


@pytest.mark.parametrize(("value", "record"), _GOLDEN)
def test_golden_bytes_both_ways(value: str, record: RemoteLogRecord) -> None:
    assert decode(bytes.fromhex(value)) == record
    assert encode(record).hex() == value


def test_every_record_of_a_real_broker_is_written_as_the_broker_wrote_it() -> None:
    seen = expected("tiered")["remote_log_metadata"]
    assert len(seen) == 164
    for one in seen:
        value = bytes.fromhex(one["value_hex"])
        record = decode(value)
        assert encode(record) == value
        assert isinstance(record, SegmentRecord | SegmentUpdateRecord)
        entry = record.segment_id
        assert (entry.partition.topic, str(entry.partition.topic_id), entry.partition.partition, str(entry.id)) == (
            one["topic"],
            one["topic_id"],
            one["partition"],
            one["segment_id"],
        )
        assert (record.broker_id, record.event_timestamp_ms, record.state.name) == (
            one["broker_id"],
            one["event_timestamp_ms"],
            one["state"],
        )
        if isinstance(record, SegmentRecord):
            assert {str(epoch.leader_epoch): epoch.offset for epoch in record.epochs} == one["leader_epochs"]
            assert (record.start_offset, record.end_offset, record.max_timestamp_ms, record.size_bytes) == (
                one["start_offset"],
                one["end_offset"],
                one["max_timestamp_ms"],
                one["segment_size_in_bytes"],
            )
            assert record.txn_index_empty is one["txn_index_empty"]
            assert segment_record(metadata_of(record)) == record
        else:
            assert update_record(update_of(record)) == record


def test_tagged_fields_nobody_knows_are_kept_in_every_struct() -> None:
    tagged = (TaggedField(1, b"\x00\x00\x00\x09"), TaggedField(2**32 - 1, b""))
    partition = PartitionEntry("orders", Uuid(bytes(range(1, 17))), 3, tagged)
    record = SegmentRecord(
        segment_id=SegmentIdEntry(partition, Uuid(bytes(range(17, 33))), tagged),
        start_offset=0,
        end_offset=0,
        broker_id=1,
        max_timestamp_ms=-1,
        event_timestamp_ms=0,
        epochs=(EpochEntry(0, 0, tagged),),
        size_bytes=1,
        custom_metadata=b"\x00" * 300,
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=True,
        tags=tagged,
    )
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    ("value", "says", "position"),
    [
        ("", "cut off|needs 1 bytes", 0),
        ("00" + _SEGMENT[2:], "frame version 0, not 1", 0),
        ("02" + _SEGMENT[2:], "frame version 2, not 1", 0),
        ("808001" + _SEGMENT[2:], "frame version 16384, not 1", 0),
        ("808002" + _SEGMENT[2:], "frame version 32768 is above 32767", 0),
        ("0104" + _SEGMENT[4:], "unknown api key 4", 1),
        ("010001" + _SEGMENT[6:], "version 1 of api key 0 is newer than 0", 2),
        (_SEGMENT[:-2], "needs 1 bytes, 0 are left", 117),
        (_SEGMENT + "00", "1 bytes after the record", 118),
        ("010000" + "00" + _SEGMENT[8:], "topic is null", 3),
        ("010000" + "818002" + _SEGMENT[8:], "topic has 32768 bytes, more than 32767", 3),
        ("010000" + "ffffff7f" + _SEGMENT[8:], "topic has 268435454 bytes", 3),
        (_SEGMENT.replace("0000000000000064", "ffffffffffffffff", 1), "start offset -1 is negative", 118),
        (_SEGMENT.replace("00000000000000c7", "0000000000000063"), "end offset 99 is below start offset 100", 118),
        ("010000" + _SEGMENT_ID + _HEAD + "01" + "00001000" + _STARTED, "has no leader epoch", 92),
        ("010000" + _SEGMENT_ID + _HEAD + "00" + "00001000" + _STARTED, "leader epochs is null", 84),
        ("010000" + _SEGMENT_ID + _HEAD + "ffffffff07" + "00", "2147483646 leader epochs cannot be in 1 bytes", 84),
        (_SEGMENT[:-4] + "0400", "unknown state 4", 116),
        (_SEGMENT[:-4] + "ff00", "unknown state -1", 116),
        (_SEGMENT[:-6] + "ffffffff07" + "0000", "custom metadata needs 2147483646 bytes, 2 are left", 120),
        (_SEGMENT[:-2] + "7f", "127 tagged fields cannot be in 0 bytes", 117),
        (_SEGMENT[:-2] + "808080800800", "-2147483648 tagged fields", 117),
        (_SEGMENT[:-2] + "01000201", "tagged field 0 has a size of 2 bytes", 119),
        (_SEGMENT[:-2] + "01050201", "tagged field 5 needs 2 bytes, 1 are left", 120),
        (_SEGMENT[:-2] + "8080808080", "more than 5 bytes", 117),
        (_DELETE[:-4] + "0300", "unknown state 3", 43),
    ],
)  # fmt: skip
def test_what_brokers_stop_over_is_refused_with_its_position(value: str, says: str, position: int) -> None:
    with pytest.raises(FormatError, match=says) as refused:
        decode(bytes.fromhex(value))
    assert refused.value.position == position


@pytest.mark.parametrize(
    ("value", "same"),
    [
        ("81808000" + _SEGMENT[2:], _SEGMENT),  # a uvarint in four bytes instead of one
        ("8180808070" + _SEGMENT[2:], _SEGMENT),  # bits that no int32 has
        (_SEGMENT[:-6] + "ffffffff0f" + "0000", _SEGMENT),  # a negative length: null
        (_SEGMENT[:-2] + "0100017f", _SEGMENT[:-2] + "01000101"),  # any byte but 0 is true
        (_SEGMENT[:-2] + "01000100", _SEGMENT),
    ],
)
def test_what_brokers_take_is_taken_and_written_as_they_would(value: str, same: str) -> None:
    assert encode(decode(bytes.fromhex(value))).hex() == same


def test_a_topic_that_is_not_utf8_is_taken_and_kept_but_is_no_segment() -> None:
    value = bytes.fromhex(_SEGMENT.replace("6f7264657273", "6f72ff657273"))
    record = decode(value)
    assert encode(record) == value
    assert isinstance(record, SegmentRecord)
    with pytest.raises(FormatError, match="topic name"):
        metadata_of(record)


def test_epochs_of_a_foreign_writer_are_ordered_as_a_broker_orders_them() -> None:
    epochs = (EpochEntry(2, 150), EpochEntry(0, 90), EpochEntry(0, 100))
    value = bytes.fromhex(_SEGMENT)
    record = decode(value)
    assert isinstance(record, SegmentRecord)
    shuffled = SegmentRecord(
        segment_id=record.segment_id,
        start_offset=100,
        end_offset=199,
        broker_id=7,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        epochs=epochs,
        size_bytes=4096,
        custom_metadata=None,
        state=record.state,
    )
    assert decode(encode(shuffled)) == shuffled
    assert metadata_of(shuffled) == metadata_of(record)


@pytest.mark.parametrize(
    "field", [{"broker_id": 2**31}, {"size_bytes": -(2**31) - 1}, {"end_offset": 2**63}, {"max_timestamp_ms": 2**63}]
)
def test_numbers_that_do_not_fit_are_not_written(field: dict[str, int]) -> None:
    values: dict[str, Any] = {
        "start_offset": 0,
        "end_offset": 0,
        "broker_id": 1,
        "max_timestamp_ms": 0,
        "event_timestamp_ms": 0,
        "size_bytes": 1,
    } | field
    record = SegmentRecord(
        segment_id=_ATTEMPT,
        epochs=(EpochEntry(0, 0),),
        custom_metadata=None,
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        **values,
    )
    with pytest.raises(ValueError, match="does not fit into an int"):
        encode(record)


def test_a_name_that_no_short_string_holds_is_not_written() -> None:
    partition = PartitionEntry("x" * 32_768, _ORDERS.topic_id, 0)
    with pytest.raises(ValueError, match="32768 bytes"):
        encode(PartitionDeleteRecord(partition, 1, 1, RemotePartitionDeleteState.DELETE_PARTITION_MARKED))
