import struct

import pytest

from include.tiering.errors import FormatError, OldMagicError
from include.tiering.formats.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    ControlType,
    check_codec,
    control_type,
    parse_header,
)
from tests.doubles.record_batches import marker, old_batch, record_batch

T0_MS = 1_700_000_000_000
# Written by Kafka: base 100, records (k1, v1) at t0 and (null, hello, header h=x) at t0 + 10.
TWO_RECORDS = bytes.fromhex(
    "00000000000000640000004c0000000502f82d28120000000000010000018bcfe568000000018bcfe5680affffffffffffffffffffffffffff"
    "0000000214000000046b31047631001e001402010a68656c6c6f0202680278"
)
# Written by Kafka: ABORT marker at 102, producer 4242 in epoch 1, leader epoch 5, coordinator epoch 9.
ABORT_MARKER = bytes.fromhex(
    "00000000000000660000004200000005029ad378a40030000000000000018bcfe568140000018bcfe5681400000000000010920001"
    "ffffffff000000012000000008000000000c00000000000900"
)


def test_every_field_of_a_batch_that_kafka_wrote() -> None:
    assert parse_header(TWO_RECORDS) == BatchHeader(
        base_offset=100,
        batch_length=76,
        partition_leader_epoch=5,
        magic=2,
        crc=0xF82D2812,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=T0_MS,
        max_timestamp=T0_MS + 10,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=2,
    )


def test_what_follows_from_the_fields() -> None:
    header = parse_header(b"???" + TWO_RECORDS, 3)
    assert (header.size_bytes, header.last_offset, header.codec) == (88, 101, Codec.NONE)
    flags = (header.is_control, header.is_transactional, header.has_log_append_time, header.has_delete_horizon)
    assert not any(flags)


def test_an_abort_marker_that_kafka_wrote() -> None:
    header = parse_header(ABORT_MARKER)
    assert (header.base_offset, header.last_offset, header.producer_id, header.producer_epoch) == (102, 102, 4242, 1)
    assert header.is_control
    assert header.is_transactional
    assert control_type(ABORT_MARKER, HEADER_SIZE) is ControlType.ABORT


def test_the_batches_that_tests_make_are_those_of_kafka() -> None:
    made = marker(102, 4242, ControlType.ABORT, leader_epoch=5)
    assert len(made) == len(ABORT_MARKER)
    assert made[HEADER_SIZE:] == ABORT_MARKER[HEADER_SIZE:]


@pytest.mark.parametrize(
    ("attributes", "codec", "append_time", "transactional", "control", "horizon"),
    [
        (0x01, Codec.GZIP, False, False, False, False),
        (0x02, Codec.SNAPPY, False, False, False, False),
        (0x0B, Codec.LZ4, True, False, False, False),
        (0x14, Codec.ZSTD, False, True, False, False),
        (0x30, Codec.NONE, False, True, True, False),
        (0x40, Codec.NONE, False, False, False, True),
    ],
)
def test_attribute_bits(
    attributes: int, codec: Codec, append_time: bool, transactional: bool, control: bool, horizon: bool
) -> None:
    header = parse_header(record_batch(0, attributes=attributes))
    assert header.codec is codec
    assert header.has_log_append_time is append_time
    assert header.is_transactional is transactional
    assert header.is_control is control
    assert header.has_delete_horizon is horizon


@pytest.mark.parametrize("attributes", [0x05, 0x07])
def test_codecs_that_kafka_never_numbered(attributes: int) -> None:
    with pytest.raises(FormatError, match=f"codec {attributes} is unknown"):
        check_codec(parse_header(record_batch(0, attributes=attributes)), 0)


def test_a_compressed_control_batch() -> None:
    with pytest.raises(FormatError, match="compressed"):
        check_codec(parse_header(record_batch(0, attributes=0x21)), 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_magic_has_its_own_error(magic: int) -> None:
    batch = old_batch(7, magic) + bytes(HEADER_SIZE)
    with pytest.raises(OldMagicError, match=f"magic {magic}") as caught:
        parse_header(b"\0" * 5 + batch, 5)
    assert caught.value.position == 5


def _with(offset: int, form: str, value: int) -> bytes:
    batch = bytearray(record_batch(40, count=3))
    struct.pack_into(form, batch, offset, value)
    return bytes(batch)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(HEADER_SIZE), "batch length 0 is below 49"),
        (_with(8, ">i", 48), "batch length 48 is below 49"),
        (_with(8, ">i", -1), "batch length -1"),
        (_with(16, ">b", 3), "magic 3 is unknown"),
        (_with(16, ">b", -1), "magic -1 is unknown"),
        (_with(0, ">q", -40), "base offset -40 is below 0"),
        (_with(23, ">i", -2), "offsets 40 \\+ -2"),
        (_with(0, ">q", 2**63 - 1), f"offsets {2**63 - 1} \\+ 2"),
        (_with(57, ">i", -1), "record count is -1"),
        (record_batch(0)[: HEADER_SIZE - 1], "60 are left"),
    ],
)
def test_headers_that_no_broker_writes(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_header(data)


@pytest.mark.parametrize("position", [-1, 30, 1000])
def test_a_position_without_a_whole_header(position: int) -> None:
    with pytest.raises(FormatError):
        parse_header(TWO_RECORDS, position)


def _control_record(key: bytes) -> bytes:
    return bytes([0, 0, 0, 0, len(key) * 2]) + key


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 6])
def test_control_types_by_number(number: int) -> None:
    assert control_type(_control_record(struct.pack(">hh", 0, number)), 0) == ControlType(number)


def test_a_control_type_of_a_later_kafka_is_not_an_error() -> None:
    assert control_type(_control_record(struct.pack(">hh", 0, 700)), 0) is ControlType.UNKNOWN


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x20",
        _control_record(b"\0\0"),
        _control_record(b"\0\0") + bytes(20),
        _control_record(b""),
        b"\0\0\0\0\x01",
        _control_record(b"\0\0\0\0")[:-1],
        _control_record(b"\xff\xff\0\0"),
    ],
)
def test_control_records_without_a_readable_key(record: bytes) -> None:
    with pytest.raises(FormatError):
        control_type(record, 0)
