"""The header of a record batch, magic 2. Records stay undecoded: everything a copy must know is in the header.

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

All integers are big-endian and signed, the CRC apart. Source: Kafka's DefaultRecordBatch.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from include.tiering.errors import FormatError, OldMagicError
from include.tiering.formats.primitive_types import read_varint, read_varlong

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


class Codec(IntEnum):
    """Bits 0 to 2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class ControlType(IntEnum):
    """What a control record says. Transactions use the first two; KRaft's own log uses the others."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    """The fields as they stand in the file, in its order."""

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
        """The whole batch, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """Inclusive. Compaction may have removed the record that had it."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        """Raises ValueError for a number that Kafka never gave to a codec; see `check_codec`."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def has_log_append_time(self) -> bool:
        """`max_timestamp` is the broker's clock and holds for every record."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        """`base_timestamp` is the time after which compaction may drop the batch's tombstones."""
        return bool(self.attributes & DELETE_HORIZON_FLAG)


class LogBatch(NamedTuple):
    """A batch at its place in a `.log`; `control` is None unless it is a control batch."""

    position: int
    header: BatchHeader
    control: ControlType | None = None


def parse_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`, checked for what can be told without the records.

    Raises:
        OldMagicError: magic 0 or 1.
        FormatError: cut off, or a length, magic, offset or count that no broker writes.
    """
    if not 0 <= position <= len(buffer) - HEADER_SIZE:
        raise FormatError(f"a batch header has {HEADER_SIZE} bytes, {len(buffer) - position} are left", position)
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    check_frame(header.magic, header.batch_length, position)
    check_follows(header, 0, position)
    return header


def check_frame(magic: int, batch_length: int, position: int) -> None:
    """Refuses what cannot be a magic 2 batch.

    A length that is too small is named first: that is how the zero tail of a preallocated file looks.

    Raises:
        OldMagicError: magic 0 or 1.
        FormatError: another magic, or a length below that of a header.
    """
    if magic in (0, 1) and batch_length >= _MIN_OLD_LENGTH:
        raise OldMagicError(f"magic {magic}, only {MAGIC} can be tiered", position)
    if batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise FormatError(f"batch length {batch_length} is below {HEADER_SIZE - LOG_OVERHEAD}", position)
    if magic != MAGIC:
        raise FormatError(f"magic {magic} is unknown", position)


def check_follows(header: BatchHeader, next_offset: int, position: int) -> None:
    """The batch at `position` may stand where no offset below `next_offset` is left to come.

    Raises:
        FormatError: an offset that goes back, an offset range or a record count that cannot be.
    """
    if header.base_offset < next_offset:
        raise FormatError(f"base offset {header.base_offset} is below {next_offset}", position)
    if header.last_offset_delta < 0 or header.last_offset > MAX_OFFSET:
        raise FormatError(f"offsets {header.base_offset} + {header.last_offset_delta} are not a range", position)
    if header.record_count < 0:
        raise FormatError(f"record count is {header.record_count}", position)


def check_codec(header: BatchHeader, position: int) -> None:
    """Raises FormatError if no codec has the number in the attributes, or a control batch is compressed."""
    number = header.attributes & CODEC_MASK
    if number > Codec.ZSTD:
        raise FormatError(f"codec {number} is unknown", position + CRC_START)
    if header.is_control and number != Codec.NONE:
        raise FormatError(f"control batch is compressed with codec {number}", position + CRC_START)


def control_type(buffer: bytes | bytearray | memoryview, position: int) -> ControlType:
    """What the control batch says whose one, uncompressed record begins at `position`.

    The record is: length varint | attributes int8 | timestamp delta varlong | offset delta varint | key length varint |
    key (version int16, type int16) | ...

    Raises:
        FormatError: no record with such a key.
    """
    _, at = read_varint(buffer, position)
    _, at = read_varlong(buffer, at + 1)
    _, at = read_varint(buffer, at)
    key_length, at = read_varint(buffer, at)
    if key_length < _CONTROL_KEY.size or at + _CONTROL_KEY.size > len(buffer):
        raise FormatError(f"a control record's key of {key_length} bytes", position)
    version, number = _CONTROL_KEY.unpack_from(buffer, at)
    if version < 0:
        raise FormatError(f"control record version {version}", at)
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN
