"""`.index`: from an offset to the place in the `.log` where a scan for it may start.

    at  size  field
     0     4  relative offset   last offset of a batch - base offset of the segment
     4     4  position          where that batch starts

Entries ascend in both. The first batch is never indexed, so a small segment has an index of 0 bytes. The index of an
active segment is preallocated with zeros; no real entry is all zero. Source: Kafka's OffsetIndex.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from include.tiering.errors import FormatError
from include.tiering.formats.index_entries import first_not_ascending, read_entries, trimmed_length

_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
ENTRY_BYTES: Final = _ENTRY.itemsize


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


def trim(data: bytes) -> bytes:
    """Without the zero entries at the end. Raises FormatError if the length is not a multiple of an entry."""
    return data[: trimmed_length(data, ENTRY_BYTES)]


def parse(data: bytes, *, base_offset: int) -> OffsetIndex:
    """All entries, a zero tail left out. Raises FormatError if the length is not a multiple of an entry."""
    entries = read_entries(trim(data), _ENTRY)
    offsets = entries["relative_offset"].astype(np.int64) + base_offset
    return OffsetIndex(base_offset, offsets, entries["position"].astype(np.int64))


def check(data: bytes, *, base_offset: int, end_offset: int, size_bytes: int) -> OffsetIndex:
    """The index of a rolled segment, found fit to be served.

    Every offset is in [base_offset, end_offset], every position in (0, size_bytes), both ascend strictly, and no zero
    tail is left (lookups in it would all give position 0).

    Raises:
        FormatError: at the first entry that breaks this.
    """
    index = parse(data, base_offset=base_offset)
    if len(index) * ENTRY_BYTES != len(data):
        raise FormatError("the offset index ends in zero entries", len(index) * ENTRY_BYTES)
    for name, values, low, high in (
        ("offset", index.offsets, base_offset, end_offset),
        ("position", index.positions, 1, size_bytes - 1),
    ):
        bad = first_not_ascending(values, low=low, high=high, strictly=True)
        if bad is not None:
            rule = f"is outside {low}..{high} or does not ascend"
            raise FormatError(f"{name} {values[bad]} of entry {bad} {rule}", bad * ENTRY_BYTES)
    return index
