"""The files beside a segment's `.log`: its indexes, and the snapshot of its producers. Pure.

An index has entries of one size back to back, perhaps with zeros after the last.

`.index`: from an offset to the place in the `.log` where a scan for it may start.

    at  size  field
     0     4  relative offset   last offset of a batch - base offset of the segment
     4     4  position          where that batch starts

Entries ascend in both. The first batch is never indexed, so a small segment has an index of 0 bytes.

`.timeindex`: from a timestamp to the offset up to which nothing is newer.

    at  size  field
     0     8  timestamp         the largest up to and including the offset
     8     4  relative offset   offset - base offset of the segment

Timestamps ascend strictly, offsets never fall. A rolled segment's last entry has its largest timestamp.
The offset and time index of an active segment are preallocated with zeros; no real entry is all zero.

`.txnindex`: the aborted transactions whose ABORT marker is in this segment. Absent if there is none.

    at  size  field
     0     2  version              0
     2     8  producer id
    10     8  first offset
    18     8  last offset          that of the ABORT marker, inclusive
    26     8  last stable offset   exclusive, as it was when the marker was written

Entries ascend by last offset; the data may lie in earlier segments.

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
    """The entries, not copied. Raises FormatError if bytes are left over."""
    check_length(len(data), entry.itemsize)
    return np.frombuffer(data, dtype=entry)


def check_length(size_bytes: int, entry_bytes: int) -> None:
    """Raises FormatError at the start of an incomplete entry."""
    rest = size_bytes % entry_bytes
    if rest:
        raise FormatError(f"{size_bytes} bytes are not a multiple of {entry_bytes}", size_bytes - rest)


def trimmed_length(data: bytes, entry_bytes: int) -> int:
    """Bytes up to and including the last entry that is not all zero.

    Raises:
        FormatError: the length is not a multiple of an entry.
    """
    check_length(len(data), entry_bytes)
    used_bytes = len(data.rstrip(b"\0"))
    return -(-used_bytes // entry_bytes) * entry_bytes


def first_not_ascending(values: NDArray[np.int64], *, low: int, high: int, strictly: bool) -> int | None:
    """Number of the first value outside [low, high], or that does not ascend; None if all is well."""
    bad = (values < low) | (values > high)
    bad[1:] |= values[1:] <= values[:-1] if strictly else values[1:] < values[:-1]
    return int(bad.argmax()) if bad.any() else None


_OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
OFFSET_ENTRY_BYTES: Final = _OFFSET_ENTRY.itemsize


class OffsetPosition(NamedTuple):
    """The batch whose last offset is `offset` starts at byte `position`."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """`offsets` are absolute; both arrays have one item per entry."""

    base_offset: int
    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    def lookup(self, target_offset: int) -> OffsetPosition:
        """The greatest entry with offset <= target; the start of the segment if there is none."""
        found = int(np.searchsorted(self.offsets, target_offset, side="right")) - 1
        if found < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(int(self.offsets[found]), int(self.positions[found]))

    def position_after(self, target_offset: int) -> int | None:
        """Position of the first entry with offset > target: the batch that holds the target does not begin later.

        None if there is no such entry.
        """
        found = int(np.searchsorted(self.offsets, target_offset, side="right"))
        return int(self.positions[found]) if found < len(self) else None


def trim_offset_index(data: bytes) -> bytes:
    """Without the zero entries at the end. Raises FormatError if the length is not a multiple of an entry."""
    return data[: trimmed_length(data, OFFSET_ENTRY_BYTES)]


def parse_offset_index(data: bytes, *, base_offset: int) -> OffsetIndex:
    """All entries, a zero tail left out. Raises FormatError if the length is not a multiple of an entry."""
    entries = read_entries(trim_offset_index(data), _OFFSET_ENTRY)
    offsets = entries["relative_offset"].astype(np.int64) + base_offset
    return OffsetIndex(base_offset, offsets, entries["position"].astype(np.int64))


def check_offset_index(data: bytes, *, base_offset: int, end_offset: int, size_bytes: int) -> OffsetIndex:
    """The index of a rolled segment, found fit to be served.

    Every offset is in [base_offset, end_offset], every position in (0, size_bytes), both ascend strictly, and no zero
    tail is left (lookups in it would all give position 0).

    Raises:
        FormatError: at the first entry that breaks this.
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
    """`offsets` are absolute; both arrays have one item per entry."""

    base_offset: int
    timestamps_ms: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def largest_timestamp_ms(self) -> int:
        """-1 if there is no entry."""
        return int(self.timestamps_ms[-1]) if len(self) else NO_TIMESTAMP


def timestamp_of(entry: bytes) -> int | None:
    """The timestamp of one entry, None if it is all zero. Cheaper than `parse` where a scan wants the last one only."""
    return int.from_bytes(entry[:8], "big", signed=True) if any(entry) else None


def trim_time_index(data: bytes) -> bytes:
    """Without the zero entries at the end. Raises FormatError if the length is not a multiple of an entry."""
    return data[: trimmed_length(data, TIME_ENTRY_BYTES)]


def parse_time_index(data: bytes, *, base_offset: int) -> TimeIndex:
    """All entries, a zero tail left out. Raises FormatError if the length is not a multiple of an entry."""
    entries = read_entries(trim_time_index(data), _TIME_ENTRY)
    offsets = entries["relative_offset"].astype(np.int64) + base_offset
    return TimeIndex(base_offset, entries["timestamp"].astype(np.int64), offsets)


def check_time_index(data: bytes, *, base_offset: int, end_offset: int) -> TimeIndex:
    """The index of a rolled segment, found fit to be served.

    Every offset is in [base_offset, end_offset], timestamps are not negative and ascend strictly, offsets never fall,
    and no zero tail is left.

    Raises:
        FormatError: at the first entry that breaks this.
    """
    index = parse_time_index(data, base_offset=base_offset)
    if len(index) * TIME_ENTRY_BYTES != len(data):
        raise FormatError("the time index ends in zero entries", len(index) * TIME_ENTRY_BYTES)
    bad = first_not_ascending(index.timestamps_ms, low=0, high=2**63 - 1, strictly=True)
    if bad is not None:
        raise FormatError(
            f"timestamp {index.timestamps_ms[bad]} of entry {bad} does not ascend", bad * TIME_ENTRY_BYTES
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
    """The entries as they stand in the file; iterates over them as `AbortedTxn`."""

    entries: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[AbortedTxn]:
        for _, *values in map(np.void.item, self.entries):
            yield AbortedTxn(*values)


def trim_transaction_index(data: bytes) -> bytes:
    """Without an entry at the end that is incomplete, which a broker ignores."""
    return data[: len(data) - len(data) % TRANSACTION_ENTRY_BYTES]


def parse_transaction_index(data: bytes) -> TransactionIndex:
    """All entries. Raises FormatError: an incomplete one, or another version than 0."""
    entries = read_entries(data, _TRANSACTION_ENTRY)
    bad = entries["version"] != _TRANSACTION_VERSION
    if bad.any():
        number = int(bad.argmax())
        raise FormatError(
            f"aborted transaction version {entries['version'][number]} is not {_TRANSACTION_VERSION}",
            number * TRANSACTION_ENTRY_BYTES,
        )
    return TransactionIndex(entries)


def check_transaction_index(data: bytes, *, base_offset: int, end_offset: int) -> TransactionIndex:
    """The index of a rolled segment, found fit to be served.

    Every marker is in [base_offset, end_offset], markers ascend strictly, and no transaction ends before it begins.

    Raises:
        FormatError: at the first entry that breaks this.
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
        return self.current_txn_first_offset != _NO_OFFSET


_PRODUCER_COLUMNS: Final = np.dtype(
    [(field.name, code) for field, code in zip(fields(ProducerEntry), "qhiqiqiq", strict=True)]
).newbyteorder(">")


def parse_producer_snapshot(data: bytes) -> tuple[ProducerEntry, ...]:
    """The entries, in the order of the file (which means nothing). Raises what `producer_entries_of` raises."""
    return tuple(ProducerEntry(*entry.item()) for entry in producer_entries_of(data))


def producer_entries_of(data: bytes) -> NDArray[np.void]:
    """The entries as one array with the fields of `ProducerEntry`: cheap where there may be many.

    Raises:
        FormatError: another version, a wrong CRC, or a count that is not that of the bytes.
    """
    if not _SNAPSHOT_HEADER.size <= len(data) <= MAX_PRODUCER_SNAPSHOT_BYTES:
        raise FormatError(f"{len(data)} bytes are outside {_SNAPSHOT_HEADER.size}..{MAX_PRODUCER_SNAPSHOT_BYTES}")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise FormatError(f"producer snapshot version {version} is not {SNAPSHOT_VERSION}")
    if len(data) != _SNAPSHOT_HEADER.size + count * _PRODUCER_ENTRY.size:
        raise FormatError(f"{count} producers announced in {len(data)} bytes", _SNAPSHOT_CRC_START)
    actual_crc = google_crc32c.value(data[_SNAPSHOT_CRC_START:])
    if actual_crc != crc:
        raise FormatError(f"CRC-32C is {actual_crc:08x}, the header says {crc:08x}", 2)
    return np.frombuffer(data, dtype=_PRODUCER_COLUMNS, offset=_SNAPSHOT_HEADER.size)


def serialize_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes that a broker would write for these producers."""
    packed = [_PRODUCER_ENTRY.pack(*astuple(entry)) for entry in entries]
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
