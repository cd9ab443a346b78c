"""Transactions that the batches of one segment tell of, beside its transaction index.

What began before the segment is known only by its end here. So a first offset, and a last stable offset, is either the
one that the segment's own batches give, or lies before the segment. A producer's transaction that shows first by data
may have begun earlier, unless a marker of the same producer came before it in the segment.
Source: Kafka's ProducerStateManager; an ABORT marker without an open transaction is in no index.
"""

from collections import OrderedDict
from typing import Final

import numpy as np

from include.tiering.errors import FormatError
from include.tiering.formats.indexes import TransactionIndex
from include.tiering.formats.record_batch import ControlType
from include.tiering.verification.checks.faults import Faults
from include.tiering.verification.checks.log_table import BatchTable

MAX_PRODUCERS: Final = 250_000
"""Transactional producers of one segment that are followed; more than any broker keeps for a partition."""


class SegmentTransactions:
    """Follows transactional batches in their order.

    `open`: first offsets by producer, ascending, as far as the segment knows. `ended`: producers with a marker in the
    segment. Both stay empty once there are more than `MAX_PRODUCERS`.
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
        """Whether a transaction that the segment knows from `known` on may have begun at `first_offset`."""
        if known == first_offset:
            return True
        return producer_id not in self.ended and 0 <= first_offset < self._start_offset

    def check_followed(self) -> None:
        """Raises FormatError: there were too many producers to know anything."""
        if self._has_too_many:
            raise FormatError(f"transactions of more than {MAX_PRODUCERS} producers in one segment")

    def missing(self) -> Faults:
        """Aborted transactions that the index lacks, after the last batch. Raises as `check_followed`."""
        self.check_followed()
        return self._missing

    def strays(self) -> Faults:
        """Entries that no ABORT marker explains, after the last batch. Raises as `check_followed`."""
        self.check_followed()
        faults = Faults()
        faults.add_rows(~self._is_right, lambda entry: f"entry {entry} is {self._index.entries[entry].item()[1:]}")
        return faults

    def _end(self, producer_id: int, marker_offset: int, control: ControlType, named: str) -> None:
        known = self.open.pop(producer_id, None)
        if control is ControlType.ABORT:
            found = int(np.searchsorted(self._markers, marker_offset))
            if found < len(self._markers) and self._markers[found] == marker_offset:
                entry = int(self._by_marker[found])
                self._is_right[entry] = self._explains(entry, producer_id, marker_offset, known)
            elif known is not None:
                self._missing.add(f"the ABORT in {named} ends what producer {producer_id} began at offset {known}")
        self.ended.add(producer_id)

    def _explains(self, entry: int, producer_id: int, marker_offset: int, known: int | None) -> bool:
        _, producer, first_offset, _, stable_offset = self._index.entries[entry].item()
        stable = next(iter(self.open.values()), marker_offset + 1)
        return (
            producer == producer_id
            and self.may_begin_at(producer_id, first_offset, known)
            and (stable_offset == stable or 0 <= stable_offset < self._start_offset)
        )
