"""A request body that botocore reads straight from a byte source, paced."""

import io

from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.model.segment_data import ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.bodies import BLOCK_BYTES, blocks_of, filled_block
from include.tiering.remote_storage.contract import ProgressCallback


class SendingFailed(BaseException):
    """Carries an error of the source, the limiter or the callback through the HTTP client.

    botocore takes every Exception raised while it sends for a broken connection, wraps it and tries again; what must
    end the request at once is therefore no Exception. Never seen outside this package.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class PacedBody:
    """Bytes `first` to `first + size_bytes` (exclusive) of a source, as a file that can only be read and rewound.

    `read` ignores the size it is asked for and returns a block of up to 1 MiB, as much as the limiter grants at once:
    urllib3 asks for 16 KiB at a time, which would cost 64 times as many steps through Python. Every block is valid
    until the next one.
    A retry rewinds: what is sent again is charged again, and taken back from the progress.
    """

    def __init__(
        self, source: ByteSource, first: int, size_bytes: int, limiter: ByteLimiter, on_sent: ProgressCallback
    ) -> None:
        self._source = source
        self._first = first
        self._size_bytes = size_bytes
        self._limiter = limiter
        self._on_sent = on_sent
        self._position = 0
        self._reported_bytes = 0
        self._buffer = memoryview(bytearray(min(BLOCK_BYTES, size_bytes)))

    def __len__(self) -> int:
        return self._size_bytes

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size_bytes: int = -1) -> memoryview | bytes:
        wanted_bytes = min(len(self._buffer), self._size_bytes - self._position)
        if wanted_bytes <= 0:
            return b""
        try:
            granted_bytes = self._limiter.take(wanted_bytes)
            block = filled_block(self._source, self._first + self._position, self._buffer[:granted_bytes])
        except Exception as error:
            raise SendingFailed(error) from error
        self._position += len(block)
        self._report()
        return block

    def report_rest(self) -> None:
        """All of it has arrived after all: a store may answer before it has read the last try to its end."""
        self._position = self._size_bytes
        self._report()

    def _report(self) -> None:
        """Bring the sum of what was reported to the position."""
        change_bytes = self._position - self._reported_bytes
        self._reported_bytes = self._position
        try:
            if change_bytes:
                self._on_sent(change_bytes)
        except Exception as error:
            raise SendingFailed(error) from error


def crc32c_of_part(source: ByteSource, first: int, size_bytes: int) -> int:
    """CRC-32C of bytes `first` to `first + size_bytes` (exclusive) of a source, by reading them."""
    crc32c = 0
    for block in blocks_of(source, first, size_bytes):
        crc32c = extend_crc32c(crc32c, block)
    return crc32c
