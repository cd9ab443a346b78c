"""Records of a batch against its header."""

import contextlib
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.codecs import Decompressor
from include.tiering.formats.record_batch import HEADER_SIZE, Codec, parse_header
from include.tiering.formats.records import RecordsFound, check_records, read_records
from include.tiering.formats.varint import write_varint, write_varlong
from tests.doubles.broker_data import broker_data
from tests.doubles.record_batches import record, record_batch, with_crc

# Two records that a broker wrote: k1/v1 at +0 ms, a null key with a header at +10 ms.
GOLDEN = bytes.fromhex(
    "00000000000000640000004c0000000502f82d28120000000000010000018bcfe568000000018bcfe5680affffffffffffffffffffffffffff"
    "0000000214000000046b31047631001e001402010a68656c6c6f0202680278"
)


def check(batch: bytes, **changes: int) -> int:
    header = parse_header(batch)._replace(**changes)
    return check_records(header, memoryview(batch)[HEADER_SIZE:], Decompressor())


def test_the_records_of_a_broker() -> None:
    assert check(GOLDEN) == len(GOLDEN) - HEADER_SIZE
    assert read_records(GOLDEN[HEADER_SIZE:], 2) == RecordsFound(2, 1, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"record_count": 1}, "2 records are inside, the header says 1"),
        ({"record_count": 3}, "2 records are inside, the header says 3"),
        ({"last_offset_delta": 0}, "offset delta 1 is above the batch's 0"),
        ({"max_timestamp": 1_700_000_000_009}, "1700000000010, the header says 1700000000009"),
    ],
)
def test_a_header_that_says_something_else(changes: dict[str, int], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check(GOLDEN, **changes)


def test_times_of_the_broker_and_of_compaction_are_not_those_of_the_records() -> None:
    for flag in (0x08, 0x40):
        assert check(GOLDEN, attributes=flag, max_timestamp=1)


def test_an_empty_batch_has_no_record_to_compare() -> None:
    assert check(record_batch(7, records=b""), record_count=0) == 0


@st.composite
def blobs(draw: st.DrawFn) -> tuple[bytes, list[int], list[int]]:
    """(records, offset deltas, timestamp deltas)"""
    deltas = sorted(draw(st.sets(st.integers(0, 2**31 - 1), max_size=8)))
    times = [draw(st.integers(-(2**40), 2**40)) for _ in deltas]
    blob = b""
    for delta, time in zip(deltas, times, strict=True):
        body = b"\0" + write_varlong(time) + write_varint(delta) + write_varint(-1)
        value = draw(st.binary(max_size=200))
        body += write_varint(len(value)) + value + write_varint(0)
        blob += write_varint(len(body)) + body
    return blob, deltas, times


@given(blobs())
def test_what_was_written_is_found(blob: tuple[bytes, list[int], list[int]]) -> None:
    data, deltas, times = blob
    assert read_records(data, len(deltas)) == RecordsFound(len(deltas), max(deltas, default=0), max(times, default=0))


@given(st.binary(max_size=300), st.integers(0, 50))
def test_noise_is_a_format_error_or_few_records(noise: bytes, most: int) -> None:
    with contextlib.suppress(FormatError):
        assert read_records(noise, most).records <= most + 1


@given(blobs(), st.data())
def test_a_cut_is_seen_by_the_count(blob: tuple[bytes, list[int], list[int]], data: st.DataObject) -> None:
    content, deltas, _ = blob
    cut = content[: data.draw(st.integers(0, max(len(content) - 1, 0)))]
    try:
        found = read_records(cut, len(deltas)).records
    except FormatError:
        return
    assert found < len(deltas) or not deltas


def test_offset_deltas_ascend() -> None:
    with pytest.raises(FormatError, match="offset delta 1 follows 1"):
        read_records(record(1, b"a") + record(1, b"b"), 2)


def test_a_compressed_batch_with_one_record_less_than_it_says() -> None:
    blob = bytes(cramjam.zstd.compress(record(0, b"a") + record(1, b"b")))
    batch = record_batch(0, count=3, attributes=Codec.ZSTD, records=blob)
    with pytest.raises(FormatError, match="2 records are inside, the header says 3"):
        check(with_crc(batch))


def test_every_batch_of_real_producers_opens() -> None:
    seen: dict[Codec, int] = {}
    for log in sorted((broker_data("public") / "stopped" / "broker-1").glob("[a-z]*-*/*.log")):
        content, at = log.read_bytes(), 0
        while at + HEADER_SIZE <= len(content) and struct.unpack_from(">i", content, at + 8)[0] > 0:
            header = parse_header(content, at)
            payload = memoryview(content)[at + HEADER_SIZE : at + header.size_bytes]
            check_records(header, payload, Decompressor())
            seen[header.codec] = seen.get(header.codec, 0) + 1
            at += header.size_bytes
    assert set(seen) == set(Codec)
    assert min(seen.values()) > 10
