"""Streams of batches."""

from collections.abc import Callable

import google_crc32c
import pytest

from include.tiering.errors import FormatError, OldMagicError, SourceChangedError
from include.tiering.formats import primitive_types
from include.tiering.formats.log_batches import MIN_BLOCK_BYTES, BatchStream
from include.tiering.formats.record_batch import ControlType, WholeBatches, control_type
from tests.doubles.memory_source import BytesSource, RecordingSource, ShrinkingSource
from tests.doubles.record_batches import marker, old_batch, record_batch, with_crc

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
