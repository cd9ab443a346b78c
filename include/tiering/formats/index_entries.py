"""What all index files share: entries of one size back to back, perhaps with zeros after the last."""

import numpy as np
from numpy.typing import NDArray

from include.tiering.errors import FormatError


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
