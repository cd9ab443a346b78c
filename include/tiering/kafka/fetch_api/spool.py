"""The spool: files on the worker's disk that hold ranges while they are checked and copied.

A file has no name, so nothing of it is left after a crash. All files of the process together have at most a number of
bytes; who needs more has to come again.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path

from include.tiering.errors import SourceChangedError, SourceUnreadableError
from include.tiering.units import format_bytes


class SpooledLog:
    """`ByteSource` over the bytes that were appended so far; `path` names the range, not a file."""

    def __init__(self, file: RawIOBase, path: str) -> None:
        self._file = file
        self.path = path
        self.size_bytes = 0

    def append(self, data: memoryview) -> None:
        """Append all of the data. Raises SourceUnreadableError if the disk does not take it."""
        left = data
        try:
            while left:
                left = left[os.write(self._file.fileno(), left) :]
        except OSError as error:
            raise SourceUnreadableError(self.path, f"cannot be written to the spool: {error.strerror}") from error
        self.size_bytes += len(data)

    def read_into(self, position: int, buffer: memoryview) -> int:
        wanted = buffer[: max(0, self.size_bytes - position)]
        done = 0
        try:
            while done < len(wanted):
                count = os.preadv(self._file.fileno(), [wanted[done:]], position + done)
                if not count:
                    raise SourceChangedError(self.path, f"the spool ends at byte {position + done}")
                done += count
        except OSError as error:
            raise SourceUnreadableError(self.path, f"cannot be read from the spool: {error.strerror}") from error
        return done


class Spool:
    """Files without names in one directory.

    Args:
        directory: on a disk of this host with space for `max_bytes`.
        max_bytes: of all files that are open at the same time.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._reserved_bytes = 0

    @contextmanager
    def file(self, path: str, size_bytes: int) -> Iterator[SpooledLog]:
        """Open an empty file for a range.

        Args:
            path: names the range in errors.
            size_bytes: how much will be appended at most.

        Raises:
            SourceUnreadableError: the file does not fit into the spool now, or cannot be created.
        """
        with self._reservation(path, size_bytes):
            try:
                file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115
            except OSError as error:
                raise SourceUnreadableError(path, f"no spool in {self._directory}: {error.strerror}") from error
            with file:
                yield SpooledLog(file, path)

    @contextmanager
    def _reservation(self, path: str, size_bytes: int) -> Iterator[None]:
        with self._lock:
            if self._reserved_bytes + size_bytes > self._max_bytes:
                free = format_bytes(self._max_bytes - self._reserved_bytes)
                raise SourceUnreadableError(path, f"{format_bytes(size_bytes)}, the spool has {free} left")
            self._reserved_bytes += size_bytes
        try:
            yield
        finally:
            with self._lock:
                self._reserved_bytes -= size_bytes
