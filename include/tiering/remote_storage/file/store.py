"""An object store in files below one directory (the embedded store), and its listing.

How one object is written, and what a crash leaves:

    step                                            a crash after it leaves
    1 make the missing directories of the           empty directories: harmless, never removed
      temporary file; fsync the parent of each
      directory on its path, once per `FileTree`
    2 write `<name>.~<random>`: each block is       a temporary file: listed as an open upload, removed by
      charged, then read and written, and added     `abort_upload`; no object
      to a CRC-32C
    3 fsync the temporary file                      the same
    4 link it to `<name>`, which refuses a taken    the temporary file, and the complete object, whose name a power
      name (the file system's If-None-Match);       cut may still undo: the attempt is not FINISHED, so the delete of
      with `staging_prefix`, first as step 1 for    the attempt removes both
      the directory of the object
    5 remove the temporary name                     the complete object, whose name a power cut may still undo
    6 fsync the directory of the object             the object, durable; with `staging_prefix`, a power cut may bring
                                                    the temporary name back: an open upload of a finished segment
    7 with `staging_prefix`: fsync the directory    the object alone
      of the temporary file

The temporary file is in the directory of the object, unless the layout sets `staging_prefix`: then it is in the
directory `<staging_prefix><directory of the object>`. A layout sets the prefix if another program reads the directories
of objects and fails when it finds the name of a temporary file there.

Every component of a path is opened relative to the component before it and without following symbolic links, so nothing
inside the store can lead out of the store. The root itself may be a link, because a person chose its path. It is held
open from its first use on. If its path names another directory later, every call is refused (see `tree`). `~` is not
allowed in a key, so no object has the name of a temporary file.

A listing divides all files into parts by key. It shows regular files only, temporary ones as open uploads.
"""

import contextlib
import os
import stat as stat_bits
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from include.tiering.errors import (
    RemoteChecksumError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    printable,
)
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import ByteSource
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.remote_storage.contract import ProgressCallback
from include.tiering.remote_storage.file.tree import (
    MAX_RECORD_BYTES,
    TEMPORARY_MARK,
    FileTree,
    is_temporary,
    read_small_file,
    translated,
    version_of,
    write_new_file,
)
from include.tiering.remote_storage.object_store import (
    BLOCK_BYTES,
    BytesSource,
    KeyFailure,
    KeyInterval,
    ListedObject,
    ListedUpload,
    ListingProperties,
    ObjectEntry,
    ObjectStat,
    OpenUpload,
    SeenObject,
    checked_key,
    checked_prefix,
    crc32c_of,
    cut,
)
from include.tiering.units import MIB, format_bytes

MIN_FREE_BYTES: Final = 256 * MIB


class FileObjectStore:
    """An `ObjectStore` below `root`.

    If `root` is missing, the store is empty; `check_capacity` and writes without a version create `root`. If `root`
    disappears after this `FileObjectStore` has used it, every call is refused (ForeignStoreError).

    Args:
        staging_prefix: where temporary files are kept, with a slash at its end; empty: next to the objects.
        min_free_bytes: free space that `check_capacity` requires.
        random_bytes: returns the random part of names of temporary files.
    """

    def __init__(
        self,
        root: Path,
        *,
        staging_prefix: str = "",
        min_free_bytes: int = MIN_FREE_BYTES,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._root = root
        self._staging_prefix = staging_prefix
        self._tree = FileTree(root)
        self._min_free_bytes = min_free_bytes
        self._random_bytes = random_bytes

    slow_downs: Final = 0

    def describe(self) -> str:
        """Return a URL without credentials, for messages and logs."""
        return self._root.as_uri()

    def put(
        self,
        key: str,
        body: ByteSource,
        crc32c: int,
        *,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
        running_crc32c: Sequence[int] = (),
    ) -> bool:
        """Create the object; on return it is complete and durable."""
        self._write_as(key, body, crc32c, limiter, on_sent, partial(os.link, follow_symlinks=False))
        return False

    def read_version(self, key: str, max_bytes: int) -> tuple[bytes, str] | None:
        """Read a small object; its version is the SHA-256 of its content."""
        parents, name = _split(key)
        try:
            with translated(self._root, key, "read"), self._tree.file(parents, name) as (fd, _):
                content = read_small_file(fd, key, max_bytes)
        except RemoteResourceNotFoundError:
            return None
        return content, version_of(content)

    def replace(self, key: str, content: bytes, *, version: str | None = None) -> bool:
        """Write as `put` does, but with a rename as step 4 of the table above, which replaces an existing file.

        With a version, the existing file is locked from before the comparison until after the rename: another call with
        a version waits meanwhile, and then compares the new content.
        """
        if version is None:
            self._write_small(key, content)
            return True
        parents, name = _split(key)
        try:
            with translated(self._root, key, "replace"), self._tree.locked_file(parents, name) as fd:
                if version_of(read_small_file(fd, key, MAX_RECORD_BYTES)) != version:
                    return False
                self._write_small(key, content)
        except RemoteResourceNotFoundError:
            return False
        return True

    def replaces_conditionally(self, key: str) -> bool:
        """Return True after a test with a scratch file.

        Raises:
            RemoteStorageError: this file system cannot lock files.
        """
        self._write_small(key, b"can it be locked?\n")
        try:
            return not self.replace(key, b"", version="none")
        finally:
            self.delete([key])

    def _write_small(self, key: str, content: bytes) -> None:
        self._write_as(key, BytesSource(content), crc32c_of(content), UnlimitedBytes(), lambda _: None, os.rename)

    def _write_as(
        self,
        key: str,
        body: ByteSource,
        crc32c: int,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
        give_name: Callable[..., None],
    ) -> None:
        """Run the steps of the table above; `give_name` is step 4."""
        parents, name = _split(key)
        temporary = f"{name}{TEMPORARY_MARK}{self._random_bytes(8).hex()}"
        staging, _ = _split(self._staging_prefix + key)
        with translated(self._root, key, "write"), self._tree.made_directory(staging) as staged:
            final_directory = partial(self._final, parents, staging, staged)
            try:
                written_crc32c = write_new_file(staged, temporary, body, limiter, on_sent)
                if written_crc32c != crc32c:
                    raise RemoteChecksumError(f"{key}: CRC-32C is {written_crc32c:08x}, expected {crc32c:08x}")
                self._tree.require_in_place()
                with final_directory() as directory:
                    give_name(temporary, name, src_dir_fd=staged, dst_dir_fd=directory)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=staged)
            with final_directory() as directory:
                os.fsync(directory)
            if parents != staging:
                os.fsync(staged)

    def _final(self, parents: tuple[str, ...], staging: tuple[str, ...], staged: int) -> AbstractContextManager[int]:
        """Open the directory of the object. If the temporary file is in another one, create the object's if missing."""
        return contextlib.nullcontext(staged) if parents == staging else self._tree.made_directory(parents)

    def stat(self, key: str, *, read_back: bool = True, most_bytes: int | None = None) -> ObjectStat | None:
        """Return size and checksum, which is computed by reading the file; None if there is no such file.

        The checksum is None without `read_back`, and for a file of more than `most_bytes`.
        """
        parents, name = _split(key)
        crc32c = 0
        position = 0
        try:
            with translated(self._root, key, "read"), self._tree.file(parents, name) as (fd, size_bytes):
                if not read_back or (most_bytes is not None and size_bytes > most_bytes):
                    return ObjectStat(size_bytes, None)
                while block := os.pread(fd, BLOCK_BYTES, position):
                    crc32c = extend_crc32c(crc32c, block)
                    position += len(block)
        except RemoteResourceNotFoundError:
            return None
        if position != size_bytes:
            raise RemoteStorageError(f"{key}: only {position} of {size_bytes} bytes could be read back")
        return ObjectStat(size_bytes, crc32c)

    def head(self, key: str) -> SeenObject | None:
        """Return size and time of the last change without reading the object; None if there is no such object."""
        parents, name = _split(key)
        try:
            with translated(self._root, key, "look at"), self._tree.directory(parents) as directory:
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except RemoteResourceNotFoundError:
            return None
        if not stat_bits.S_ISREG(status.st_mode):
            return None
        return SeenObject(status.st_size, status.st_mtime_ns // 1_000_000)

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> Iterator[bytes]:
        """Read bytes `first` to `last` (both inclusive; `last` None: to the end) in blocks."""
        parents, name = _split(key)
        with translated(self._root, key, "read"), self._tree.file(parents, name) as (fd, size_bytes):
            end = size_bytes if last is None else last + 1
            if not 0 <= first <= end <= size_bytes:
                raise RemoteResourceNotFoundError(f"{key}: bytes {first}..{end - 1} of an object of {size_bytes}")
            position = first
            while position < end:
                block = os.pread(fd, limiter.take(min(BLOCK_BYTES, end - position)), position)
                if not block:
                    raise RemoteStorageError(f"{key}: ended at byte {position} of {size_bytes} while it was read")
                yield block
                position += len(block)

    def delete(self, keys: Collection[str]) -> tuple[KeyFailure, ...]:
        """Remove these objects, and return those that failed. Absent objects are no error."""
        failures = []
        for key in keys:
            try:
                self._unlink(key, _split(key)[1])
            except RemoteStorageError as error:
                failures.append(KeyFailure(key, str(error), error.retriable))
        return tuple(failures)

    def delete_versions(self, versions: Collection[tuple[str, str]]) -> tuple[KeyFailure, ...]:
        """Return a failure for each version, given as (key, version id): a directory keeps no versions."""
        return tuple(
            KeyFailure(key, "a directory keeps no versions", retriable=False, version_id=version_id)
            for key, version_id in versions
        )

    def list_objects(self, prefix: str = "") -> Iterator[ObjectEntry]:
        """List every complete object whose key starts with `prefix`, in no particular order."""
        for parent, name, size_bytes in self._files(prefix):
            key = f"{parent}{name}"
            if key.startswith(prefix) and not is_temporary(key, self._staging_prefix):
                yield ObjectEntry(key, size_bytes)

    @property
    def keeps_checksums(self) -> bool:
        """Return False: a file system keeps none."""
        return False

    @property
    def leaves_uploads(self) -> bool:
        """Return False: when `put` returns, the temporary file is gone, durably."""
        return False

    def list_open_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """List every unfinished write under `prefix`, in no particular order."""
        for parent, name, _ in self._files(self._staging_prefix + prefix):
            object_name, mark, _ = name.partition(TEMPORARY_MARK)
            key = f"{parent}{object_name}".removeprefix(self._staging_prefix)
            if mark and key.startswith(prefix):
                yield OpenUpload(key, token=name)

    def abort_upload(self, upload: OpenUpload) -> None:
        """Remove what an unfinished write has stored, so that its writer fails; do nothing if nothing is stored."""
        if TEMPORARY_MARK not in upload.token or "/" in upload.token:
            raise RemoteStorageError(f"{printable(upload.token)!r} is not a temporary file of this store")
        self._unlink(self._staging_prefix + upload.key, upload.token)

    def clock_ms(self, key: str) -> int | None:
        """Return the modification time of a file that is written now: on a network file system, the server's time.

        None if there is no object `key`.
        """
        if self.head(key) is None:
            return None
        staging, name = _split(self._staging_prefix + key)
        temporary = f"{name}{TEMPORARY_MARK}{self._random_bytes(8).hex()}"
        with translated(self._root, key, "write a file for"), self._tree.made_directory(staging) as directory:
            with contextlib.suppress(OSError):
                # A file without a name: nothing of it is left after a crash. Network file systems do not support it.
                return _written_ms(os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory))
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
            try:
                return _written_ms(fd)
            finally:
                os.unlink(temporary, dir_fd=directory)

    def check_capacity(self) -> None:
        """Check that the file system has `min_free_bytes` of free space; a missing root is created first."""
        with translated(self._root, "", "look at"), self._tree.made_directory(()) as directory:
            space = os.fstatvfs(directory)
        free_bytes = space.f_bavail * space.f_frsize
        if free_bytes < self._min_free_bytes:
            raise RemoteStorageFullError(
                f"{self.describe()}: {format_bytes(free_bytes)} free, {format_bytes(self._min_free_bytes)} needed:"
                " free space there or name another store"
            )

    def _unlink(self, key: str, name: str) -> None:
        """Remove the file `name` from the directory of `key`, durably; do nothing if it is absent."""
        parents, _ = _split(key)
        with (
            contextlib.suppress(RemoteResourceNotFoundError),
            translated(self._root, key, "delete"),
            self._tree.directory(parents) as directory,
        ):
            os.unlink(name, dir_fd=directory)
            os.fsync(directory)

    def _files(self, prefix: str) -> Iterator[tuple[str, str, int]]:
        """Yield (directory with its slash, name, size) of regular files, also temporary ones, that `prefix` may match.

        The caller compares each with `prefix`: files that do not match are yielded, too.
        """
        pending = [checked_prefix(prefix).rpartition("/")[0]]
        while pending:
            directory = pending.pop()
            with translated(self._root, directory, "list"):
                entries = self._tree.entries(tuple(directory.split("/")) if directory else ())
            parent = f"{directory}/" if directory else ""
            for name, status in sorted(entries):
                if stat_bits.S_ISREG(status.st_mode):
                    yield parent, name, status.st_size
                elif stat_bits.S_ISDIR(status.st_mode) and f"{parent}{name}".startswith(prefix):
                    pending.append(f"{parent}{name}")


def _written_ms(fd: int) -> int:
    """Write to a new file, and close it; return its modification time in milliseconds."""
    try:
        os.write(fd, b"\n")
        os.fsync(fd)
        return os.fstat(fd).st_mtime_ns // 1_000_000
    finally:
        os.close(fd)


def _split(key: str) -> tuple[tuple[str, ...], str]:
    *parents, name = checked_key(key).split("/")
    return tuple(parents), name


_PAGE_OBJECTS: Final = 1_000


class _Entry(NamedTuple):
    """One name in one directory. `parent` ends in a slash or is empty."""

    parent: str
    name: str
    status: os.stat_result

    @property
    def key(self) -> str:
        return _text(self.parent + self.name)

    @property
    def modified_ms(self) -> int:
        return self.status.st_mtime_ns // 1_000_000


class FileListing:
    """An `ObjectListing` below `root`; `staging_prefix` as in `FileObjectStore`."""

    def __init__(self, root: Path, staging_prefix: str = "") -> None:
        self._root = root
        self._staging_prefix = staging_prefix
        self._tree = FileTree(root)

    def describe(self) -> str:
        """Return a URL of what is listed, without credentials, for messages and logs."""
        return self._root.as_uri()

    def properties(self) -> ListingProperties:
        """Return that this listing is live and shows open uploads, but no old versions."""
        return ListingProperties(shows_versions=False, shows_open_uploads=True)

    def parts(self, wanted: int) -> Sequence[KeyInterval]:
        """Divide the keys into parts. Each key of a live listing, also a new one, belongs to exactly one."""
        return cut(self._directories, wanted)

    def pages(self, part: KeyInterval) -> Iterator[Sequence[ListedObject]]:
        """List the objects of one part, in pages that bound the reader's memory."""
        objects = (
            ListedObject(found.key, found.status.st_size, found.modified_ms)
            for found in self._files(part)
            if part.holds(found.key) and not is_temporary(found.key, self._staging_prefix)
        )
        while page := list(islice(objects, _PAGE_OBJECTS)):
            yield page

    def open_uploads(self) -> Iterator[Sequence[ListedUpload]]:
        """List all temporary files below the root, in pages."""
        uploads = (
            ListedUpload(
                _text(found.parent + found.name.partition(TEMPORARY_MARK)[0]).removeprefix(self._staging_prefix),
                _text(found.name),
                found.modified_ms,
                found.status.st_size,
            )
            for found in self._files(KeyInterval())
            if is_temporary(found.key, self._staging_prefix)
        )
        while page := list(islice(uploads, _PAGE_OBJECTS)):
            yield page

    def _directories(self, below: str) -> Iterator[str]:
        for found in self._entries(below):
            if stat_bits.S_ISDIR(found.status.st_mode):
                yield f"{found.key}/"

    def _files(self, part: KeyInterval) -> Iterator[_Entry]:
        """Yield regular files of all directories that may have a key of the part."""
        pending = [""]
        while pending:
            for found in self._entries(pending.pop()):
                if stat_bits.S_ISREG(found.status.st_mode):
                    yield found
                elif stat_bits.S_ISDIR(found.status.st_mode) and _may_hold(part, f"{found.key}/"):
                    pending.append(f"{found.parent}{found.name}/")

    def _entries(self, directory: str) -> Iterator[_Entry]:
        """List one directory. Raises RemoteStorageError if the root is absent: an empty store has a root."""
        if not directory and not self._root.is_dir():
            raise RemoteStorageError(f"{self.describe()} is not a directory: is its disk mounted?")
        with translated(self._root, directory, "list"):
            entries = self._tree.entries(tuple(directory.split("/")[:-1]))
        for name, status in entries:
            yield _Entry(directory, name, status)


def _may_hold(part: KeyInterval, directory: str) -> bool:
    """Return whether a key below `directory` (which ends in a slash) can be in the part."""
    if part.until is not None and directory > part.until:
        return False
    return part.after is None or directory >= part.after or part.after.startswith(directory)


def _text(name: str) -> str:
    """Return a file name as a key: bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")
