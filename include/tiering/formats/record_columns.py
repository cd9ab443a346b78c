"""Records of batches as Arrow columns, with the names and types that Spark's Kafka source has.

key            binary                      null for a record without key
value          binary                      null for a tombstone
topic          string
partition      int32
offset         int64
timestamp      timestamp (us, UTC)
timestampType  int32                       0 create time, 1 log append time
headers        list of (key string, value binary), null for a record without headers; only if wanted
"""

from typing import Any, Final, TypeAlias

import pyarrow as pa

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import BatchHeader
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.units import MIB

MAX_ROWS: Final = 50_000
MAX_BYTES: Final = 8 * MIB
_MAX_MS: Final = (2**63 - 1) // 1000

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


class RecordColumns:
    """Collects the records of one partition, batch by batch.

    Args:
        topic: for the column of this name.
        partition: for the column of this name.
        include_headers: whether there is a column with the headers.
        max_rows: how many records make it full.
        max_bytes: how many bytes of keys and values make it full. It may get fuller by the records of one batch.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        include_headers: bool = False,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._include_headers = include_headers
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._decompressor = Decompressor()
        self._clear()

    @property
    def rows(self) -> int:
        """Records that were added since the last `take`."""
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether the next call should be `take`."""
        return self.rows >= self._max_rows or self._bytes >= self._max_bytes

    def add(self, header: BatchHeader, payload: memoryview, first_offset: int, last_offset: int) -> None:
        """Add the records of a batch within these offsets, both inclusive.

        Args:
            header: the header of a batch whose CRC is correct; not of a control batch.
            payload: all bytes after the header.
            first_offset: records below it are left out.
            last_offset: records above it are left out.

        Raises:
            FormatError: the batch cannot be decompressed, or a record breaks its format, or has a timestamp beyond what
                a column can have.
        """
        for record in records_of(header, payload, self._decompressor):
            if not first_offset <= record.offset <= last_offset:
                continue
            if abs(record.timestamp_ms) > _MAX_MS:
                raise FormatError(f"timestamp {record.timestamp_ms} of offset {record.offset} is beyond microseconds")
            self._offsets.append(record.offset)
            self._timestamps.append(record.timestamp_ms * 1000)
            self._types.append(int(record.is_append_time))
            self._keys.append(record.key)
            self._values.append(record.value)
            self._headers.append(record.headers)
            self._bytes += len(record.key or b"") + len(record.value or b"")

    def take(self) -> ColumnBatch:
        """Return what was added since the last call, and empty this object."""
        columns = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            pa.repeat(pa.scalar(self._topic), self.rows),
            pa.repeat(pa.scalar(self._partition, pa.int32()), self.rows),
            pa.array(self._offsets, pa.int64()),
            pa.array(self._timestamps, pa.int64()).cast(SCHEMA.field("timestamp").type),
            pa.array(self._types, pa.int32()),
        ]
        schema = SCHEMA
        if self._include_headers:
            headers = [[{"key": key, "value": value} for key, value in each] or None for each in self._headers]
            columns.append(pa.array(headers, HEADERS.type))
            schema = SCHEMA.append(HEADERS)
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _clear(self) -> None:
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._types: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[tuple[tuple[bytes, bytes | None], ...]] = []
        self._bytes = 0
