"""The files that a running broker owns: their names, and opening and reading them without harm to either side.

A name is believed only if it is one that a broker writes:

    <topic>-<partition>                          live replica, split at the last '-'
    <topic>-<partition>.<32 hex digits>-delete   being deleted; the topic part may be cut short
    <topic>-<partition>.<32 hex digits>-stray    the broker must not own it
    <topic>-<partition>.<32 hex digits>-future   being moved here from another directory
    <offset, 20 digits>.<kind>                   a file of a partition directory
    <any of these>.deleted|.cleaned|.swap|.tmp   on its way out, or not there yet: never read

Read only, and nothing is followed: a symbolic link, a pipe or a device in a log directory is refused, also if it is
swapped in while we look, because every name is opened relative to a directory that is held open. Every failure of the
operating system becomes a `SourceError` with the path.

Files that are read in bulk leave the page cache as it was: what is not in it when a file is opened is dropped when it
is closed. In between it stays, as a segment is read twice, to check it and to send it. What producers and consumers had
in memory stays there in any case. Linux tells what is in memory from 6.5 on (cachestat), to those who own the file or
may write it; where it does not, everything is dropped.

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
    """What a partition directory's name says about it."""

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
    """`topic` may be cut short unless the state is LIVE."""

    topic: str
    partition: int
    state: DirectoryState


def parse_partition_directory(name: str) -> PartitionDirectoryName | None:
    """None if no broker names a partition directory like this."""
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
    """Offset and kind of ``<20 digits>.<kind>``; None for every other name."""
    digits, kind = name[:20], _KINDS.get(name[21:])
    if kind is None or name[20] != "." or not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return (offset, kind) if offset <= MAX_OFFSET else None


def offset_file(offset: int, kind: FileKind) -> str:
    return f"{offset:020d}.{kind.value}"


def is_passing(name: str) -> bool:
    """On its way out (deleted, cleaned, swapped) or half written."""
    return name.endswith(_PASSING_SUFFIXES)


def is_harmless(name: str) -> bool:
    """A name that may lie in a partition directory without meaning anything to us.

    Not harmless: characters that no broker uses, and a name that claims to be a segment's file but has no offset.
    """
    return _PLAIN.fullmatch(name) is not None and name.rpartition(".")[2] not in _KINDS


_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A pipe would block an open without O_NONBLOCK; regular files do not care.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BrokerDirectory:
    """A directory held open: all names are looked up in it, whatever its path leads to meanwhile."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._identity: tuple[int, int] | None = None
        self.path = path

    @classmethod
    def open(cls, path: str) -> Self:
        """A root that the user named; it may be a symbolic link.

        Raises:
            SourceVanishedError: no such directory.
            SourceUnreadableError: not a directory, or not readable here.
        """
        with _translated(path):
            return cls(os.open(path, _DIRECTORY_FLAGS), path)

    def directory(self, name: str) -> "BrokerDirectory":
        """A directory in this one.

        Raises:
            HostileNameError: a symbolic link.
            SourceError: gone, or not a readable directory.
        """
        path = self.path_of(name)
        try:
            return BrokerDirectory(os.open(name, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=self._fd), path)
        except OSError as error:
            raise self._refusal(name, error) from error

    def file(self, name: str, *, bulk: bool = False) -> "BrokerFile":
        """A regular file in this directory; `bulk` announces that all of it will be read in order.

        Raises:
            HostileNameError: a symbolic link.
            SourceVanishedError: no such file.
            SourceUnreadableError: not a regular file, or not readable here.
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
        """The whole of a small file.

        Raises:
            CorruptFileError: it has more than `max_bytes`.
            SourceError: as `file` says.
        """
        with self.file(name) as file:
            return file.read_all(max_bytes)

    def entries(self) -> list[os.DirEntry[str]]:
        """What is in the directory, in no order.

        Raises:
            SourceError: it cannot be listed.
        """
        with _translated(self.path), os.scandir(self._fd) as listing:
            return list(listing)

    def stat(self, name: str) -> os.stat_result:
        """Of the name itself, a link is not followed. Raises SourceVanishedError if it is gone."""
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError as error:
            raise _typed(self.path_of(name), error) from error

    def has(self, name: str) -> bool:
        """Whether there is anything of this name."""
        try:
            self.stat(name)
        except SourceVanishedError:
            return False
        return True

    def identity(self) -> tuple[int, int]:
        """Device and inode of the directory that is held open."""
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
        """A refused link looks like "too many links" or "not a directory": ask again to call it by its name."""
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
        """As the `ByteSource` contract says: short only at the end.

        Raises:
            SourceChangedError: the file is shorter than it was when opened.
            SourceUnreadableError: an I/O error.
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
        """`size` bytes from `position` on, fewer at the end. The caller answers for the size."""
        buffer = bytearray(max(0, min(size, self.size_bytes - position)))
        self.read_into(position, memoryview(buffer))
        return bytes(buffer)

    def read_all(self, max_bytes: int) -> bytes:
        """Raises CorruptFileError if the file has more than `max_bytes`."""
        if self.size_bytes > max_bytes:
            raise CorruptFileError(
                self.path, f"{self.size_bytes} bytes, at most {max_bytes} make sense here", max_bytes
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
