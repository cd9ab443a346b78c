"""The bytes of one file of a file store: written once and durably, or read whole if it is small."""

import hashlib
import os
from typing import Final

from include.tiering.errors import RemoteStorageError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.model.segment_data import ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.bodies import blocks_of
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.units import KIB, MIB

MAX_RECORD_BYTES: Final = 64 * KIB
"""Of an object that is replaced on a condition."""
_WRITE_BEHIND_BYTES: Final = 8 * MIB
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_small_file(fd: int, key: str, max_bytes: int) -> bytes:
    content = os.pread(fd, max_bytes + 1, 0)
    if len(content) > max_bytes:
        raise RemoteStorageError(f"{key}: more than {max_bytes} bytes")
    return content


def version_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_new_file(directory: int, name: str, body: ByteSource, limiter: ByteLimiter, on_sent: ProgressCallback) -> int:
    """Write a new file and make its content durable; returns the CRC-32C of what was written."""
    crc32c = 0
    position = flushed = 0
    fd = os.open(name, _CREATE, 0o644, dir_fd=directory)
    try:
        for block in blocks_of(body, 0, body.size_bytes, limiter):
            crc32c = extend_crc32c(crc32c, block)
            written = 0
            while written < len(block):
                written += os.write(fd, block[written:])
            position += written
            on_sent(written)
            if position - flushed >= _WRITE_BEHIND_BYTES:
                _write_behind(fd, flushed, position)
                flushed = position
        os.fsync(fd)
    finally:
        os.close(fd)
    return crc32c


def _write_behind(fd: int, first: int, end: int) -> None:
    """Let the disk begin with what was just written, and the page cache forget it.

    A segment would otherwise pile up as dirty memory until the fsync at its end, and push out of the cache what a
    broker on this host still serves from it.
    """
    os.posix_fadvise(fd, first, end - first, os.POSIX_FADV_DONTNEED)
