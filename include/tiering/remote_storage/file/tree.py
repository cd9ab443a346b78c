"""Directories below one root, entered component by component so that no name or link leads out of the root; file I/O.

The root is held open from its first use on. Every later use compares the held directory with the directory that the
path names then. If the path names another directory (device, inode) or none, as after an unmount, nothing is read,
written or deleted. An operation under way continues in the directory that it opened; only a write
compares the root again, before its file gets the final name. When the path names the held directory again, the store
works again. If a root that was used before is missing, it is not created again.

The module also writes new files durably, and reads small files whole.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat as stat_bits
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from include.tiering.errors import (
    ForeignStoreError,
    ObjectKeyError,
    RemoteAccessDeniedError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    RemoteStorageUnavailableError,
    printable,
)
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import ByteSource
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.remote_storage.object_store import blocks_of
from include.tiering.units import KIB, MIB

TEMPORARY_MARK: Final = ".~"
"""Part of the name of a file that is being written: `~` is not allowed in a key."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOCKED: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REGULAR: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileTree:
    """A root directory. The root itself may be a symbolic link; links below it are not followed.

    Every method raises ForeignStoreError if the root's path no longer names the directory of its first use. The root
    stays open until this object is collected; a pickled copy opens the path again in the process that uses it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: int | None = None
        self._holding = threading.Lock()
        self._durable: set[tuple[str, ...]] = set()

    def __reduce__(self) -> tuple[type["FileTree"], tuple[Path]]:
        return FileTree, (self._root,)

    @contextlib.contextmanager
    def directory(self, components: tuple[str, ...]) -> Iterator[int]:
        """Open the directory of these path components; yield its descriptor. Raises OSError if it cannot be opened."""
        fd = self._opened(components, _entered)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def made_directory(self, components: tuple[str, ...]) -> Iterator[int]:
        """Open as `directory` does, but create what is missing, and make every name on the way durable."""
        if self._held is None:
            self._make_root()
        fd = self._opened(components, self._entered_or_made)
        try:
            yield fd
        finally:
            os.close(fd)

    def require_in_place(self) -> None:
        """Check the root again, before a descriptor that was opened long ago is used further."""
        self._opened_root()

    @contextlib.contextmanager
    def file(self, components: tuple[str, ...], name: str) -> Iterator[tuple[int, int]]:
        """Open a regular file, and yield its descriptor and size. Raises OSError; RemoteStorageError if not regular."""
        with self.directory(components) as directory:
            fd = os.open(name, _REGULAR, dir_fd=directory)
        try:
            status = os.fstat(fd)
            if not stat_bits.S_ISREG(status.st_mode):
                raise RemoteStorageError(f"{printable(name)} is not a regular file")
            yield fd, status.st_size
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def locked_file(self, components: tuple[str, ...], name: str) -> Iterator[int]:
        """Open a regular file with an exclusive advisory lock; yield its descriptor.

        The lock ends with the context, or with the process. If the file was replaced while this call waited for the
        lock, the old file is closed, and the new file is locked instead. Raises OSError; RemoteStorageError if it is
        not a regular file.
        """
        with self.directory(components) as directory:
            while True:
                fd = os.open(name, _LOCKED, dir_fd=directory)
                try:
                    status = os.fstat(fd)
                    if not stat_bits.S_ISREG(status.st_mode):
                        raise RemoteStorageError(f"{printable(name)} is not a regular file")
                    fcntl.flock(fd, fcntl.LOCK_EX)
                    if os.path.samestat(status, os.stat(name, dir_fd=directory, follow_symlinks=False)):
                        yield fd
                        return
                finally:
                    os.close(fd)

    def entries(self, components: tuple[str, ...]) -> list[tuple[str, os.stat_result]]:
        """List the names in one directory with their status (links are not followed).

        Names that vanish meanwhile are skipped; a directory that does not exist has no names.
        """
        found = []
        with (
            contextlib.suppress(FileNotFoundError),
            self.directory(components) as directory,
            os.scandir(directory) as entries,
        ):
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
        return found

    def _opened(self, components: tuple[str, ...], enter: Callable[[int, tuple[str, ...]], int]) -> int:
        """Open the last directory, entered name by name; the root is compared once for the whole path."""
        root = self._opened_root()
        fd = enter(root, components[:1]) if components else os.open(".", _DIRECTORY, dir_fd=root)
        for depth in range(2, len(components) + 1):
            parent = fd
            try:
                fd = enter(parent, components[:depth])
            finally:
                os.close(parent)
        return fd

    def _entered_or_made(self, parent: int, path: tuple[str, ...]) -> int:
        """Enter a directory; create it if it is missing, and make its name durable unless this object did so before."""
        if path in self._durable:
            with contextlib.suppress(FileNotFoundError):
                return _entered(parent, path)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path[-1], dir_fd=parent)
        os.fsync(parent)
        self._durable.add(path)
        return _entered(parent, path)

    def _opened_root(self) -> int:
        """Return the held root after a check that the path still names it. The caller must not close it."""
        if self._held is None:
            with self._holding:
                if self._held is None:
                    held = os.open(self._root, _DIRECTORY)
                    weakref.finalize(self, os.close, held)
                    self._held = held
        self._require_in_place(self._held)
        return self._held

    def _require_in_place(self, held: int) -> None:
        try:
            now = self._root.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ForeignStoreError(
                f"{self._root.as_uri()} is not there any more: is its disk mounted? Nothing is written or deleted"
            ) from error
        if not os.path.samestat(now, os.fstat(held)):
            raise ForeignStoreError(
                f"{self._root.as_uri()} is another directory now (device {now.st_dev}, inode {now.st_ino}) than the one"
                " that was used before: is its disk mounted? Nothing is written or deleted"
            )

    def _make_root(self) -> None:
        for directory in reversed((self._root, *self._root.parents)):
            if not directory.exists():
                directory.mkdir(exist_ok=True)
                parent = os.open(directory.parent, _DIRECTORY)
                try:
                    os.fsync(parent)
                finally:
                    os.close(parent)


def is_temporary(path: str, staging_prefix: str) -> bool:
    """Return whether `path` (relative to the root) is a temporary file: being written, or left by a dead process."""
    return path.startswith(staging_prefix) and TEMPORARY_MARK in path.rpartition("/")[2]


def _entered(parent: int, path: tuple[str, ...]) -> int:
    """Open the last directory of `path`, which is in `parent`."""
    return os.open(path[-1], _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


_MEANING: Final[dict[int, tuple[type[RemoteStorageError], str]]] = {
    errno.ENOENT: (RemoteResourceNotFoundError, "there is no such file"),
    errno.EEXIST: (RemoteObjectExistsError, "it exists already and is left as it is"),
    errno.ENOSPC: (RemoteStorageFullError, "no space is left: free some or name another store"),
    errno.EDQUOT: (RemoteStorageFullError, "the disk quota is exhausted: raise it or name another store"),
    errno.ENAMETOOLONG: (ObjectKeyError, "this file system takes no name of that length: use an object store"),
    errno.ELOOP: (RemoteStorageError, "a symbolic link is in the way; links inside the store are never followed"),
    errno.ENOTDIR: (RemoteStorageError, "a file or a symbolic link stands where a directory belongs"),
    errno.EACCES: (RemoteAccessDeniedError, "permission denied: check owner and mode of the store's directory"),
    errno.EPERM: (
        RemoteStorageError,
        "not permitted: the file system must allow hard links, and the mode must let this user write",
    ),
    errno.EOPNOTSUPP: (RemoteStorageError, "this file system has no hard links, which the store needs"),
    errno.EROFS: (RemoteStorageError, "the file system is mounted read-only"),
    errno.EIO: (RemoteStorageUnavailableError, "the device reported an I/O error"),
    errno.ESTALE: (RemoteStorageUnavailableError, "the network file system lost the file"),
    errno.ETIMEDOUT: (RemoteStorageUnavailableError, "the network file system did not answer"),
}


@contextlib.contextmanager
def translated(root: Path, key: str, action: str) -> Iterator[None]:
    """Turn an OSError into the storage error that fits it; the message names the object and, if known, a remedy."""
    try:
        yield
    except OSError as error:
        kind, meaning = _MEANING.get(error.errno or 0, (RemoteStorageError, os.strerror(error.errno or 0)))
        raise kind(f"cannot {action} {printable(key) or 'the store'} in {root.as_uri()}: {meaning}") from error


MAX_RECORD_BYTES: Final = 64 * KIB
"""Maximum size of an object that is replaced on a condition."""
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
    """Write a new file and make its content durable; return the CRC-32C of the written bytes."""
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
    """Start to write bytes `first` to `end` (exclusive) to the disk, and drop written pages from the page cache.

    Otherwise dirty pages of a segment would accumulate until the fsync at its end, and displace pages from which a
    broker on this host serves consumers.
    """
    os.posix_fadvise(fd, first, end - first, os.POSIX_FADV_DONTNEED)
