"""`.txnindex`: the aborted transactions whose ABORT marker is in this segment. Absent if there is none.

    at  size  field
     0     2  version              0
     2     8  producer id
    10     8  first offset
    18     8  last offset          that of the ABORT marker, inclusive
    26     8  last stable offset   exclusive, as it was when the marker was written

Entries ascend by last offset; the data may lie in earlier segments. Source: Kafka's TransactionIndex, AbortedTxn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from include.tiering.errors import FormatError
from include.tiering.formats.index_entries import first_not_ascending, read_entries

_VERSION: Final = 0
_ENTRY: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
ENTRY_BYTES: Final = _ENTRY.itemsize


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
        for _, *fields in map(np.void.item, self.entries):
            yield AbortedTxn(*fields)


def trim(data: bytes) -> bytes:
    """Without an entry at the end that is incomplete, which a broker ignores."""
    return data[: len(data) - len(data) % ENTRY_BYTES]


def parse(data: bytes) -> TransactionIndex:
    """All entries. Raises FormatError: an incomplete one, or another version than 0."""
    entries = read_entries(data, _ENTRY)
    bad = entries["version"] != _VERSION
    if bad.any():
        number = int(bad.argmax())
        raise FormatError(
            f"aborted transaction version {entries['version'][number]} is not {_VERSION}", number * ENTRY_BYTES
        )
    return TransactionIndex(entries)


def check(data: bytes, *, base_offset: int, end_offset: int) -> TransactionIndex:
    """The index of a rolled segment, found fit to be served.

    Every marker is in [base_offset, end_offset], markers ascend strictly, and no transaction ends before it begins.

    Raises:
        FormatError: at the first entry that breaks this.
    """
    index = parse(data)
    markers = index.entries["last_offset"].astype(np.int64)
    bad = first_not_ascending(markers, low=base_offset, high=end_offset, strictly=True)
    if bad is not None:
        raise FormatError(
            f"ABORT marker {markers[bad]} of entry {bad} is outside {base_offset}..{end_offset} or does not ascend",
            bad * ENTRY_BYTES,
        )
    for number, entry in enumerate(index):
        if not 0 <= entry.first_offset < entry.last_offset:
            raise FormatError(
                f"transaction {entry.first_offset}..{entry.last_offset} is not a range", number * ENTRY_BYTES
            )
    return index
