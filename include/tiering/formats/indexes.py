"""The files that belong to a segment's `.log`: its indexes, and the snapshot of its producers. No I/O.

An index has entries of a fixed size without gaps, possibly with zeros after the last one.

`.index`: maps an offset to the position in the `.log` where a scan for it may start.

    at  size  field
     0     4  relative offset   last offset of a batch - base offset of the segment
     4     4  position          where that batch, or before 4.x its append, starts

From entry to entry, both fields ascend. The first batch is never indexed, so a small segment has an index of 0 bytes.

`.timeindex`: maps a timestamp to the offset up to which no record is newer.

    at  size  field
     0     8  timestamp         the largest timestamp up to the offset, inclusive
     8     4  relative offset   offset - base offset of the segment

Timestamps ascend strictly, offsets never decrease. The last entry of a rolled segment has the segment's largest
timestamp. The offset and time index of an active segment are preallocated; zero entries at the end are unused.

`.txnindex`: the aborted transactions whose ABORT marker is in this segment. Without any, the file is absent or
empty.

    at  size  field
     0     2  version              0
     2     8  producer id
    10     8  first offset
    18     8  last offset          that of the ABORT marker, inclusive
    26     8  last stable offset   exclusive, at the time when the marker was written

Entries ascend by last offset. The records of a transaction may be in earlier segments.

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
     22      4  offset delta               last batch's last - first offset
     26      8  timestamp
     34      4  coordinator epoch          -1 = no marker was written so far
     38      8  current txn first offset   -1 = no open transaction

`open_transactions` starts from a snapshot and applies the headers of the batches after it, as a broker does when it
loads a log. A transactional data batch opens a transaction of its producer at the batch's base offset, unless one is
open; an ABORT or COMMIT marker ends it. The result determines the last stable offset.

Source: Kafka's OffsetIndex, TimeIndex, TransactionIndex, AbortedTxn, ProducerStateManager.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import NO_TIMESTAMP, ControlType, LogBatch
from include.tiering.units import MIB


def read_entries(data: bytes, entry: np.dtype[np.void]) -> NDArray[np.void]:
    """Return the entries without copying them. Raises FormatError if the last entry is incomplete."""
    check_length(len(data), entry.itemsize)
    return np.frombuffer(data, dtype=entry)


def check_length(size_bytes: int, entry_bytes: int) -> None:
    """Require whole entries. Raises FormatError at the start of an incomplete entry."""
    rest = size_bytes % entry_bytes
    if rest:
        raise FormatError(f"{size_bytes} bytes are not a multiple of {entry_bytes}", size_bytes - rest)


def trimmed_length(data: bytes, entry_bytes: int) -> int:
    """Return the length up to and including the last entry that is not all zero.

    Raises:
        FormatError: the length is not a multiple of an entry.
    """
    check_length(len(data), entry_bytes)
    used_bytes = len(data.rstrip(b"\0"))
    return -(-used_bytes // entry_bytes) * entry_bytes


def first_not_ascending(values: NDArray[np.int64], *, low: int, high: int, strictly: bool) -> int | None:
    """Return the index of the first wrong value; None if there is none.

    A value is wrong if it is outside [low, high] or below the previous value; `strictly`: or equal to it.
    """
    bad = (values < low) | (values > high)
    bad[1:] |= values[1:] <= values[:-1] if strictly else values[1:] < values[:-1]
    return int(bad.argmax()) if bad.any() else None


_OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
OFFSET_ENTRY_BYTES: Final = _OFFSET_ENTRY.itemsize


class OffsetPosition(NamedTuple):
    """An entry of the index, or the start of a segment, see `lookup`; `offset` is absolute."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """A parsed offset index. `offsets` are absolute; both arrays have one item per entry."""

    base_offset: int
    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    def lookup(self, target_offset: int) -> OffsetPosition:
        """Return the greatest entry with an offset <= target; if there is none, the start of the segment."""
        found = int(np.searchsorted(self.offsets, target_offset, side="right")) - 1
        if found < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(int(self.offsets[found]), int(self.positions[found]))

    def position_after(self, target_offset: int) -> int | None:
        """Return the position of the first entry with an offset > target; None if there is none.

        In an index of 4.x, the batch that holds the target does not begin after this position.
        """
        found = int(np.searchsorted(self.offsets, target_offset, side="right"))
        return int(self.positions[found]) if found < len(self) else None


def trim_offset_index(data: bytes) -> bytes:
    """Remove the zero entries at the end. Raises FormatError if the length is not a multiple of an entry."""
    return data[: trimmed_length(data, OFFSET_ENTRY_BYTES)]


def parse_offset_index(data: bytes, *, base_offset: int) -> OffsetIndex:
    """Parse an index up to its zero entries. Raises FormatError if the length is not a multiple of an entry."""
    entries = read_entries(trim_offset_index(data), _OFFSET_ENTRY)
    offsets = entries["relative_offset"].astype(np.int64) + base_offset
    return OffsetIndex(base_offset, offsets, entries["position"].astype(np.int64))


def check_offset_index(data: bytes, *, base_offset: int, end_offset: int, size_bytes: int) -> OffsetIndex:
    """Parse and check the index of a rolled segment.

    Every offset must be in [base_offset, end_offset], every position in (0, size_bytes), and both must ascend strictly.
    Zero entries at the end are refused, because a broker's lookup that finds them returns position 0.

    Raises:
        FormatError: a check failed; the position is that of the first entry that fails this check.
    """
    index = parse_offset_index(data, base_offset=base_offset)
    if len(index) * OFFSET_ENTRY_BYTES != len(data):
        raise FormatError("the offset index ends in zero entries", len(index) * OFFSET_ENTRY_BYTES)
    for name, values, low, high in (
        ("offset", index.offsets, base_offset, end_offset),
        ("position", index.positions, 1, size_bytes - 1),
    ):
        bad = first_not_ascending(values, low=low, high=high, strictly=True)
        if bad is not None:
            rule = f"is outside {low}..{high} or does not ascend"
            raise FormatError(f"{name} {values[bad]} of entry {bad} {rule}", bad * OFFSET_ENTRY_BYTES)
    return index


_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
TIME_ENTRY_BYTES: Final = _TIME_ENTRY.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class TimeIndex:
    """A parsed time index. `offsets` are absolute; both arrays have one item per entry."""

    base_offset: int
    timestamps_ms: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def largest_timestamp_ms(self) -> int:
        """The timestamp of the last entry; -1 without entries."""
        return int(self.timestamps_ms[-1]) if len(self) else NO_TIMESTAMP


def timestamp_of(entry: bytes) -> int | None:
    """Return the timestamp of one entry of an index that has several; None if the entry is all zero, so unused."""
    return int.from_bytes(entry[:8], "big", signed=True) if any(entry) else None


def trim_time_index(data: bytes) -> bytes:
    """Remove the zero entries at the end, unless the index has one entry alone.

    A lone zero entry is in use: brokers write it for timestamp 0 at the base offset, if no record is newer.

    Raises:
        FormatError: the length is not a multiple of an entry.
    """
    return data if len(data) == TIME_ENTRY_BYTES else data[: trimmed_length(data, TIME_ENTRY_BYTES)]


def parse_time_index(data: bytes, *, base_offset: int) -> TimeIndex:
    """Parse an index up to its zero entries. Raises FormatError if the length is not a multiple of an entry."""
    entries = read_entries(trim_time_index(data), _TIME_ENTRY)
    offsets = entries["relative_offset"].astype(np.int64) + base_offset
    return TimeIndex(base_offset, entries["timestamp"].astype(np.int64), offsets)


def check_time_index(data: bytes, *, base_offset: int, end_offset: int) -> TimeIndex:
    """Parse and check the index of a rolled segment.

    Every offset must be in [base_offset, end_offset], timestamps must be 0 or above and ascend strictly, offsets must
    not decrease, and there must be no zero entries at the end.

    Raises:
        FormatError: a check failed; the position is that of the first entry that fails this check.
    """
    index = parse_time_index(data, base_offset=base_offset)
    if len(index) * TIME_ENTRY_BYTES != len(data):
        raise FormatError("the time index ends in zero entries", len(index) * TIME_ENTRY_BYTES)
    bad = first_not_ascending(index.timestamps_ms, low=0, high=2**63 - 1, strictly=True)
    if bad is not None:
        raise FormatError(
            f"timestamp {index.timestamps_ms[bad]} of entry {bad} is below 0 or does not ascend", bad * TIME_ENTRY_BYTES
        )
    bad = first_not_ascending(index.offsets, low=base_offset, high=end_offset, strictly=False)
    if bad is not None:
        raise FormatError(
            f"offset {index.offsets[bad]} of entry {bad} is outside {base_offset}..{end_offset} or falls",
            bad * TIME_ENTRY_BYTES,
        )
    return index


_TRANSACTION_VERSION: Final = 0
_TRANSACTION_ENTRY: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
TRANSACTION_ENTRY_BYTES: Final = _TRANSACTION_ENTRY.itemsize


class AbortedTxn(NamedTuple):
    """One aborted transaction of one producer."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class TransactionIndex:
    """The entries of the file; the iterator returns them as `AbortedTxn`."""

    entries: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[AbortedTxn]:
        for _, *values in map(np.void.item, self.entries):
            yield AbortedTxn(*values)


def trim_transaction_index(data: bytes) -> bytes:
    """Remove an incomplete entry at the end, which brokers ignore."""
    return data[: len(data) - len(data) % TRANSACTION_ENTRY_BYTES]


def parse_transaction_index(data: bytes) -> TransactionIndex:
    """Parse all entries. Raises FormatError for an incomplete entry, and for another version than 0."""
    entries = read_entries(data, _TRANSACTION_ENTRY)
    bad = entries["version"] != _TRANSACTION_VERSION
    if bad.any():
        number = int(bad.argmax())
        raise FormatError(
            f"aborted transaction version {entries['version'][number]} is not {_TRANSACTION_VERSION}",
            number * TRANSACTION_ENTRY_BYTES,
        )
    return TransactionIndex(entries)


def serialize_transaction_index(aborted: Iterable[AbortedTxn]) -> bytes:
    """Return the bytes that a broker writes for these aborted transactions, in their order."""
    return np.array([(_TRANSACTION_VERSION, *txn) for txn in aborted], dtype=_TRANSACTION_ENTRY).tobytes()


def check_transaction_index(data: bytes, *, base_offset: int, end_offset: int) -> TransactionIndex:
    """Parse and check the index of a rolled segment.

    Every marker must be in [base_offset, end_offset], markers must ascend strictly, and the first offset of every
    transaction must be 0 or above and below its marker.

    Raises:
        FormatError: a check failed; the position is that of the first entry that fails this check.
    """
    index = parse_transaction_index(data)
    markers = index.entries["last_offset"].astype(np.int64)
    bad = first_not_ascending(markers, low=base_offset, high=end_offset, strictly=True)
    if bad is not None:
        raise FormatError(
            f"ABORT marker {markers[bad]} of entry {bad} is outside {base_offset}..{end_offset} or does not ascend",
            bad * TRANSACTION_ENTRY_BYTES,
        )
    for number, entry in enumerate(index):
        if not 0 <= entry.first_offset < entry.last_offset:
            raise FormatError(
                f"transaction {entry.first_offset}..{entry.last_offset} is not a range",
                number * TRANSACTION_ENTRY_BYTES,
            )
    return index


SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEADER: Final = struct.Struct(">hIi")
_SNAPSHOT_CRC_START: Final = 6
_PRODUCER_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NO_OFFSET: Final = -1
MAX_PRODUCER_SNAPSHOT_BYTES: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """The state of one producer, with the fields in the order of the file. Offsets are inclusive, -1 = none."""

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
        return self.current_txn_first_offset != _NO_OFFSET


_PRODUCER_COLUMNS: Final = np.dtype(
    [(field.name, code) for field, code in zip(fields(ProducerEntry), "qhiqiqiq", strict=True)]
).newbyteorder(">")


def parse_producer_snapshot(data: bytes) -> tuple[ProducerEntry, ...]:
    """Return the entries in the order of the file, which has no meaning. Raises like `producer_entries_of`."""
    return tuple(ProducerEntry(*entry.item()) for entry in producer_entries_of(data))


def producer_entries_of(data: bytes) -> NDArray[np.void]:
    """Return the entries as an array with the fields of `ProducerEntry`, which is cheap for many entries.

    Raises:
        FormatError: the length, the version or the CRC is wrong, or the count does not match the length.
    """
    if not _SNAPSHOT_HEADER.size <= len(data) <= MAX_PRODUCER_SNAPSHOT_BYTES:
        raise FormatError(f"{len(data)} bytes are outside {_SNAPSHOT_HEADER.size}..{MAX_PRODUCER_SNAPSHOT_BYTES}")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise FormatError(f"producer snapshot version {version} is not {SNAPSHOT_VERSION}")
    if len(data) != _SNAPSHOT_HEADER.size + count * _PRODUCER_ENTRY.size:
        raise FormatError(f"the header says {count} producers, the file has {len(data)} bytes", _SNAPSHOT_CRC_START)
    actual_crc = google_crc32c.value(data[_SNAPSHOT_CRC_START:])
    if actual_crc != crc:
        raise FormatError(f"CRC-32C is {actual_crc:08x}, the header says {crc:08x}", 2)
    return np.frombuffer(data, dtype=_PRODUCER_COLUMNS, offset=_SNAPSHOT_HEADER.size)


def serialize_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes that a broker writes for these producers."""
    packed = [_PRODUCER_ENTRY.pack(*astuple(entry)) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", SNAPSHOT_VERSION, google_crc32c.value(body)) + body


EMPTY_SNAPSHOT: Final = serialize_producer_snapshot([])
"""The snapshot of a partition without idempotent or transactional producers."""


@dataclass(frozen=True, slots=True)
class OngoingTransaction:
    """A transaction without a marker in the batches that were read. `first_offset` is inclusive."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction with a marker.

    `last_offset` (inclusive) is that of the marker; `last_stable_offset` (exclusive) is the last stable offset once the
    marker is written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    aborted: bool


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a snapshot and of the batches that were read after it.

    `open` is ordered by first offset. `completed` has those whose marker is in the batches, ordered by marker.
    """

    open: tuple[OngoingTransaction, ...]
    completed: tuple[CompletedTransaction, ...]

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the first offset that a read_committed consumer cannot read, at most the `high_watermark` itself.

        Like in a broker, a transaction counts as open if its marker is not below the high watermark. For a lower bound
        of the high watermark the result is a lower bound, too, if the snapshot's offset is at or below that bound.
        """
        unstable = [txn.first_offset for txn in self.open]
        unstable += [txn.first_offset for txn in self.completed if txn.last_offset >= high_watermark]
        return min(high_watermark, *unstable) if unstable else high_watermark

    @property
    def aborted(self) -> tuple[AbortedTxn, ...]:
        """The entries of the transaction indexes for the batches that were read."""
        return tuple(
            AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset)
            for txn in self.completed
            if txn.aborted
        )


def open_transactions(entries: Iterable[ProducerEntry], batches: Iterable[LogBatch]) -> Transactions:
    """Return the transactions after `batches`.

    Args:
        entries: the producer snapshot from which the batches start; empty at the log's start.
        batches: the batches that follow the snapshot without a gap.
    """
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
