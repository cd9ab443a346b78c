"""Compiled code that puts the fields of a batch's records into arrays: no Python object is made for a record.

Numba compiles the functions at their first call, which takes some seconds, and keeps the result in a cache on disk:
beside this file, or in the user's directory for caches if nothing can be written beside this file, as in a zip file. A
process that finds the result there needs a few tenths of a second. If neither directory can be written, each process
compiles the functions.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic
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

Ends: TypeAlias = NDArray[np.int32]
Given: TypeAlias = NDArray[np.bool_]
Content: TypeAlias = NDArray[np.uint8]

_Function = TypeVar("_Function", bound=Callable[..., Any])


# Compiled functions get plain tuples and no classes of this file: the cache on disk names the classes of arguments, and
# reading it fails if a later version of this file lacks one of them.
ByteStrings: TypeAlias = tuple[Ends, Given, Content]
"""A column of byte strings: for each row, where its byte string ends in the content (item n + 1: row n; item 0 is 0),
and whether it has one, or is null; the content of all rows."""

Headers: TypeAlias = tuple[Ends, ByteStrings, ByteStrings]
"""Where the headers of each row end among all headers (item n + 1: row n); the names of all headers; their values."""

RecordArrays: TypeAlias = tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], ByteStrings, ByteStrings, Headers
]
"""Where rows are written to: offsets, times in microseconds, types of the times, keys, values, headers."""


def _compiled(function: _Function) -> _Function:
    """Let the function be compiled at its first call."""
    try:
        return cast("_Function", njit(cache=True, nogil=True)(function))
    except RuntimeError:  # There is no directory for the cache.
        return cast("_Function", njit(nogil=True)(function))


@_compiled
def _varint(plain: Content, at: int, end: int, bits: int) -> tuple[int, int]:
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


def _copy_code(_: Any, source: Any, at: Any, target: Any, to: Any, size_bytes: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the types of `_copy`, and what generates its code: a call of the C library's memcpy."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
        source, at, target, to, size_bytes = arguments
        read = context.make_array(signature.args[0])(context, builder, source).data
        written = context.make_array(signature.args[2])(context, builder, target).data
        memcpy: Any = cgutils.raw_memcpy
        memcpy(builder, builder.gep(written, [to]), builder.gep(read, [at]), size_bytes, 1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), generate


_copy = cast("Callable[[Content, int, Content, int, int], None]", intrinsic(_copy_code))
"""Copies bytes from a position of an array to a position of another one; nothing checks that they are in the arrays.

A loop of Numba takes several times as long, and slices longer still: they copy one byte at a time."""


@_compiled
def _field(plain: Content, at: int, end: int, strings: ByteStrings, row: int) -> int:
    """Append a field whose length is written before it; return its end, or -1 if it is cut off."""
    length, at = _varint(plain, at, end, _INT32_BITS)
    if at < 0 or length > end - at:
        return -1
    ends, given, content = strings
    given[row] = length >= 0
    length = max(length, 0)
    _copy(plain, at, content, ends[row], length)
    ends[row + 1] = ends[row] + length
    return at + length


@_compiled
def _headers(plain: Content, at: int, end: int, headers: Headers, rows: int) -> int:
    """Append the headers of a record; return their end, or -1 if one breaks the format."""
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
    plain: Content,
    count: int,
    base: tuple[int, int, int],
    wanted: tuple[int, int],
    with_headers: bool,
    arrays: RecordArrays,
    rows: int,
) -> tuple[int, int, int]:
    """Append a row for each record of a batch that is wanted.

    Args:
        plain: the decompressed records of the batch.
        count: how many there should be.
        base: base offset and base timestamp (ms) of the batch, and the timestamp (ms) of all its records, or
            NO_APPEND_TIME if each has its own.
        wanted: the first and the last offset that are wanted, both inclusive.
        with_headers: whether headers are wanted.
        arrays: where to write, with space for all records of the batch, and for a header for every two bytes of them;
            each content has space for all bytes of the batch.
        rows: how many rows the arrays have already.

    Returns:
        PARSED, MALFORMED or BEYOND_TIME; the rows that the arrays have now; the position in `plain` where it ended.
    """
    at, batch_end = 0, len(plain)
    base_offset, base_ms, append_ms = base
    first_offset, last_offset = wanted
    offsets, times_us, types, keys, values, headers = arrays
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
            types[rows] = append_ms != NO_APPEND_TIME
            rows += 1
        at = end
    return PARSED if at == batch_end else MALFORMED, rows, at
