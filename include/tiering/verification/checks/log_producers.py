"""Is the producer snapshot the state right after the segment's last batch, as far as its batches tell?

A producer that wrote into the segment was last seen there. It may be missing: brokers forget producers after a while
(`producer.id.expiration.ms`), unless a transaction is open. A marker with a newer producer epoch clears what is known
of the data before it. Source: Kafka's ProducerStateManager, ProducerStateEntry.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from include.tiering.verification.checks.faults import Faults
from include.tiering.verification.checks.log_table import BatchTable
from include.tiering.verification.checks.log_transactions import SegmentTransactions

_NONE: Final = -1
_SEQUENCES: Final = 2**31


class SnapshotProducers:
    """Follows the producers of `entries` (see `producer_snapshot.entries_of`) through the batches.

    `transactions` follows the same batches.
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

    def strays(self) -> Faults:
        """Producers that the batches contradict, after the last one; open transactions that the snapshot lacks.

        Raises:
            FormatError: of the transactions too little is known.
        """
        self._transactions.check_followed()
        producers, faults = self._producers, Faults()
        twice = np.zeros(len(producers), dtype=np.bool_)
        twice[1:] = producers[1:] == producers[:-1]
        faults.add_rows(twice, lambda row: f"producer {producers[row]} is there twice")
        faults.add_rows(self._wrong_ends(), lambda row: f"producer {producers[row]} ended elsewhere")
        wrong_epochs = (self._epochs != _NONE) & (self._epochs != self._entries["producer_epoch"])
        faults.add_rows(wrong_epochs, lambda row: f"producer {producers[row]} ended in epoch {self._epochs[row]}")
        faults.add_rows(
            self._wrong_transactions(),
            lambda row: f"producer {producers[row]} has another open transaction than its batches tell of",
        )
        known = set(producers.tolist())
        for producer_id, first_offset in self._transactions.open.items():
            if producer_id not in known:
                faults.add(f"producer {producer_id} is not there, its transaction began at offset {first_offset}")
        return faults

    def _wrong_ends(self) -> NDArray[np.bool_]:
        last_offsets, last_sequences = self._entries["last_offset"], self._entries["last_sequence"]
        same = (last_offsets == self._last_offsets) & (last_sequences == self._last_sequences)
        forgotten = (last_offsets == _NONE) & (last_sequences == _NONE)
        cleared = forgotten & (self._marker_offsets > self._last_offsets)
        before = (last_offsets >= 0) & (last_offsets < self._start_offset)
        wrote_here = self._last_offsets != _NONE
        wrong: NDArray[np.bool_] = np.where(wrote_here, ~(same | cleared), ~(forgotten | before))
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
        """Entries whose producer wrote some of `rows`, and the last of these for each."""
        seen, at = np.unique(producers[rows][::-1], return_index=True)
        entries = np.minimum(np.searchsorted(self._producers, seen), len(self._producers) - 1)
        hit = self._producers[entries] == seen
        return entries[hit], rows[::-1][at[hit]]
