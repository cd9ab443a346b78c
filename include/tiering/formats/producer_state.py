"""What a broker knows of producers: the snapshots that it writes, and which transactions are open. Pure.

`<offset>.snapshot`: the state of every producer before an offset.

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

`open_transactions` starts from a snapshot and follows the batches after it, as a broker does when it loads a log: batch
headers in, offsets out. A transactional data batch opens its producer's transaction at the batch's base offset, an
ABORT or COMMIT marker ends it. So it is known how far a log is stable.
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
from include.tiering.formats.indexes import AbortedTxn
from include.tiering.formats.record_batch import ControlType, LogBatch
from include.tiering.units import MIB

SNAPSHOT_VERSION: Final = 1
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


def parse_producer_snapshot(data: bytes) -> tuple[ProducerEntry, ...]:
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
    if version != SNAPSHOT_VERSION:
        raise FormatError(f"producer snapshot version {version} is not {SNAPSHOT_VERSION}")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise FormatError(f"{count} producers announced in {len(data)} bytes", _CRC_START)
    actual_crc = google_crc32c.value(data[_CRC_START:])
    if actual_crc != crc:
        raise FormatError(f"CRC-32C is {actual_crc:08x}, the header says {crc:08x}", 2)
    return np.frombuffer(data, dtype=_COLUMNS, offset=_HEADER.size)


def serialize_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes that a broker would write for these producers."""
    packed = [_ENTRY.pack(*astuple(entry)) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", SNAPSHOT_VERSION, google_crc32c.value(body)) + body


EMPTY_SNAPSHOT: Final = serialize_producer_snapshot([])
"""The snapshot of a partition that no idempotent or transactional producer wrote to."""


@dataclass(frozen=True, slots=True)
class OngoingTransaction:
    """No marker was seen for it yet. `first_offset` is inclusive."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """`last_offset` (inclusive) is that of its marker; `last_stable_offset` (exclusive) as it was right after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    aborted: bool


@dataclass(frozen=True, slots=True)
class Transactions:
    """`open`: by first offset. `completed`: by marker, those whose marker is among the batches that were read."""

    open: tuple[OngoingTransaction, ...]
    completed: tuple[CompletedTransaction, ...]

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset that a read-committed consumer may not see yet, at most `high_watermark` (exclusive).

        A transaction whose marker is not below the high watermark counts as open, as it does for a broker. A lower
        bound of the high watermark gives a lower bound, provided the snapshot was taken at or below it.
        """
        unstable = [txn.first_offset for txn in self.open]
        unstable += [txn.first_offset for txn in self.completed if txn.last_offset >= high_watermark]
        return min(high_watermark, *unstable) if unstable else high_watermark

    @property
    def aborted(self) -> tuple[AbortedTxn, ...]:
        """What the transaction indexes of the batches that were read hold."""
        return tuple(
            AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset)
            for txn in self.completed
            if txn.aborted
        )


def open_transactions(entries: Iterable[ProducerEntry], batches: Iterable[LogBatch]) -> Transactions:
    """What is open after `batches`, which follow the snapshot of `entries` (none: the log's start) without a gap."""
    first_offsets = {
        entry.producer_id: entry.current_txn_first_offset for entry in entries if entry.has_open_transaction
    }
    completed = []
    for _, header, control in batches:
        if not header.is_control:
            if header.is_transactional:
                first_offsets.setdefault(header.producer_id, header.base_offset)
        elif control in (ControlType.ABORT, ControlType.COMMIT) and header.producer_id in first_offsets:
            first_offset = first_offsets.pop(header.producer_id)
            completed.append(
                CompletedTransaction(
                    producer_id=header.producer_id,
                    first_offset=first_offset,
                    last_offset=header.last_offset,
                    last_stable_offset=min(first_offsets.values(), default=header.last_offset + 1),
                    aborted=control is ControlType.ABORT,
                )
            )
    still_open = sorted(first_offsets.items(), key=lambda item: item[1])
    return Transactions(tuple(OngoingTransaction(*item) for item in still_open), tuple(completed))
