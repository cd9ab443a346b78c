"""`<offset>.snapshot`: the state of every producer before an offset.

    at    size  field
     0       2  version                    1
     2       4  crc                        CRC-32C of byte 6 to the end
     6       4  entry count
    10  46 x n  entries:
      0      8  producer id
      8      2  producer epoch
     10      4  last sequence              -1 = no data batch is retained
     14      8  last offset                -1 = no data batch is retained
     22      4  offset delta               last batch's last - first sequence
     26      8  timestamp
     34      4  coordinator epoch          -1 = never wrote in a transaction
     38      8  current txn first offset   -1 = no open transaction

Source: Kafka's ProducerStateManager.
"""

import struct
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from include.tiering.errors import FormatError
from include.tiering.units import MIB

VERSION: Final = 1
_HEADER: Final = struct.Struct(">hIi")
_CRC_START: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NONE: Final = -1
MAX_PRODUCER_SNAPSHOT_BYTES: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One producer, in the order of the file. Offsets are inclusive, -1 = none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def has_open_transaction(self) -> bool:
        return self.current_txn_first_offset != _NONE


_COLUMNS: Final = np.dtype(
    [(field.name, code) for field, code in zip(fields(ProducerEntry), "qhiqiqiq", strict=True)]
).newbyteorder(">")


def parse(data: bytes) -> tuple[ProducerEntry, ...]:
    """The entries, in the order of the file (which means nothing). Raises what `entries_of` raises."""
    return tuple(ProducerEntry(*entry.item()) for entry in entries_of(data))


def entries_of(data: bytes) -> NDArray[np.void]:
    """The entries as one array with the fields of `ProducerEntry`: cheap where there may be many.

    Raises:
        FormatError: another version, a wrong CRC, or a count that is not that of the bytes.
    """
    if not _HEADER.size <= len(data) <= MAX_PRODUCER_SNAPSHOT_BYTES:
        raise FormatError(f"{len(data)} bytes are outside {_HEADER.size}..{MAX_PRODUCER_SNAPSHOT_BYTES}")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"producer snapshot version {version} is not {VERSION}")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise FormatError(f"{count} producers announced in {len(data)} bytes", _CRC_START)
    actual_crc = google_crc32c.value(data[_CRC_START:])
    if actual_crc != crc:
        raise FormatError(f"CRC-32C is {actual_crc:08x}, the header says {crc:08x}", 2)
    return np.frombuffer(data, dtype=_COLUMNS, offset=_HEADER.size)


def serialize(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes that a broker would write for these producers."""
    packed = [_ENTRY.pack(*astuple(entry)) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, google_crc32c.value(body)) + body


EMPTY: Final = serialize([])
"""The snapshot of a partition that no idempotent or transactional producer wrote to."""
