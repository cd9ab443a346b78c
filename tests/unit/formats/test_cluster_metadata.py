"""Cluster metadata and checkpoints."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats import checkpoints
from include.tiering.formats.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    parse_offset_checkpoint,
    serialize_offset_checkpoint,
)
from include.tiering.formats.cluster_metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode,
    record_values,
    topic_batch,
)
from include.tiering.formats.log_batches import EpochGuard
from include.tiering.formats.record_batch import parse_header
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Uuid
from tests.doubles.broker_data import broker_data
from tests.doubles.record_batches import record_batch
from tests.doubles.tiered_topic import (
    config_record,
    frame,
    metadata_batch,
    partition_change,
    partition_record,
    remove_topic,
    topic_record,
)

# Records of the cluster metadata log: golden bytes, what is dropped, what is refused.

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
        (topic_record("orders", TOPIC_ID) + b"\0", "1 bytes after the last field"),
        (topic_record("orders", TOPIC_ID)[:-5], "field of 16 bytes is cut off"),
        (frame(2, 0, b"\0"), "string is null"),
        (frame(2, 0, b"\x03\xff\xff"), "string is not UTF-8"),
        (frame(3, 0, bytes(20) + b"\xff\xff\xff\xff\x0f"), "items do not fit"),
        (frame(5, 0, bytes(20) + b"\xff\xff\xff\xff\x0f"), "items do not fit"),
        (frame(5, 0, bytes(20) + b"\x01\x01\x05\0\0\0\0\0"), "1 bytes after the last field"),
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
        (b"\x14\0\0\0", 0, "points outside its batch"),
        (b"\x0a\0\0\0\x01\x40", 0, "points outside its record"),
        (b"\x0c\0\0\0\x01\x01\0\0", 0, "1 bytes after the last record"),
        (b"", 0, "cut off"),
        (b"anything", 1, "compressed with codec 1"),
        (b"anything", 7, "compressed with codec 7"),
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


# The batch that creates a topic, byte by byte, beside records made by other hands, and as the reader takes it.

ORDERS = Uuid(bytes(range(1, 17)))
NOW_MS = 1_700_000_000_000
# base offset, length | leader epoch, magic, CRC | attributes, last delta, times | no producer | two records
HEADER = (
    "0000000000000000 0000008a 00000000 02 c4950940 0000 00000001 0000018bcfe56800 0000018bcfe56800"
    "ffffffffffffffff ffff ffffffff 00000002"
)
# length 33, attributes, deltas, no key, value of 27 bytes: frame 1, topic (2) version 0, name, id, no tags; no headers
TOPIC = "42 00 00 00 01 36  01 02 00  07 6f7264657273  0102030405060708090a0b0c0d0e0f10  00  00"
# length 54, value of 48 bytes: frame 1, partition (3) version 0, number, id, replicas, in sync, removed, added, leader,
# leader epoch 417, partition epoch
PARTITION = (
    "6c 00 00 02 01 60  01 03 00  00000000 0102030405060708090a0b0c0d0e0f10"
    "02 00000001  02 00000001  01 01  00000001 000001a1 00000000  00  00"
)


def test_the_bytes_are_these() -> None:
    made = topic_batch("orders", ORDERS, {0: 417}, broker_id=1, now_ms=NOW_MS)
    assert made == bytes.fromhex(HEADER + TOPIC + PARTITION)


def test_every_partition_has_its_leader_epoch() -> None:
    batch = topic_batch("orders", ORDERS, {1: 0, 0: 417}, broker_id=7, now_ms=NOW_MS)
    values = [bytes(value) for value in record_values(memoryview(batch), parse_header(batch))]
    assert [decode(value) for value in values] == [
        TopicRecord("orders", ORDERS),
        PartitionRecord(0, ORDERS, (7,), (7,), 7, 417),
        PartitionRecord(1, ORDERS, (7,), (7,), 7, 0),
    ]
    epochs = {0: 417, 1: 0}
    assert values == [
        topic_record("orders", ORDERS),
        *(partition_record(ORDERS, one, replicas=(7,), leader=7, leader_epoch=epochs[one]) for one in epochs),
    ]


def test_offsets_by_partition() -> None:
    data = b"0\n3\norders 0 1500\norders 1 77\npayments.v1-eu_x 12 9223372036854775807\n"
    assert parse_offset_checkpoint(data) == {
        ("orders", 0): 1500,
        ("orders", 1): 77,
        ("payments.v1-eu_x", 12): 2**63 - 1,
    }


def test_offsets_are_written_as_brokers_write_them() -> None:
    written = (broker_data("public") / "stopped" / "broker-1" / "recovery-point-offset-checkpoint").read_bytes()
    assert len(parse_offset_checkpoint(written)) > 5
    assert serialize_offset_checkpoint(parse_offset_checkpoint(written)) == written
    assert serialize_offset_checkpoint({}) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n"])
def test_a_checkpoint_without_entries(data: bytes) -> None:
    assert parse_offset_checkpoint(data) == {}
    assert checkpoints.parse_leader_epochs(data) == LeaderEpochs()


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"1\n0\n", 0, "version '1\\n' is not 0"),
        (b"\n0\n", 0, "is not 0"),
        (b"0\nx\n", 2, "not a number: 'x'"),
        (b"0\n-1\n", 2, "-1 is outside"),
        (b"0\n1\n", 2, "the second line says 1 entries, 0 lines follow"),
        (b"0\n1\na 0 1\nb 0 1\n", 2, "the second line says 1 entries, 2 lines follow"),
        (b"0\n2147483647\na 0 1\n", 2, "the second line says 2147483647 entries"),
        (b"0\n99999999999999999999\n", 2, "not a number"),
        (b"0\n1\na 0\n", 4, "2 fields instead of 3: 'a 0\\n'"),
        (b"0\n2\na 0 1\na b 0 1\n", 10, "4 fields instead of 3"),
        (b"0\n1\na 0 -1\n", 4, "-1 is outside"),
        (b"0\n1\na 0 9223372036854775808\n", 4, "is outside"),
        (b"0\n1\na 2147483648 1\n", 4, "is outside"),
        (b"0\n1\na +0 1\n", 4, "not a number"),
        (b"0\n1\na 1_0 1\n", 4, "not a number"),
        ("0\n1\na ٣ 1\n".encode(), 4, "not a number"),
        (b"0\n1\n../etc 0 1\n", 4, "not a legal topic name"),
        (b"0\n1\n.. 0 1\n", 4, "not a legal topic name"),
        (b"0\n1\n\xff\x1b 0 1\n", 4, "not a legal topic name"),
        (b"0\n2\na 0 1\na 0 2\n", 10, "a-0 is listed twice"),
    ],
)
def test_checkpoints_that_no_broker_writes(data: bytes, position: int, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_offset_checkpoint(data)
    assert caught.value.position == position
    assert message in caught.value.message


def test_an_error_repeats_little_of_a_long_line() -> None:
    with pytest.raises(FormatError) as caught:
        parse_offset_checkpoint(b"0\n1\n" + b"x" * 100_000 + b"\n")
    assert len(caught.value.message) < 200


def test_a_checkpoint_larger_than_any_broker_s_is_not_parsed() -> None:
    with pytest.raises(FormatError, match="at most"):
        parse_offset_checkpoint(b"0" * (MAX_CHECKPOINT_BYTES + 1))


def test_leader_epochs_as_a_broker_writes_them() -> None:
    history = LeaderEpochs.of([(0, 0), (3, 1500), (4, 1500)])
    assert checkpoints.serialize_leader_epochs(history) == b"0\n3\n0 0\n3 1500\n4 1500\n"
    assert checkpoints.parse_leader_epochs(b"0\n3\n0 0\n3 1500\n4 1500\n") == history
    assert checkpoints.serialize_leader_epochs(LeaderEpochs()) == b"0\n0\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"0\n2\n3 0\n3 10\n", "do not ascend"),
        (b"0\n2\n3 10\n4 5\n", "do not ascend"),
        (b"0\n1\n-1 0\n", "-1 is outside"),
        (b"0\n1\n0 -1\n", "-1 is outside"),
        (b"0\n1\n2147483648 0\n", "is outside"),
        (b"0\n1\n0 0 0\n", "3 fields instead of 2"),
    ],
)
def test_histories_that_no_broker_writes(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        checkpoints.parse_leader_epochs(data)


HISTORY = LeaderEpochs.of([(2, 100), (3, 150), (4, 150), (7, 180)])


def _follow(history: LeaderEpochs | None, *batches: tuple[int, int, int]) -> LeaderEpochs:
    """Feeds (epoch, first offset, last offset) as the check pass does: only what the current epoch does not cover."""
    guard = EpochGuard(history)
    for number, (epoch, first, last) in enumerate(batches):
        if epoch != guard.epoch or last >= guard.end_offset:
            guard.enter(epoch, first, last, 1000 + number)
    return guard.seen


def test_batches_that_the_history_knows() -> None:
    seen = _follow(HISTORY, (2, 100, 120), (2, 121, 149), (4, 150, 170), (4, 175, 179), (7, 180, 10_000))
    assert seen == LeaderEpochs.of([(2, 100), (4, 150), (7, 180)])


def test_a_segment_in_the_middle_of_an_epoch() -> None:
    assert _follow(HISTORY, (2, 130, 140)) == LeaderEpochs.of([(2, 130)])


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([(3, 100, 110)], "leader epoch 3 at offsets 100..110, the history has 2 from 100"),
        ([(2, 140, 149), (2, 150, 151)], "leader epoch 2 at offsets 150..151, the history has 4 from 150"),
        ([(2, 140, 155)], "leader epoch 2 at offsets 140..155, the history has 4 from 150"),
        ([(4, 149, 155)], "leader epoch 4 at offsets 149..155, the history has 4 from 150"),
        ([(3, 150, 151)], "leader epoch 3 at offsets 150..151, the history has 4 from 150"),
        ([(8, 200, 200)], "leader epoch 8 at offsets 200..200, the history has 7 from 180"),
        ([(-1, 200, 200)], "leader epoch -1 at offsets 200..200, the history has 7 from 180"),
        ([(7, 180, 190), (4, 191, 192)], "leader epoch 4 at offset 191 follows 7"),
        ([(3, 50, 60)], "leader epoch 3 at offset 50, the history has 2 from 100"),
    ],
)
def test_batches_that_the_history_does_not_know(batches: list[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        _follow(HISTORY, *batches)
    assert caught.value.message == message
    assert caught.value.position == 1000 + len(batches) - 1


def test_a_batch_belongs_to_one_epoch() -> None:
    with pytest.raises(FormatError, match="the history has 3 from 150"):
        _follow(LeaderEpochs.of([(2, 100), (3, 150)]), (3, 149, 155))


def test_a_history_cut_inside_the_segment_bounds_what_lies_before_it() -> None:
    seen = _follow(HISTORY, (0, 10, 20), (2, 30, 40), (2, 95, 105), (2, 106, 149), (4, 150, 150))
    assert seen == LeaderEpochs.of([(0, 10), (2, 30), (4, 150)])


@pytest.mark.parametrize("history", [None, LeaderEpochs()])
def test_without_a_history_epochs_must_only_not_fall(history: LeaderEpochs | None) -> None:
    assert _follow(history, (-1, 0, 4), (3, 5, 9), (3, 10, 12), (9, 13, 13)) == LeaderEpochs.of([(3, 5), (9, 13)])
    with pytest.raises(FormatError, match="follows 3"):
        _follow(history, (3, 5, 9), (2, 10, 10))


def test_an_epoch_below_none_is_refused() -> None:
    with pytest.raises(FormatError, match="leader epoch -2"):
        _follow(None, (-2, 0, 0))
