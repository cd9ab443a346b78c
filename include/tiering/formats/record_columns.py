"""Records of batches as Arrow columns, with the names and types that Spark's Kafka source has.

    key            binary                      null for a record without key
    value          binary                      null for a tombstone
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp (us, UTC)
    timestampType  int32                       0 create time, 1 log append time
    headers        list of (key string, value binary), null for a record without headers; only if wanted

Compiled code finds the fields of records (`record_parser`), and Arrow copies keys and values to their columns. No
Python object is made for a record.
"""

from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import BatchHeader
from include.tiering.formats.record_parser import (
    BEYOND_TIME,
    MALFORMED,
    NO_APPEND_TIME,
    Headers,
    RecordArrays,
    Spans,
    parse_records,
)
from include.tiering.formats.records import MIN_RECORD_BYTES, Decompressor
from include.tiering.units import MIB

MAX_ROWS: Final = 100_000
MAX_BYTES: Final = 8 * MIB
_MIN_HEADER_BYTES: Final = 2
_FIRST_ROWS: Final = 10_000
_FIRST_BYTES: Final = MIB

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS: Final = pa.field("headers", pa.list_(pa.field("element", _HEADER)))
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
ColumnBatch: TypeAlias = Any
"""A `pyarrow.RecordBatch`, which has no types that mypy knows, with the columns of `SCHEMA`."""


_Array = TypeVar("_Array", bound=NDArray[Any])


def _grown(array: _Array, used: int, more: int) -> _Array:
    """Return the array, or a longer one with its first `used` items, so that `more` items have space after these."""
    if used + more <= len(array):
        return array
    grown = cast("_Array", np.zeros_like(array, shape=max(used + more, 2 * len(array))))
    grown[:used] = array[:used]
    return grown


def _new_spans(rows: int) -> Spans:
    return np.zeros(2 * rows + 1, np.int32), np.zeros(rows, np.bool_)


def _grown_spans(spans: Spans, used: int, more: int) -> Spans:
    positions, given = spans
    return _grown(positions, 2 * used + 1, 2 * more), _grown(given, used, more)


def _bits(given: NDArray[np.bool_]) -> pa.Buffer | None:
    """Return Arrow's bitmap of the rows that are not null; None if no row is null."""
    return None if given.all() else pa.py_buffer(np.packbits(given, bitorder="little"))


def _byte_strings(plain: NDArray[np.uint8], spans: Spans, rows: int, type_: pa.DataType) -> pa.Array:
    """Copy the byte strings of a column out of the decompressed records.

    Arrow is given all positions as the ends of adjacent byte strings. Every second of these is a string of the column;
    the others are the bytes between two such strings.
    """
    positions, given = spans
    ends = pa.py_buffer(positions[: 2 * rows + 1])
    strings = pa.Array.from_buffers(type_, 2 * rows, [None, ends, pa.py_buffer(plain)])
    odd = pa.py_buffer(np.arange(1, 2 * rows, 2, dtype=np.int32))
    return strings.take(pa.Array.from_buffers(pa.int32(), rows, [_bits(given[:rows]), odd]))


def _numbers(array: NDArray[Any], rows: int, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(array)])


class RecordColumns:
    """Collects the records of one partition, batch by batch.

    Args:
        topic: for the column of this name.
        partition: for the column of this name.
        include_headers: whether there is a column with the headers.
        max_rows: how many records make it full.
        max_bytes: how many bytes of decompressed records make it full. The last batch may exceed this.
    """

    rows: int
    _size_bytes: int
    _types: NDArray[np.int32]
    _arrays: RecordArrays

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        include_headers: bool = False,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._topic = pa.scalar(topic)
        self._partition = pa.scalar(partition, pa.int32())
        self._include_headers = include_headers
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._decompressor = Decompressor()
        self._plain = np.empty(_FIRST_BYTES, np.uint8)
        self._clear()

    @property
    def is_full(self) -> bool:
        """Whether the next call should be `take`."""
        return self.rows >= self._max_rows or self._size_bytes >= self._max_bytes

    def add(self, header: BatchHeader, payload: memoryview, first_offset: int, last_offset: int) -> None:
        """Add the records of a batch within these offsets, both inclusive.

        Args:
            header: the header of a batch whose CRC is correct; not of a control batch.
            payload: all bytes after the header.
            first_offset: records below it are left out.
            last_offset: records above it are left out.

        Raises:
            FormatError: the batch cannot be decompressed, or a record breaks its format, or has a timestamp beyond what
                a column can have; the position is that in the decompressed records.
        """
        plain = self._decompressor.decompress(header.codec, payload)
        if header.record_count * MIN_RECORD_BYTES > len(plain):
            raise FormatError(f"{len(plain)} bytes cannot have the {header.record_count} records of the header")
        self._reserve(header.record_count, len(plain))
        rows, begin, end = self.rows, self._size_bytes, self._size_bytes + len(plain)
        self._plain[begin:end] = np.frombuffer(plain, np.uint8)
        append_ms = header.max_timestamp if header.has_log_append_time else NO_APPEND_TIME
        status, self.rows, position = parse_records(
            self._plain,
            (begin, end, header.record_count),
            (header.base_offset, header.base_timestamp, append_ms),
            (first_offset, last_offset),
            self._include_headers,
            self._arrays,
            rows,
        )
        if status == BEYOND_TIME:
            raise FormatError("a timestamp cannot be held in microseconds", position - begin)
        if status == MALFORMED:
            raise FormatError(f"no record, or bytes after the last one: {end - position} are left", position - begin)
        self._types[rows : self.rows] = header.has_log_append_time
        self._size_bytes = end

    def take(self) -> ColumnBatch:
        """Return what was added since the last call, and empty this object."""
        rows, (offsets, times_us, keys, values, headers) = self.rows, self._arrays
        columns = [
            _byte_strings(self._plain, keys, rows, pa.binary()),
            _byte_strings(self._plain, values, rows, pa.binary()),
            pa.repeat(self._topic, rows),
            pa.repeat(self._partition, rows),
            _numbers(offsets, rows, pa.int64()),
            _numbers(times_us, rows, SCHEMA.field("timestamp").type),
            _numbers(self._types, rows, pa.int32()),
        ]
        schema = SCHEMA
        if self._include_headers:
            columns.append(self._header_column(headers))
            schema = SCHEMA.append(HEADERS)
        # The next records need about as much space. The arrays of numbers belong to the returned columns now.
        self._clear(len(offsets))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _header_column(self, headers: Headers) -> pa.Array:
        ends, names, contents = headers
        ends = ends[: self.rows + 1]
        count = int(ends[-1])
        parts = [
            _byte_strings(self._plain, names, count, pa.string()),
            _byte_strings(self._plain, contents, count, pa.binary()),
        ]
        pairs = pa.StructArray.from_arrays(parts, fields=list(HEADERS.type.value_type))
        buffers = [_bits(ends[1:] > ends[:-1]), pa.py_buffer(ends)]
        return pa.Array.from_buffers(HEADERS.type, self.rows, buffers, children=[pairs])

    def _reserve(self, rows: int, size_bytes: int) -> None:
        """Make space for a batch with `rows` records, which have at most `size_bytes` when they are decompressed."""
        used, (offsets, times_us, keys, values, (ends, names, contents)) = self.rows, self._arrays
        self._plain = _grown(self._plain, self._size_bytes, size_bytes)
        if used + rows > len(self._types):
            self._types = _grown(self._types, used, rows)
            offsets, times_us = _grown(offsets, used, rows), _grown(times_us, used, rows)
            keys, values = _grown_spans(keys, used, rows), _grown_spans(values, used, rows)
            ends = _grown(ends, used + 1, rows)
        if self._include_headers:
            headers, more = int(ends[used]), size_bytes // _MIN_HEADER_BYTES
            names, contents = _grown_spans(names, headers, more), _grown_spans(contents, headers, more)
        self._arrays = offsets, times_us, keys, values, (ends, names, contents)

    def _clear(self, rows: int = _FIRST_ROWS) -> None:
        """Begin with new arrays, which have space for `rows` rows."""
        self.rows = self._size_bytes = 0
        self._types = np.empty(rows, np.int32)
        headers: Headers = np.zeros(rows + 1, np.int32), _new_spans(0), _new_spans(0)
        offsets, times_us = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self._arrays = offsets, times_us, _new_spans(rows), _new_spans(rows), headers
