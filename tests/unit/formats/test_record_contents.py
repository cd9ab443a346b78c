"""Records inside of batches with keys, values and headers, and their digest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.primitive_types import write_varint, write_varlong
from include.tiering.formats.record_batch import HEADER_SIZE, parse_header
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.model.segments import RecordDigest, SeenRecord
from tests.doubles.record_batches import record_batch

BASE_MS = 1_700_000_000_000
BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.binary(max_size=8), BYTES), max_size=3)
# length 10 (zigzag) | attributes | timestamp delta 5 | offset delta 0 | key "k" | value absent | 1 header "h" = ""
GOLDEN = bytes([20, 0, 10, 0, 2]) + b"k" + bytes([1, 2, 2]) + b"h" + bytes([0])


def encoded(delta, timestamp_delta, key, value, headers):
    def field(content):
        return write_varint(-1) if content is None else write_varint(len(content)) + content

    body = b"\0" + write_varlong(timestamp_delta) + write_varint(delta) + field(key) + field(value)
    body += write_varint(len(headers)) + b"".join(field(name) + field(content) for name, content in headers)
    return write_varint(len(body)) + body


def opened(batch):
    return list(records_of(parse_header(batch), memoryview(batch)[HEADER_SIZE:], Decompressor()))


def test_one_record_byte_by_byte():
    (record,) = opened(record_batch(40, records=GOLDEN))
    assert record == SeenRecord(40, False, BASE_MS + 5, b"k", None, ((b"h", b""),))


@given(st.lists(st.tuples(st.integers(0, 1_000), BYTES, BYTES, HEADERS), min_size=1, max_size=5))
def test_what_was_written_is_read(contents):
    blob = b"".join(encoded(number, *one) for number, one in enumerate(contents))
    found = opened(record_batch(7, count=len(contents), records=blob))
    assert found == [
        SeenRecord(7 + number, False, BASE_MS + delta, key, value, tuple(headers))
        for number, (delta, key, value, headers) in enumerate(contents)
    ]


def test_log_append_time_is_that_of_the_batch():
    batch = record_batch(0, count=2, attributes=0x08)
    assert {one.timestamp_ms for one in opened(batch)} == {BASE_MS + 1}
    assert all(one.is_append_time for one in opened(batch))


@given(st.integers(0, len(GOLDEN) - 1))
def test_what_is_cut_off_is_refused(length):
    with pytest.raises(FormatError):
        opened(record_batch(0, records=GOLDEN[:length]))


def test_a_field_that_reaches_beyond_its_record_is_refused():
    with pytest.raises(FormatError, match="left in its record"):
        opened(record_batch(0, records=GOLDEN.replace(b"\x02k", b"\x7ek")))


RECORD = SeenRecord(5, False, 9, b"k", b"v", ((b"h", None),))


def digest(*records):
    sums = RecordDigest()
    for one in records:
        sums.add(one)
    return sums.result()


@pytest.mark.parametrize(
    "other",
    [
        RECORD._replace(offset=6),
        RECORD._replace(is_append_time=True),
        RECORD._replace(timestamp_ms=8),
        RECORD._replace(key=None),
        RECORD._replace(key=b""),
        RECORD._replace(value=b""),
        RECORD._replace(headers=()),
        RECORD._replace(headers=((b"h", b""),)),
        RECORD._replace(key=b"kv", value=b""),
    ],
)
def test_whatever_a_consumer_sees_is_in_the_digest(other):
    assert digest(RECORD) == digest(RECORD)
    assert digest(RECORD) != digest(other)
    assert digest(RECORD, other).records == 2
