"""Record batches, and streams of them."""

import struct
from collections.abc import Callable

import google_crc32c
import pytest

from include.tiering.errors import FormatError, OldMagicError, SourceChangedError
from include.tiering.formats import primitive_types
from include.tiering.formats.log_batches import MIN_BLOCK_BYTES, BatchStream
from include.tiering.formats.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    ControlType,
    WholeBatches,
    check_codec,
    control_type,
    parse_header,
)
from tests.doubles.memory_source import BytesSource, RecordingSource, ShrinkingSource
from tests.doubles.record_batches import marker, old_batch, record_batch, with_crc

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


# Streams of batches.

SMALL = record_batch(0, count=2)
LARGE = record_batch(10, records=bytes(range(256)) * 40)
LOG = SMALL + record_batch(2, value_bytes=700) + LARGE + marker(11, 7, ControlType.COMMIT) + record_batch(12)


def _positions(log: bytes, block_bytes: int = MIN_BLOCK_BYTES) -> list[tuple[int, int]]:
    return [(position, fields[0]) for position, fields in BatchStream(BytesSource(log), block_bytes)]


def _failure(log: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        _positions(log)
    return caught.value


@pytest.mark.parametrize("block_bytes", [1, MIN_BLOCK_BYTES, MIN_BLOCK_BYTES + 1, len(LARGE), len(LOG) - 1, len(LOG)])
def test_positions_do_not_depend_on_the_block(block_bytes: int) -> None:
    at_large = len(SMALL) + len(record_batch(2, value_bytes=700))
    after = at_large + len(LARGE)
    expected = [(0, 0), (len(SMALL), 2), (at_large, 10), (after, 11), (after + 78, 12)]
    assert _positions(LOG, block_bytes) == expected


def test_nothing_in_an_empty_file() -> None:
    assert _positions(b"") == []


def test_every_byte_is_read_once_and_in_order() -> None:
    source = RecordingSource(BytesSource(LOG))
    assert len(list(BatchStream(source, MIN_BLOCK_BYTES))) == 5
    read_to = 0
    for position, size_bytes in source.reads:
        assert position == read_to
        read_to += size_bytes
    assert read_to == len(LOG)
    assert max(size_bytes for _, size_bytes in source.reads) <= MIN_BLOCK_BYTES


def test_the_records_of_the_last_batch_are_at_hand() -> None:
    stream = BatchStream(BytesSource(LOG), MIN_BLOCK_BYTES)
    controls = {fields[0]: control_type(stream.records(at), 0) for at, fields in stream if fields[5] & 0x20}
    assert controls == {11: ControlType.COMMIT}


def test_the_records_of_a_batch_larger_than_the_buffer_are_not() -> None:
    stream = BatchStream(BytesSource(LOG), MIN_BLOCK_BYTES)
    sizes = {fields[0]: len(stream.records(at)) for at, fields in stream}
    assert sizes[10] == 0
    assert sizes[0] > 0


@pytest.mark.parametrize("batch_number", [0, 2, 4])
def test_a_flipped_bit_is_found_at_its_batch(batch_number: int) -> None:
    start = _positions(LOG)[batch_number][0]
    damaged = bytearray(LOG)
    damaged[start + 61] ^= 0x10
    error = _failure(bytes(damaged))
    assert error.position == start
    assert "CRC-32C" in error.message


@pytest.mark.parametrize("batch", [SMALL, LARGE])
def test_the_last_byte_of_a_batch_counts(batch: bytes) -> None:
    damaged = batch[:-1] + bytes([batch[-1] ^ 1])
    error = _failure(damaged + SMALL)
    offset, crc, wrong = batch[7], batch[17:21].hex(), google_crc32c.value(damaged[21:])
    assert error.message == f"CRC-32C of the batch at offset {offset} is {wrong:08x}, not {crc}"
    assert error.position == 0


@pytest.mark.parametrize("kept", [1, 17, 18, 60])
def test_less_than_a_header_is_left_over(kept: int) -> None:
    error = _failure(SMALL + SMALL[:kept])
    assert error.position == len(SMALL)
    assert f"{kept} bytes are left over" in error.message


@pytest.mark.parametrize("batch", [SMALL, LARGE])
@pytest.mark.parametrize("missing", [1, 20])
def test_a_batch_is_cut_off(batch: bytes, missing: int) -> None:
    error = _failure(SMALL + batch[:-missing])
    assert error.position == len(SMALL)
    assert error.message == f"batch of {len(batch)} bytes is cut off after {len(batch) - missing}"


def test_a_length_of_two_gib_is_not_allocated() -> None:
    hostile = SMALL[:8] + b"\x7f\xff\xff\xff" + SMALL[12:]
    error = _failure(hostile + bytes(5000))
    assert f"batch of {2**31 - 1 + 12} bytes is cut off" in error.message


@pytest.mark.parametrize("batch_length", [-(2**31), -12, -1, 0, 9, 48])
def test_a_length_below_a_header_does_not_stop_the_walk_on_one_spot(batch_length: int) -> None:
    """Even with the magic and the CRC that such a batch would have."""
    covered = SMALL[21 : max(12 + batch_length, 21)]
    crc = google_crc32c.value(covered).to_bytes(4, "big")
    hostile = SMALL[:8] + batch_length.to_bytes(4, "big", signed=True) + SMALL[12:17] + crc + SMALL[21:]
    error = _failure(SMALL + hostile)
    assert (error.position, error.message) == (len(SMALL), f"batch length {batch_length} is below 49")


def test_a_zero_tail_is_named_by_its_length_of_zero() -> None:
    error = _failure(SMALL + bytes(3000))
    assert (error.position, error.message) == (len(SMALL), "batch length 0 is below 49")


def test_old_magic_keeps_its_error() -> None:
    with pytest.raises(OldMagicError) as caught:
        _positions(SMALL + old_batch(2, 1) + old_batch(3, 1))
    assert caught.value.position == len(SMALL)


def test_a_source_that_shrinks_says_so_itself() -> None:
    with pytest.raises(SourceChangedError):
        list(BatchStream(ShrinkingSource(BytesSource(LOG), 2000), MIN_BLOCK_BYTES))


class _EndsEarly(BytesSource):
    @property
    def size_bytes(self) -> int:
        return super().size_bytes + 20_000


@pytest.mark.parametrize("batch", [SMALL, LARGE])
def test_a_source_that_ends_before_its_size_is_no_endless_loop(batch: bytes) -> None:
    with pytest.raises(FormatError, match="ended before"):
        list(BatchStream(_EndsEarly(batch[:8] + b"\0\0\x40\0" + batch[12:]), MIN_BLOCK_BYTES))


def test_a_wrong_crc_is_not_hidden_by_right_fields() -> None:
    changed = SMALL[:60] + b"\x09" + SMALL[61:]
    assert "CRC-32C" in _failure(changed).message
    assert _positions(with_crc(changed)) == [(0, 0)]


# When a read is full: once nothing more fits, so that nothing more is asked for.

HEADER_BYTES = 61
"""Of a record batch of magic 2, before its records."""
BATCH = record_batch(0, count=1, value_bytes=100)


@pytest.mark.parametrize(
    ("room_bytes", "missing_bytes"),
    [(0, 0), (1, 0), (HEADER_BYTES - 1, 0), (HEADER_BYTES, HEADER_BYTES), (2 * HEADER_BYTES, 2 * HEADER_BYTES)],
)
def test_a_read_is_full_once_no_header_fits_any_more(room_bytes: int, missing_bytes: int) -> None:
    """Else bytes beyond the limit would be asked for, to find a batch that is too large."""
    collected = WholeBatches(0, len(BATCH) + room_bytes)
    collected.begin(0, 10 * len(BATCH), 0)
    assert collected.missing_bytes == len(BATCH) + room_bytes
    collected.feed(BATCH)
    assert (collected.full, collected.missing_bytes) == (missing_bytes == 0, missing_bytes)
    assert bytes(collected.records) == BATCH


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_uvarint_bytes(value: int, encoded: str) -> None:
    assert primitive_types.write_uvarint(value).hex() == encoded
    assert primitive_types.read_uvarint(b"\xaa" + bytes.fromhex(encoded) + b"\xaa", 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varint_bytes_are_zig_zag(value: int, encoded: str) -> None:
    assert primitive_types.write_varint(value).hex() == encoded
    assert primitive_types.read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")]
)
def test_varlong_bytes(value: int, encoded: str) -> None:
    assert primitive_types.write_varlong(value).hex() == encoded
    assert primitive_types.read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_a_cut_number_names_where_it_began(encoded: str) -> None:
    with pytest.raises(FormatError, match="cut off") as caught:
        primitive_types.read_uvarint(b"\0\0" + bytes.fromhex(encoded), 2)
    assert caught.value.position == 2


@pytest.mark.parametrize(
    ("read", "encoded"),
    [
        (primitive_types.read_uvarint, "ffffffff10"),
        (primitive_types.read_uvarint, "ffffffffff01"),
        (primitive_types.read_varint, "808080808000"),
        (primitive_types.read_varlong, "ffffffffffffffffff02"),
        (primitive_types.read_varlong, "8080808080808080808000"),
    ],
)
def test_more_bits_than_the_type_has_are_refused(read: Callable[[bytes, int], tuple[int, int]], encoded: str) -> None:
    with pytest.raises(FormatError, match="more than"):
        read(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (primitive_types.write_uvarint, -1),
        (primitive_types.write_uvarint, 2**32),
        (primitive_types.write_varint, 2**31),
        (primitive_types.write_varlong, -(2**63) - 1),
    ],
)
def test_what_does_not_fit_is_not_written(write: Callable[[int], bytes], value: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        write(value)
