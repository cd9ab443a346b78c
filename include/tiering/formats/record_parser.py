"""Where the fields of a batch's records are, found by compiled code: no Python object is made for a record.

Numba compiles the functions at their first call, which takes some seconds, and keeps the result in a cache on disk:
beside this file, or in the user's directory for caches if nothing can be written beside this file, as in a zip file. A
process that finds the result there needs a few tenths of a second. If neither directory can be written, each process
compiles the functions.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

MAX_MS: Final = (2**63 - 1) // 1000
"""The latest timestamp that fits into 64 bits as microseconds."""

PARSED: Final = 0
MALFORMED: Final = 1
BEYOND_TIME: Final = 2
NO_APPEND_TIME: Final = -1

_MIN_LENGTH: Final = 6
_INT32_BITS: Final = 32
_INT64_BITS: Final = 64
_SEVEN_BITS: Final = 127
_NOT_NEGATIVE: Final = 2**63 - 1

Positions: TypeAlias = NDArray[np.int32]

_Function = TypeVar("_Function", bound=Callable[..., Any])


# Compiled functions get plain tuples and no classes of this file: the cache on disk names the classes of arguments, and
# reading it fails if a later version of this file lacks one of them.
Spans: TypeAlias = tuple[Positions, NDArray[np.bool_]]
"""Where the byte string of each row of a column is; and for each row, whether it has one, or is null.

The byte string of row n reaches from item 2n + 1 of the positions to item 2n + 2 (exclusive); item 0 is 0. A null has
two equal items.
"""

Headers: TypeAlias = tuple[Positions, Spans, Spans]
"""Where the headers of each row end among all headers (item n + 1: row n); the names of all headers; their values."""

RecordArrays: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], Spans, Spans, Headers]
"""Where rows are written to: offsets, times in microseconds, keys, values, headers."""


def _compiled(function: _Function) -> _Function:
    """Let the function be compiled at its first call."""
    try:
        return cast("_Function", njit(cache=True, nogil=True)(function))
    except RuntimeError:  # There is no directory for the cache.
        return cast("_Function", njit(nogil=True)(function))


@_compiled
def _varint(plain: NDArray[np.uint8], at: int, end: int, bits: int) -> tuple[int, int]:
    """Return a zig-zag number and the position after it; the position is -1 if it is cut off or too long."""
    value = 0
    shift = 0
    while at < end and shift < bits:
        byte: Any = np.int64(plain[at])
        value |= (byte & _SEVEN_BITS) << shift
        at += 1
        if byte <= _SEVEN_BITS:
            return ((value >> 1) & _NOT_NEGATIVE) ^ -(value & 1), at
        shift += 7
    return 0, -1


@_compiled
def _field(plain: NDArray[np.uint8], at: int, end: int, spans: Spans, row: int) -> int:
    """Store the position of a field whose length is written before it; return its end, or -1 if it is cut off."""
    length, at = _varint(plain, at, end, _INT32_BITS)
    if at < 0 or length > end - at:
        return -1
    positions, given = spans
    given[row] = length >= 0
    positions[2 * row + 1] = at
    at += max(length, 0)
    positions[2 * row + 2] = at
    return at


@_compiled
def _headers(plain: NDArray[np.uint8], at: int, end: int, headers: Headers, rows: int) -> int:
    """Store the positions of the headers of a record; return their end, or -1 if one breaks the format."""
    count, at = _varint(plain, at, end, _INT32_BITS)
    if at < 0 or count < 0:
        return -1
    ends, names, contents = headers
    row: Any = np.int64(ends[rows])
    for _ in range(count):
        at = _field(plain, at, end, names, row)
        if at < 0 or not names[1][row]:
            return -1
        at = _field(plain, at, end, contents, row)
        if at < 0:
            return -1
        row += 1
    ends[rows + 1] = row
    return at


@_compiled
def parse_records(
    plain: NDArray[np.uint8],
    where: tuple[int, int, int],
    base: tuple[int, int, int],
    wanted: tuple[int, int],
    with_headers: bool,
    arrays: RecordArrays,
    rows: int,
) -> tuple[int, int, int]:
    """Find the records of a batch, and append a row for each that is wanted.

    Args:
        plain: decompressed records, of this batch and others.
        where: where those of this batch begin and end (exclusive) in `plain`, and how many there should be.
        base: base offset and base timestamp (ms) of the batch, and the timestamp (ms) of all its records, or
            NO_APPEND_TIME if each has its own.
        wanted: the first and the last offset that are wanted, both inclusive.
        with_headers: whether headers are wanted.
        arrays: where to write, with space for all records of the batch, and for a header for every two bytes of them.
        rows: how many rows the arrays have already.

    Returns:
        PARSED, MALFORMED or BEYOND_TIME; the rows that the arrays have now; the position in `plain` where it ended.
    """
    at, batch_end, count = where
    base_offset, base_ms, append_ms = base
    first_offset, last_offset = wanted
    offsets, times_us, keys, values, headers = arrays
    previous = -1
    for _ in range(count):
        begin = at
        length, at = _varint(plain, at, batch_end, _INT32_BITS)
        if at < 0 or length < _MIN_LENGTH or length > batch_end - at:
            return MALFORMED, rows, begin
        end = at + length
        delta_ms, at = _varint(plain, at + 1, end, _INT64_BITS)
        delta, at = _varint(plain, at, end, _INT32_BITS) if at >= 0 else (0, -1)
        if at < 0 or delta <= previous:
            return MALFORMED, rows, begin
        previous = delta
        if first_offset <= base_offset + delta <= last_offset:
            time_ms = base_ms + delta_ms if append_ms == NO_APPEND_TIME else append_ms
            if not -MAX_MS <= time_ms <= MAX_MS:
                return BEYOND_TIME, rows, begin
            at = _field(plain, at, end, keys, rows)
            at = _field(plain, at, end, values, rows) if at >= 0 else -1
            if at >= 0 and with_headers:
                at = _headers(plain, at, end, headers, rows)
            if at < 0:
                return MALFORMED, rows, begin
            offsets[rows] = base_offset + delta
            times_us[rows] = time_ms * 1000
            rows += 1
        at = end
    return PARSED if at == batch_end else MALFORMED, rows, at
