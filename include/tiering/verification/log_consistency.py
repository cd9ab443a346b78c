"""Compare indexes, transactions and the producer snapshot of a segment with its batches, for deep measures only.

**Index entries.** The indexes need not be those that a broker would build, because how densely it writes them depends
on settings, restarts and the broker's version. An entry is wrong if it points a reader to a wrong place.

**Transactions.** Of a transaction that began before the segment, only the end is known here. So the first offset and
the last stable offset of an entry are right if they follow from the segment's own batches, or lie before the segment. A
transaction whose first batch in the segment is data may have begun earlier, unless a marker of the same producer comes
before that batch in the segment. If the segment has no data of the transaction that an ABORT marker ends, the index
need not have an entry for it: brokers write none for a marker that ends no open transaction.

**Producers.** The snapshot is compared with the state right after the segment's last batch, as far as that state
follows from the batches. The entry of a producer that wrote into the segment must have its last data batch, or none
after a later marker: a marker with a newer producer epoch clears the data before it. A producer without an open
transaction may be missing in the snapshot, because brokers remove producers after `producer.id.expiration.ms`.

Source: Kafka's ProducerStateManager, ProducerStateEntry.
"""

from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from include.tiering.errors import FormatError
from include.tiering.formats.indexes import OffsetIndex, TimeIndex, TransactionIndex
from include.tiering.formats.record_batch import MAX_OFFSET, NO_TIMESTAMP, ControlType
from include.tiering.verification.log_batches import BatchTable, Faults

_NO_POSITION: Final = -1
_AFTER_ALL: Final = np.iinfo(np.int64).max


class OffsetIndexEntries:
    """Checks the entries (offset, position) of an offset index.

    An entry is right if a batch begins at its position, and its offset is the last offset of this batch, or of a later
    batch that begins before the next entry's position: brokers before 4.x write one entry for all batches of an append.
    """

    def __init__(self, index: OffsetIndex) -> None:
        self._index = index
        self._by_position = _Ascending(index.positions)
        self._by_offset = _Ascending(index.offsets)
        self._base_offsets = np.full(len(index), MAX_OFFSET, dtype=np.int64)
        self._last_batches = np.full(len(index), _NO_POSITION, dtype=np.int64)

    def take(self, table: BatchTable) -> None:
        entries, rows = self._by_position.found_in(table.positions)
        self._base_offsets[entries] = table.base_offsets[rows]
        entries, rows = self._by_offset.found_in(table.last_offsets)
        self._last_batches[entries] = table.positions[rows]

    def wrong_entries(self) -> Faults:
        """Return the wrong entries. Call it after the last batch."""
        offsets, positions = self._index.offsets, self._index.positions
        next_positions = np.append(positions[1:], _AFTER_ALL)
        faults = Faults()
        faults.add_rows(
            (self._base_offsets > offsets)
            | (self._last_batches < positions)
            | (self._last_batches >= next_positions[: len(positions)]),
            lambda entry: f"entry {entry}: offset {offsets[entry]} is not at byte {positions[entry]}",
        )
        return faults


class TimeIndexEntries:
    """Checks the entries (timestamp, offset) of a time index.

    An entry is right if its timestamp is the largest of the batch that holds its offset, and all batches before that
    batch have lower timestamps.
    """

    def __init__(self, index: TimeIndex) -> None:
        self._index = index
        self._by_offset = _Ascending(index.offsets)
        self._is_right = np.zeros(len(index), dtype=np.bool_)
        self._largest_ms = NO_TIMESTAMP

    def take(self, table: BatchTable) -> None:
        largest = np.maximum.accumulate(np.concatenate(([self._largest_ms], table.column("max_timestamp"))))
        self._largest_ms = int(largest[-1])
        base, last = table.base_offsets, table.last_offsets
        entries = self._by_offset.between(int(base.min()), int(last.max()))
        offsets, times = self._index.offsets[entries], self._index.timestamps_ms[entries]
        rows = np.minimum(np.searchsorted(last, offsets), len(table) - 1)
        held = (base[rows] <= offsets) & (offsets <= last[rows])
        self._is_right[entries[held & (largest[rows + 1] == times) & (largest[rows] < times)]] = True

    def wrong_entries(self) -> Faults:
        """Return the wrong entries; call it after the last batch."""
        offsets, times = self._index.offsets, self._index.timestamps_ms
        faults = Faults()
        faults.add_rows(
            ~self._is_right,
            lambda entry: f"entry {entry}: offset {offsets[entry]} is not in the first batch of time {times[entry]}",
        )
        return faults


class _Ascending:
    """Finds entries of an index by one of their values; the index need not be sorted."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self._entries = np.argsort(values, kind="stable")
        self._values = values[self._entries]

    def between(self, low: int, high: int) -> NDArray[np.intp]:
        """Return entries with a value from `low` to `high`, both inclusive."""
        first = int(np.searchsorted(self._values, low, side="left"))
        behind = int(np.searchsorted(self._values, high, side="right"))
        return self._entries[first:behind]

    def found_in(self, ascending: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the entries whose value is in `ascending`, and for each the position of the value in `ascending`."""
        first = int(np.searchsorted(self._values, ascending[0], side="left"))
        behind = int(np.searchsorted(self._values, ascending[-1], side="right"))
        rows = np.minimum(np.searchsorted(ascending, self._values[first:behind]), len(ascending) - 1)
        hit = ascending[rows] == self._values[first:behind]
        return self._entries[first:behind][hit], rows[hit]


MAX_PRODUCERS: Final = 250_000
"""The most producers whose transactions are followed in one segment."""


class SegmentTransactions:
    """Follows transactional batches in their order.

    `open` has, by producer, the offset at which the first batch of its open transaction in this segment begins; the
    offsets ascend. `ended` has the producers with an ABORT or COMMIT marker in the segment. Both are emptied, and
    nothing more is followed, once one of them has more than `MAX_PRODUCERS`.
    """

    def __init__(self, index: TransactionIndex, start_offset: int) -> None:
        self.open: OrderedDict[int, int] = OrderedDict()
        self.ended: set[int] = set()
        self._missing = Faults()
        self._index = index
        self._start_offset = start_offset
        self._by_marker = np.argsort(index.entries["last_offset"], kind="stable")
        self._markers = index.entries["last_offset"][self._by_marker].astype(np.int64)
        self._is_right = np.zeros(len(index), dtype=np.bool_)
        self._has_too_many = False

    def take(self, table: BatchTable) -> None:
        if self._has_too_many:
            return
        rows = np.flatnonzero(table.is_transactional)
        producers = table.headers["producer_id"][rows].tolist()
        for row, producer_id in zip(rows.tolist(), producers, strict=True):
            control = table.controls.get(row)
            if control is None:
                if producer_id not in self.open:
                    self.open[producer_id] = int(table.headers["base_offset"][row])
            elif control in (ControlType.ABORT, ControlType.COMMIT):
                self._end(producer_id, int(table.last_offsets[row]), control, table.named(row))
        if max(len(self.open), len(self.ended)) > MAX_PRODUCERS:
            self._has_too_many = True
            self.open.clear()
            self.ended.clear()

    def may_begin_at(self, producer_id: int, first_offset: int, known: int | None) -> bool:
        """Return whether a transaction whose first batch here is at `known` (or None) may begin at `first_offset`."""
        if known == first_offset:
            return True
        return producer_id not in self.ended and 0 <= first_offset < self._start_offset

    def check_followed(self) -> None:
        """Raise FormatError if transactions were not followed to the end, because of too many producers."""
        if self._has_too_many:
            raise FormatError(f"transactions of more than {MAX_PRODUCERS} producers in one segment")

    def missing(self) -> Faults:
        """Return aborted transactions not in the index. Call it after the last batch. Raises as `check_followed`."""
        self.check_followed()
        return self._missing

    def wrong_entries(self) -> Faults:
        """Return entries that no ABORT marker explains. Call it after the last batch. Raises as `check_followed`."""
        self.check_followed()
        faults = Faults()
        faults.add_rows(~self._is_right, lambda entry: f"wrong entry {entry}: {self._index.entries[entry].item()[1:]}")
        return faults

    def _end(self, producer_id: int, marker_offset: int, control: ControlType, named: str) -> None:
        known = self.open.pop(producer_id, None)
        if control is ControlType.ABORT:
            found = int(np.searchsorted(self._markers, marker_offset))
            if found < len(self._markers) and self._markers[found] == marker_offset:
                entry = int(self._by_marker[found])
                self._is_right[entry] = self._explains(entry, producer_id, marker_offset, known)
            elif known is not None:
                self._missing.add(f"{named} aborts the transaction of producer {producer_id} from offset {known}")
        self.ended.add(producer_id)

    def _explains(self, entry: int, producer_id: int, marker_offset: int, known: int | None) -> bool:
        _, producer, first_offset, _, stable_offset = self._index.entries[entry].item()
        stable = next(iter(self.open.values()), marker_offset + 1)
        return (
            producer == producer_id
            and self.may_begin_at(producer_id, first_offset, known)
            and (stable_offset == stable or 0 <= stable_offset < self._start_offset)
        )


_NONE: Final = -1
_SEQUENCES: Final = 2**31


class SnapshotProducers:
    """Follows the producers of `entries` (see `indexes.producer_entries_of`) through the batches.

    `transactions` must be given the same batches.
    """

    def __init__(self, entries: NDArray[np.void], transactions: SegmentTransactions, start_offset: int) -> None:
        self._transactions = transactions
        self._entries = entries[np.argsort(entries["producer_id"], kind="stable")]
        self._producers = self._entries["producer_id"].astype(np.int64)
        self._start_offset = start_offset
        self._last_offsets = np.full(len(entries), _NONE, dtype=np.int64)
        self._last_sequences = np.full(len(entries), _NONE, dtype=np.int64)
        self._marker_offsets = np.full(len(entries), _NONE, dtype=np.int64)
        self._epochs = np.full(len(entries), _NONE, dtype=np.int64)

    def take(self, table: BatchTable) -> None:
        producers = table.column("producer_id")
        if not len(self._producers) or producers.max() < 0:
            return
        control = table.is_control
        entries, rows = self._last_rows(producers, np.flatnonzero(~control))
        self._last_offsets[entries] = table.last_offsets[rows]
        sequences = table.column("base_sequence")[rows] + table.column("last_offset_delta")[rows]
        self._last_sequences[entries] = sequences % _SEQUENCES
        entries, rows = self._last_rows(producers, np.flatnonzero(control))
        self._marker_offsets[entries] = table.last_offsets[rows]
        entries, rows = self._last_rows(producers, np.arange(len(table)))
        self._epochs[entries] = table.column("producer_epoch")[rows]

    def wrong_entries(self) -> Faults:
        """Return producers that the batches contradict or that occur twice, and open transactions that are missing.

        Call it after the last batch.

        Raises:
            FormatError: transactions were not followed, because of too many producers.
        """
        self._transactions.check_followed()
        producers, faults = self._producers, Faults()
        twice = np.zeros(len(producers), dtype=np.bool_)
        twice[1:] = producers[1:] == producers[:-1]
        faults.add_rows(twice, lambda row: f"producer {producers[row]} is in the snapshot twice")
        faults.add_rows(self._wrong_ends(), lambda row: f"producer {producers[row]} has a wrong last batch")
        wrong_epochs = (self._epochs != _NONE) & (self._epochs != self._entries["producer_epoch"])
        faults.add_rows(wrong_epochs, lambda row: f"producer {producers[row]} ended in epoch {self._epochs[row]}")
        faults.add_rows(
            self._wrong_transactions(),
            lambda row: f"the open transaction of producer {producers[row]} is not that of its batches",
        )
        known = set(producers.tolist())
        for producer_id, first_offset in self._transactions.open.items():
            if producer_id not in known:
                faults.add(f"producer {producer_id} is missing, its transaction began at offset {first_offset}")
        return faults

    def _wrong_ends(self) -> NDArray[np.bool_]:
        last_offsets, last_sequences = self._entries["last_offset"], self._entries["last_sequence"]
        same = (last_offsets == self._last_offsets) & (last_sequences == self._last_sequences)
        is_empty = (last_offsets == _NONE) & (last_sequences == _NONE)
        cleared = is_empty & (self._marker_offsets > self._last_offsets)
        before = (last_offsets >= 0) & (last_offsets < self._start_offset)
        wrote_here = self._last_offsets != _NONE
        wrong: NDArray[np.bool_] = np.where(wrote_here, ~(same | cleared), ~(is_empty | before))
        return wrong

    def _wrong_transactions(self) -> NDArray[np.bool_]:
        transactions, firsts = self._transactions, self._entries["current_txn_first_offset"]
        ended = np.isin(self._producers, np.fromiter(transactions.ended, dtype=np.int64))
        wrong = np.where(ended, firsts != _NONE, firsts >= self._start_offset)
        for row in np.flatnonzero(np.isin(self._producers, np.fromiter(transactions.open, dtype=np.int64))).tolist():
            producer_id = int(self._producers[row])
            known = transactions.open[producer_id]
            wrong[row] = not transactions.may_begin_at(producer_id, int(firsts[row]), known)
        return wrong

    def _last_rows(
        self, producers: NDArray[np.int64], rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the entries whose producer wrote some of `rows`, and for each entry the last of these rows."""
        seen, at = np.unique(producers[rows][::-1], return_index=True)
        entries = np.minimum(np.searchsorted(self._producers, seen), len(self._producers) - 1)
        hit = self._producers[entries] == seen
        return entries[hit], rows[::-1][at[hit]]
