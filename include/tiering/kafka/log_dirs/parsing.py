"""Broken bytes become an error that names their file; and the small files that more than one reader needs."""

import contextlib
from collections.abc import Iterator

from include.tiering.errors import CorruptFileError, FormatError, OldMagicError
from include.tiering.formats import meta_properties
from include.tiering.formats.meta_properties import MAX_META_PROPERTIES_BYTES, MetaProperties
from include.tiering.kafka.log_dirs.files import BrokerDirectory, BrokerFile
from include.tiering.kafka.log_dirs.names import META_PROPERTIES


@contextlib.contextmanager
def in_file(path: str, offset_bytes: int = 0) -> Iterator[None]:
    """Turns a FormatError into a CorruptFileError of `path`; positions count from `offset_bytes` of the file.

    An OldMagicError passes: such bytes are not damaged.
    """
    try:
        yield
    except OldMagicError:
        raise
    except FormatError as error:
        raise CorruptFileError(path, error.message, offset_bytes + error.position) from error


def read_meta_properties(root: BrokerDirectory) -> MetaProperties:
    """Whose log directory this is.

    Raises:
        SourceError: the file is missing, unreadable or broken.
    """
    data = root.read(META_PROPERTIES, MAX_META_PROPERTIES_BYTES)
    with in_file(root.path_of(META_PROPERTIES)):
        return meta_properties.parse(data)


def last_index_entry(file: BrokerFile, entry_bytes: int) -> bytes | None:
    """The last entry of an index that is not all zero; None if there is none.

    An active segment's index is preallocated: ten megabytes, nearly all zero. Entries never fall and zeros come only at
    the end, so the last entry is found by halving. What a damaged file answers is for the caller to verify.
    """
    zeros = bytes(entry_bytes)
    low, high = 0, file.size_bytes // entry_bytes
    newest = file.read_at((high - 1) * entry_bytes, entry_bytes) if high else zeros
    if newest != zeros:
        return newest
    found = None
    while low < high:
        middle = (low + high) // 2
        entry = file.read_at(middle * entry_bytes, entry_bytes)
        if entry == zeros:
            high = middle
        else:
            low, found = middle + 1, entry
    return found


class Tail:
    """A `ByteSource` that begins at `start` of another."""

    def __init__(self, file: BrokerFile, start: int) -> None:
        self._file = file
        self._start = start

    @property
    def size_bytes(self) -> int:
        return max(0, self._file.size_bytes - self._start)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file.read_into(self._start + position, buffer)
