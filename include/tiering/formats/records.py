"""The records inside of a batch, counted and looked at, but for their keys, values and headers.

    length varint           bytes after it
    attributes int8
    timestamp delta varlong against the batch's base timestamp
    offset delta varint     against its base offset
    key, value, headers     at least 3 bytes

Source: Kafka's DefaultRecord.
"""

from typing import Final, NamedTuple

from include.tiering.errors import FormatError
from include.tiering.formats.codecs import Decompressor
from include.tiering.formats.record_batch import BatchHeader
from include.tiering.formats.varint import read_varint, read_varlong

MIN_RECORD_BYTES: Final = 7
_MIN_LENGTH: Final = MIN_RECORD_BYTES - 1


class RecordsFound(NamedTuple):
    """What the records of a batch say. Deltas are 0 without a record."""

    records: int
    last_offset_delta: int
    largest_timestamp_delta: int


def check_records(header: BatchHeader, payload: memoryview, decompressor: Decompressor) -> int:
    """Opens a batch whose CRC is right: `payload` is all that follows its header. Returns the plain records' bytes.

    Raises:
        FormatError: it cannot be opened, or its records are not those that the header tells of: how many, their
            offsets, the largest timestamp. The position is that in the plain records.
    """
    plain = decompressor.decompress(header.codec, payload)
    found = read_records(bytes(plain), header.record_count)
    if found.records != header.record_count:
        raise FormatError(f"{found.records} records are inside, the header says {header.record_count}")
    if found.last_offset_delta > header.last_offset_delta:
        raise FormatError(f"offset delta {found.last_offset_delta} is above the batch's {header.last_offset_delta}")
    largest_ms = header.base_timestamp + found.largest_timestamp_delta
    has_own_times = found.records > 0 and not header.has_log_append_time and not header.has_delete_horizon
    if has_own_times and largest_ms != header.max_timestamp:
        raise FormatError(f"the largest timestamp inside is {largest_ms}, the header says {header.max_timestamp}")
    return len(plain)


def read_records(plain: bytes, max_count: int) -> RecordsFound:
    """Follows the records to the end, or to one more than `max_count`.

    Raises:
        FormatError: a record that is cut off or too short, or an offset delta that does not ascend.
    """
    at, records, last_offset_delta, largest = 0, 0, -1, None
    while at < len(plain) and records <= max_count:
        length, body = read_varint(plain, at)
        end = body + length
        if length < _MIN_LENGTH or end > len(plain):
            raise FormatError(f"record of {length} bytes, {len(plain) - body} are left", at)
        timestamp_delta, next_field = read_varlong(plain, body + 1)
        offset_delta, next_field = read_varint(plain, next_field)
        if next_field > end or offset_delta <= last_offset_delta:
            raise FormatError(f"offset delta {offset_delta} follows {last_offset_delta}", at)
        if largest is None or timestamp_delta > largest:
            largest = timestamp_delta
        last_offset_delta = offset_delta
        records += 1
        at = end
    return RecordsFound(records, max(last_offset_delta, 0), largest or 0)
