"""Leaving the page cache as it was: what is not in it when a file is opened is dropped when it is closed.

In between it stays, as a segment is read twice, to check it and to send it. What producers and consumers had in memory
stays there in any case. Linux tells what is in memory from 6.5 on (cachestat), to those who own the file or may write
it; where it does not, everything is dropped.
"""

import ctypes
import os
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from include.tiering.units import GIB, MIB

_BLOCK_BYTES: Final = MIB
_MOST_BYTES: Final = 4 * GIB
"""No segment is larger than an int32 of bytes and one batch; of what pretends to be, the rest stays in memory."""
_CACHESTAT: Final = 451
"""The number of the system call, the same on every architecture that Python is built for."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    """Counts of `struct cachestat`."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "written_back", "dropped", "recently_dropped")
    )


_libc: Final = ctypes.CDLL(None)


def cold_ranges(fd: int, size_bytes: int) -> Sequence[tuple[int, int]]:
    """(position, bytes) of each run of MiBs of which nothing is in memory; of all of them where nobody can tell."""
    positions = range(0, min(size_bytes, _MOST_BYTES), _BLOCK_BYTES)
    cold = []
    for is_cold, run in groupby(positions, key=lambda position: _is_cold(fd, position)):
        if is_cold:
            blocks = list(run)
            cold.append((blocks[0], len(blocks) * _BLOCK_BYTES))
    return cold


def drop(fd: int, ranges: Sequence[tuple[int, int]]) -> None:
    """Ask the page cache to forget these."""
    for position, size_bytes in ranges:
        os.posix_fadvise(fd, position, size_bytes, os.POSIX_FADV_DONTNEED)


def _is_cold(fd: int, position: int) -> bool:
    pages = _Pages()
    asked = ctypes.byref(_Range(position, _BLOCK_BYTES))
    is_known = _libc.syscall(_CACHESTAT, fd, asked, ctypes.byref(pages), 0) == 0
    return not is_known or pages.cached == 0
