"""Reads objects of one segment: the small ones once and whole, the log in ranges; every byte is charged."""

import threading
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final

from include.tiering.errors import (
    NoSuchIndexError,
    RemoteChecksumError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import IndexType, RemoteLogSegmentMetadata
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import KeptObject, ObjectKind, TransformedSizes
from include.tiering.remote_storage.layouts.contract import SegmentLayout, StoredRange
from include.tiering.remote_storage.object_cache import ObjectCache
from include.tiering.remote_storage.object_store import ObjectStore
from include.tiering.remote_storage.parallel_reads import RANGE_BYTES, divided, read_ranges
from include.tiering.units import MIB

MAX_IN_MEMORY_BYTES: Final = 64 * MIB


class StoredSegmentReader:
    """A `SegmentReader` over a store and a layout.

    If a read of an object other than the log failed with an error that is not retriable, later calls raise the same
    error and do not read the object again.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: SegmentLayout,
        metadata: RemoteLogSegmentMetadata,
        limiter: ByteLimiter,
        ranges: int,
        cache: ObjectCache | None = None,
    ) -> None:
        self.bytes_read = 0
        self._ranges = ranges
        self._cache = cache
        self._store = store
        self._layout = layout
        self._metadata = metadata
        self._limiter = limiter
        self._objects: dict[str, bytes | RemoteStorageError] = {}

    def objects(self) -> tuple[KeptObject, ...]:
        found = ((kind, key, self._store.stat(key, read_back=False)) for kind, key in self._layout.keys(self._metadata))
        return tuple(KeptObject(kind, key, stat.size_bytes, stat.crc32c) for kind, key, stat in found if stat)

    def read_crc32c(self, key: str) -> int | None:
        content = self._objects.get(key)
        return extend_crc32c(0, content) if isinstance(content, bytes) else None

    def index(self, index_type: IndexType) -> bytes:
        index = self._layout.index(self._metadata, index_type, self._read_part)
        if index is None:
            raise no_such_index(self._metadata, index_type)
        return index

    def manifest(self) -> bytes | None:
        key = self._layout.manifest_key(self._metadata)
        return None if key is None else self._read_part(key, 0, None)

    def log(self, start_position: int, end_position: int) -> Iterator[bytes]:
        check_positions(self._metadata, start_position, end_position)
        found = self.log_range(start_position, end_position)
        yield from found.restored(self._counted(found))

    def log_range(self, start_position: int, end_position: int) -> StoredRange:
        """Return where a range of the log is stored; only the manifest is read for it, if there is one."""
        return self._layout.log(self._metadata, start_position, end_position, self._read_part)

    def transformed_sizes(self) -> TransformedSizes | None:
        return self._layout.transformed_sizes(self._metadata, self._read_part)

    def whole(self, kind: ObjectKind) -> bytes:
        return self._layout.whole(self._metadata, kind, self._read_part)

    def _counted(self, found: StoredRange) -> Iterator[bytes]:
        read = (
            self._store.read
            if found.last - found.first < RANGE_BYTES
            else partial(read_ranges, self._store.read, at_once=self._ranges)
        )
        for block in read(found.key, found.first, found.last, limiter=self._limiter):
            self.bytes_read += len(block)
            yield block

    def _read_part(self, key: str, first: int, last: int | None) -> bytes:
        whole = self._whole(key)
        end = len(whole) if last is None else last + 1
        if not first <= end <= len(whole):
            raise RemoteResourceNotFoundError(f"{key}: bytes {first}..{end - 1} of an object of {len(whole)}")
        return whole[first:end]

    def _whole(self, key: str) -> bytes:
        if key not in self._objects:
            try:
                fetch = partial(self._read_whole, key)
                self._objects[key] = fetch() if self._cache is None else self._cache.read(key, 0, None, fetch)
            except RemoteStorageError as error:
                if error.retriable:
                    raise
                self._objects[key] = error
        if isinstance(found := self._objects[key], RemoteStorageError):
            raise found
        return found

    def _read_whole(self, key: str) -> bytes:
        content = read_small(self._store, key, limiter=self._limiter)
        self.bytes_read += len(content)
        return content


class StoredLogParts:
    """`LogParts` over a store and a layout."""

    def __init__(
        self,
        store: ObjectStore,
        layout: SegmentLayout,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int,
        cache: ObjectCache | None,
    ) -> None:
        check_positions(metadata, start_position, end_position)
        self._count = -(-(end_position + 1 - start_position) // RANGE_BYTES)
        self._positions = start_position, end_position
        self._store = store
        self._opened = partial(StoredSegmentReader, store, layout, metadata, ranges=1, cache=cache)
        self._opening = threading.Lock()
        self._range: StoredRange | None = None

    def __len__(self) -> int:
        return self._count

    def read(self, number: int, *, limiter: ByteLimiter) -> Iterator[bytes]:
        found = self._found(limiter)
        # Of a log that was compressed, fewer parts may be enough.
        parts = divided(found.first, found.last, min(self._count, -(-(found.last + 1 - found.first) // RANGE_BYTES)))
        if number < len(parts):
            yield from self._store.read(found.key, *parts[number], limiter=limiter)

    def restored(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        # How the log is stored is known as soon as the first block is there.
        first = next(blocks)
        restored = iter if self._range is None else self._range.restored
        yield from restored(chain((first,), blocks))

    def _found(self, limiter: ByteLimiter) -> StoredRange:
        with self._opening:
            if self._range is None:
                self._range = self._opened(limiter=limiter).log_range(*self._positions)
            return self._range


def read_small(store: ObjectStore, key: str, first: int = 0, last: int | None = None, *, limiter: ByteLimiter) -> bytes:
    """Read a small object, or a small part of an object, into memory. The size is untrusted, so it is limited.

    Raises:
        RemoteChecksumError: more than `MAX_IN_MEMORY_BYTES`.
    """
    blocks = []
    size_bytes = 0
    for block in store.read(key, first, last, limiter=limiter):
        size_bytes += len(block)
        if size_bytes > MAX_IN_MEMORY_BYTES:
            raise RemoteChecksumError(f"{key}: more than {MAX_IN_MEMORY_BYTES} bytes, unlike any index or manifest")
        blocks.append(block)
    return b"".join(blocks)


def check_positions(metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int) -> None:
    """Raise ValueError unless both positions (inclusive) are inside the segment and in this order."""
    if not 0 <= start_position <= end_position < metadata.segment_size_bytes:
        inside = f"0..{metadata.segment_size_bytes - 1}"
        raise ValueError(f"positions {start_position}..{end_position} are not inside {inside}")


def no_such_index(metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> NoSuchIndexError:
    """Return the error for an index that the segment does not have."""
    return NoSuchIndexError(f"{metadata.remote_log_segment_id} has no {index_type.value} index")
