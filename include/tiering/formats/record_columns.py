"""Records of batches as Arrow columns, with the names and types that Spark's Kafka source has.

    key            binary                      null for a record without key
    value          binary                      null for a tombstone
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp (us, UTC)
    timestampType  int32                       0 create time, 1 log append time
    headers        list of (key string, value binary), null for a record without headers; only if wanted

Compiled code copies the fields of records out of the batches into arrays, once (`record_parser`), and Arrow takes these
arrays as its columns. No Python object is made for a record.
"""

from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from include.tiering.errors import BatchTooLargeError, FormatError
from include.tiering.formats.record_batch import BatchHeader
from include.tiering.formats.record_parser import (
    BEYOND_TIME,
    MALFORMED,
    NO_APPEND_TIME,
    ByteStrings,
    Ends,
    Headers,
    RecordArrays,
    parse_records,
)
from include.tiering.formats.records import MIN_RECORD_BYTES, Decompressor
from include.tiering.units import MIB

MAX_ROWS: Final = 100_000
MAX_BYTES: Final = 8 * MIB
_MIN_HEADER_BYTES: Final = 2
_FIRST_ROWS: Final = 10_000
_FIRST_BYTES: Final = MIB
_MOST_BYTES: Final = 2**31 - 1

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
    grown = cast("_Array", np.empty_like(array, shape=max(used + more, 2 * len(array))))
    grown[:used] = array[:used]
    return grown


def _new_strings(rows: int, size_bytes: int) -> ByteStrings:
    return _new_ends(rows), np.empty(rows, np.bool_), np.frombuffer(pa.allocate_buffer(size_bytes), np.uint8)


def _new_ends(rows: int) -> Ends:
    ends = np.empty(rows + 1, np.int32)
    ends[0] = 0
    return ends


def _grown_strings(strings: ByteStrings, used: int, more: int, more_bytes: int) -> ByteStrings:
    ends, given, content = strings
    return _grown(ends, used + 1, more), _grown(given, used, more), _grown(content, int(ends[used]), more_bytes)


def _bits(given: NDArray[np.bool_]) -> pa.Buffer | None:
    """Return Arrow's bitmap of the rows that are not null; None if no row is null."""
    return None if given.all() else pa.py_buffer(np.packbits(given, bitorder="little"))


def _byte_strings(strings: ByteStrings, rows: int, type_: pa.DataType) -> pa.Array:
    ends, given, content = strings
    buffers = [_bits(given[:rows]), pa.py_buffer(ends[: rows + 1]), pa.py_buffer(content[: ends[rows]])]
    return pa.Array.from_buffers(type_, rows, buffers)


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
        self._clear(_FIRST_ROWS, _FIRST_BYTES, _FIRST_BYTES)

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
            BatchTooLargeError: it has more than a column can have, 2 GiB, or decompresses to more than 64 MiB.
            FormatError: the batch cannot be decompressed, or a record breaks its format, or has a timestamp beyond what
                a column can have; the position is that in the decompressed records.
        """
        plain = self._decompressor.decompress(header.codec, payload)
        if header.record_count * MIN_RECORD_BYTES > len(plain):
            raise FormatError(f"{len(plain)} bytes cannot have the {header.record_count} records of the header")
        if self._size_bytes + len(plain) > _MOST_BYTES:
            raise BatchTooLargeError(f"{len(plain)} bytes of records are more than a column has, {_MOST_BYTES} at most")
        self._reserve(header.record_count, len(plain))
        append_ms = header.max_timestamp if header.has_log_append_time else NO_APPEND_TIME
        status, self.rows, position = parse_records(
            # Compiled code for arrays that can be written is another one.
            np.frombuffer(plain.toreadonly(), np.uint8),
            header.record_count,
            (header.base_offset, header.base_timestamp, append_ms),
            (first_offset, last_offset),
            self._include_headers,
            self._arrays,
            self.rows,
        )
        if status == BEYOND_TIME:
            raise FormatError("a timestamp cannot be held in microseconds", position)
        if status == MALFORMED:
            raise FormatError(f"no record, or bytes after the last one: {len(plain) - position} are left", position)
        self._size_bytes += len(plain)

    def take(self) -> ColumnBatch:
        """Return what was added since the last call, and empty this object."""
        rows, (offsets, times_us, types, keys, values, headers) = self.rows, self._arrays
        columns = [
            _byte_strings(keys, rows, pa.binary()),
            _byte_strings(values, rows, pa.binary()),
            pa.repeat(self._topic, rows),
            pa.repeat(self._partition, rows),
            _numbers(offsets, rows, pa.int64()),
            _numbers(times_us, rows, SCHEMA.field("timestamp").type),
            _numbers(types, rows, pa.int32()),
        ]
        schema = SCHEMA
        if self._include_headers:
            columns.append(self._header_column(headers))
            schema = SCHEMA.append(HEADERS)
        # The next records need about as much space. These arrays belong to the returned columns now.
        self._clear(len(offsets), len(keys[-1]), len(values[-1]))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _header_column(self, headers: Headers) -> pa.Array:
        ends, names, contents = headers
        ends = ends[: self.rows + 1]
        count = int(ends[-1])
        parts = [_byte_strings(names, count, pa.string()), _byte_strings(contents, count, pa.binary())]
        pairs = pa.StructArray.from_arrays(parts, fields=list(HEADERS.type.value_type))
        buffers = [_bits(ends[1:] > ends[:-1]), pa.py_buffer(ends)]
        return pa.Array.from_buffers(HEADERS.type, self.rows, buffers, children=[pairs])

    def _reserve(self, rows: int, size_bytes: int) -> None:
        """Make space for a batch with `rows` records, which have at most `size_bytes` when they are decompressed."""
        used, (offsets, times_us, types, keys, values, headers) = self.rows, self._arrays
        if self._include_headers:
            ends, names, contents = headers
            count, more = int(ends[used]), size_bytes // _MIN_HEADER_BYTES
            names = _grown_strings(names, count, more, size_bytes)
            contents = _grown_strings(contents, count, more, size_bytes)
            headers = _grown(ends, used + 1, rows), names, contents
        self._arrays = (
            _grown(offsets, used, rows),
            _grown(times_us, used, rows),
            _grown(types, used, rows),
            _grown_strings(keys, used, rows, size_bytes),
            _grown_strings(values, used, rows, size_bytes),
            headers,
        )

    def _clear(self, rows: int, keys_bytes: int, values_bytes: int) -> None:
        """Begin with new arrays, with space for `rows` rows and for these bytes of their keys and of their values."""
        self.rows = self._size_bytes = 0
        headers: Headers = _new_ends(rows), _new_strings(0, 0), _new_strings(0, 0)
        numbers = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32)
        self._arrays = *numbers, _new_strings(rows, keys_bytes), _new_strings(rows, values_bytes), headers
