"""Records of the cluster metadata log: golden bytes, what is dropped, what is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.cluster_metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode,
    record_values,
)
from include.tiering.formats.record_batch import parse_header
from include.tiering.model.segments import Uuid
from tests.doubles.broker_data import broker_data
from tests.doubles.metadata_records import (
    config_record,
    frame,
    metadata_batch,
    partition_change,
    partition_record,
    remove_topic,
    topic_record,
)
from tests.doubles.record_batches import record_batch

TOPIC_ID = Uuid(bytes(range(1, 17)))
DIRECTORY = Uuid(bytes(range(17, 33)))
_ID = "0102030405060708090a0b0c0d0e0f10"


@pytest.mark.parametrize(
    ("value", "record"),
    [
        ("010200" + "076f7264657273" + _ID + "00", TopicRecord("orders", TOPIC_ID)),
        (
            "010301" + "00000003" + _ID + "030000000200000001" + "0200000002" + "01" + "01"
            "000000020000000700000009" + "02" + "1112131415161718191a1b1c1d1e1f20" + "00",
            PartitionRecord(3, TOPIC_ID, replicas=(2, 1), isr=(2,), leader=2, leader_epoch=7, directories=(DIRECTORY,)),
        ),
        (
            "010400" + "02" + "076f7264657273" + "0d726574656e74696f6e2e6d73" + "032d31" + "00",
            ConfigRecord(2, "orders", "retention.ms", "-1"),
        ),
        ("010400" + "04" + "01" + "026b" + "00" + "00", ConfigRecord(4, "", "k", None)),
        (
            "010500" + "00000003" + _ID + "02" + "0005" + "0200000002" + "0104" + "ffffffff",
            PartitionChangeRecord(3, TOPIC_ID, isr=(2,), leader=-1),
        ),
        ("010900" + _ID + "00", RemoveTopicRecord(TOPIC_ID)),
    ],
)  # fmt: skip
def test_golden_bytes(value: str, record: object) -> None:
    assert decode(bytes.fromhex(value)) == record


def test_the_doubles_write_what_is_read() -> None:
    assert decode(topic_record("orders", TOPIC_ID)) == TopicRecord("orders", TOPIC_ID)
    assert decode(remove_topic(TOPIC_ID)) == RemoveTopicRecord(TOPIC_ID)
    assert decode(
        partition_record(TOPIC_ID, 2, replicas=(1, 2), isr=(1,), leader=1, leader_epoch=4)
    ) == PartitionRecord(2, TOPIC_ID, (1, 2), (1,), 1, 4)
    change = partition_change(TOPIC_ID, replicas=(3,), directories=(DIRECTORY,))
    assert decode(change) == PartitionChangeRecord(0, TOPIC_ID, replicas=(3,), directories=(DIRECTORY,))


def test_other_kinds_are_dropped_undecoded() -> None:
    assert decode(frame(27, 0, b"\xff" * 40)) is None


def test_tags_of_newer_versions_are_passed_over() -> None:
    newer = topic_record("orders", TOPIC_ID)[:-1] + bytes([1, 9, 2, 0xCA, 0xFE])
    assert decode(newer) == TopicRecord("orders", TOPIC_ID)


def test_a_value_is_not_shown() -> None:
    record = decode(config_record("orders", "some.password", "hunter2"))
    assert isinstance(record, ConfigRecord)
    assert record.value == "hunter2"
    assert "hunter2" not in repr(record)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x02" + topic_record("orders", TOPIC_ID)[1:], "frame version 2"),
        (topic_record("orders", TOPIC_ID) + b"\0", "1 bytes behind the last field"),
        (topic_record("orders", TOPIC_ID)[:-5], "field of 16 bytes is cut off"),
        (frame(2, 0, b"\0"), "string is null"),
        (frame(2, 0, b"\x03\xff\xff"), "string is not UTF-8"),
        (frame(3, 0, bytes(20) + b"\xff\xff\xff\xff\x0f"), "items do not fit"),
        (frame(5, 0, bytes(20) + b"\xff\xff\xff\xff\x0f"), "items do not fit"),
        (frame(5, 0, bytes(20) + b"\x01\x01\x05\0\0\0\0\0"), "1 bytes behind the last field"),
        (b"", "cut off"),
    ],
)
def test_what_breaks_the_format_is_named(value: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode(value)


@given(st.binary(max_size=120), st.sampled_from([2, 3, 4, 5, 9]), st.integers(0, 4))
def test_no_bytes_raise_anything_else(body: bytes, api_key: int, version: int) -> None:
    with contextlib.suppress(FormatError):
        decode(frame(api_key, version, body))


def test_values_of_a_batch() -> None:
    values = [topic_record("orders", TOPIC_ID), remove_topic(TOPIC_ID)]
    batch = metadata_batch(7, values)
    assert [bytes(value) for value in record_values(memoryview(batch), parse_header(batch))] == values


@pytest.mark.parametrize(
    ("records", "attributes", "message"),
    [
        (b"\x14\0\0\0", 0, "leads outside its batch"),
        (b"\x0a\0\0\0\x01\x40", 0, "leads outside its record"),
        (b"\x0c\0\0\0\x01\x01\0\0", 0, "1 bytes behind the last record"),
        (b"", 0, "cut off"),
        (b"anything", 1, "compressed"),
    ],
)
def test_a_broken_batch_is_named(records: bytes, attributes: int, message: str) -> None:
    batch = record_batch(0, records=records, attributes=attributes)
    with pytest.raises(FormatError, match=message):
        list(record_values(memoryview(batch), parse_header(batch)))


def test_a_record_without_value_is_left_out() -> None:
    batch = record_batch(0, records=b"\x0c\0\0\0\x01\x01\0")
    assert list(record_values(memoryview(batch), parse_header(batch))) == []


@pytest.mark.parametrize("part", ["running/broker-1", "running/broker-2", "stopped/broker-1", "stopped/broker-2"])
def test_a_real_log_is_decoded_to_its_last_byte(part: str) -> None:
    log = memoryview((broker_data("public") / part / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes())
    position, topics = 0, 0
    while position < len(log):
        header = parse_header(log, position)
        batch = log[position : position + header.size_bytes]
        if not header.is_control:
            topics += sum(isinstance(decode(value), TopicRecord) for value in record_values(batch, header))
        position += header.size_bytes
    assert topics == 13
