"""The files of a running broker: their names, and how to open and read them without disturbing the broker.

Brokers write these names in log directories and partition directories:

    <topic>-<partition>                          live replica, split at the last '-'
    <topic>-<partition>.<32 hex digits>-delete   being deleted; here and below, the topic may be shortened
    <topic>-<partition>.<32 hex digits>-stray    not assigned to this broker any more
    <topic>-<partition>.<32 hex digits>-future   being moved here from another directory
    <offset, 20 digits>.<kind>                   a file of a partition directory
    <file name>.deleted|.cleaned|.swap|.tmp      a file that is being deleted or written: never read

Access is read-only and follows no link, but the path of a log directory may be a link. A symbolic link, a pipe or a
device in a log directory is refused, even if it replaces a file during a scan: every name is opened relative to a
directory that is held open, without following links, and the type of the opened file is checked. If a name cannot
be opened, listed or read, the error of the operating system becomes a `SourceError` with the path.

Files that are read in bulk leave hardly anything in the page cache: blocks of one MiB that are not cached at all when a
file is opened are dropped when it is closed. They are not dropped earlier, because a segment is read twice: to check it
and to send it. Pages that were cached before stay there, as far as Linux reports them: from 6.5 on (cachestat), to the
owner of a file and to users that may write it. Without such a report, the pages of all blocks are dropped.

Source of the names: Kafka's LogFileUtils and UnifiedLog.
"""

import contextlib
import ctypes
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from types import TracebackType
from typing import Final, Self

from include.tiering.errors import (
    CorruptFileError,
    HostileNameError,
    SourceChangedError,
    SourceError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.model.segments import is_legal_topic_name
from include.tiering.units import GIB, MIB

METADATA_LOG: Final = "__cluster_metadata-0"
META_PROPERTIES: Final = "meta.properties"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

NOT_PARTITIONS: Final = frozenset({METADATA_LOG, "remote-log-index-cache"})
"""Directories of a log dir that hold no replica of a topic."""

MAX_OFFSET: Final = 2**63 - 1
_PASSING_SUFFIXES: Final = (".deleted", ".cleaned", ".swap", ".tmp")
_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})")
_SUFFIX: Final = re.compile(r"\.[0-9a-f]{32}-(?P<state>delete|stray|future)\Z")
_PLAIN: Final = re.compile(r"[a-zA-Z0-9._-]{1,255}")


class DirectoryState(StrEnum):
    """The state of a partition directory, from its name."""

    LIVE = "live"
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


class FileKind(StrEnum):
    """The files of a partition directory whose name starts with an offset."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"


_KINDS: Final = {kind.value: kind for kind in FileKind}
LOG_SUFFIX: Final = f".{FileKind.LOG}"


@dataclass(frozen=True, slots=True)
class PartitionDirectoryName:
    """A parsed directory name. `topic` may be shortened unless the state is LIVE."""

    topic: str
    partition: int
    state: DirectoryState


def parse_partition_directory(name: str) -> PartitionDirectoryName | None:
    """Parse a directory name; None if it is not the name of a partition directory."""
    suffix = _SUFFIX.search(name)
    plain = _PARTITION.fullmatch(name[: suffix.start()] if suffix else name)
    if plain is None or not is_legal_topic_name(plain["topic"]):
        return None
    partition = int(plain["partition"])
    if partition >= 2**31 or plain["partition"] != str(partition):
        return None
    state = DirectoryState(suffix["state"]) if suffix else DirectoryState.LIVE
    return PartitionDirectoryName(plain["topic"], partition, state)


def parse_offset_file(name: str) -> tuple[int, FileKind] | None:
    """Parse ``<20 digits>.<kind>`` into offset and kind; None for every other name."""
    digits, kind = name[:20], _KINDS.get(name[21:])
    if kind is None or name[20] != "." or not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return (offset, kind) if offset <= MAX_OFFSET else None


def offset_file(offset: int, kind: FileKind) -> str:
    return f"{offset:020d}.{kind.value}"


def is_passing(name: str) -> bool:
    """Return whether the suffix marks a file that is being deleted, swapped in, or written."""
    return name.endswith(_PASSING_SUFFIXES)


def is_harmless(name: str) -> bool:
    """Return whether a name that is not a segment's file may be ignored in a partition directory.

    Not harmless are names with characters that no broker uses, and names with a segment file's suffix (which
    `parse_offset_file` has refused).
    """
    return _PLAIN.fullmatch(name) is not None and name.rpartition(".")[2] not in _KINDS


_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would block; for regular files the flag has no effect.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BrokerDirectory:
    """A directory held open. Names are looked up in it, even if its path leads elsewhere in the meantime."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._identity: tuple[int, int] | None = None
        self.path = path

    @classmethod
    def open(cls, path: str) -> Self:
        """Open a configured log directory; the path itself may be a symbolic link.

        Raises:
            SourceVanishedError: there is no such directory.
            SourceUnreadableError: it is not a directory, or not readable on this host.
        """
        with _translated(path):
            return cls(os.open(path, _DIRECTORY_FLAGS), path)

    def directory(self, name: str) -> "BrokerDirectory":
        """Open a directory in this one.

        Raises:
            HostileNameError: it is a symbolic link.
            SourceError: it does not exist, or is not a readable directory.
        """
        path = self.path_of(name)
        try:
            return BrokerDirectory(os.open(name, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=self._fd), path)
        except OSError as error:
            raise self._refusal(name, error) from error

    def file(self, name: str, *, bulk: bool = False) -> "BrokerFile":
        """Open a regular file in this directory; `bulk` announces that all of it will be read in order.

        Raises:
            HostileNameError: it is a symbolic link.
            SourceVanishedError: there is no such file.
            SourceUnreadableError: it is not a regular file, or not readable on this host.
        """
        try:
            fd = os.open(name, _FILE_FLAGS, dir_fd=self._fd)
        except OSError as error:
            raise self._refusal(name, error) from error
        try:
            return BrokerFile(fd, name, self.path_of(name), bulk=bulk)
        except BaseException:
            os.close(fd)
            raise

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a small file completely.

        Raises:
            CorruptFileError: it has more than `max_bytes`.
            SourceError: as for `file`.
        """
        with self.file(name) as file:
            return file.read_all(max_bytes)

    def entries(self) -> list[os.DirEntry[str]]:
        """List the directory, in no particular order.

        Raises:
            SourceError: it cannot be listed.
        """
        with _translated(self.path), os.scandir(self._fd) as listing:
            return list(listing)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of a name without following links.

        Raises:
            SourceVanishedError: there is no such name.
            SourceUnreadableError: its status cannot be read.
        """
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError as error:
            raise _typed(self.path_of(name), error) from error

    def has(self, name: str) -> bool:
        """Return whether the name exists."""
        try:
            self.stat(name)
        except SourceVanishedError:
            return False
        return True

    def identity(self) -> tuple[int, int]:
        """Return device and inode of the open directory."""
        if self._identity is None:
            found = os.fstat(self._fd)
            self._identity = found.st_dev, found.st_ino
        return self._identity

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refusal(self, name: str, error: OSError) -> SourceError:
        """Return the error for a name that could not be opened.

        ELOOP and ENOTDIR may mean that the name is a link, which its status shows.
        """
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode):
                    return HostileNameError(self.path_of(name), "a symbolic link, which is not followed")
        return _typed(self.path_of(name), error)


class BrokerFile:
    """A `ByteSource` over an open regular file. `size_bytes` is its size when it was opened."""

    def __init__(self, fd: int, name: str, path: str, *, bulk: bool) -> None:
        self._fd = fd
        self.name = name
        self.path = path
        self.status = os.fstat(fd)
        if not stat.S_ISREG(self.status.st_mode):
            raise SourceUnreadableError(path, "not a regular file")
        self._cold = cold_ranges(fd, self.size_bytes) if bulk else ()
        if bulk:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    @property
    def size_bytes(self) -> int:
        return self.status.st_size

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Implement `ByteSource`: fewer bytes than the buffer holds are read only at the end of the file.

        Raises:
            SourceChangedError: the file is shorter than when it was opened.
            SourceUnreadableError: an I/O error occurred.
            SourceVanishedError: the file was removed on a network file system (ESTALE).
        """
        wanted = min(len(buffer), self.size_bytes - position)
        done = 0
        while done < wanted:
            count = self._read_some(position + done, buffer[done:wanted])
            if count == 0:
                now_bytes = os.fstat(self._fd).st_size
                raise SourceChangedError(
                    self.path, f"had {self.size_bytes} bytes when it was opened, now {now_bytes}", position + done
                )
            done += count
        return max(done, 0)

    def read_at(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position` on, fewer at the end. The caller must limit the size."""
        buffer = bytearray(max(0, min(size, self.size_bytes - position)))
        self.read_into(position, memoryview(buffer))
        return bytes(buffer)

    def read_all(self, max_bytes: int) -> bytes:
        """Read the whole file. Raises CorruptFileError if it has more than `max_bytes`."""
        if self.size_bytes > max_bytes:
            raise CorruptFileError(
                self.path, f"{self.size_bytes} bytes, at most {max_bytes} are allowed here", max_bytes
            )
        return self.read_at(0, self.size_bytes)

    def close(self) -> None:
        drop(self._fd, self._cold)
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_some(self, position: int, buffer: memoryview) -> int:
        try:
            return os.preadv(self._fd, [buffer], position)
        except OSError as error:
            raise _typed(self.path, error, position) from error


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _typed(path, error) from error


def _typed(path: str, error: OSError, position: int | None = None) -> SourceError:
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return SourceVanishedError(path, "no such file or directory (any more)", position)
    return SourceUnreadableError(path, os.strerror(error.errno or errno.EIO).lower(), position)


_BLOCK_BYTES: Final = MIB
_MAX_DROPPED_BYTES: Final = 4 * GIB
"""A segment has at most 2 GiB plus one batch. Of a larger file, only the bytes below this position are dropped."""
_CACHESTAT: Final = 451
"""The number of the system call, the same on all common architectures."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    """The counts of `struct cachestat`."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "written_back", "dropped", "recently_dropped")
    )


_libc: Final = ctypes.CDLL(None)


def cold_ranges(fd: int, size_bytes: int) -> Sequence[tuple[int, int]]:
    """Return (position, bytes) of each run of MiB blocks without a cached page, in the first `_MAX_DROPPED_BYTES`.

    If the kernel does not report the cache, all blocks count as uncached.
    """
    positions = range(0, min(size_bytes, _MAX_DROPPED_BYTES), _BLOCK_BYTES)
    cold = []
    for is_cold, run in groupby(positions, key=lambda position: _is_cold(fd, position)):
        if is_cold:
            blocks = list(run)
            cold.append((blocks[0], len(blocks) * _BLOCK_BYTES))
    return cold


def drop(fd: int, ranges: Sequence[tuple[int, int]]) -> None:
    """Drop these ranges from the page cache."""
    for position, size_bytes in ranges:
        os.posix_fadvise(fd, position, size_bytes, os.POSIX_FADV_DONTNEED)


def _is_cold(fd: int, position: int) -> bool:
    pages = _Pages()
    block = ctypes.byref(_Range(position, _BLOCK_BYTES))
    is_known = _libc.syscall(_CACHESTAT, fd, block, ctypes.byref(pages), 0) == 0
    return not is_known or pages.cached == 0
