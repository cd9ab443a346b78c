"""The spool: files on the worker's disk that hold ranges while they are checked and copied.

A file is read only to be sent. The object in the store must then have the CRC-32C of what was appended to the file, so
a disk that returns other bytes ends the attempt. A file has no name, so nothing of it is left after a crash.

The open files of the process together have at most `max_bytes`, with two exceptions; a range for which there is no
space waits until others are closed. A range that is larger than `max_bytes` is taken once no other is open. And a range
that is copied waits for the earlier ranges of its partition, with its file open. So an earlier range must never wait
for a later one: while a later range of its partition is in the spool, a range is taken at once. The files may exceed
`max_bytes` by the ranges that are taken so.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import SendingStoppedError, SourceChangedError, SourceUnreadableError
from include.tiering.model.segments import TopicIdPartition

PATIENCE_SECONDS: Final = 3_600.0
"""How long a range waits for the spool at most. The ranges that fill the spool may be sent slowly, by a low quota."""
_LOOK_AGAIN_SECONDS: Final = 0.25


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
    """Files without names in one directory. Thread-safe.

    Args:
        directory: a directory on a disk of this host with space for `max_bytes`.
        max_bytes: limit of all files that are open at the same time, see above.
        clock: the clock for the longest wait.
    """

    def __init__(self, directory: Path, max_bytes: int, clock: Clock) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._clock = clock
        self._changed = threading.Condition()
        self._open_bytes: dict[tuple[TopicIdPartition, int], int] = {}

    @contextmanager
    def file(
        self, path: str, partition: TopicIdPartition, base_offset: int, size_bytes: int, go_on: Callable[[], object]
    ) -> Iterator[SpooledLog]:
        """Open an empty file for a range, as soon as the spool has space for it.

        Args:
            path: names the range in errors.
            partition: the range's partition.
            base_offset: the range's base offset.
            size_bytes: how much will be appended at most.
            go_on: called while the method waits; raises to end the wait.

        Raises:
            SourceUnreadableError: the file cannot be created.
            SendingStoppedError: the spool had no space for `PATIENCE_SECONDS`.
            TieringError: what `go_on` raises.
        """
        key = partition, base_offset
        self._reserve(path, key, size_bytes, go_on)
        try:
            try:
                file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115
            except OSError as error:
                raise SourceUnreadableError(path, f"no spool in {self._directory}: {error.strerror}") from error
            with file:
                yield SpooledLog(file, path)
        finally:
            with self._changed:
                del self._open_bytes[key]
                self._changed.notify_all()

    def _reserve(
        self, path: str, key: tuple[TopicIdPartition, int], size_bytes: int, go_on: Callable[[], object]
    ) -> None:
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        while True:
            with self._changed:
                if self._has_space(key, size_bytes):
                    self._open_bytes[key] = size_bytes
                    return
                self._changed.wait(_LOOK_AGAIN_SECONDS)
            go_on()  # Without the lock, because `go_on` may wait for the end of a pause.
            if self._clock.monotonic() >= deadline:
                raise SendingStoppedError(f"{path}: the spool had no space for {PATIENCE_SECONDS:.0f} s")

    def _has_space(self, key: tuple[TopicIdPartition, int], size_bytes: int) -> bool:
        """Return whether a range may be spooled now. A range that is in the spool has to wait until it is closed."""
        if key in self._open_bytes:
            return False
        is_waited_for = any(partition == key[0] and base_offset > key[1] for partition, base_offset in self._open_bytes)
        used_bytes = sum(self._open_bytes.values())
        return is_waited_for or not used_bytes or used_bytes + size_bytes <= self._max_bytes
