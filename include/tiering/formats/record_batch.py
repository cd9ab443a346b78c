"""Record batches of magic 2, and their checksum. Of records only the type of a control record is decoded.

    at  size  field                   covered by the CRC
     0     8  base offset             no     absolute offset of the first record slot
     8     4  batch length            no     bytes after this field
    12     4  partition leader epoch  no     set by the broker, -1 = none
    16     1  magic                   no     2
    17     4  crc                     -      CRC-32C of byte 21 to the end of the batch
    21     2  attributes              yes    bits 0-2 codec, 3 log append time, 4 transactional, 5 control,
                                             6 base timestamp is a delete horizon
    23     4  last offset delta       yes    last offset = base offset + this, kept by compaction
    27     8  base timestamp          yes
    35     8  max timestamp           yes
    43     8  producer id             yes    -1 = none
    51     2  producer epoch          yes
    53     4  base sequence           yes
    57     4  record count            yes    0 for the empty batch that compaction keeps
    61        records

All integers are big-endian; all but the CRC are signed. Source: Kafka's DefaultRecordBatch.

- `iter_headers` reads the headers of a `.log`, to which a broker may be appending.
- `WholeBatches` collects whole batches from consecutive bytes of a `.log`, as a broker's response to a fetch has them.
- `extend_crc32c` and the functions after it compute CRC-32C (Castagnoli) of batches and of whole remote objects.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

import google_crc32c
import numpy as np

from include.tiering.errors import FormatError, OldMagicError
from include.tiering.formats.primitive_types import read_varint, read_varlong
from include.tiering.model.segments import ByteSource
from include.tiering.units import KIB

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Bytes of base offset and batch length, which the batch length does not count."""
CRC_START: Final = 21
MAGIC: Final = 2
MAX_OFFSET: Final = 2**63 - 1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER: Final = -1

_MIN_OLD_LENGTH: Final = 14
_CONTROL_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class Codec(IntEnum):
    """Bits 0 to 2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class ControlType(IntEnum):
    """The type of a control record: ABORT and COMMIT of transactions, those from 2 on of KRaft's metadata log.

    UNKNOWN stands for every number that is not in this list.
    """

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    """The fields in the order of the file."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, with its header."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """The last offset, inclusive. Compaction may have removed the record with this offset."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        """The codec. Raises ValueError for an unknown number; see `check_codec`."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def has_log_append_time(self) -> bool:
        """Whether `max_timestamp` is the broker's append time, which applies to every record."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time after which compaction may drop the batch's tombstones."""
        return bool(self.attributes & DELETE_HORIZON_FLAG)


class LogBatch(NamedTuple):
    """A batch with its position in a `.log`; `control` is None unless it is a control batch."""

    position: int
    header: BatchHeader
    control: ControlType | None = None


def parse_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Parse the header at `position`, and check its length, magic, offsets and record count.

    Raises:
        OldMagicError: the batch has magic 0 or 1.
        FormatError: the header is cut off, or has a length, magic, offset or count that no broker writes.
    """
    if not 0 <= position <= len(buffer) - HEADER_SIZE:
        raise FormatError(f"a batch header has {HEADER_SIZE} bytes, {len(buffer) - position} are left", position)
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    check_frame(header.magic, header.batch_length, position)
    check_follows(header, 0, position)
    return header


def header_at(buffer: bytes | bytearray | memoryview, at: int, position: int) -> BatchHeader:
    """Parse the header at index `at` of the buffer. Errors have `position` instead, its position in the log."""
    try:
        return parse_header(buffer, at)
    except FormatError as error:
        raise type(error)(error.message, position) from None


def check_frame(magic: int, batch_length: int, position: int) -> None:
    """Require magic 2 and a possible length.

    Zeros at the end of a preallocated file look like a batch of magic 0 and length 0. Therefore magic 0 or 1 with a
    length below 14 is reported as a length that is too small.

    Raises:
        OldMagicError: magic 0 or 1, with a length of 14 or more.
        FormatError: another magic, or a length below that of a header.
    """
    if magic in (0, 1) and batch_length >= _MIN_OLD_LENGTH:
        raise OldMagicError(f"magic {magic}, only {MAGIC} can be tiered", position)
    if batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise FormatError(f"batch length {batch_length} is below {HEADER_SIZE - LOG_OVERHEAD}", position)
    if magic != MAGIC:
        raise FormatError(f"magic {magic} is unknown", position)


def check_follows(header: BatchHeader, next_offset: int, position: int) -> None:
    """Require that the batch at `position` has no offset below `next_offset`.

    Raises:
        FormatError: its base offset is lower, or its offset range or record count is impossible.
    """
    if header.base_offset < next_offset:
        raise FormatError(f"base offset {header.base_offset} is below {next_offset}", position)
    if header.last_offset_delta < 0 or header.last_offset > MAX_OFFSET:
        raise FormatError(f"offsets {header.base_offset} + {header.last_offset_delta} are not a range", position)
    if header.record_count < 0:
        raise FormatError(f"record count is {header.record_count}", position)


def check_codec(header: BatchHeader, position: int) -> None:
    """Require a known codec. Raises FormatError for an unknown one, and for a compressed control batch."""
    number = header.attributes & CODEC_MASK
    if number > Codec.ZSTD:
        raise FormatError(f"codec {number} is unknown", position + CRC_START)
    if header.is_control and number != Codec.NONE:
        raise FormatError(f"control batch is compressed with codec {number}", position + CRC_START)


def check_crc(header: BatchHeader, batch: memoryview, position: int) -> None:
    """Raise FormatError if the CRC-32C of a batch, of which `batch` has all bytes, is not that of its header."""
    crc = extend_crc32c(0, batch[CRC_START:])
    if crc != header.crc:
        message = f"CRC-32C of the batch at offset {header.base_offset} is {crc:08x}, not {header.crc:08x}"
        raise FormatError(message, position)


def control_type(buffer: bytes | bytearray | memoryview, position: int) -> ControlType:
    """Return the type of a control batch whose only, uncompressed record begins at `position`.

    The record is: length varint | attributes int8 | timestamp delta varlong | offset delta varint | key length varint |
    key (version int16, type int16) | ...

    Raises:
        FormatError: there is no record with such a key.
    """
    _, at = read_varint(buffer, position)
    _, at = read_varlong(buffer, at + 1)
    _, at = read_varint(buffer, at)
    key_length, at = read_varint(buffer, at)
    if key_length < _CONTROL_KEY.size or at + _CONTROL_KEY.size > len(buffer):
        raise FormatError(f"the control record's key has {key_length} bytes", position)
    version, number = _CONTROL_KEY.unpack_from(buffer, at)
    if version < 0:
        raise FormatError(f"control record version {version}", at)
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


class TransactionMarker(NamedTuple):
    """The content of an ABORT or COMMIT marker. For other control records `coordinator_epoch` is -1."""

    control: ControlType
    coordinator_epoch: int


def transaction_marker(buffer: bytes | bytearray | memoryview, position: int) -> TransactionMarker:
    """Return the marker in a control batch whose only, uncompressed record begins at `position`.

    The value of its record is: version int16 | coordinator epoch int32.

    Raises:
        FormatError: there is no control record, or an ABORT or COMMIT marker without such a value.
    """
    control = control_type(buffer, position)
    if control not in (ControlType.ABORT, ControlType.COMMIT):
        return TransactionMarker(control, -1)
    _, at = read_varint(buffer, position)
    _, at = read_varlong(buffer, at + 1)
    _, at = read_varint(buffer, at)
    key_length, at = read_varint(buffer, at)
    value_length, at = read_varint(buffer, at + key_length)
    if value_length < _MARKER_VALUE.size or at + _MARKER_VALUE.size > len(buffer):
        raise FormatError(f"the marker's value has {value_length} bytes", position)
    return TransactionMarker(control, _MARKER_VALUE.unpack_from(buffer, at)[1])


_WINDOW_BYTES: Final = 8 * KIB
_CONTROL_PREFIX_BYTES: Final = 128
"""Enough for header and key of a control batch."""


def iter_headers(source: ByteSource, start_position: int = 0) -> Iterator[LogBatch]:
    """Iterate over the batches from `start_position` (the start of a batch) on, reading headers without CRC checks.

    The iterator ends without an error before the first batch that is cut off or has an invalid header (also magic 0 or
    1) or control record, because a running broker may be appending it. The bytes from there on are not checked.

    Raises:
        SourceError: the source raised it.
    """
    window = _Window(source)
    position, next_offset = start_position, 0
    while source.size_bytes - position >= HEADER_SIZE:
        try:
            header = parse_header(window.view(position, HEADER_SIZE))
            check_follows(header, next_offset, position)
            if position + header.size_bytes > source.size_bytes:
                return
            control = None
            if header.is_control:
                prefix = window.view(position, min(header.size_bytes, _CONTROL_PREFIX_BYTES))
                control = control_type(prefix, HEADER_SIZE)
        except FormatError:
            return
        yield LogBatch(position, header, control)
        position += header.size_bytes
        next_offset = header.last_offset + 1


class _Window:
    """A buffer with a small part of the source around the next header."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._buffer = memoryview(bytearray(_WINDOW_BYTES))
        self._start = 0
        self._filled = 0

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Return at most `size_bytes` bytes from `position` on; valid until the next call."""
        at = position - self._start
        if at < 0 or at + size_bytes > self._filled:
            wanted = min(_WINDOW_BYTES, self._source.size_bytes - position)
            self._filled = self._source.read_into(position, self._buffer[:wanted])
            self._start, at = position, 0
        return self._buffer[at : min(at + size_bytes, self._filled)]


class WholeBatches:
    """Collect whole batches up to `max_bytes`, from the first one that contains or follows `next_offset`.

    The first batch is collected even if it is larger. The caller passes blocks to `feed`, beginning at the start of the
    first batch to collect or of an earlier one. Before the first block of a segment the caller calls `begin`, after the
    last one `end`. Batches that begin above `last_offset` (inclusive) are not collected. Memory: the collected batches,
    and the incomplete batch at the end of the last block.
    """

    def __init__(self, next_offset: int, max_bytes: int, last_offset: int | None = None) -> None:
        self.records = bytearray()
        self.next_offset = next_offset
        self.base_offset: int | None = None
        self.full = False
        self.max_bytes = max_bytes
        self._last_offset = last_offset
        self._pending = bytearray()
        self._position = 0
        self._size_bytes = 0
        self._skip_bytes = 0

    def begin(self, position: int, size_bytes: int, next_offset: int) -> None:
        """Begin a segment.

        Args:
            position: the position of the next block in the segment, at the start of a batch.
            size_bytes: the size of the segment.
            next_offset: the first offset to collect from this segment.
        """
        self._position, self._size_bytes, self._skip_bytes = position, size_bytes, 0
        self.next_offset = max(self.next_offset, next_offset)

    def feed(self, block: bytes) -> None:
        """Process the bytes that follow the last block. If this object is `full`, they are ignored.

        Raises:
            FormatError: a header, or a batch to collect, is damaged; the position is that in the segment.
            OldMagicError: a batch has magic 0 or 1.
        """
        if self.full:
            return
        skipped_bytes = min(self._skip_bytes, len(block))
        self._skip_bytes -= skipped_bytes
        self._position += skipped_bytes
        self._pending += memoryview(block)[skipped_bytes:]
        at = 0
        while not self.full and len(self._pending) - at >= HEADER_SIZE:
            header = self._header(at)
            end = at + header.size_bytes
            if header.last_offset < self.next_offset:
                self._skip_bytes = max(0, end - len(self._pending))
            elif self._is_above_last_offset(header.base_offset) or (
                self.records and len(self.records) + header.size_bytes > self.max_bytes
            ):
                self.full = True
                break
            elif end > len(self._pending):
                break
            else:
                self._collect(header, at, end)
            at = min(end, len(self._pending))
        del self._pending[:at]
        self._position += at

    @property
    def missing_bytes(self) -> int:
        """The most further bytes that can be used, as far as the headers read so far tell; 0 if `full`."""
        if self.full:
            return 0
        space_bytes = self.max_bytes - len(self.records) - len(self._pending)
        if len(self._pending) < HEADER_SIZE:
            return max(self._skip_bytes + space_bytes, HEADER_SIZE - len(self._pending))
        return max(space_bytes, self._header(0).size_bytes - len(self._pending))

    def end(self) -> None:
        """End the segment.

        Raises:
            FormatError: it ended inside a batch.
        """
        if self._pending and not self.full:
            raise FormatError(f"{len(self._pending)} bytes are left over", self._position)
        self._pending.clear()

    def _header(self, at: int) -> BatchHeader:
        """Parse a header. Raises FormatError if it is invalid, or if the batch does not fit into its segment."""
        position = self._position + at
        header = header_at(self._pending, at, position)
        if position + header.size_bytes > self._size_bytes:
            left_bytes = self._size_bytes - position
            raise FormatError(f"batch of {header.size_bytes} bytes, {left_bytes} are left of its segment", position)
        return header

    def _collect(self, header: BatchHeader, at: int, end: int) -> None:
        with memoryview(self._pending) as pending, pending[at:end] as batch:
            check_crc(header, batch, self._position + at)
            self.records += batch
        if self.base_offset is None:
            self.base_offset = header.base_offset
        self.next_offset = header.last_offset + 1
        self.full = len(self.records) + HEADER_SIZE > self.max_bytes
        if self._last_offset is not None and header.last_offset >= self._last_offset:
            self.next_offset, self.full = self._last_offset + 1, True

    def _is_above_last_offset(self, offset: int) -> bool:
        return self._last_offset is not None and offset > self._last_offset


# Coefficients are reflected: bit 31 is the coefficient of x^0.
_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31
_X: Final = 1 << 30


def extend_crc32c(crc32c: int, data: bytes | memoryview) -> int:
    """Return the CRC-32C of the bytes that `crc32c` covers, followed by `data`, without copying; start with 0."""
    # google-crc32c accepts no memoryview, but an array over it.
    return int(google_crc32c.extend(crc32c, np.frombuffer(data, dtype=np.uint8)))


def append_crc32c(head: int, rest: int, rest_size_bytes: int) -> int:
    """Return the CRC-32C of two concatenated pieces from their own CRC-32Cs, without reading bytes."""
    return _shifted(head, rest_size_bytes) ^ rest


def rest_crc32c(whole: int, head: int, rest_size_bytes: int) -> int:
    """Return the CRC-32C of the last `rest_size_bytes` from those of all bytes and of the bytes before them."""
    return whole ^ _shifted(head, rest_size_bytes)


def _shifted(crc32c: int, zeros: int) -> int:
    """Return `crc32c` after `zeros` further zero bytes, without initial and final inversion."""
    return _product(crc32c, _power_of_x(8 * zeros))


@lru_cache(maxsize=16)
def _power_of_x(exponent: int) -> int:
    power, square = _ONE, _X
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


def _product(left: int, right: int) -> int:
    """Return the product of two polynomials over GF(2), modulo that of CRC-32C."""
    product = 0
    for bit in range(31, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product
