"""Does every index entry say something true about the batches of the log?

Not whether the indexes are those that a broker would build: how densely it writes them depends on settings, restarts
and its version. An entry is a stray if a reader who believes it would be led astray.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from include.tiering.formats.indexes import OffsetIndex, TimeIndex
from include.tiering.formats.record_batch import MAX_OFFSET, NO_TIMESTAMP
from include.tiering.verification.checks.faults import Faults
from include.tiering.verification.checks.log_table import BatchTable

_NOWHERE: Final = -1
_BEHIND_ALL: Final = np.iinfo(np.int64).max


class OffsetIndexEntries:
    """An entry (offset, position) is right if a batch begins there, and one that ends with the offset is the same or
    follows it before the next entry: brokers before 4.x write one entry for all batches of an append."""

    def __init__(self, index: OffsetIndex) -> None:
        self._index = index
        self._by_position = _Ascending(index.positions)
        self._by_offset = _Ascending(index.offsets)
        self._base_offsets = np.full(len(index), MAX_OFFSET, dtype=np.int64)
        self._last_batches = np.full(len(index), _NOWHERE, dtype=np.int64)

    def take(self, table: BatchTable) -> None:
        entries, rows = self._by_position.found_in(table.positions)
        self._base_offsets[entries] = table.base_offsets[rows]
        entries, rows = self._by_offset.found_in(table.last_offsets)
        self._last_batches[entries] = table.positions[rows]

    def strays(self) -> Faults:
        """After the last batch."""
        offsets, positions = self._index.offsets, self._index.positions
        next_positions = np.append(positions[1:], _BEHIND_ALL)
        faults = Faults()
        faults.add_rows(
            (self._base_offsets > offsets)
            | (self._last_batches < positions)
            | (self._last_batches >= next_positions[: len(positions)]),
            lambda entry: f"entry {entry} says that offset {offsets[entry]} is at byte {positions[entry]}",
        )
        return faults


class TimeIndexEntries:
    """An entry (timestamp, offset) is right if the batch that holds the offset is the first to have the timestamp, and
    none before it has a later one."""

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

    def strays(self) -> Faults:
        """After the last batch."""
        offsets, times = self._index.offsets, self._index.timestamps_ms
        faults = Faults()
        faults.add_rows(
            ~self._is_right,
            lambda entry: f"entry {entry} says that offset {offsets[entry]} is the first with timestamp {times[entry]}",
        )
        return faults


class _Ascending:
    """Entries of an index by one of their values, however disordered they stand in it."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self._entries = np.argsort(values, kind="stable")
        self._values = values[self._entries]

    def between(self, low: int, high: int) -> NDArray[np.intp]:
        """Entries with a value of `low` to `high`, both inclusive."""
        first = int(np.searchsorted(self._values, low, side="left"))
        behind = int(np.searchsorted(self._values, high, side="right"))
        return self._entries[first:behind]

    def found_in(self, ascending: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Entries whose value is one of `ascending`, and which."""
        first = int(np.searchsorted(self._values, ascending[0], side="left"))
        behind = int(np.searchsorted(self._values, ascending[-1], side="right"))
        rows = np.minimum(np.searchsorted(ascending, self._values[first:behind]), len(ascending) - 1)
        hit = ascending[rows] == self._values[first:behind]
        return self._entries[first:behind][hit], rows[hit]
