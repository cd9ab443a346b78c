"""All files below one directory, in parts by name. Temporary files are open uploads; directories and what is no regular
file (a link, a socket) are no objects."""

import os
import stat as stat_bits
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from include.tiering.errors import RemoteStorageError
from include.tiering.remote_storage.file_tree import TEMPORARY_MARK, FileTree, is_temporary, translated
from include.tiering.remote_storage.listing import KeyInterval, ListedObject, ListedUpload, ListingFacts, cut

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
        return self._root.as_uri()

    def facts(self) -> ListingFacts:
        return ListingFacts(shows_versions=False, shows_open_uploads=True)

    def parts(self, wanted: int) -> Sequence[KeyInterval]:
        return cut(self._directories, wanted)

    def pages(self, part: KeyInterval) -> Iterator[Sequence[ListedObject]]:
        objects = (
            ListedObject(found.key, found.status.st_size, found.modified_ms)
            for found in self._files(part)
            if part.holds(found.key) and not is_temporary(found.key, self._staging_prefix)
        )
        while page := list(islice(objects, _PAGE_OBJECTS)):
            yield page

    def open_uploads(self) -> Iterator[Sequence[ListedUpload]]:
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
        """Regular files of all directories that may have a key of the part."""
        pending = [""]
        while pending:
            for found in self._entries(pending.pop()):
                if stat_bits.S_ISREG(found.status.st_mode):
                    yield found
                elif stat_bits.S_ISDIR(found.status.st_mode) and _may_hold(part, f"{found.key}/"):
                    pending.append(f"{found.parent}{found.name}/")

    def _entries(self, directory: str) -> Iterator[_Entry]:
        """Raises RemoteStorageError if the root is not there: an empty store has one."""
        if not directory and not self._root.is_dir():
            raise RemoteStorageError(f"{self.describe()} is not a directory: is its disk mounted?")
        with translated(self._root, directory, "list"):
            entries = self._tree.entries(tuple(directory.split("/")[:-1]))
        for name, status in entries:
            yield _Entry(directory, name, status)


def _may_hold(part: KeyInterval, directory: str) -> bool:
    """Whether a key below `directory` (which ends in a slash) can be in the part."""
    if part.until is not None and directory > part.until:
        return False
    return part.after is None or directory >= part.after or part.after.startswith(directory)


def _text(name: str) -> str:
    """A name as a key: bytes that are no UTF-8 are escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")
