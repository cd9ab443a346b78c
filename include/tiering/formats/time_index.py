"""`.timeindex`: from a timestamp to the offset up to which nothing is newer.

    at  size  field
     0     8  timestamp         the largest up to and including the offset
     8     4  relative offset   offset - base offset of the segment

Timestamps ascend strictly, offsets never fall. A rolled segment's last entry has its largest timestamp. The index of an
active segment is preallocated with zeros. Source: Kafka's TimeIndex.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from include.tiering.errors import FormatError
from include.tiering.formats.index_entries import first_not_ascending, read_entries, trimmed_length
from include.tiering.formats.record_batch import NO_TIMESTAMP

_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
ENTRY_BYTES: Final = _ENTRY.itemsize


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


def trim(data: bytes) -> bytes:
    """Without the zero entries at the end. Raises FormatError if the length is not a multiple of an entry."""
    return data[: trimmed_length(data, ENTRY_BYTES)]


def parse(data: bytes, *, base_offset: int) -> TimeIndex:
    """All entries, a zero tail left out. Raises FormatError if the length is not a multiple of an entry."""
    entries = read_entries(trim(data), _ENTRY)
    offsets = entries["relative_offset"].astype(np.int64) + base_offset
    return TimeIndex(base_offset, entries["timestamp"].astype(np.int64), offsets)


def check(data: bytes, *, base_offset: int, end_offset: int) -> TimeIndex:
    """The index of a rolled segment, found fit to be served.

    Every offset is in [base_offset, end_offset], timestamps are not negative and ascend strictly, offsets never fall,
    and no zero tail is left.

    Raises:
        FormatError: at the first entry that breaks this.
    """
    index = parse(data, base_offset=base_offset)
    if len(index) * ENTRY_BYTES != len(data):
        raise FormatError("the time index ends in zero entries", len(index) * ENTRY_BYTES)
    bad = first_not_ascending(index.timestamps_ms, low=0, high=2**63 - 1, strictly=True)
    if bad is not None:
        raise FormatError(f"timestamp {index.timestamps_ms[bad]} of entry {bad} does not ascend", bad * ENTRY_BYTES)
    bad = first_not_ascending(index.offsets, low=base_offset, high=end_offset, strictly=False)
    if bad is not None:
        raise FormatError(
            f"offset {index.offsets[bad]} of entry {bad} is outside {base_offset}..{end_offset} or falls",
            bad * ENTRY_BYTES,
        )
    return index
