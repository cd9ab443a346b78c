"""Records of batches become columns: nothing is lost, nulls stay nulls, and damage is an error of the format."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import BatchTooLargeError, FormatError
from include.tiering.formats import record_columns
from include.tiering.formats.primitive_types import write_varint, write_varlong
from include.tiering.formats.record_batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, BatchHeader, Codec, parse_header
from include.tiering.formats.record_columns import HEADERS, SCHEMA, RecordColumns
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import SeenRecord
from tests.doubles.many_segments import compressed
from tests.doubles.record_batches import record, record_batch
from tests.doubles.whole_logs import records_in

EVERYTHING = OffsetRange(0, 2**63 - 1)
BASE_MS = 1_700_000_000_000


def encoded(each: SeenRecord, base_offset: int) -> bytes:
    """A record as producers write it; its attributes are 0."""
    fields = [each.key, each.value]
    body = b"\0" + write_varlong(each.timestamp_ms - BASE_MS) + write_varint(each.offset - base_offset)
    body += b"".join(map(nullable, fields)) + write_varint(len(each.headers))
    body += b"".join(nullable(part) for header in each.headers for part in header)
    return write_varint(len(body)) + body


def nullable(part: bytes | None) -> bytes:
    return write_varint(-1) if part is None else write_varint(len(part)) + part


def batch_of(
    records: Sequence[SeenRecord], *, base_offset: int = 0, codec: Codec = Codec.NONE, attributes: int = 0
) -> bytes:
    plain = compressed(codec, [encoded(each, base_offset) for each in records])
    return record_batch(
        base_offset, count=len(records), records=plain, attributes=codec | attributes, timestamp_ms=BASE_MS
    )


def add(columns: RecordColumns, batch: bytes, offsets: OffsetRange = EVERYTHING) -> None:
    columns.add(parse_header(batch), memoryview(batch)[HEADER_SIZE:], *offsets)


contents = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=10).map(str.encode), contents), max_size=4).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[bytes, list[SeenRecord]]]:
    """Batches that follow each other, with the gaps in their offsets that compaction leaves."""
    found, next_offset = [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        base_offset = next_offset + draw(st.integers(0, 3))
        records, offset = [], base_offset
        for _ in range(draw(st.integers(1, 8))):
            time_ms = BASE_MS + draw(st.integers(-(2**42), 2**42))
            records.append(SeenRecord(offset, False, time_ms, draw(contents), draw(contents), draw(headers)))
            offset += draw(st.integers(1, 100))
        found.append((batch_of(records, base_offset=base_offset, codec=draw(st.sampled_from(Codec))), records))
        next_offset = offset + 1
    return found


@given(batches(), st.booleans(), st.data())
def test_what_was_written_is_what_is_read(
    written: list[tuple[bytes, list[SeenRecord]]], include_headers: bool, data: st.DataObject
) -> None:
    known = [each.offset for _, records in written for each in records] or [0]
    bounds = st.sampled_from(known) | st.just(0) | st.just(2**63 - 1)
    offsets = OffsetRange(data.draw(bounds), data.draw(bounds))
    columns = RecordColumns("orders", 3, include_headers=include_headers)
    for batch, _ in written:
        add(columns, batch, offsets)
    rows = columns.rows
    taken = columns.take()
    taken.validate(full=True)
    assert (taken.num_rows, columns.rows) == (rows, 0)
    assert taken.schema == (SCHEMA.append(HEADERS) if include_headers else SCHEMA)
    assert set(taken["topic"].to_pylist()) | set(taken["partition"].to_pylist()) <= {"orders", 3}
    assert list(records_in(taken)) == [
        each if include_headers else each._replace(headers=())
        for _, records in written
        for each in records
        if offsets.first <= each.offset <= offsets.last
    ]


def test_many_batches_grow_the_columns() -> None:
    columns, drawn = RecordColumns("orders", 0, include_headers=True), random.Random(1)
    written = []
    for number in range(300):
        here = [
            SeenRecord(
                100 * number + each, False, BASE_MS, drawn.randbytes(50), drawn.randbytes(each * 20), HEADS[:each]
            )
            for each in range(100)
        ]
        add(columns, batch_of(here, base_offset=100 * number))
        written += here
    assert columns.is_full
    assert list(records_in(columns.take())) == written
    assert not columns.is_full


HEADS = tuple((b"name-%d" % number, None if number % 3 else b"x" * number) for number in range(5))


def test_an_append_time_is_that_of_all_records() -> None:
    columns = RecordColumns("audit", 0)
    batch = batch_of([SeenRecord(5, True, BASE_MS + 900, None, b"x")] * 1, attributes=LOG_APPEND_TIME_FLAG)
    add(columns, batch)
    (found,) = records_in(columns.take())
    assert (found.is_append_time, found.timestamp_ms) == (True, parse_header(batch).max_timestamp)


def test_it_is_full_by_records_and_by_bytes() -> None:
    by_rows, by_bytes = RecordColumns("orders", 0, max_rows=3), RecordColumns("orders", 0, max_bytes=60)
    for number in range(3):
        assert not by_rows.is_full
        assert not by_bytes.is_full
        for columns in (by_rows, by_bytes):
            add(columns, record_batch(number, records=record(0, bytes(17))))
    assert by_rows.is_full
    assert by_bytes.is_full


def test_a_timestamp_beyond_microseconds() -> None:
    batch = record_batch(0, records=record(0, b"x"), timestamp_ms=2**62)
    with pytest.raises(FormatError, match="microseconds"):
        add(RecordColumns("orders", 0), batch)


def test_more_than_the_positions_of_a_column_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, batch = RecordColumns("orders", 0), record_batch(0, records=record(0, bytes(100)))
    monkeypatch.setattr(record_columns, "_MOST_BYTES", 2 * (len(batch) - HEADER_SIZE))
    add(columns, batch)
    add(columns, batch)
    with pytest.raises(BatchTooLargeError, match="more than a column has"):
        add(columns, batch)


def damaged(header: BatchHeader, plain: bytes) -> str:
    """The error of records with these bytes."""
    columns = RecordColumns("orders", 0, include_headers=True)
    with pytest.raises(FormatError) as error:
        columns.add(header, memoryview(plain), *EVERYTHING)
    return error.value.message


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_are_cut_off(codec: Codec) -> None:
    records = [SeenRecord(offset, False, BASE_MS, b"key", b"value", ((b"name", b"x"),)) for offset in range(3)]
    header = parse_header(batch_of(records, codec=codec))
    whole = b"".join(encoded(each, 0) for each in records)
    for size_bytes in range(len(whole)):
        assert damaged(header, compressed(codec, [whole[:size_bytes]]) if size_bytes else b"")


def test_more_records_than_the_header_says() -> None:
    header = parse_header(record_batch(0, count=2))
    assert damaged(header, b"".join(record(each, b"x") for each in range(3)))


def test_offsets_that_do_not_ascend() -> None:
    header = parse_header(record_batch(0, count=2))
    assert damaged(header, record(1, b"x") + record(1, b"x"))


@given(st.binary(max_size=200), st.integers(0, 2**31 - 1), st.sampled_from(Codec))
def test_any_bytes_are_records_or_an_error(plain: bytes, count: int, codec: Codec) -> None:
    header = parse_header(record_batch(0, attributes=codec))._replace(record_count=count)
    columns = RecordColumns("orders", 0, include_headers=True)
    try:
        columns.add(header, memoryview(plain), *EVERYTHING)
    except FormatError:
        return
    columns.take().validate(full=True)


def test_columns_are_those_of_arrow() -> None:
    assert SCHEMA.field("timestamp").type == pa.timestamp("us", tz="UTC")
