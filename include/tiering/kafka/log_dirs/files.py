"""Opening and reading files that a running broker owns.

Read only, and nothing is followed: a symbolic link, a pipe or a device in a log directory is refused, also if it is
swapped in while we look, because every name is opened relative to a directory that is held open. Every failure of the
operating system becomes a `SourceError` with the path.

Files that are read in bulk leave the page cache as it was; see `page_cache`.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
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
from include.tiering.kafka.log_dirs.page_cache import cold_ranges, drop

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
