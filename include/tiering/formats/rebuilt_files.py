"""Rebuild what a broker writes beside a `.log`, from the headers of its batches. Pure.

`SegmentFilesBuilder` writes the indexes as a broker does that appends the batches one by one:

- A batch gets an offset and a time entry if more than index.interval.bytes were appended between the last entry and
  this batch. The first batch is therefore never indexed. A broker that restarts counts from 0 again, so its own index
  may have other entries; lookups in both lead to the same batch.
- A time entry is written only if its timestamp is above that of the last entry. The last entry of a rolled segment has
  the segment's largest timestamp.
- The transaction index has one entry for each ABORT marker that ends an open transaction.

`ProducerStates` follows producers as a broker does that loads a log: from a snapshot, or from the log's start without
any. A transaction that began before the log's start is not known then, and its marker ends nothing.

Source: Kafka's LogSegment, TimeIndex, ProducerStateManager, ProducerAppendInfo, ProducerStateEntry.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.formats.indexes import (
    AbortedTxn,
    ProducerEntry,
    serialize_producer_snapshot,
    serialize_transaction_index,
)
from include.tiering.formats.record_batch import (
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    ControlType,
    TransactionMarker,
)

_NONE: Final = -1
_SEQUENCES: Final = 2**31
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class ProducerStates:
    """The state of every producer before an offset.

    Args:
        entries: the snapshot at that offset; empty at the log's start.
    """

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}
        # The last data batch of a producer, which its entry does not have yet: entries are made when they are needed.
        self._newest: dict[int, BatchHeader] = {}
        by_offset = sorted(self._entries.values(), key=lambda entry: entry.current_txn_first_offset)
        # In the order of first offsets, because offsets ascend from batch to batch.
        self._open = {
            entry.producer_id: entry.current_txn_first_offset for entry in by_offset if entry.has_open_transaction
        }

    def append(self, header: BatchHeader, marker: TransactionMarker | None) -> AbortedTxn | None:
        """Apply the next batch of the log.

        Args:
            header: its header.
            marker: the content of a control batch; None for other batches.

        Returns:
            The aborted transaction that the batch ends; None if it ends none.
        """
        if header.producer_id == NO_PRODUCER:
            return None
        if marker is None:
            if header.is_transactional:
                self._open.setdefault(header.producer_id, header.base_offset)
            self._newest[header.producer_id] = header
            return None
        if marker.control in (ControlType.ABORT, ControlType.COMMIT):
            return self._end(header, marker)
        return None

    def expire(self, before_ms: int) -> None:
        """Remove producers without an open transaction whose last batch has a timestamp below `before_ms`."""
        self._bring_up_to_date()
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if entry.has_open_transaction or entry.timestamp_ms >= before_ms
        }

    def snapshot(self) -> bytes:
        """Return the producer snapshot, with producers by ascending id."""
        self._bring_up_to_date()
        return serialize_producer_snapshot(entry for _, entry in sorted(self._entries.items()))

    def _bring_up_to_date(self) -> None:
        for header in self._newest.values():
            self._append_data(header)
        self._newest.clear()

    def _append_data(self, header: BatchHeader) -> None:
        known = self._entries.get(header.producer_id)
        self._entries[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            last_sequence=(header.base_sequence + header.last_offset_delta) % _SEQUENCES,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            timestamp_ms=header.max_timestamp,
            coordinator_epoch=_NONE if known is None else known.coordinator_epoch,
            current_txn_first_offset=self._open.get(header.producer_id, _NONE),
        )

    def _end(self, header: BatchHeader, marker: TransactionMarker) -> AbortedTxn | None:
        producer_id = header.producer_id
        if (newest := self._newest.pop(producer_id, None)) is not None:
            self._append_data(newest)
        known = self._entries.get(producer_id)
        if known is None or known.producer_epoch != header.producer_epoch:
            # A marker with another producer epoch clears the batches that are kept for duplicates.
            known = ProducerEntry(producer_id, header.producer_epoch, _NONE, _NONE, 0, _NONE, _NONE, _NONE)
        self._entries[producer_id] = replace(
            known,
            timestamp_ms=header.max_timestamp,
            coordinator_epoch=marker.coordinator_epoch,
            current_txn_first_offset=_NONE,
        )
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None or marker.control is ControlType.COMMIT:
            return None
        last_stable_offset = next(iter(self._open.values()), header.last_offset + 1)
        return AbortedTxn(producer_id, first_offset, header.last_offset, last_stable_offset)


@dataclass(frozen=True, slots=True)
class RebuiltFiles:
    """The files of one segment. `transaction_index` is None if no transaction was aborted."""

    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    producer_snapshot: bytes
    aborted_transactions: int


class SegmentFilesBuilder:
    """Build the files of one rolled segment.

    Args:
        base_offset: the segment's first offset, inclusive.
        index_interval_bytes: the topic's index.interval.bytes.
        producers: the producers before the segment; each batch is applied to them.
    """

    def __init__(self, base_offset: int, index_interval_bytes: int, producers: ProducerStates) -> None:
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._producers = producers
        self._offset_index = bytearray()
        self._time_index = bytearray()
        self._aborted: list[AbortedTxn] = []
        self._bytes_since_entry = 0
        self._largest_ms, self._largest_offset = NO_TIMESTAMP, base_offset
        self._indexed_ms = NO_TIMESTAMP

    def append(self, position: int, header: BatchHeader, marker: TransactionMarker | None) -> None:
        """Apply the segment's next batch, which begins at `position` of the `.log`; see `ProducerStates.append`."""
        if header.max_timestamp > self._largest_ms:
            self._largest_ms, self._largest_offset = header.max_timestamp, header.last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            self._offset_index += _OFFSET_ENTRY.pack(header.last_offset - self._base_offset, position)
            self._append_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes
        if (aborted := self._producers.append(header, marker)) is not None:
            self._aborted.append(aborted)

    def files(self) -> RebuiltFiles:
        """Return the files; call it once, after the last batch."""
        self._append_time()
        return RebuiltFiles(
            bytes(self._offset_index),
            bytes(self._time_index),
            serialize_transaction_index(self._aborted) if self._aborted else None,
            self._producers.snapshot(),
            len(self._aborted),
        )

    def _append_time(self) -> None:
        if self._largest_ms > self._indexed_ms:
            self._time_index += _TIME_ENTRY.pack(self._largest_ms, self._largest_offset - self._base_offset)
            self._indexed_ms = self._largest_ms
